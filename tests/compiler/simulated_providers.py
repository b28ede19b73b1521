"""Simulated providers that remember what they were sent, and raise if it is wrong.

`SessionProvider` keeps a session's memory, as Claude Code, Codex and `previous_response_id` do. It rejects a full
context in an existing session, a delta to a memory that is not at the ledger's position, and content that it already
has. It can fail before or after it stored a prompt, and lose a session. `StatelessProvider` rejects a request that does
not begin like the previous one. Both depend only on the requests that the compiler makes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec.structs import replace

import contextc as cc
from contextc._json import JSON, JSONObject, encode_canonical
from contextc.compiler import Compiled
from contextc.formats.base import Formatter, split_segments
from contextc.store.ledger_schema import Channel

MARK = re.compile(r"«[tra]\d+»")
"""Stands in every word that may be told once only: a text, a result, arguments."""
HEAD = ("system", "instructions", "systemInstruction", "tools")
Failure: TypeAlias = Literal["", "before", "after", "lost"]


class Complaint(AssertionError):
    """The provider was sent something that it must not be sent."""


class ProviderDown(Exception):
    """A call failed. It is unknown how much of it the session kept."""


class SessionGone(Exception):
    """The provider has no such session."""


class Answer(NamedTuple):
    produced: tuple[cc.Message, ...]
    session_id: str | None = None
    cursor: str = ""


def without_cache_marks(value: JSON) -> JSON:
    if isinstance(value, dict):
        fields = cast(JSONObject, value)
        return {name: without_cache_marks(each) for name, each in fields.items() if name != "cache_control"}
    return [without_cache_marks(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


def blocks(messages: Iterable[JSONObject]) -> list[bytes]:
    """Wire messages as content blocks with their role: strings as single text blocks, neighbours not distinguished."""
    found: list[bytes] = []
    for message in messages:
        role = message.get("role", "")
        content: str | list[JSON] = message.get("content", message.get("parts")) or ""
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        for block in content:
            found.append(encode_canonical([role, without_cache_marks(block)]))
        rest = {name: value for name, value in message.items() if name not in ("role", "content", "parts")}
        if rest:
            found.append(encode_canonical([role, without_cache_marks(rest)]))
    return found


def marks(text: Iterable[bytes]) -> Counter[str]:
    return Counter(mark for each in text for mark in MARK.findall(each.decode()))


def sent_messages(compiled: Compiled) -> list[JSONObject]:
    """Return the messages of a request, without the system prompt if it is one of them."""
    formatter, params = compiled.formatter, compiled.params
    found = cast(list[JSONObject], params[formatter.messages_key])
    return found[len(compiled.head.body[formatter.messages_key]) - 1 :]


def head_of(compiled: Compiled) -> JSONObject:
    """A request without its messages; a system prompt among them stays."""
    key = compiled.formatter.messages_key
    count = len(compiled.params[key]) - len(sent_messages(compiled))
    return {**compiled.params, key: compiled.params[key][:count]}


def reply_messages(formatter: Formatter, produced: Sequence[cc.Message]) -> list[JSONObject]:
    """Return the model's reply in the form that the provider stores."""
    together: list[cc.Message] = []
    for message in produced:
        if message.role == "tool" and together and together[-1].role == "tool":
            together[-1] = replace(together[-1], parts=(*together[-1].parts, *message.parts))
        else:
            together.append(message)
    return [wire for segment in split_segments(together) for wire in formatter.encode(segment).messages]


def merged(messages: Iterable[JSONObject]) -> list[JSONObject]:
    """Neighbours of one role as one message, as a provider takes them that demands it."""
    found: list[JSONObject] = []
    for message in messages:
        name = "parts" if "parts" in message else "content"
        if found and found[-1].get("role") == message.get("role"):
            found[-1] = {**found[-1], name: [*found[-1][name], *message[name]]}
        else:
            found.append(message)
    return found


@dataclass
class Session:
    """`memory` in order, what we sent (`sent`) beside what the provider said itself; lengths by cursor."""

    head: JSONObject
    memory: list[JSONObject] = field(default_factory=list[JSONObject])
    sent: list[JSONObject] = field(default_factory=list[JSONObject])
    cursors: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    acknowledged: str = ""


