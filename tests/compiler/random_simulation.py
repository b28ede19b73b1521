"""Simulation for random conversations: users, agents and tools append, and the log is changed meanwhile.

Every word that may be told only once carries a mark of its own, so that a loss and a doubling can be read off. What an
act does follows from the numbers it is given, and nothing else.
"""

import random

import contextc as cc
from contextc._json import encode
from contextc.compiler.draft import CompilerOptionArguments
from contextc.compiler.ledger import get_channel_cache
from contextc.messages import Message
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import find_tip, load_lineage, make_place, split_by_branch
from contextc.store.transaction_engine import Transaction
from tests.compiler.simulated_providers import MARK, SessionProvider, StatelessProvider

AGENTS = ("coder", "tester")
PEOPLE = ("ann", "ann", "ann", "bob")
DIRECTORIES = ("/one", "/two")
TOOLS = [cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})]
PROVIDERS: dict[str, dict[str, object]] = {
    "anthropic:claude-sonnet-4-5": {},
    "openai-chat:gpt-4o": {},
    "openai:gpt-5.2": {},
    "gemini:gemini-2.5-pro": {},
    "keeper:one": {
        "format": "anthropic", "session_resumption": True, "directory_bound": True, "reverts": True,
        "keeps_static": True,
    },
    "thread:one": {
        "format": "openai_responses", "session_resumption": True, "reverts": True, "resends_head": True,
        "system_in_session": True,
    },
    "forgetful:one": {"format": "openai_chat", "session_resumption": True},
    "diary:one": {"format": "gemini", "session_resumption": True, "keeps_static": True, "compacts_itself": True},
}  # fmt: skip
"""Four that are told everything each time; a coding agent's sessions, responses that follow one another, one whose
failed prompts stay, one that shortens its own history."""


