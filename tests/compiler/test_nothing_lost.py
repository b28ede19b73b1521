"""Nothing lost, nothing doubled: random lives of a conversation, held against providers that remember and complain.

A life is a list of steps, each a name and a number that all its choices follow from, so a life that fails is shortened
step by step and told again. `CONTEXTC_EXAMPLES=34` makes 10,000 of them.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.compiler import Compiled
from contextc.ledger import book
from contextc.ledger.items import Item, Row
from contextc.ledger.standing import Channel, Standing
from contextc.ledger.warm import listed, warm
from contextc.messages import Message
from contextc.store.base import Transaction
from contextc.store.places import SEQ_BITS, SEQ_MASK, find_head, lineage, place, stretches
from tests.compiler.simulated import (
    MARK,
    Answer,
    Failure,
    ProviderDown,
    SessionGone,
    SessionProvider,
    StatelessProvider,
    blocks,
    head_of,
    marks,
    reply_messages,
    sent_messages,
)

TIMES = int(os.environ.get("CONTEXTC_EXAMPLES", "1"))
RUNS = 300 * TIMES
LENGTH = 40
PARTS = 6

Step: TypeAlias = tuple[str, int]

AGENTS = ("coder", "tester")
PEOPLE = ("ann", "ann", "ann", "bob")
DIRECTORIES = ("/one", "/two")
STRAY = "no call asked for it"
CUT = ("its turn was cut away", "its step was cut away", "summed up")
TOOL = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
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


class World:
    """One life: a store, compilers that come and go, providers that stay."""

    def __init__(self, seed: int, address: str) -> None:
        chance = random.Random(seed)
        self.address = address
        self.store = cc.open_store(address)
        self.conversations = ["c0"]
        self.current = "c0"
        self.numbers = iter(range(1, 1_000_000))
        self.window = chance.choice((2_500, 2_500, 6_000, 40_000))
        self.names = chance.sample(list(PROVIDERS), 3)
        self.provider = self.names[0]
        self.agent = AGENTS[0]
        self.directory = DIRECTORIES[0]
        self.runs: dict[str, str | None] = {agent: None for agent in AGENTS}
        self.has_runs = chance.random() < 0.3
        self.statics = {agent: 0 for agent in AGENTS}
        self.dynamic = chance.choice(("", "Todos: none."))
        self.options = {"strategy": chance.choice(("chunked", "chunked", "oldest"))}
        self.ends: dict[str, SessionProvider | StatelessProvider] = {}
        for name in self.names:
            facts = PROVIDERS[name]
            stateful = bool(facts.get("session_resumption"))
            self.ends[name] = SessionProvider(reverts=bool(facts.get("reverts"))) if stateful else StatelessProvider()
        self.gone: dict[Channel, set[int]] = {}
        self.redacted: set[str] = set()
        self.answered: set[str] = set()
        """Calls whose results were redacted."""
        self.commits = 0
        self.journal: list[str] = []
        self.restart()
        self.store.append("c0", cc.user(f"{self.mark('t')} Begin.", author="ann"))

    def restart(self) -> None:
        """A new process: nothing is left but the file."""
        warm(self.store).clear()
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

    def tell(self, *words: object) -> None:
        self.journal.append(" ".join(str(word) for word in words))

    # ── what is in the log ────────────────────────────────────────────────────────────────────────────────────────────

    def log(self, conversation: str | None = None) -> dict[int, Message]:
        """The messages of a conversation's line by their places, behind its edge."""
        name = conversation or self.current

        def places(tx: Transaction) -> list[int]:
            at = find_head(tx, name, False)
            assert at is not None
            return [
                place(branch, seq)
                for branch, first, last in stretches(lineage(tx, at.branch), 0, at.seq)
                for seq in range(first, last + 1)
                if seq
            ]

        edge = self.store.conversation(name).edge
        line = dict(zip(self.store.read(places), self.store.load(name), strict=True))
        return {where: message for where, message in line.items() if message.seq > edge}

    def open_calls(self) -> list[tuple[Message, str, str]]:
        """Calls without a result: their message, id, name."""
        log = self.log().values()
        answered = self.answered | {result.call_id for message in log for result in message.tool_results}
        return [
            (message, call.id, call.name)
            for message in log
            for call in message.tool_calls
            if call.id not in answered
        ]

    # ── what people and tools do ──────────────────────────────────────────────────────────────────────────────────────

    def words(self, chance: random.Random, letter: str = "t") -> str:
        return f"{self.mark(letter)} " + "so it goes " * chance.choice((1, 1, 3, 20, 60))

    def user(self, chance: random.Random) -> None:
        message = cc.user(self.words(chance), author=chance.choice(PEOPLE))
        stored = self.store.append(self.current, message)
        self.tell("user", message.author, stored.seq, message.text[:6])

    def other(self, chance: random.Random) -> None:
        """An agent that is not compiled for speaks, or is called by name."""
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

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def compile(self) -> Compiled | None:
        """A request, compiled warm and cold; None where there is no room for it."""
        try:
            compiled = self._compile()
        except cc.ContextOverflow:
            self.tell("no room")
            return None
        assert decode(compiled.body) == decode(encode(compiled.params))
        warm(self.store).clear()
        cold = self._compile()
        assert cold.body == compiled.body, "a cold start compiled something else"
        assert (cold.mode, cold.session_id, cold.revert) == (compiled.mode, compiled.session_id, compiled.revert)
        return compiled

    def _compile(self) -> Compiled:
        static = self.statics[self.agent]
        return self.compilers[self.provider].compile(
            self.current,
            agent=self.agent,
            directory=self.directory,
            run=self.runs[self.agent],
            tools=[TOOL],
            fragments=[
                cc.PromptFragment("identity", f"You are {self.agent}, version {static}." if static else ""),
                cc.PromptFragment("todos", self.dynamic, lifecycle="dynamic"),
            ],
        )

    def look(self, chance: random.Random) -> None:
        """Compile, and think better of it."""
        if (compiled := self.compile()) is not None:
            self.tell("compiled only", compiled.mode, compiled.manifest.why)

    def request(self, chance: random.Random) -> None:
        self.send(chance)

    def broken(self, chance: random.Random) -> None:
        """The call fails, and we know."""
        self.send(chance, failure=chance.choice(("before", "after")))

    def killed(self, chance: random.Random) -> None:
        """Our process dies on the way: before, during or after the call."""
        self.send(chance, failure=chance.choice(("before", "after", "")), killed=True)

    def lost(self, chance: random.Random) -> None:
        """The provider no longer has the session."""
        self.send(chance, failure="lost")

    def interrupted(self, chance: random.Random) -> None:
        """Something happens between compile and commit."""
        between = chance.choice((self.user, self.user, self.result, self.clear, self.rewind, self.edit, self.redact))
        self.send(chance, between=between)

    def raced(self, chance: random.Random) -> None:
        """Two compile the same, and one is first."""
        other = self.compile()
        if other is not None and other.is_new and self.send(chance):
            with pytest.raises(cc.StaleCompile):
                self.compilers[self.provider].commit(other, cc.assistant("Too late."))

    def reply(self, chance: random.Random) -> list[Message]:
        kind = chance.choice(("text", "text", "text", "calls", "calls", "calls", "both", "both", "own tools", "nothing"))
        calls = [
            cc.tool_call(f"call_{next(self.numbers)}", "look", {"at": self.mark("a")})
            for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        if kind == "nothing":
            return []
        if kind == "text":
            return [cc.assistant(self.words(chance))]
        if kind == "own tools" and isinstance(self.ends[self.provider], SessionProvider):
            return [
                cc.assistant(tool_calls=calls),
                *(cc.tool_result(call.id, call.name, self.mark("r")) for call in calls),
                cc.assistant(self.words(chance)),
            ]
        return [cc.assistant(self.words(chance) if kind == "both" else None, tool_calls=calls)]

    def send(
        self,
        chance: random.Random,
        *,
        failure: Failure = "",
        killed: bool = False,
        between: Callable[[random.Random], None] | None = None,
    ) -> bool:
        """One request, with all that may go wrong; whether it was committed."""
        compiled = self.compile()
        if compiled is None:
            return False
        compiler, end = self.compilers[self.provider], self.ends[self.provider]
        if not compiled.is_new:
            with pytest.raises(cc.NothingNew):
                compiler.begin(compiled)
            return False
        self.check_announced(compiled)
        compiler.begin(compiled)
        produced = self.reply(chance)
        self.tell(
            "request", self.provider, self.agent, self.directory, compiled.mode, compiled.manifest.why or "-",
            f"revert {compiled.revert}", failure, "killed" if killed else "", [mark_of(each) for each in produced],
        )  # fmt: skip
        try:
            answer = end.send(compiled, produced, failure)
        except (ProviderDown, SessionGone) as error:
            if isinstance(error, SessionGone):
                compiler.abort(compiled, error)
                cc.SessionManager(self.store).invalidate(compiled.channel, "the provider lost the session")
            elif not killed:
                compiler.abort(compiled, error)
            else:
                self.restart()
            return False
        if killed:
            self.restart()
            return False
        if between is not None:
            between(chance)
        try:
            compiler.commit(
                compiled,
                produced=answer.produced,
                session_id=answer.session_id,
                cursor=answer.cursor,
                usage=cc.Usage(input=compiled.budget.input, output=20) if chance.random() < 0.5 else None,
            )
        except cc.StaleCompile:
            assert between is not None, "nothing had happened in between"
            compiler.abort(compiled, "stale")
            self.tell("stale")
            return False
        self.commits += 1
        if isinstance(end, SessionProvider):
            end.acknowledge(answer)
        else:
            end.acknowledge(compiled)
        self.check(compiled, answer, changed=between is not None)
        return True

    # ── what must be true ─────────────────────────────────────────────────────────────────────────────────────────────

    def check_announced(self, compiled: Compiled) -> None:
        """SPEC 9.6: a fallback is a new session, and the manifest says why."""
        if isinstance(self.ends[self.provider], SessionProvider):
            assert (compiled.mode == "full") == bool(compiled.manifest.why)
            assert (compiled.session_id is None) == (compiled.mode == "full")
        body = compiled.body.decode()
        told = {mark for mark in self.redacted if mark in body}
        assert not told, f"{told} was redacted, and is sent again"

    def ledger(self, channel: Channel) -> tuple[Standing, list[Item], list[bytes]]:
        """What the rows say: where the channel stands, its items, and their wire messages as blocks."""

        def work(tx: Transaction) -> tuple[Standing, list[Item], list[bytes]]:
            standing = book.stood(tx, channel)
            assert standing is not None
            items, wires = list[Item](), list[JSONObject]()
            for channel_number, first, last in standing.layout:
                for stored, wire in tx.rows(
                    "SELECT items, wire FROM shown WHERE place BETWEEN ? AND ? ORDER BY place",
                    place(channel_number, first),
                    place(channel_number, last),
                ):
                    row = msgspec.json.decode(stored, type=Row)
                    items += row.items
                    if row.drop:
                        del wires[-row.drop :]
                    wires += listed(wire)
            return standing, [*items, *standing.produced], blocks(wires)

        return self.store.read(work)

    def check(self, compiled: Compiled, answer: Answer, *, changed: bool) -> None:
        channel, end = compiled.channel, self.ends[self.provider]
        _, items, wires = self.ledger(channel)
        replies = blocks(reply_messages(compiled.formatter, answer.produced))
        if isinstance(end, SessionProvider):
            assert answer.session_id is not None
            session = end.sessions[answer.session_id]
            sent, memory = blocks(session.sent), blocks(session.memory)
            resent = self.compilers[self.provider].provider.resends_head
            self.check_static(compiled, items, head_of(compiled) if resent else session.head)
        else:
            self.check_static(compiled, items, head_of(compiled))
            sent = blocks(sent_messages(compiled))
            memory = [*sent, *replies]
        if not changed:
            assert sent == wires, "the provider's memory is not what the ledger says"
        self.check_items(compiled, items, changed=changed)
        self.check_marks(items, memory)
        if self.dynamic and not changed:
            last = next((item.text for item in reversed(items) if item.kind == "dynamic"), "")
            assert last.endswith(self.dynamic), "the dynamic fragments are not what the model was told last"

    def check_static(self, compiled: Compiled, items: Sequence[Item], head: JSONObject) -> None:
        """The instructions that hold are the last the model was told."""
        static = self.statics[self.agent]
        told = [encode(head).decode()]
        told += [item.text for item in items if item.kind == "update"]
        assert compiled.mode == "resume" or len(told) == 1, "an old update was told again, in a new session"
        assert f"version {static}." in told[-1] if static else "version" not in told[-1]

    def check_items(self, compiled: Compiled, items: Sequence[Item], *, changed: bool) -> None:
        """Every message that the agent sees is in the ledger exactly once, or was left out for a reason."""
        channel = compiled.channel
        gone = self.gone.setdefault(channel, self._inherited(channel))
        for left in compiled.record.left:
            if left.why in CUT or left.why == STRAY:
                gone.add(left.place)
        shown = Counter(item.place for item in items if item.place and item.kind in ("message", "late"))
        gone -= shown.keys()
        each = Counter((item.place, item.only, item.text) for item in items if item.kind in ("message", "late"))
        twice = {where & SEQ_MASK for (where, _, _), count in each.items() if count > 1}
        assert not twice, f"messages {twice} are in the ledger twice"
        if changed:
            return
        log, last = self.log(channel.conversation), compiled.record.tip
        produced = {where for where, message in log.items() if message.seq > last}
        self.check_strays(compiled, log, shown)
        pinned = {where for where, message in log.items() if message.seq in self.store.pinned(channel.conversation)}
        assert not pinned & {left.place for left in compiled.record.left if left.why in CUT}, "a pinned one was cut away"
        prompt = compiled.head.body if compiled.mode == "full" else None
        for where, message in log.items():
            if where in leading(log):
                assert not shown[where], f"message {message.seq} belongs to the prompt, and was shown besides"
                assert prompt is None or mark_of(message) in encode(prompt).decode()
            elif sees(self.agent, channel, message) and self.is_running(message, log):
                pass  # shown when its run ends, or before, where it was seen from inside that run
            elif sees(self.agent, channel, message):
                assert shown[where] or where in gone, f"message {message.seq} ({mark_of(message)}) was never shown"
            else:
                assert not shown[where] or message.redacted, f"message {message.seq} was shown, and should not be"
        strays = shown.keys() - log.keys() - produced
        assert not strays, f"{[(where >> SEQ_BITS, where & SEQ_MASK) for where in strays]} is not on the line"

    def is_running(self, message: Message, log: dict[int, Message]) -> bool:
        """Whether it belongs to another run of this agent, one that has not come to an answer."""
        run = self.runs[self.agent]
        if run is None or message.run is None or message.run == run or message.author != self.agent:
            return False
        last = [each for each in log.values() if each.run == message.run and each.author == self.agent][-1]
        return last.role != "assistant" or bool(last.tool_calls)

    def check_strays(self, compiled: Compiled, log: dict[int, Message], shown: Counter[int]) -> None:
        """A result is left out only where its call is not there, or another result came first."""
        for where in [left.place for left in compiled.record.left if left.why == STRAY]:
            for result in log[where].tool_results:
                first = next(at for at, each in log.items() if result.call_id in [r.call_id for r in each.tool_results])
                calls = [at for at, each in log.items() if result.call_id in [call.id for call in each.tool_calls]]
                assert first != where or not any(shown[at] for at in calls), f"{result.text[:6]} was left out"

    def _inherited(self, channel: Channel) -> set[int]:
        """A fork begins with what its parent had; of that, with what had been cut away there."""
        found: set[int] = set()
        for other, gone in self.gone.items():
            if other[1:] == channel[1:]:
                found |= gone
        return found

    def check_marks(self, items: Sequence[Item], memory: Sequence[bytes]) -> None:
        """Every word of what was shown is in the provider's memory once."""
        told = marks(memory)
        assert not [mark for mark, count in told.items() if count > 1], f"told twice: {told}"
        everything = {where: message for name in self.conversations for where, message in self.all_of(name)}
        called = {
            call.id for item in items if item.role == "assistant" and item.kind == "message"
            for call in everything[item.place].tool_calls
        }  # fmt: skip
        answered: set[str] = set()
        for item in items:
            if not item.place or item.kind not in ("message", "late"):
                continue
            message = everything[item.place]
            if message.redacted or item.decayed:
                continue
            wanted = set(MARK.findall(message.text))
            if item.role == "assistant":
                wanted |= {mark for call in message.tool_calls for mark in MARK.findall(str(call.arguments))}
            for result in message.tool_results:
                if result.call_id in called and result.call_id not in answered:
                    answered.add(result.call_id)
                    wanted |= set(MARK.findall(result.text))
            missing = {mark for mark in wanted if not told[mark]}
            assert not missing, f"{missing} of message {message.seq} is in the ledger, and the model was not told"

    def all_of(self, conversation: str) -> Iterator[tuple[int, Message]]:
        def work(tx: Transaction) -> list[tuple[int, bytes]]:
            at = find_head(tx, conversation, False)
            assert at is not None
            return [(row[0], row[1]) for row in tx.rows("SELECT place, body FROM message")]

        from contextc.messages import from_json

        for where, body in self.store.read(work):
            yield where, from_json(body)


def marks_of(message: Message) -> set[str]:
    return set(MARK.findall(encode(message).decode()))


def mark_of(message: Message) -> str:
    return " ".join(sorted(marks_of(message)))


def leading(log: dict[int, Message]) -> set[int]:
    """The places of the system messages that a conversation begins with: they are part of its prompt."""
    found: set[int] = set()
    for where, message in log.items():
        if message.role != "system" or message.audience is not None:
            break
        if not message.redacted:
            found.add(where)
    return found


def sees(agent: str, channel: Channel, message: Message) -> bool:
    """SPEC 4.1 and 4.4, for what these lives hold."""
    if message.redacted:
        return False
    if message.audience is not None:
        return message.audience in (agent, f"{channel.provider}:{channel.model}")
    if message.author == agent or message.role in ("user", "system"):
        return True
    return message.role == "assistant" and bool(message.text.strip())


WEIGHTS = {
    "user": 14, "request": 26, "results": 10, "result": 5, "other": 3, "system": 3, "doubled": 1, "edit": 2, "rewind": 3,
    "switch": 1, "fork": 2, "turn_to": 2, "clear": 1, "redact": 1, "pin": 1, "change_provider": 6, "change_run": 3, "both_results": 1, "change_agent": 3,
    "change_directory": 2, "change_dynamic": 3, "change_static": 2, "restarted": 2, "look": 2, "broken": 4, "killed": 4,
    "lost": 2, "interrupted": 3, "raced": 2,
}  # fmt: skip


def life(seed: int) -> list[Step]:
    chance = random.Random(seed)
    names = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
    return [(name, chance.randrange(1 << 30)) for name in names]


def lived(seed: int, steps: Sequence[Step], address: str) -> World:
    if not address.startswith("memory"):
        for ending in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(address.removeprefix("sqlite:///") + ending)
    world = World(seed, address)
    try:
        for name, number in steps:
            getattr(world, name)(random.Random(number))
    except BaseException as error:
        error.add_note("\n".join(world.journal))
        raise
    finally:
        world.store.close()
    return world


def shortest(seed: int, steps: list[Step], kind: type[BaseException]) -> list[Step]:
    """The same life with every step left out that it fails without."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            try:
                lived(seed, fewer, "memory:")
            except kind:
                steps = fewer
            except Exception:
                start += size
            else:
                start += size
        size //= 2
    return steps


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_and_nothing_is_doubled(part: int, tmp_path: Path) -> None:
    """SPEC 9, 5.4, 3.2: whatever happens, each channel is told everything its agent sees, once, in pairs, and every
    fallback is a new session that is announced.
    """
    commits = 0
    for seed in range(part, RUNS, PARTS):
        address = f"sqlite:///{tmp_path}/{seed}.db" if seed % 5 == 0 else "memory:"
        steps = life(seed)
        try:
            commits += lived(seed, steps, address).commits
        except Exception as error:
            least = shortest(seed, steps, type(error))
            try:
                lived(seed, least, "memory:")
            except Exception as smaller:
                smaller.add_note(f"seed {seed}, {len(least)} of {len(steps)} steps: {least}")
                raise
            raise
    assert commits > 3 * RUNS // PARTS
