"""Random operations on the stores, compared with a model in plain Python after each call.

The model copies where a store shares, so a store that shares too much or too little is found out.
"""

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import contextc as cc
from contextc.doctor import scan_store
from contextc.interchange import export_lines, import_lines
from tests.conftest import in_schema, often

NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.sampled_from(["yes", "no", "日本", "a\0b"]) | st.uuids().map(lambda each: str(each) * 100)
"""Long ones occur once: redaction removes equal ones on other branches, too."""
KEYS = st.sampled_from(["k1", "k2", "k3"])
PICK = st.integers(0, 1_000)


@dataclass
class ExpectedMessage:
    """One message, shared by all its branches: redacting it redacts it everywhere."""

    text: str
    original: str = ""

    def __post_init__(self) -> None:
        self.original = self.original or self.text


@dataclass
class Line:
    said: list[ExpectedMessage] = field(default_factory=list[ExpectedMessage])
    edges: list[int] = field(default_factory=list[int])

    def upto(self, seq: int) -> "Line":
        return Line(self.said[:seq], [edge for edge in self.edges if edge <= seq])


@dataclass
class Talk:
    lines: list[Line]
    current: int = 0
    keys: dict[str, ExpectedMessage] = field(default_factory=dict[str, ExpectedMessage])

    @property
    def line(self) -> Line:
        return self.lines[self.current]

    def turn_to(self, line: Line) -> None:
        self.lines.append(line)
        self.current = len(self.lines) - 1


