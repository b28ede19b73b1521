"""The language of the cases in tests/data/traces: what a simulated client sends, changes and waits for, step by step.

A line has steps, with `;` between them, for the agent `main` or, after `name:`, for another one. `4 times:` and
`each a b:` repeat the rest of their line; `{count}` and `{each}` tell the rounds apart. `$name` is a value of the file,
for the wire format of the case if it has one for each.

| step | effect |
|---|---|
| `send system_changed call size=200` | sends a request with this label (`hit`: none); options: see `Agent.send` |
| `loop 3`, `talk 3`, `work 3` | sends requests: with calls only, with questions only, as an agent with tools does |
| `ask "text" 3x"text" size=900` | appends a question; without text, makes one |
| `turn`, `answer` | appends a question, or gets an answer, unless the last message is one |
| `messages [:2] user "text" [4:]` | the new list of messages: slices are of the old one, `asked[:1]` of its questions |
| `system`, `tools [1:] name:700`, `blocks -1 [:] image` | the same for system prompts, tools, blocks of a message |
| `set result[:3] "text"`, `replace system[0] "old" "new"` | other texts, also of `tool[1]` and `message[0][1]` |
| `model`, `marks`, `settings`, `tail`, `headers`, `spelling` | fields of the agent |
| `new helper system=main tools=4x600` | another agent |
| `idle 90`, `idle 5m`, `start`, `at=40`, `until 9000` | time: a pause; requests beside others, in ms after `start` |
| `place here`, `let name "text"`, `save messages one` | names for later steps |
| `do name` | a function of `special_steps.py` |

In texts, `{prose 300}`, `{question}` and others of `Script.fill` are made by the writer of the session.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from shlex import shlex
from typing import Any, cast

from tests.analysis.traces.simulated_client import UNSET, Agent, Session
from tests.analysis.traces.trace import CAUSES
from tests.analysis.traces.wire_formats import Block, Message, texts

FIELD = re.compile(r"\{([a-z]+)(?: ([^{}]*))?\}")
PICK = re.compile(r"(asked)?\[([a-z0-9:+-]*)\]")
TARGET = re.compile(r"([a-z]+)\[([a-z0-9:+-]*)\](?:\[(-?[0-9]+)\])?")
REPEATED = re.compile(r"([0-9]+)x(.*)", re.DOTALL)
SECONDS = {"m": 60, "h": 3_600}
ROLES = ("user", "assistant", "system")
PLACES = ("tools", "system", "previous", "tail")
Special = Callable[["Script"], None]


def split(line: str) -> list[str]:
    words = shlex(line, posix=True, punctuation_chars=";")
    words.whitespace_split, words.commenters = True, ""
    return list(words)


def copied(messages: Sequence[Message]) -> list[Message]:
    """Return copies, so that edits of one conversation leave others as they are."""
    return [Message(each.role, list(each.blocks)) for each in messages]


def blocks_of(agent: Agent, kind: str) -> list[Block]:
    return [block for message in agent.messages for block in message.blocks if block.kind == kind]


class Steps:
    """Runs lines of steps: repeats them, and gives each to `run_step`."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.count = 0

    def run(self, steps: str) -> None:
        for line in steps.splitlines():
            self.run_line(split(line), "main")

    def run_line(self, words: list[str], name: str) -> None:
        while words:
            if words[1:2] == ["times:"]:
                for self.count in range(int(words[0])):
                    self.run_line(words[2:], name)
                return
            if words[0] == "each":
                last = next(at for at, word in enumerate(words) if word.endswith(":"))
                for self.count, each in enumerate([*words[1:last], words[last][:-1]]):
                    self.names["each"] = each
                    self.run_line(words[last + 1 :], name)
                return
            if words[0].endswith(":"):
                name, *words = words[0][:-1], *words[1:]
            else:
                end = words.index(";") if ";" in words else len(words)
                self.run_step(words[0], words[1:end], name)
                words = words[end + 1 :]

    def run_step(self, verb: str, words: list[str], name: str) -> None:
        """Run one step. `name` is the agent that it is for."""
        raise NotImplementedError


