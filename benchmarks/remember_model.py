"""The scripted model of `remember.py`, and what it takes note of.

It takes the steps of a planted session, whatever it is shown. A request without tools, or one that ends with neither a
scripted prompt nor the result of a call, is a request for a summary. A summary has no content, or it is *extractive*:
the sentences with a digit, an identifier or a path, chosen by their hash until a limit is reached. It is the same
function for everybody, but it can only choose from what a request contains.

After the last turn come questions. In each, the model calls the tool with which a framework offers to search the
history, once, with the words around a fact that the last request did not contain.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from threading import Lock
from typing import Literal, NamedTuple, TypeAlias, cast

from tests.fake_vendors import AcceptedRequest, Reply, RequestRecord, ScriptedCall
from tests.fake_vendors.replies import Tokens
from tests.fake_vendors.request_handler import RequestHandler
from tests.fake_vendors.responses import FakeResponse, RequestHead

from contextc._json import JSON, JSONObject, decode, encode
from contextc.messages import Message
from contextc.tools.definitions import Tool
from frameworks.prefix_cache import Block, PrefixCacheMeter, texts_of
from frameworks.scenario_steps import END
from planted_sessions import FACT_KINDS, FactKind, Session, session_texts

Summaries: TypeAlias = Literal["empty", "extractive"]
RequestKind: TypeAlias = Literal["step", "summary", "question"]
EMPTY = "The conversation so far was about the task."
SUMMARY_BYTES = 6_000
"""Limit of an extractive summary: about 1,500 tokens."""
SENTENCE_BYTES = 300
SENTENCE_ENDS = re.compile(r"\\n|\n|(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")
NOTABLE = re.compile(r"\d|\w/\w|[A-Z]{3}|_")
SEARCH_TOOLS = ("search_history", "search_conversation_history", "load_memory")
"""The tools with which frameworks search the history. All of them have the argument `query`."""
QUESTIONS = 20
"""Facts of a kind that are searched for, if so many are not shown."""
COMPACT = "/v1/responses/compact"


class Observed(NamedTuple):
    """An accepted request."""

    kind: RequestKind
    turn: int
    position: int
    """The step that it asks for, counted from the beginning of the session."""
    tokens: Tokens
    substitutes: int
    """Tokens of what stands in place of messages: summaries, placeholders, an index, repeated words of people."""
    shown: frozenset[int]
    """The facts in it, by their index in the session."""


class Found(NamedTuple):
    """The answer of a search."""

    fact: int
    characters: int
    has_value: bool


class ScriptedModel(PrefixCacheMeter):
    """The model: a script for the stand-in, and its meter."""

    def __init__(self, session: Session, summaries: Summaries) -> None:
        super().__init__()
        self.session, self.summaries = session, summaries
        self.requests: list[Observed] = []
        self.found: list[Found] = []
        self.steps: set[int] = set()
        """The steps that were taken."""
        self._turn = self._number = self._position = 0
        self._kind: RequestKind = "step"
        self._wanted: list[int] | None = None
        self._asked: int | None = None
        self._given: dict[str, Reply] = {}
        self._lock = Lock()
        self._first = [*accumulate([len(turn.steps) for turn in session.turns], initial=0)]
        self._noted: dict[bytes, tuple[frozenset[int], bool]] = {}

    # ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def __call__(self, ask: AcceptedRequest) -> Reply:
        with self._lock:
            if ask.identity not in self._given:
                self._given[ask.identity] = self._reply(ask)
            return self._given[ask.identity]

    def _reply(self, ask: AcceptedRequest) -> Reply:
        last = ask.request.messages[-1]
        prompt = self._newest_prompt(last.text)
        if not ask.request.tools or (prompt is None and not last.tool_results):
            self._kind = "summary"
            return Reply(EMPTY if self.summaries == "empty" else extract(request_texts(ask)))
        if prompt is not None and prompt != self._turn:
            self._turn, self._number = prompt, 0
        if self._turn >= len(self.session.turns):
            self._kind = "question"
            return self._question(ask, [result.text for result in last.tool_results])
        self._kind = "step"
        turn, number = self.session.turns[self._turn], self._number
        self._position = self._first[self._turn] + number
        if number >= len(turn.steps):
            return Reply(turn.answer)
        self._number += 1
        self.steps.add(self._position)
        step = turn.steps[number]
        return Reply(step.text, [ScriptedCall(call.tool, {"name": call.argument}) for call in step.calls])

    def _newest_prompt(self, text: str) -> int | None:
        """Return the number of the newest prompt in a message; questions follow the turns."""
        for index in range(len(self.prompts) - 1, self._turn - 1, -1):
            if self.prompts[index] in text:
                return index
        return None

    @cached_property
    def prompts(self) -> list[str]:
        questions = [f"Question {number + 1}: what was it?" for number in range(QUESTIONS * len(FACT_KINDS) + 1)]
        return [*(turn.prompt for turn in self.session.turns), *questions]

    def _question(self, ask: AcceptedRequest, answers: Sequence[str]) -> Reply:
        if answers and self._asked is not None:
            fact = self.session.facts[self._asked]
            text = "\n".join(answers)
            self.found.append(Found(self._asked, len(text), fact.value in text or fact.value in _unescaped(text)))
            self._asked = None
            return Reply("Thank you.")
        offered = {tool.name for tool in ask.request.tools if isinstance(tool, Tool)}
        tool = next((name for name in SEARCH_TOOLS if name in offered), None)
        if self._wanted is None:
            self._wanted = [*self._sample()]
        if tool is None or not self._wanted:
            return Reply(END)
        self._asked = self._wanted.pop(0)
        return Reply("I search.", [ScriptedCall(tool, {"query": self.session.facts[self._asked].query})])

    def _sample(self) -> Iterator[int]:
        shown = self.last.shown
        for kind in FACT_KINDS:
            missing = [at for at, fact in enumerate(self.session.facts) if fact.kind == kind and at not in shown]
            step = max(1, -(-len(missing) // QUESTIONS))
            yield from missing[::step]

    # ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def observe(self, blocks: Sequence[tuple[Block, int]], tokens: Tokens) -> None:
        noted = [(self._note(block.content), size) for block, size in blocks]
        self.requests.append(
            Observed(
                kind=self._kind,
                turn=self._turn,
                position=self._position,
                tokens=tokens,
                substitutes=sum(size for (_, is_substitute), size in noted if is_substitute),
                shown=frozenset[int]().union(*(facts for (facts, _), _ in noted)),
            )
        )

    def _note(self, content: bytes) -> tuple[frozenset[int], bool]:
        """Return the facts in a block, and True if it stands in place of messages."""
        if content not in self._noted:
            around, part = cast(list[JSON], decode(content))
            texts = [*texts_of([around, part])]
            whole = "\n".join([*texts, *map(_unescaped, texts)])
            facts = frozenset(at for at, fact in enumerate(self.session.facts) if fact.value in whole)
            is_head = around in ("tool", "system") or _field(around, "role") in ("system", "developer")
            self._noted[content] = facts, not is_head and not self._is_original(around, texts)
        return self._noted[content]

    def _is_original(self, around: JSON, texts: Sequence[str]) -> bool:
        if _field(around, "type") == "function_call":
            texts = [*texts_of(_parsed(str(_field(around, "arguments"))))]
        inner = [each for text in texts if text[:1] in "{[" for each in texts_of(_parsed(text))]
        return any(text.strip() in self._originals for text in [*texts, *inner])

    @cached_property
    def _originals(self) -> set[str]:
        calls = [call.argument for turn in self.session.turns for step in turn.steps for call in step.calls]
        return {text.strip() for text in [*session_texts(self.session), *calls]}

    @property
    def last(self) -> Observed:
        """The last request for a step."""
        return [each for each in self.requests if each.kind == "step"][-1]

    def planted(self, kind: FactKind, request: Observed) -> list[int]:
        """Return the facts of a kind that were in the conversation before a request."""
        end = self._first[request.turn + 1] if kind == "rule" else request.position
        return [at for at, fact in enumerate(self.session.facts) if fact.kind == kind and fact.step < end]

    def shares(self, requests: Sequence[Observed]) -> dict[FactKind, float]:
        """Return the mean share of the facts so far that requests contain, by kind."""
        found: defaultdict[FactKind, list[float]] = defaultdict(list)
        for request in requests:
            for kind in FACT_KINDS:
                planted = self.planted(kind, request)
                if planted:
                    found[kind].append(len(request.shown.intersection(planted)) / len(planted))
        return {kind: sum(shares) / len(shares) for kind, shares in found.items()}

    def reachable(self) -> dict[FactKind, float]:
        """Return the share of facts that the last request contains or one search finds, by kind."""
        shown, last = self.shares([self.last]), self.last.shown
        found: dict[FactKind, float] = {}
        for kind in FACT_KINDS:
            asked = [
                each for each in self.found if self.session.facts[each.fact].kind == kind and each.fact not in last
            ]
            share = sum(each.has_value for each in asked) / len(asked) if asked else 0.0
            found[kind] = shown[kind] + (1 - shown[kind]) * share
        return found


class CompactingHandler(RequestHandler):
    """The stand-in with OpenAI's endpoint for compaction: it keeps the messages of users, and summarizes the rest."""

    def answer(self, head: RequestHead, raw: bytes, connection: int = 0) -> tuple[FakeResponse, RequestRecord]:
        if head.path != COMPACT:
            return super().answer(head, raw, connection)
        answer, record = super().answer(head._replace(path="/v1/responses"), raw, connection)
        if answer.status != 200:
            return answer, record
        body = cast(JSONObject, decode(cast(bytes, answer.steps[0])))
        items = cast(list[JSONObject], cast(JSONObject, decode(raw))["input"])
        kept: list[JSON] = [
            {"type": "message", "id": f"msg_kept_{at}", "status": "completed", **item, "content": _as_parts(item)}
            for at, item in enumerate(items)
            if item.get("role") == "user"
        ]
        text = record.reply.text if record.reply else ""
        summary: JSONObject = {"type": "compaction", "id": f"cmp_{body['id']}", "encrypted_content": text}
        made: JSONObject = {
            "id": body["id"],
            "object": "response.compaction",
            "created_at": body["created_at"],
            "output": [*kept, summary],
            "usage": body["usage"],
        }
        return FakeResponse(status=200, steps=(encode(made),)), record


