"""Logged exchanges as conversations: each decoded in its format, and all of them joined."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.errors import ContextcError, InvalidInput
from contextc.formats import formatter
from contextc.formats.base import Formatter
from contextc.messages import Message
from contextc.transfer.exchanges import Exchange, events_in, format_of
from contextc.transfer.found import Found, objects_in
from contextc.transfer.joining import Joined, Node
from contextc.wire.reading import readable

Logged = Iterable[tuple[str, Exchange | None]]
"""Exchanges with where each stands; None where there is none at that place."""
ODD = (KeyError, TypeError, AttributeError, ValueError, IndexError)
"""How a decoder stumbles over what is no reply of its format."""


def conversations(logged: Logged, *, format: str | None = None, apart: bool = False) -> Iterator[Found]:
    """The conversations in a log. `apart` says that each exchange with an id is one of its own, as in a batch."""
    log = _Log(format, apart)
    for where, exchange in logged:
        log.take(where, exchange)
    log.close()
    left_out = list(log.left_out.elements())
    for found in log.joined.conversations():
        yield replace(found, left_out=left_out)
        left_out = []


class _Log:
    def __init__(self, format: str | None, apart: bool) -> None:
        self.format, self.apart = format, apart
        self.joined = Joined()
        self.left_out: Counter[str] = Counter()
        self.known: dict[tuple[object, ...], str] = {}
        self.ends: dict[bytes, dict[int, Node]] = {}
        self.requests: dict[str, tuple[Node, Formatter]] = {}
        self.waiting: dict[str, tuple[str, Exchange]] = {}

    def take(self, where: str, exchange: Exchange | None) -> None:
        if exchange is None:
            self.left_out["a line that holds no request"] += 1
            return
        if exchange.failed:
            self.left_out["a reply that is an error"] += 1
        if exchange.body is None:
            self._answer(where, exchange)
            return
        form = formatter(self.format or format_of(exchange, self.known))
        name = exchange.conversation or exchange.id
        try:
            node = self._asked(form, exchange, exchange.body, name)
        except (ContextcError, *ODD) as error:
            self.left_out[f"{where}: {error}"] += 1
            return
        if node is None:
            self.left_out["a request without a message"] += 1
            return
        reply = self._reply(form, exchange, where)
        self.joined.reply(node, reply)
        if exchange.id and reply is None:
            self.requests[exchange.id] = node, form
            if exchange.id in self.waiting:
                self._answer(*self.waiting.pop(exchange.id))

    def _asked(self, form: Formatter, exchange: Exchange, body: JSONObject, name: str) -> Node | None:
        """Put in a request; of one that goes on from another, only what is new is decoded."""
        apart = name if exchange.conversation or self.apart else ""
        wire = _Wire(form, body)
        for length in wire.ends(self.ends):
            system, messages = _history(form, wire.tail(length), exchange.time)
            head = self.joined.begin(system, apart)
            before = self.ends[wire.marks[length]].get(id(head))
            if before is not None:
                node = self.joined.ask(before, messages, name=name)
                break
        else:
            system, messages = _history(form, body, exchange.time)
            if system is None and not messages:
                return None
            head = self.joined.begin(system, apart)
            node = self.joined.ask(head, messages, name=name)
        if wire.marks:
            self.ends.setdefault(wire.marks[-1], {})[id(head)] = node
        return node

    def _answer(self, where: str, exchange: Exchange) -> None:
        """A reply that stands elsewhere than its request."""
        if exchange.id not in self.requests:
            self.waiting[exchange.id] = where, exchange
            return
        node, form = self.requests[exchange.id]
        self.joined.reply(node, self._reply(form, exchange, where))

    def close(self) -> None:
        if self.waiting and not self.requests:
            raise InvalidInput(
                f"{len(self.waiting)} results are here, and none of the requests they answer. Give both files: "
                "contextc import requests.jsonl results.jsonl."
            )
        if self.waiting:
            self.left_out["a result whose request is not here"] += len(self.waiting)

    def _reply(self, form: Formatter, exchange: Exchange, where: str) -> Message | None:
        if exchange.reply is None:
            return None
        try:
            message = _decoded(form, exchange.reply)
        except (ContextcError, *ODD):
            self.left_out[f"{where}: a reply that is none of {form.name}"] += 1
            return None
        return replace(message, time=exchange.time) if exchange.time and not message.time else message


class _Wire:
    """The messages of a request as they were sent, with a mark for each place: equal marks, equal messages before it.

    A system prompt at their head is left aside, because it may tell the time.
    """

    def __init__(self, form: Formatter, body: JSONObject) -> None:
        self.form, self.body = form, body
        given = objects_in(body.get(form.messages_key))
        self.first = 1 if given and given[0].get("role") in ("system", "developer") else 0
        self.messages = given
        self.marks: list[bytes] = []
        mark = form.name.encode()
        for message in given[self.first :]:
            mark = blake2b(mark + encode(message), digest_size=16).digest()
            self.marks.append(mark)

    def ends(self, known: Mapping[bytes, object]) -> Iterator[int]:
        """The last place at which another request ended and from which this one goes on with what the model said."""
        for place in range(len(self.marks) - 2, -1, -1):
            if self.marks[place] in known:
                before, after = self.messages[self.first + place], self.messages[self.first + place + 1]
                if _is_said(after) and not _is_said(before):
                    yield place
                return

    def tail(self, place: int) -> JSONObject:
        """The request without the messages up to a place."""
        kept = [*self.messages[: self.first], *self.messages[self.first + place + 1 :]]
        return {**self.body, self.form.messages_key: kept}


def _is_said(message: JSONObject) -> bool:
    """Whether a model said this, or called for it."""
    return message.get("role") in ("assistant", "model") or message.get("type") in ("function_call", "reasoning")


def _history(form: Formatter, body: JSONObject, time: int) -> tuple[Message | None, list[Message]]:
    """The system prompt, and the messages."""
    request = form.decode_request(readable(form, body).body)
    said = [*([request.system] if request.system is not None else []), *request.messages]
    said = [replace(message, time=time) for message in said] if time else said
    leads = bool(said) and said[0].role == "system"
    return (said[0], said[1:]) if leads else (None, said)


def _decoded(form: Formatter, reply: JSON) -> Message:
    if isinstance(reply, str):
        return form.decode_stream(events_in(reply))
    if isinstance(reply, list):
        return form.decode_stream(cast(list[JSONObject], reply))
    return form.decode_reply(reply)