class SessionProvider:
    def __init__(self, *, reverts: bool) -> None:
        self.reverts = reverts
        self.sessions: dict[str, Session] = {}
        self.made = 0

    def send(self, compiled: Compiled, produced: Sequence[cc.Message], failure: Failure = "") -> Answer:
        if failure == "before":
            raise ProviderDown("the network is down")
        gone = failure == "lost"
        name = self._started(compiled) if compiled.mode == "full" else self._resumed(compiled, gone=gone)
        session = self.sessions[name]
        messages = sent_messages(compiled)
        if not messages:
            raise Complaint("an empty request was sent")
        result = marks(blocks(session.memory))
        twice = {mark for mark in marks(blocks(messages)) if result[mark]}
        if twice:
            raise Complaint(f"{name} was told {twice} before")
        session.memory += messages
        session.sent += messages
        self._check(compiled, session)
        if failure == "after":
            raise ProviderDown("the answer broke off")
        session.memory += reply_messages(compiled.formatter, produced)
        cursor = f"{name}/{len(session.cursors) + 1}"
        session.cursors[cursor] = (len(session.memory), len(session.sent))
        return Answer(tuple(produced), name, cursor)

    def acknowledge(self, answer: Answer) -> None:
        """The answer was stored: from here the session is to be continued."""
        assert answer.session_id is not None
        self.sessions[answer.session_id].acknowledged = answer.cursor

    def _started(self, compiled: Compiled) -> str:
        if compiled.session_id is not None or compiled.revert_to is not None:
            raise Complaint(f"a full context was put into session {compiled.session_id}")
        self.made += 1
        name = f"session{self.made}"
        self.sessions[name] = Session(head_of(compiled))
        return name

    def _resumed(self, compiled: Compiled, *, gone: bool) -> str:
        name = compiled.session_id
        if name is None:
            raise Complaint("a delta without a session")
        if gone:
            self.sessions.pop(name, None)
        if name not in self.sessions:
            raise SessionGone(name)
        session = self.sessions[name]
        if compiled.revert_to is not None:
            if not self.reverts:
                raise Complaint("this provider cannot bring a session back")
            length, sent = session.cursors[compiled.revert_to]
            del session.memory[length:], session.sent[sent:]
        if len(session.memory) != session.cursors[session.acknowledged][0]:
            raise Complaint(f"{name} holds a prompt that the ledger knows nothing of")
        return name

    def _check(self, compiled: Compiled, session: Session) -> None:
        """The whole memory must be a conversation that the provider takes, calls and results paired."""
        key, form = compiled.formatter.messages_key, compiled.formatter.name
        memory = merged(session.memory) if compiled.formatter.merges_neighbours else session.memory
        findings = cc.lint({**session.head, key: [*session.head[key], *memory]}, format=form)
        if findings:
            raise Complaint("\n".join(str(finding) for finding in findings))


class StatelessProvider:
    """Takes every request whole, and remembers how the last one of each channel began."""

    def __init__(self) -> None:
        self.last: dict[Channel, tuple[JSONObject, list[bytes]]] = {}

    def send(self, compiled: Compiled, produced: Sequence[cc.Message], failure: Failure = "") -> Answer:
        if compiled.mode != "full" or compiled.session_id is not None or compiled.revert_to is not None:
            raise Complaint("a stateless provider has no session")
        if findings := cc.lint(compiled.params, format=compiled.formatter.name):
            raise Complaint("\n".join(str(finding) for finding in findings))
        now, before = self._parts(compiled), self.last.get(compiled.channel)
        if before is not None and not compiled.manifest.why:
            if before[0] != now[0]:
                raise Complaint("the head changed, and the manifest does not say why")
            if now[1][: len(before[1])] != before[1]:
                index = next(
                    (index for index, pair in enumerate(zip(before[1], now[1], strict=False)) if pair[0] != pair[1]),
                    min(len(before[1]), len(now[1])),
                )
                raise Complaint(
                    f"the prefix changed at block {index}, and the manifest does not say why:\n"
                    f"{before[1][index : index + 1]}\n{now[1][index : index + 1]}"
                )
        if failure:
            raise ProviderDown("the network is down")
        return Answer(tuple(produced))

    def acknowledge(self, compiled: Compiled) -> None:
        self.last[compiled.channel] = self._parts(compiled)

    def _parts(self, compiled: Compiled) -> tuple[JSONObject, list[bytes]]:
        head = {name: without_cache_marks(compiled.params[name]) for name in HEAD if name in compiled.params}
        among = head_of(compiled)[compiled.formatter.messages_key]
        return {**head, "among": without_cache_marks(among)}, blocks(sent_messages(compiled))
