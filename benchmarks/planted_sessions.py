"""Long scripted sessions with planted facts, for `remember.py`.

A session is a list of turns: a person's message, the steps that the model takes, and its answer. A fact is a value that
occurs once: in a person's message (a *rule*), in the model's text (a *finding*), or in the result of a tool (a
*result*). Its `query` are words of the sentence around it. The thing that a fact is about is also mentioned elsewhere,
without the value. Everything follows from the kind, the number of steps and the seed.

One more kind of session is one more entry of `KINDS`.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

FactKind: TypeAlias = Literal["rule", "finding", "result"]
FACT_KINDS: tuple[FactKind, ...] = ("rule", "finding", "result")
STEPS_PER_FACT = 12
"""One fact of each kind is planted in so many steps."""
PARALLEL = 7
"""Every so many steps, the model makes two calls at once."""


class Fact(NamedTuple):
    kind: FactKind
    value: str
    query: str
    step: int
    """The step from which on requests can contain it: the first step of a turn for the rules in its prompt."""


class Call(NamedTuple):
    tool: str
    argument: str


class Step(NamedTuple):
    text: str
    calls: tuple[Call, ...]


class Turn(NamedTuple):
    prompt: str
    steps: tuple[Step, ...]
    answer: str


class Session(NamedTuple):
    kind: str
    instructions: str
    tools: tuple[tuple[str, str], ...]
    """Name and description of each tool. All of them have one argument, `name`."""
    turns: tuple[Turn, ...]
    results: dict[str, str]
    """The result of each call, by its argument."""
    facts: tuple[Fact, ...]


# ── languages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Language(NamedTuple):
    """The sentences of a language. `{t}` is the thing that a sentence is about, `{v}` a value."""

    space: str
    stop: str
    qualifiers: str
    values: dict[str, Callable[[random.Random], str]]
    sentences: dict[FactKind, tuple[tuple[str, str], ...]]
    """The type of the value and the sentence, for each kind of fact."""
    mentions: tuple[str, ...]
    words: str
    task: str
    answer: str
    little: tuple[str, ...]
    """Sentences of the model without a fact."""


def _words(text: str) -> list[str]:
    return text.split()


def _hex(chance: random.Random, length: int) -> str:
    return "".join(chance.choices("0123456789abcdef", k=length))


def _code(chance: random.Random) -> str:
    return "".join(chance.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=3)) + f"-{chance.randint(1000, 99999)}"


FIRST = _words("Ada Bruno Chiara Dmitri Elif Farid Greta Hanno Ines Jorge Katja Liam Mirela Nadim Odile Pavel")
LAST = _words("Marlow Quist Ferrand Oduya Tanaka Brandt Salgado Ivers Novak Lindqvist Okafor Pires Renner Szabo")
SHADES = _words("amber cobalt crimson ivory jade lilac ochre pearl russet saffron teal umber violet walnut")
ANIMALS = _words("badger condor dolphin falcon gecko heron ibex jackal kestrel lynx marten newt otter puffin")


VALUES: dict[str, Callable[[random.Random], str]] = {
    "port": lambda chance: str(chance.randint(10_240, 65_000)),
    "path": lambda chance: f"/srv/{chance.choice(ANIMALS)}/{_hex(chance, 6)}/{chance.choice(SHADES)}.yaml",
    "id": _code,
    "hash": lambda chance: _hex(chance, 12),
    "amount": lambda chance: f"{chance.randint(101, 9_899) / 10:.1f} {chance.choice(('ms', 'GB', 'EUR', 'kWh', '%'))}",
    "version": lambda chance: f"{chance.randint(2, 19)}.{chance.randint(10, 99)}.{chance.randint(100, 999)}",
    "error": lambda chance: f"E{chance.randint(10_000, 99_999)}: lost {chance.choice(ANIMALS)} {_hex(chance, 4)}",
    "url": lambda chance: f"https://{chance.choice(ANIMALS)}.example/{_hex(chance, 8)}",
    "person": lambda chance: f"{chance.choice(FIRST)} {chance.choice(LAST)}-{chance.choice(LAST)}",
    "decision": lambda chance: f"plan {chance.choice(SHADES)} {chance.choice(ANIMALS)} {chance.choice(SHADES)}",
}
ENGLISH = Language(
    space=" ",
    stop=".",
    qualifiers="north south billing archive mirror shadow staging primary backup legacy nightly regional partner "
    "internal public mobile desktop tenant audit ledger invoice shipping refund catalog search media thumbnail "
    "session payment identity consent export import replay quota metrics trace alert forecast survey",
    values=VALUES,
    sentences={
        "rule": (
            ("port", "Always use port {v} for the {t}, never another one"),
            ("path", "Everything that belongs to the {t} goes into {v}"),
            ("amount", "The limit of the {t} is {v}, and nobody may exceed it"),
            ("decision", "For the {t} we decided to follow {v}"),
            ("person", "Ask {v} before you change anything about the {t}"),
            ("version", "The {t} must stay on version {v} until spring"),
            ("url", "The only source that counts for the {t} is {v}"),
        ),
        "finding": (
            ("error", "The {t} stops with the message {v}"),
            ("path", "The setting that breaks the {t} is in {v}"),
            ("hash", "The {t} has been wrong since commit {v}"),
            ("amount", "I measured {v} for the {t} after the change"),
            ("id", "The record that blocks the {t} is {v}"),
            ("decision", "I will go on with the {t} as in {v}"),
        ),
        "result": (
            ("id", "{t}: reference {v}, state open"),
            ("port", "{t} is listening on port {v}"),
            ("error", "{t} reported {v}"),
            ("amount", "{t} total {v}"),
            ("hash", "{t} checksum {v}"),
            ("person", "{t} is owned by {v}"),
            ("url", "{t} is documented at {v}"),
        ),
    },
    mentions=(
        "The {t} was looked at again without news",
        "Nothing new about the {t} today",
        "The {t} is on the list for later",
    ),
    words="return value index parser token branch message append client server retry field option window budget cache "
    "prefix session stream reader writer error result record number offset length stored loaded checked failed passed "
    "module again before after while because often never slowly together without inside around between",
    task="Task {n}: please go on with the {t}. {more}",
    answer="That part is finished. {more}",
    little=(
        "Next I look at what comes after this",
        "This did not show the cause, so I check the neighbours",
        "That agrees with what I expected, and I go on",
        "The same again for the remaining ones",
    ),
)
SURNAMES, NAMES = "赵钱孙李周吴郑王冯陈褚卫", "慕容修远清扬岚峥琪澜昱珩"
COLOURS, BEASTS, STEMS = "青赤黄白黑紫", "松鹤鲸雁鹿狐", "甲乙丙丁戊己"
UNITS = ("毫秒", "万元", "公斤", "度")
CHINESE_VALUES: dict[str, Callable[[random.Random], str]] = {
    "person": lambda chance: "".join([chance.choice(SURNAMES), chance.choice(NAMES), chance.choice(NAMES)]),
    "decision": lambda chance: "".join([chance.choice(COLOURS), chance.choice(BEASTS), chance.choice(STEMS), "号方案"]),
    "amount": lambda chance: f"{chance.randint(101, 9_899) / 10:.1f}{chance.choice(UNITS)}",
}
CHINESE = Language(
    space="",
    stop="。",
    qualifiers="北区 南区 计费 归档 镜像 影子 预发 主用 备用 旧版 夜间 区域 伙伴 内部 公开 移动 桌面 租户 "
    "审计 账本 发票 物流 退款 目录 搜索 媒体 会话 支付 身份 授权 导出 导入 回放 配额 指标 追踪 告警 预测 问卷 合同",
    values={**VALUES, **CHINESE_VALUES},
    sentences={
        "rule": (
            ("port", "{t}一律使用端口{v},不得改用其他端口"),
            ("path", "凡属于{t}的文件都放在{v}"),
            ("amount", "{t}的上限是{v},任何人不得超过"),
            ("decision", "关于{t},我们决定采用{v}"),
            ("person", "改动{t}之前必须先问{v}"),
        ),
        "finding": (
            ("error", "{t}停止时的报错是{v}"),
            ("path", "导致{t}出错的配置在{v}"),
            ("hash", "{t}从提交{v}开始就不对了"),
            ("amount", "改动之后我测得{t}为{v}"),
        ),
        "result": (
            ("id", "{t}:编号{v},状态未结"),
            ("port", "{t}正在监听端口{v}"),
            ("error", "{t}报告{v}"),
            ("amount", "{t}合计{v}"),
            ("person", "{t}的负责人是{v}"),
        ),
    },
    mentions=("又看了一遍{t},没有新的情况", "今天{t}没有变化", "{t}留到以后再处理"),
    words="返回 数值 索引 解析 分支 消息 追加 客户 服务 重试 字段 选项 窗口 预算 缓存 前缀 会话 数据 "
    "读取 写入 错误 结果 记录 编号 偏移 长度 保存 加载 检查 失败 通过 模块 "
    "然后 之前 之后 因为 经常 从不 慢慢 一起 没有 里面 周围 之间",
    task="任务{n}:请继续处理{t}。{more}",
    answer="这一部分做完了。{more}",
    little=("接下来看后面的部分", "这里没有看出原因,再检查相邻的地方", "和预想的一致,继续", "其余的也照样做一遍"),
)


# ── kinds of sessions ─────────────────────────────────────────────────────────────────────────────────────────────────


class Kind(NamedTuple):
    language: Language
    instructions: str
    tools: tuple[tuple[str, str, str], ...]
    """Name, description, and the argument of a call with `{n}` for its number."""
    things: str
    turn: int
    """Steps of a turn."""
    sizes: tuple[int, ...]
    """Characters of results."""
    people: tuple[str, ...] = ()
    chatter: int = 2
    """Sentences of a prompt without a rule."""


KINDS = {
    "coding": Kind(
        ENGLISH,
        "You maintain a large program. Read what matters, change one thing at a time, and run the tests.",
        (
            ("read_file", "Return the content of a file.", "src/module_{n}.py"),
            ("search_code", "Return the lines that contain a text.", "def parse_{n}"),
            ("run_tests", "Run the tests of a module.", "tests/test_module_{n}.py"),
        ),
        "parser scheduler encoder cache router validator exporter worker migration fixture adapter tokenizer",
        12,
        (400, 1_500, 4_000, 200, 8_000, 2_000, 800, 2_500, 1_200, 6_000),
    ),
    "operations": Kind(
        ENGLISH,
        "You operate a platform. Find the cause of an incident before you change anything, and write down what you do.",
        (
            ("query_logs", "Return lines of the log.", "service-{n} last 15m"),
            ("read_metrics", "Return values of a metric.", "latency_{n}"),
            ("run_command", "Run a command on a machine.", "systemctl status unit-{n}"),
        ),
        "gateway queue broker replica balancer volume cluster certificate resolver pipeline scraper firewall",
        100,
        (600, 3_000, 1_200, 5_000, 900, 2_400),
        chatter=6,
    ),
    "research": Kind(
        ENGLISH,
        "You read long documents and collect what is known about a question. Name the source of every claim.",
        (
            ("open_document", "Return a document.", "report {n}"),
            ("search_library", "Return passages about a question.", "question {n}"),
        ),
        "trial survey cohort reactor estuary glacier census archive dialect manuscript telescope harvest",
        20,
        (6_000, 14_000, 3_000, 24_000, 9_000),
        chatter=4,
    ),
    "chat": Kind(
        ENGLISH,
        "You assist a team in its channel. Several people write to you.",
        (
            ("look_up", "Return what is known about an order.", "order {n}"),
            ("read_calendar", "Return the entries of a day.", "day {n}"),
        ),
        "offsite budget contract launch hiring office training newsletter workshop audit travel insurance",
        1,
        (300, 900, 200, 1_500),
        people=("Ann", "Bob", "Chen", "Dana", "Emil"),
    ),
    "chinese": Kind(
        CHINESE,
        "你维护一个业务平台。每次只做一件事,先查清原因,再动手修改,并写明依据。",
        (
            ("read_file", "返回文件内容。", "配置/模块{n}.yaml"),
            ("query_logs", "返回日志。", "服务{n}最近一小时"),
        ),
        "网关 队列 副本 集群 证书 流水线 报表 仓库 接口 调度器 网页 终端",
        8,
        (300, 1_200, 2_500, 600, 4_000),
    ),
}


# ── building ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_session(name: str, steps: int, seed: int = 0) -> Session:
    kind, chance = KINDS[name], random.Random(f"{name} {steps} {seed}")
    writer = _Writer(kind, chance)
    planted = _plan(writer, chance, steps)
    turns: list[Turn] = []
    results: dict[str, str] = {}
    for first in range(0, steps, kind.turn):
        numbers = range(first, min(first + kind.turn, steps))
        done: list[Step] = []
        for number in numbers:
            calls = [_call(kind, number)]
            if number % PARALLEL == PARALLEL - 1:
                calls.append(_call(kind, number + steps))
            for call, at in zip(calls, (number, None), strict=False):
                size = kind.sizes[chance.randrange(len(kind.sizes))]
                results[call.argument] = writer.result(size, planted["result"].get(at, ()) if at is not None else ())
            done.append(Step(writer.thought(planted["finding"].get(number, ())), tuple(calls)))
        rules = [text for number in numbers for text in planted["rule"].get(number, ())]
        turns.append(Turn(writer.prompt(len(turns) + 1, rules), tuple(done), writer.answer()))
    tools = tuple((tool, description) for tool, description, _ in kind.tools)
    return Session(name, kind.instructions, tools, tuple(turns), results, tuple(writer.facts))


def _plan(writer: "_Writer", chance: random.Random, steps: int) -> dict[FactKind, dict[int, list[str]]]:
    """Return the sentences with facts, by kind and step."""
    planned: dict[FactKind, dict[int, list[str]]] = {kind: {} for kind in FACT_KINDS}
    for first in range(0, steps - STEPS_PER_FACT + 1, STEPS_PER_FACT):
        for kind in FACT_KINDS:
            number = first + chance.randrange(STEPS_PER_FACT)
            planned[kind].setdefault(number, []).append(writer.fact(kind, number))
    return planned


def _call(kind: Kind, number: int) -> Call:
    tool, _, argument = kind.tools[number % len(kind.tools)]
    return Call(tool, argument.format(n=number + 1))


class _Writer:
    """Writes the texts of a session."""

    def __init__(self, kind: Kind, chance: random.Random) -> None:
        self.kind, self.chance, self.language = kind, chance, kind.language
        self.facts: list[Fact] = []
        self._words = self.language.words.split()
        topics = [
            f"{one}{self.language.space}{other}"
            for one in self.language.qualifiers.split()
            for other in kind.things.split()
        ]
        chance.shuffle(topics)
        self._topics = iter(topics)
        self._known: list[str] = []
        self._used: set[str] = set()

    def fact(self, kind: FactKind, step: int) -> str:
        """Return a sentence with a new value, about a thing of its own."""
        thing, (type, sentence) = next(self._topics), self.chance.choice(self.language.sentences[kind])
        value = self._value(type)
        self._known.append(thing)
        at = step - step % self.kind.turn if kind == "rule" else step
        query = " ".join(sentence.format(t=thing, v=" ").replace(",", " ").split())
        self.facts.append(Fact(kind, value, query, at))
        return sentence.format(t=thing, v=value) + self.language.stop

    def _value(self, type: str) -> str:
        """Return a value that is not in the session, and not a part of another value."""
        while True:
            value = self.language.values[type](self.chance)
            if not any(value in other or other in value for other in self._used):
                self._used.add(value)
                return value

    def prompt(self, number: int, rules: Sequence[str]) -> str:
        thing = self.chance.choice(self._known) if self._known else next(self._topics)
        sentences = [self._plain(12) for _ in range(self.kind.chatter)]
        for rule in rules:
            sentences.insert(self.chance.randint(0, len(sentences)), rule)
        text = self.language.task.format(n=number, t=thing, more=self.language.space.join(sentences))
        people = self.kind.people
        return f"{people[self.chance.randrange(len(people))]}: {text}" if people else text

    def thought(self, findings: Sequence[str]) -> str:
        sentences = [self.chance.choice(self.language.little) + self.language.stop, *findings]
        if self.chance.random() < 0.2:
            sentences.append(self._mention())
        if self.chance.random() < 0.1:
            sentences.append(self._noise())
        return self.language.space.join(sentences)

    def answer(self) -> str:
        return self.language.answer.format(more=self._plain(20))

    def result(self, size: int, facts: Sequence[str]) -> str:
        lines: list[str] = []
        length = 0
        while length < size:
            lines.append(self._plain(self.chance.randint(6, 16)))
            length += len(lines[-1]) + 1
        if self.chance.random() < 0.3:
            lines.insert(self.chance.randint(0, len(lines)), self._noise())
        if self.chance.random() < 0.3:
            lines.insert(self.chance.randint(0, len(lines)), self._mention())
        for fact in facts:
            lines.insert(self.chance.randint(0, len(lines)), fact)
        return "\n".join(lines)

    def _mention(self) -> str:
        thing = self.chance.choice(self._known) if self._known else next(self._topics)
        return self.chance.choice(self.language.mentions).format(t=thing) + self.language.stop

    def _noise(self) -> str:
        """Return a sentence with a value that is no fact."""
        value = self._value(self.chance.choice([*self.language.values]))
        return self._plain(3)[: -len(self.language.stop)] + f" {value}{self.language.stop}"

    def _plain(self, count: int) -> str:
        return self.language.space.join(self.chance.choices(self._words, k=count)) + self.language.stop


def session_texts(session: Session) -> Iterator[str]:
    """Return every text of a session as it stands in a request before anything was shortened."""
    for turn in session.turns:
        yield turn.prompt
        yield turn.answer
        yield from (step.text for step in turn.steps)
    yield from session.results.values()