def _as_parts(item: JSONObject) -> JSON:
    content = item.get("content")
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def request_texts(ask: AcceptedRequest) -> list[str]:
    """Return the texts of the messages of a request."""
    return [text for message in ask.request.messages for text in _message_texts(message)]


def _message_texts(message: Message) -> Iterator[str]:
    yield message.text
    for result in message.tool_results:
        yield result.text


def extract(texts: Sequence[str]) -> str:
    """Return sentences with figures, identifiers or paths, in their order, up to the limit."""
    sentences = dict.fromkeys(sentence for text in texts for sentence in _sentences(text) if NOTABLE.search(sentence))
    left, chosen = SUMMARY_BYTES, set[str]()
    for sentence in sorted(sentences, key=lambda each: blake2b(each.encode(), digest_size=8).digest()):
        size = len(sentence.encode()) + 1
        if size <= min(left, SENTENCE_BYTES):
            left -= size
            chosen.add(sentence)
    return "\n".join([sentence for sentence in sentences if sentence in chosen]) or EMPTY


def _sentences(text: str) -> Iterator[str]:
    """Return the sentences of a text. A sentence that is too long is a list, and its items count."""
    for sentence in SENTENCE_ENDS.split(text):
        is_list = len(sentence.encode()) > SENTENCE_BYTES
        yield from (each.strip() for each in (sentence.split(", ") if is_list else (sentence,)))


def _field(value: JSON, name: str) -> JSON:
    return cast(JSONObject, value).get(name) if isinstance(value, dict) else None


def _parsed(text: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _unescaped(text: str) -> str:
    """Return a text in which non-ASCII characters are not escaped, as they are in JSON inside a string."""
    if "\\u" not in text:
        return ""
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match.group(1), 16)), text)