class StoreMachine(RuleBasedStateMachine):
    """Every call of a store, in any order."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, Talk] = {}
        self.address = self.new_address()
        self.store = cc.open_store(self.address)

    def new_address(self) -> str:
        return "memory:"

    def teardown(self) -> None:
        assert [finding for finding in scan_store(self.store) if finding.kind == "fault"] == []
        self.store.close()

    def seq(self, name: str, pick: int, first: int = 0) -> int | None:
        length = len(self.model[name].line.said)
        return None if length < first else first + pick % (length - first + 1)

    @initialize(name=NAMES, text=TEXTS)
    def begin(self, name: str, text: str) -> None:
        self.append(name, text)

    @rule(name=NAMES, text=TEXTS)
    def append(self, name: str, text: str) -> None:
        talk = self.model.setdefault(name, Talk([Line()]))
        message = self.store.append(name, cc.user(text))
        talk.line.said.append(ExpectedMessage(text))
        assert message.seq == len(talk.line.said)

    @rule(name=NAMES, texts=st.lists(TEXTS, min_size=1, max_size=4))
    def extend(self, name: str, texts: list[str]) -> None:
        talk = self.model.setdefault(name, Talk([Line()]))
        self.store.extend(name, [cc.user(text) for text in texts])
        talk.line.said += [ExpectedMessage(text) for text in texts]

    @rule(name=NAMES, text=TEXTS, key=KEYS)
    def append_once(self, name: str, text: str, key: str) -> None:
        talk = self.model.setdefault(name, Talk([Line()]))
        known = talk.keys.get(key)
        if known is not None and known.text not in (text, ""):
            with pytest.raises(cc.errors.KeyReused):
                self.store.append(name, cc.user(text), key=key)
            return
        self.store.append(name, cc.user(text), key=key)
        if known is None:
            talk.keys[key] = ExpectedMessage(text)
            talk.line.said.append(talk.keys[key])

    @precondition(lambda self: self.model)
    @rule(pick=PICK, name=NAMES, at=PICK)
    def fork(self, pick: int, name: str, at: int) -> None:
        source = sorted(self.model)[pick % len(self.model)]
        seq = self.seq(source, at) or 0
        if name in self.model:
            with pytest.raises(cc.errors.ConversationExists):
                self.store.fork(source, name, at=seq)
            return
        self.store.fork(source, name, at=seq)
        self.model[name] = Talk([self.model[source].line.upto(seq)])

    @precondition(lambda self: self.model)
    @rule(pick=PICK, to=PICK)
    def rewind(self, pick: int, to: int) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        talk, seq = self.model[name], self.seq(name, to) or 0
        self.store.rewind(name, seq)
        if seq != len(talk.line.said):
            talk.turn_to(talk.line.upto(seq))

    @precondition(lambda self: self.model)
    @rule(pick=PICK, at=PICK, text=TEXTS)
    def edit(self, pick: int, at: int, text: str) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        talk, seq = self.model[name], self.seq(name, at, 1)
        if seq is not None:
            self.store.edit(name, seq, cc.user(text))
            talk.turn_to(talk.line.upto(seq - 1))
            talk.line.said.append(ExpectedMessage(text))

    @precondition(lambda self: self.model)
    @rule(pick=PICK, to=PICK)
    def switch(self, pick: int, to: int) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        talk = self.model[name]
        talk.current = to % len(talk.lines)
        self.store.switch(name, self.store.branches(name)[talk.current].number)

    @precondition(lambda self: self.model)
    @rule(pick=PICK)
    def reset(self, pick: int) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        line = self.model[name].line
        self.store.reset(name)
        if len(line.said) > max(line.edges, default=0):
            line.edges.append(len(line.said))

    @precondition(lambda self: self.model)
    @rule(pick=PICK, at=PICK)
    def redact(self, pick: int, at: int) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        if seq := self.seq(name, at, 1):
            self.store.redact(name, self.store.load(name)[seq - 1].id)
            self.model[name].line.said[seq - 1].text = ""

    @precondition(lambda self: self.model)
    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        self.store.delete(name)
        del self.model[name]

    @precondition(lambda self: self.model)
    @rule(pick=PICK, texts=st.lists(st.uuids().map(str), max_size=2))
    def sync(self, pick: int, texts: list[str]) -> None:
        name = sorted(self.model)[pick % len(self.model)]
        line = self.model[name].line
        known = [cc.user(expected.original) for expected in line.said]  # redacted words too: the client still has them
        self.store.sync(name, [*known, *[cc.user(text) for text in texts]])
        line.said += [ExpectedMessage(text) for text in texts]

    @precondition(lambda self: self.model)
    @rule(pick=PICK, name=NAMES)
    def move(self, pick: int, name: str) -> None:
        """Out to a file, and back in under another name."""
        source = sorted(self.model)[pick % len(self.model)]
        lines = list(export_lines(self.store, source))
        if name in self.model:
            with pytest.raises(cc.errors.ConversationExists):
                import_lines(self.store, lines, name)
            return
        import_lines(self.store, lines, name)
        assert self.store.load(name) == self.store.load(source)
        copies: dict[int, ExpectedMessage] = {}

        def copy(line: Line) -> Line:
            return Line(
                [
                    copies.setdefault(id(expected), ExpectedMessage(expected.text, expected.original))
                    for expected in line.said
                ],
                list(line.edges),
            )

        talk = self.model[source]
        lines_ = [copy(line) for line in talk.lines]
        self.model[name] = Talk(lines_, talk.current, {key: copies[id(text)] for key, text in talk.keys.items()})

    @rule()
    def reopen(self) -> None:
        if self.durable:
            self.store.close()
            self.store = cc.open_store(self.address)

    @invariant()
    def everything_agrees(self) -> None:
        assert [each.name for each in self.store.conversations()] == sorted(self.model)
        for name, talk in self.model.items():
            found, messages = self.store.conversation(name), self.store.load(name)
            assert [message.text for message in messages] == [expected.text for expected in talk.line.said]
            assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
            assert (found.length, found.context_start) == (len(messages), max(talk.line.edges, default=0))
            branches = self.store.branches(name)
            assert [branch.length for branch in branches] == [len(line.said) for line in talk.lines]
            assert [branch.current for branch in branches].index(True) == talk.current
            for branch, line in zip(branches, talk.lines, strict=True):
                loaded = self.store.load(name, branch=branch.number)
                assert [message.text for message in loaded] == [expected.text for expected in line.said]


class SQLiteMachine(StoreMachine):
    """The same on a file, closed and opened again in between."""

    durable = True

    def new_address(self) -> str:
        self.folder = TemporaryDirectory()
        return f"sqlite:///{Path(self.folder.name) / 'chat.db'}"

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def run(machine: type[StoreMachine], examples: int) -> None:
    """Run a third of so many random lives of a store, and ten times as many in `make prove`."""
    count = often(examples // 3, 10 * examples)
    run_state_machine_as_test(machine, settings=settings(max_examples=count, stateful_step_count=30))


def test_the_memory_store_agrees_with_the_model() -> None:
    """Guarantees 3.1 to 3.5, 2.7, 2.8: whatever the order of calls."""
    run(StoreMachine, 30)


def test_the_sqlite_store_agrees_with_the_model() -> None:
    run(SQLiteMachine, 10)


def test_the_postgres_store_agrees_with_the_model(postgres_server: str) -> None:
    class PostgresMachine(SQLiteMachine):
        def new_address(self) -> str:
            self.schema = f"model_{uuid.uuid4().hex}"
            self.folder = TemporaryDirectory()
            return in_schema(postgres_server, self.schema)

        def teardown(self) -> None:
            super().teardown()
            with psycopg.connect(postgres_server, autocommit=True) as connection:
                connection.execute(f'DROP SCHEMA "{self.schema}" CASCADE'.encode())

    run(PostgresMachine, 6)
