"""Simulated clients of a provider: agents that send requests, with a clock and a cache that they share.

A scenario makes a `Session`, lets its agents work, and changes what they send. It gives the cause of a miss with the
request that it spoils. `send` checks the cause against the tokens of the simulated cache.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec

from tests.analysis.traces.simulated_cache import SimulatedCache, Use
from tests.analysis.traces.texts import JSONObject, Writer
from tests.analysis.traces.trace import CAUSES, Exchange, Trace
from tests.analysis.traces.wire_formats import Block, Message, Request, encode, encode_reply, failure, texts

MODELS = {
    "anthropic": "claude-sonnet-4-5", "chat": "gpt-4.1", "responses": "gpt-5.4", "gemini": "gemini-2.5-pro",
    "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
}  # fmt: skip
FORMATS = {
    "anthropic": "anthropic", "chat": "openai_chat", "responses": "openai_responses", "gemini": "gemini",
    "bedrock": "bedrock",
}  # fmt: skip
URLS = {
    "anthropic": "https://api.anthropic.com/v1/messages",
    "chat": "https://api.openai.com/v1/chat/completions",
    "responses": "https://api.openai.com/v1/responses",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/models/{model}:generateContent",
    "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/converse",
}
START = 1_790_000_000_000
SECOND = 1_000
SURE_HIT, SURE_MISS = (900, 0.045), (1_250, 0.065)
"""Misses below the first and above the second pair (tokens, share of the previous request) are beyond doubt."""
REWRITTEN = {"message_changed", "message_removed", "message_inserted", "tools_changed", "system_changed"}
"""Causes after which a request can be shorter than the one before. Only what was rewritten is a miss beyond doubt."""
UNSET = "unset"


class WrongLabel(AssertionError):
    """The label of a request does not fit what the simulated cache read."""


class Session:
    """One trace: a clock, a cache, and the exchanges so far."""

    def __init__(
        self, name: str, half: str, wire: str, subject: str, *, model: str = "", ids: str = "", ratio: float = 0,
        url: str = "", system: int = 9_000, tools: int = 900, result: int = 3_500, ignores_attribution: bool = True,
        is_implicit: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.half, self.wire = name, half, wire
        self.writer = Writer(subject, f"{half}/{name}")
        self.rng = self.writer.rng
        self.model = model or MODELS[wire]
        self.ids = ids or {"anthropic": "claude-code", "responses": "codex"}.get(wire, "explicit")
        self.url = url or URLS[wire]
        self.sizes = system, tools, result
        self.cache = SimulatedCache(
            wire, ratio or self.rng.uniform(3.3, 4.3), ignores_attribution=ignores_attribution,
            is_implicit=is_implicit,
        )  # fmt: skip
        self.now = START + self.rng.randrange(10**9)
        self.id = str(UUID(bytes=self.rng.randbytes(16), version=4))
        self.exchanges: list[Exchange] = []
        self._agents = 0

    def agent(self, **fields: Any) -> "Agent":
        """Return a new agent: the main one first, then sub-agents."""
        self._agents += 1
        writer, (system, tools, _) = self.writer, self.sizes
        made: JSONObject = {
            "model": self.model,
            "system": [f"{writer.subject.role}\n\n{writer.prose(system)}"],
            "tools": writer.tools(0, tools),
            "marks": {"system", "tail"},
        }
        name = "main" if self._agents == 1 else f"agent {self._agents - 1}"
        given: JSONObject = {"name": name, **made, **fields}
        return Agent(self, **given)

    def idle(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def trace(self) -> Trace:
        return Trace(self.name, self.half, self.wire, tuple(self.exchanges))


@dataclass
class Agent:
    """A conversation of a client. Its fields are what it sends next; change them between requests."""

    session: Session
    name: str
    model: str
    system: list[str]
    tools: list[JSONObject]
    marks: set[str]
    messages: list[Message] = field(default_factory=list[Message])
    settings: JSONObject = field(default_factory=dict[str, Any])
    ttl: dict[str, str] = field(default_factory=dict[str, str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    marked: int | None = None
    thinks: bool = False
    kind: str = ""
    """`side` for requests that are no part of a conversation."""
    tail: list[Message] = field(default_factory=list[Message])
    """Messages that are sent at the end, and not kept."""
    spacing: bool = False
    escape: bool = False
    reports: bool = True
    """False if replies have no usage."""
    left_out: list[JSONObject] = field(default_factory=list[JSONObject])
    """Tools that are not sent for a while."""
    last: Use | None = None
    """The tokens of the last answered request."""
    sent: dict[int, Message] = field(default_factory=dict[int, Message])
    """The messages of the last answered request, by their identity."""

    # Content

    def ask(self, *blocks: str, size: int = 0) -> "Agent":
        """Append a message of the user. Without text, make some."""
        writer = self.session.writer
        made = list(blocks) or [writer.question() + (f"\n\n{writer.prose(size)}" if size else "")]
        self.messages.append(Message("user", texts(*made)))
        return self

    def answer(self, kind: str = "", *, calls: int = 1, size: int = 0) -> Message:
        """Return a message of the model: `call` or `text`."""
        writer, rng = self.session.writer, self.session.rng
        blocks: list[Block] = []
        if self.thinks:
            blocks.append(Block("thinking", writer.prose(rng.randrange(200, 900)), writer.signature()))
        if kind != "call" or rng.random() < 0.6:
            blocks += texts(writer.prose(size or rng.randrange(80, 700)))
        prefix = {"anthropic": "toolu_01", "bedrock": "tooluse_"}.get(self.session.wire, "call_")
        if kind == "call":
            for _ in range(calls):
                name = rng.choice(self.tools)["name"] if self.tools else "read_file"
                blocks.append(Block("call", "", writer.identifier(prefix), name, writer.arguments(name)))
        return Message("assistant", blocks)

    def results(self, answer: Message, size: int = 0) -> Message | None:
        """Return the results of the calls of a message of the model; None if it has none."""
        writer, rng, usual = self.session.writer, self.session.rng, self.session.sizes[2]
        calls = [block for block in answer.blocks if block.kind == "call"]
        most = size or usual
        made = [Block("result", writer.output(rng.randrange(most // 2, most)), b.id, b.name) for b in calls]
        return Message("user", made) if made else None

    # Requests

    def body(self) -> JSONObject:
        request = Request(
            self.model, self.system, self.tools, [*self.messages, *self.tail], self.settings, self.marks, self.ttl,
            self.marked,
        )  # fmt: skip
        return encode(self.session.wire, request)

    def send(
        self, cause: str | None = UNSET, *, accept: Iterable[str | None] = (), also: Iterable[str] = (),
        reply: str = "text", calls: int = 1, size: int = 0, result: int = 0, lose: str = "", fail: int = 0,
        at: int | None = None, potential: int | None = None, keep: bool = True, body: JSONObject | None = None,
        maybe: str = "",
    ) -> Exchange:  # fmt: skip
        """Send the request, append the answer and the results of its calls, and let time pass.

        `cause` is the label; without it, the first request of an agent is `first_request`, and others are hits. With
        `at`, the request is sent at that time beside others. `fail` is the status of an error. `potential` replaces
        the tokens that could have been read, which are those of the request before. Without `keep`, the answer is not
        part of the conversation. `maybe` is the cause if the miss is large enough to count as one.
        """
        session, rng = self.session, self.session.rng
        began = session.now if at is None else at
        first_token, ended = began + rng.randrange(700, 2_500), began + rng.randrange(2_600, 9_000)
        body = self.body() if body is None else body
        if fail:
            made, use = failure(session.wire, fail), Use(0, 0)
            label: tuple[str | None, frozenset[str | None], int] = (None, frozenset([None]), 0)
        else:
            use = session.cache.send(body, self.model, began, first_token, lose=lose)
            answer = self.answer(reply, calls=calls, size=size)
            made = encode_reply(session.wire, self.model, answer, use, session.writer.identifier(""))
            for name in () if self.reports else ("usage", "usageMetadata"):
                made.pop(name, None)
            label = self.check(cause, frozenset(accept), use, potential, maybe)
            self.last = use
            self.sent = {id(message): message for message in self.messages}
            if keep:
                self.messages.append(answer)
                if (results := self.results(answer, result)) is not None:
                    self.messages.append(results)
        sent = self._spell(body)
        exchange = Exchange(
            agent=self.name, format=FORMATS[session.wire],
            url=session.url.format(model=self.model), headers=self._headers(), conversation=self._conversation(),
            body=sent, reply=msgspec.json.encode(made), status=fail or 200,
            began=began, ended=ended, cause=label[0], accepted=label[1], also=tuple(also),
            total=use.total, read=use.read, missed=label[2],
        )  # fmt: skip
        session.exchanges.append(exchange)
        if at is None:
            session.now = ended + rng.randrange(150, 3_000)
        return exchange

    def work(self, count: int, cause: str | None = UNSET, **options: Any) -> "Agent":
        """Send a number of requests, as an agent with tools does: questions, calls, results, answers."""
        for at in range(count):
            if not self.messages or self.messages[-1].role == "assistant":
                self.ask()
            is_call = bool(self.tools) and (at < count - 1 or count == 1) and self.session.rng.random() < 0.8
            given: JSONObject = {"reply": "call" if is_call else "text", **options}
            self.send(cause, **given)
        return self

    def check(
        self, cause: str | None, accept: frozenset[str | None], use: Use, potential: int | None, maybe: str
    ) -> tuple[str | None, frozenset[str | None], int]:
        before = self.last.total if self.last else 0
        had = min(before, use.total) if potential is None else potential
        missed = max(had - use.read, 0)
        is_first = self.last is None and potential is None
        if maybe:
            is_hit = missed <= max(SURE_HIT[0], SURE_HIT[1] * had)
            cause, accept = (None, frozenset[str | None]()) if is_hit else (maybe, accept)
        if cause == UNSET:
            cause = "first_request" if is_first else None
        if cause is not None and cause not in CAUSES:
            raise WrongLabel(f"{cause}: unknown cause")
        where = f"{self.session.name} request {len(self.session.exchanges)}: {cause}, read {use.read} of {had}"
        none, first = frozenset[str | None]([None]), frozenset[str | None](["first_request"])
        nothing = frozenset[str | None]()
        if cause == "first_request":
            return cause, accept | first | (none if use.read else nothing), 0
        if cause is None:
            if missed > max(SURE_HIT[0], SURE_HIT[1] * had):
                raise WrongLabel(where)
            return None, accept | none | (first if is_first else nothing), missed
        if missed <= max(SURE_HIT[0], SURE_HIT[1] * had):
            raise WrongLabel(where)
        certain = missed
        if cause in REWRITTEN and potential is None:
            certain = min(missed, use.total - use.read - self._count_new())
        is_doubtful = certain < max(SURE_MISS[0], SURE_MISS[1] * had)
        return cause, accept | {cause} | (none if is_doubtful else nothing), missed

    def _count_new(self) -> int:
        """Return the tokens of messages that were not in the request before."""
        new = [block for message in self.messages if id(message) not in self.sent for block in message.blocks]
        length = sum([len(block.text) + len(str(block.input)) + 60 for block in new])
        return int(length / self.session.cache.ratio)

    def _spell(self, body: JSONObject) -> bytes:
        if not self.spacing and not self.escape:
            return msgspec.json.encode(body)
        separators = (", ", ": ") if self.spacing else (",", ":")
        return json.dumps(body, ensure_ascii=self.escape, separators=separators).encode()

    def _headers(self) -> dict[str, str]:
        session, made = self.session, {**self.headers}
        if session.ids == "claude-code":
            made.setdefault("x-claude-code-session-id", session.id)
            if self.name != "main" and self.kind != "side":
                made.setdefault("x-claude-code-agent-id", self._own_id())
        elif session.ids == "codex":
            made.setdefault("session-id", session.id)
            made.setdefault("thread-id", session.id if self.name == "main" else self._own_id())
            if self.name != "main":
                made.setdefault("x-codex-parent-thread-id", session.id)
        return made

    def _own_id(self) -> str:
        return str(UUID(bytes=blake2b(f"{self.session.id}{self.name}".encode(), digest_size=16).digest()))

    def _conversation(self) -> str | None:
        return f"{self.session.name}/{self.name}" if self.session.ids == "explicit" else None