class Script(Steps):
    """Runs the steps of one case. `values` are those of its file for its wire format."""

    def __init__(
        self, session: Session, values: dict[str, Any], special: dict[str, Special], main: dict[str, Any]
    ) -> None:
        super().__init__()
        self.session, self.values, self.special, self.fields = session, values, special, main
        self.agents: dict[str, Agent] = {}
        self.start = self.shared = 0

    @property
    def main(self) -> Agent:
        if "main" not in self.agents:
            self.add_agent("main", self.fields)
        return self.agents["main"]

    def run_step(self, verb: str, words: list[str], name: str) -> None:
        if verb == "do":
            self.special[words[0]](self)
        else:
            agent = self.main if name == "main" else self.agents[name]
            getattr(self, f"do_{verb}")(agent, *[self.value(word) for word in words])

    # Values

    def value(self, word: str) -> Any:
        """Return the value that `$name` stands for, or the word itself. It can stand after `option=`."""
        start, dollar, name = word.partition("$")
        if not dollar or name not in self.values or (start and not start.endswith("=")):
            return word
        return f"{start}{self.values[name]}" if start else self.values[name]

    def fill(self, text: str, old: str = "") -> str:
        """Return a text with its fields filled, from left to right."""
        session, writer = self.session, self.session.writer

        def field(found: re.Match[str]) -> str:
            name, size = found[1], found[2] or ""
            if name in self.names:
                return str(self.names[name])
            if name in self.values:
                return str(self.values[name])
            make: dict[str, Callable[[], object]] = {
                "prose": lambda: writer.prose(int(size)),
                "question": lambda: writer.question()[: int(size or 10_000)],
                "output": lambda: writer.output(int(size)),
                "identifier": lambda: writer.identifier("", int(size)),
                "file": lambda: writer.subject.files[int(size) if size else self.count % 4],
                "hex": lambda: f"{session.rng.randrange(16 ** int(size)):0{size}x}",
                "clock": lambda: datetime.fromtimestamp(session.now / 1000, UTC).strftime(size or "%Y-%m-%d %H:%M:%S"),
                "now": lambda: session.now,
                "count": lambda: self.count + int(size or 0),
                "image": lambda: writer.image(int(size)),
                "after": lambda: old[int(size) :],
                "model": lambda: self.main.model,
                "head": lambda: old.rpartition("\n")[0],
                "rest": lambda: old.partition("\n")[2],
                "old": lambda: old[: int(size)] if size else old,
            }
            return str(make[name]())

        return FIELD.sub(field, text.replace("\\n", "\n").replace("\\t", "\t"))

    def options(self, words: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
        """Return the label and the options of a request."""
        cause: str | None = UNSET
        made: dict[str, Any] = {}
        for word in words:
            name, is_option, value = self.fill(word).partition("=")
            if not is_option:
                if word in CAUSES or word == UNSET:
                    cause = word
                elif word == "hit":
                    cause = None
                elif word == "aside":
                    made["keep"] = False
                else:
                    assert word == "call", word
                    made["reply"] = word
            elif name == "at":
                made["at"] = self.start + int(value) * (self.count + 1 if value.startswith("+") else 1)
            elif name == "potential":
                made["potential"] = self.shared
            elif name in ("also", "accept"):
                made[name] = [None if each == "hit" else each for each in value.split(",")]
            else:
                made[name] = int(value) if value.isdecimal() else value
        return cause, made

    def index(self, agent: Agent, text: str) -> int | None:
        name, _, more = text.partition("+")
        if name == "asked":
            name = str(max(at for at, each in enumerate(agent.messages) if each in self.asked(agent)))
        return int(self.names.get(name, name or 0)) + int(more or 0) if text else None

    def slice(self, agent: Agent, text: str) -> slice:
        """Return the slice that `2`, `1:`, `:-1` or `here:there+2` stands for."""
        parts = [self.index(agent, part) for part in text.split(":")]
        if len(parts) == 1 and parts[0] is not None:
            return slice(parts[0], parts[0] + 1 or None)
        return slice(*parts)

    @staticmethod
    def asked(agent: Agent) -> list[Message]:
        return [each for each in agent.messages if each.role == "user" and each.blocks[0].kind == "text"]

    # Requests

    def do_send(self, agent: Agent, *words: str) -> None:
        cause, options = self.options(words)
        shares = options.pop("shares", None)
        exchange = agent.send(cause, **options)
        if shares is not None:
            self.shared = exchange.total - shares

    def do_loop(self, agent: Agent, count: str, *words: str) -> None:
        for _ in range(int(count)):
            self.do_turn(agent)
            self.do_send(agent, "call", *words)

    def do_talk(self, agent: Agent, count: str, *words: str) -> None:
        cause, options = self.options(words)
        size = options.pop("size", 1_800)
        for _ in range(int(count)):
            agent.ask(size=size).send(cause, size=600, **options)

    def do_work(self, agent: Agent, count: str, *words: str) -> None:
        cause, options = self.options(words)
        agent.work(int(count), cause, **options)

    # Time

    def do_idle(self, _: Agent, time: str | int) -> None:
        text = self.fill(str(time))
        unit = SECONDS.get(text[-1:], 0)
        self.session.idle(float(text[:-1]) * unit if unit else float(text))

    def do_start(self, _: Agent) -> None:
        self.start = self.session.now

    def do_until(self, _: Agent, milliseconds: str) -> None:
        self.session.now = self.start + int(milliseconds)

    def do_slow(self, _: Agent, seconds: str) -> None:
        """Let the answer of the last request take some seconds more."""
        last = self.session.exchanges[-1]
        self.session.exchanges[-1] = last._replace(ended=last.ended + int(seconds) * 1_000)
        self.session.idle(int(seconds))

    def do_forget(self, _: Agent) -> None:
        self.session.cache.clear()

    # Content

    def do_ask(self, agent: Agent, *words: str) -> None:
        sizes = [int(word[5:]) for word in words if word.startswith("size=")]
        said = [text for word in words if not word.startswith("size=") for text in self.repeated(word)]
        agent.ask(*said, size=sizes[0] if sizes else 0)

    def repeated(self, word: str) -> list[str]:
        if not (found := REPEATED.fullmatch(word)):
            return [self.fill(word)]
        outer, made = self.count, list[str]()
        for self.count in range(int(found[1])):
            made.append(self.fill(found[2]))
        self.count = outer
        return made

    def do_turn(self, agent: Agent, *words: str) -> None:
        if not agent.messages or agent.messages[-1].role == "assistant":
            self.do_ask(agent, *words)

    def do_answer(self, agent: Agent, *words: str) -> None:
        """Send a request, unless the last message is an answer."""
        if agent.messages[-1].role == "user":
            self.do_send(agent, *words)

    def do_messages(self, agent: Agent, *words: str) -> None:
        made: list[Message] = []
        for word in words:
            if pick := PICK.fullmatch(word):
                made += (self.asked(agent) if pick[1] else agent.messages)[self.slice(agent, pick[2])]
            elif word in ROLES:
                made.append(Message(word, []))
            else:
                made[-1].blocks += texts(*self.repeated(word))
        agent.messages = made

    def do_blocks(self, agent: Agent, at: str, *words: str) -> None:
        message, made = agent.messages[int(at)], list[Block]()
        for word in words:
            if pick := PICK.fullmatch(word):
                made += message.blocks[self.slice(agent, pick[2])]
            elif word == "image":
                made.append(Block("image", self.session.writer.image()))
            else:
                made += texts(self.fill(word))
        message.blocks = made

    def do_drop(self, agent: Agent, kind: str) -> None:
        """Remove all blocks of a kind."""
        for message in agent.messages:
            message.blocks = [block for block in message.blocks if block.kind != kind]

    def do_system(self, agent: Agent, *words: str) -> None:
        made: list[str] = []
        for word in words:
            made += agent.system[self.slice(agent, pick[2])] if (pick := PICK.fullmatch(word)) else [self.fill(word)]
        agent.system = made

    def do_tools(self, agent: Agent, *words: str) -> None:
        made, before = list[dict[str, Any]](), list(agent.tools)
        for word in words:
            if pick := PICK.fullmatch(word):
                made += before[self.slice(agent, pick[2])]
            elif word in ("sorted", "descending"):
                made = sorted(before, key=lambda tool: str(tool["name"]), reverse=word == "descending")
            elif word == "shuffled":
                made = list(before)
                while made == before:
                    self.session.rng.shuffle(made)
            else:
                name, _, size = self.fill(word).partition(":")
                made.append(self.session.writer.tool(name, int(size)))
        agent.tools = made

    def do_set(self, agent: Agent, target: str, text: str) -> None:
        self.change(agent, target, lambda old: self.fill(text, old))

    def do_replace(self, agent: Agent, target: str, old: str, new: str, most: str = "-1") -> None:
        self.change(agent, target, lambda text: text.replace(self.fill(old), self.fill(new), int(most)))

    def change(self, agent: Agent, target: str, make: Callable[[str], str]) -> None:
        found = TARGET.fullmatch(target)
        assert found is not None, target
        kind, where, block = found[1], self.slice(agent, found[2]), found[3]
        if kind == "system":
            agent.system = [*agent.system]
            agent.system[where] = [make(text) for text in agent.system[where]]
        elif kind == "tool":
            agent.tools = [*agent.tools]
            agent.tools[where] = [{**tool, "description": make(tool["description"])} for tool in agent.tools[where]]
        else:
            blocks = [m.blocks[int(block)] for m in agent.messages[where]] if block else blocks_of(agent, kind)[where]
            for each in blocks:
                self.names["tool"] = each.name
                each.text = make(each.text)

    # Fields of agents

    def do_new(self, _: Agent, name: str, *words: str) -> None:
        self.add_agent(self.fill(name), dict(word.split("=", 1) for word in words))

    def add_agent(self, name: str, given: dict[str, Any]) -> None:
        fields: dict[str, Any] = {}
        for key, text in given.items():
            value = self.values.get(text[1:], text) if isinstance(text, str) and text.startswith("$") else text
            if key in ("system", "tools", "messages") and isinstance(value, str) and value in self.agents:
                value = getattr(self.agents[value], key)
                value = copied(value) if key == "messages" else value
            elif key == "tools" and isinstance(value, str):
                count, _, size = value.partition("x")
                value = self.session.writer.tools(int(count), int(size)) if size else []
            elif key == "system":
                value = [self.fill(each) for each in ([value] if isinstance(value, str) else value)]
            elif key == "marks":
                value = set(value.split(",") if isinstance(value, str) else value) - {""}
            elif key == "marked":
                value = int(value)
            elif key == "ttl" and isinstance(value, str):
                value = dict.fromkeys(PLACES, value)
            elif key == "settings":
                value = {**cast(dict[str, Any], value)}
            elif key == "reports":
                value = value is True
            elif key == "name":
                value = self.fill(value)
            fields[key] = value
        self.agents[name] = self.session.agent(**fields)

    def do_model(self, agent: Agent, name: str) -> None:
        agent.model = self.session.model if name == "usual" else name

    def do_marks(self, agent: Agent, *places: str) -> None:
        agent.marks = set(places)

    def do_marked(self, agent: Agent, at: str) -> None:
        agent.marked = int(at)

    def do_settings(self, agent: Agent, *given: dict[str, Any] | str) -> None:
        """Give all settings, or, with `name=value`, some of them."""
        if any(isinstance(each, dict) for each in given) or not given:
            agent.settings = {key: value for each in given if isinstance(each, dict) for key, value in each.items()}
        for each in given:
            if isinstance(each, str):
                name, _, value = each.partition("=")
                agent.settings = {**agent.settings, name: self.fill(value)}

    def do_headers(self, agent: Agent, *given: str) -> None:
        agent.headers = dict(each.split("=", 1) for each in given)

    def do_tail(self, agent: Agent, text: str) -> None:
        agent.tail = [Message("user", texts(self.fill(text)))]

    def do_spelling(self, agent: Agent, *words: str) -> None:
        agent.spacing, agent.escape = "spaces" in words, "escapes" in words

    # Names

    def do_let(self, _: Agent, name: str, text: str) -> None:
        self.names[name] = self.fill(text)

    def do_place(self, agent: Agent, name: str, kind: str = "", nth: str = "0") -> None:
        """Name the end of the messages, or the message of the nth block of a kind."""
        found = [at for at, each in enumerate(agent.messages) for block in each.blocks if block.kind == kind]
        self.names[name] = found[int(nth)] if kind else len(agent.messages)

    def do_save(self, agent: Agent, field: str, name: str) -> None:
        self.names[name] = copied(agent.messages) if field == "messages" else list(agent.tools)

    def do_restore(self, agent: Agent, field: str, name: str) -> None:
        found = self.names[self.fill(name)]
        setattr(agent, field, copied(found) if field == "messages" else list(found))