class Simulation:
    """One life: a store, compilers that come and go, providers that stay."""

    def __init__(self, seed: int, address: str) -> None:
        chance = random.Random(seed)
        self.address = address
        self.store = cc.open_store(address)
        self.conversations = ["c0"]
        self.current = "c0"
        self.numbers = iter(range(1, 1_000_000))
        self.window = chance.choice((1_800, 2_200, 3_000, 40_000))
        self.names = chance.sample(list(PROVIDERS), chance.choice((1, 2, 3)))
        self.provider = self.names[0]
        self.agent = AGENTS[0]
        self.directory = DIRECTORIES[0]
        self.runs: dict[str, str | None] = {agent: None for agent in AGENTS}
        self.has_runs = chance.random() < 0.3
        self.statics = {agent: 0 for agent in AGENTS}
        self.dynamic = chance.choice(("", "Todos: none."))
        self.options: CompilerOptionArguments = {"strategy": chance.choice(("chunked", "chunked", "oldest"))}
        self.ends: dict[str, SessionProvider | StatelessProvider] = {}
        for name in self.names:
            facts = PROVIDERS[name]
            stateful = bool(facts.get("session_resumption"))
            self.ends[name] = SessionProvider(reverts=bool(facts.get("reverts"))) if stateful else StatelessProvider()
        self.gone: dict[Channel, set[int]] = {}
        self.redacted: set[str] = set()
        self.answered: set[str] = set()
        """Calls whose results were redacted."""
        self.commits: int = 0
        self.journal: list[str] = []
        self.restart()
        self.store.append("c0", cc.user(f"{self.mark('t')} Begin.", author="ann"))

    def restart(self) -> None:
        """A new process: nothing is left but the file."""
        get_channel_cache(self.store).clear()
        if not self.address.startswith("memory"):
            self.store.close()
            self.store = cc.open_store(self.address)
        self.compilers = {
            name: cc.MessageCompiler(
                self.store,
                cc.provider(name, window=self.window, output=400, **PROVIDERS[name]),  # pyright: ignore[reportArgumentType]
                **self.options,
            )
            for name in self.names
        }

    def mark(self, letter: str) -> str:
        return f"«{letter}{next(self.numbers)}»"

    def tell(self, *texts: object) -> None:
        self.journal.append(" ".join(str(item) for item in texts))

    # ── what is in the log ────────────────────────────────────────────────────────────────────────────────────────────

    def log(self, conversation: str | None = None) -> dict[int, Message]:
        """The messages of a conversation's line by their places, behind its edge."""
        name = conversation or self.current

        def places(tx: Transaction) -> list[int]:
            at = find_tip(tx, name, False)
            assert at is not None
            return [
                make_place(branch, seq)
                for branch, first, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq)
                for seq in range(first, last + 1)
                if seq
            ]

        edge = self.store.conversation(name).context_start
        line = dict(zip(self.store.read(places), self.store.load(name), strict=True))
        return {where: message for where, message in line.items() if message.seq > edge}

    def open_calls(self) -> list[tuple[Message, str, str]]:
        """Calls without a result: their message, id, name."""
        log = self.log().values()
        answered = self.answered | {result.call_id for message in log for result in message.tool_results}
        return [
            (message, call.id, call.name) for message in log for call in message.tool_calls if call.id not in answered
        ]

    # ── what people and tools do ──────────────────────────────────────────────────────────────────────────────────────

    def words(self, chance: random.Random, letter: str = "t") -> str:
        return f"{self.mark(letter)} " + "so it goes " * chance.choice((1, 1, 3, 20, 60))

    def user(self, chance: random.Random) -> None:
        message = cc.user(self.words(chance), author=chance.choice(PEOPLE))
        stored = self.store.append(self.current, message)
        self.tell("user", message.author, stored.seq, message.text[:6])

    def other(self, chance: random.Random) -> None:
        """Append a message of a random agent."""
        message = cc.assistant(self.words(chance), author=chance.choice(("writer", *AGENTS)))
        stored = self.store.append(self.current, message)
        self.tell("agent", message.author, stored.seq, message.text[:6])

    def system(self, chance: random.Random) -> None:
        audience = chance.choice((None, *AGENTS, self.provider))
        stored = self.store.append(self.current, cc.system(self.words(chance), audience=audience))
        self.tell("system for", audience, stored.seq, stored.text[:6])

    def result(self, chance: random.Random) -> None:
        calls = self.open_calls()
        if calls:
            self.answer(*chance.choice(calls), size=chance.choice((1, 1, 10, 400)))

    def results(self, chance: random.Random) -> None:
        """All tools end, as they mostly do."""
        for call in self.open_calls():
            self.answer(*call, size=chance.choice((1, 10, 60)))

    def answer(self, message: Message, call: str, name: str, size: int) -> None:
        text = f"{self.mark('r')} " + "line of output " * size
        result = cc.tool_result(call, name, text, author=message.author, run=message.run)
        stored = self.store.append(self.current, result)
        self.tell("result of", call, "for", message.author, stored.seq, text[:6])

    def both_results(self, chance: random.Random) -> None:
        """Two results in one message, of one agent, perhaps for calls of two messages."""
        calls = self.open_calls()
        two = [each for each in calls if (each[0].author, each[0].run) == (calls[0][0].author, calls[0][0].run)][:2]
        if len(two) == 2:
            parts = tuple([cc.ToolResult(call_id=call, name=name, content=self.mark("r")) for _, call, name in two])
            message = Message(role="tool", parts=parts, author=two[0][0].author, run=two[0][0].run)
            stored = self.store.append(self.current, message)
            self.tell("results of", [call for _, call, _ in two], stored.seq, mark_of(stored))

    def doubled(self, chance: random.Random) -> None:
        """A second result for a call that has one."""
        found = [(message, result) for message in self.log().values() for result in message.tool_results]
        if found:
            message, result = chance.choice(found)
            self.tell("again:")
            self.answer(message, result.call_id, result.name, size=1)

    # ── what happens to the record ────────────────────────────────────────────────────────────────────────────────────

    def seq(self, chance: random.Random) -> int:
        length = self.store.conversation(self.current).length
        return max(1, length - chance.choice((0, 0, 1, 2, 3, 5, 9))) if length else 0

    def edit(self, chance: random.Random) -> None:
        if target := self.seq(chance):
            stored = self.store.edit(self.current, target, cc.user(self.words(chance), author="ann"))
            self.tell("edit", target, stored.text[:6])

    def rewind(self, chance: random.Random) -> None:
        target = self.seq(chance)
        self.store.rewind(self.current, target)
        self.tell("rewind to", target)

    def switch(self, chance: random.Random) -> None:
        branch = chance.choice(self.store.branches(self.current))
        self.store.switch(self.current, branch.number)
        self.tell("switch to branch", branch.number)

    def fork(self, chance: random.Random) -> None:
        name, target = f"c{len(self.conversations)}", self.seq(chance)
        self.store.fork(self.current, name, at=target)
        self.conversations.append(name)
        self.tell("fork", self.current, "at", target, "as", name)
        if chance.random() < 0.6:
            self.current = name

    def turn_to(self, chance: random.Random) -> None:
        self.current = chance.choice(self.conversations)
        self.tell("go on in", self.current)

    def clear(self, chance: random.Random) -> None:
        self.store.reset(self.current)
        self.tell("clear", self.current)

    def redact(self, chance: random.Random) -> None:
        if target := self.seq(chance):
            message = next(each for each in self.store.load(self.current) if each.seq == target)
            self.redacted |= marks_of(message)
            self.answered |= {result.call_id for result in message.tool_results}
            self.store.redact(self.current, target)
            self.tell("redact", target, marks_of(message))

    def pin(self, chance: random.Random) -> None:
        if target := self.seq(chance):
            self.tell("pin", self.store.pin(self.current, target))

    # ── what changes around it ────────────────────────────────────────────────────────────────────────────────────────

    def change_provider(self, chance: random.Random) -> None:
        self.provider = chance.choice(self.names)
        self.tell("provider", self.provider)

    def change_agent(self, chance: random.Random) -> None:
        self.agent = chance.choice(AGENTS)
        self.tell("agent", self.agent)

    def change_directory(self, chance: random.Random) -> None:
        self.directory = chance.choice(DIRECTORIES)
        self.tell("directory", self.directory)

    def change_dynamic(self, chance: random.Random) -> None:
        self.dynamic = chance.choice(("", "Todos: none.", "Todos: one.", "Todos: two."))
        self.tell("dynamic", self.dynamic)

    def change_static(self, chance: random.Random) -> None:
        self.statics[self.agent] = chance.choice((0, 1, 2))
        self.tell("static", self.statics[self.agent])

    def change_run(self, chance: random.Random) -> None:
        """Another run of the agent goes on, or begins."""
        if self.has_runs:
            self.runs[self.agent] = chance.choice(("run1", "run2", f"run{next(self.numbers)}"))
            self.tell("run", self.runs[self.agent])

    def restarted(self, chance: random.Random) -> None:
        self.restart()
        self.tell("restart")


def marks_of(message: Message) -> set[str]:
    return set(MARK.findall(encode(message).decode()))


def mark_of(message: Message) -> str:
    return " ".join(sorted(marks_of(message)))
