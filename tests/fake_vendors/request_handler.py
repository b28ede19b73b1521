"""Request handler of the fake vendors: check, record and answer each request. It does no I/O and is vendor-neutral.

A request is checked as its vendor would check it: headers, key, our lint rules, the types of the vendor's SDK, and
vendor-specific rules. A violation is answered with status 400 in the vendor's form. An accepted request is passed to
the script, and the response to the fault plan.
"""

from collections.abc import Callable, Iterator
from functools import cache
from threading import Lock
from time import thread_time, time
from typing import NamedTuple, cast

import msgspec

from contextc._json import JSONObject, decode, encode
from contextc.linting import lint
from tests.fake_vendors.faults import Plan
from tests.fake_vendors.replies import Reply, ScriptedCall, Tokens
from tests.fake_vendors.responses import (
    SECRETS,
    Event,
    FakeError,
    FakeResponse,
    Outcome,
    RequestHead,
    RequestRecord,
    refused,
)
from tests.fake_vendors.scripts import Script
from tests.fake_vendors.token_usage import UsageMeter
from tests.fake_vendors.vendor import KEY, AcceptedRequest, EncodedReply, Memory, Vendor, vendors
from tests.formats.known import problems


class Break(NamedTuple):
    """A request that does not extend the previous one of its conversation.

    `at` is the index of the first different message, or -1 for the system prompt or the tools.
    """

    earlier: RequestRecord
    later: RequestRecord
    at: int


class RequestHandler:
    """Request handler. `strict=False` accepts everything that has a key, for time measurements."""

    def __init__(
        self,
        script: Script,
        *,
        faults: Plan | None,
        window: int | None,
        strict: bool,
        keep: bool = True,
        clock: Callable[[], float] = time,
    ) -> None:
        self.script, self.faults, self.window, self.strict, self.keep = script, faults, window, strict, keep
        self.spent = 0.0
        self.tally = UsageMeter(exactly=strict, clock=clock)
        self.records: list[RequestRecord] = []
        self.replies: set[str] = set()
        self.issued: dict[str, ScriptedCall] = {}
        self.attempts: dict[str, int] = {}
        self.admitted = 0
        self.lock = Lock()
        self.memories: dict[str, Memory] = {}

    def answer(self, head: RequestHead, raw: bytes, connection: int = 0) -> tuple[FakeResponse, RequestRecord]:
        """Return the response and its record, which the sender marks as completed."""
        with self.lock:
            began = thread_time()
            record = RequestRecord(
                number=len(self.records),
                time=time(),
                connection=connection,
                method=head.method,
                path=head.path,
                headers={name: value for name, value in head.headers.items() if name not in _secret()},
                raw=raw if self.keep else b"",
            )
            self.records.append(record)
            try:
                answer = self._answered(head, raw, record)
            except _Refused as found:
                answer = refused(found.refusal)
                record.refused = found.reason
            except Exception as error:
                answer = FakeResponse(
                    status=500, steps=(encode({"error": {"message": f"The stand-in failed: {error!r}"}}),)
                )
                record.refused = f"the stand-in failed: {error!r}"
            record.status = answer.status
            self.spent += thread_time() - began
            return answer, record

    def _answered(self, head: RequestHead, raw: bytes, record: RequestRecord) -> FakeResponse:
        vendor = _asked(head.path)
        if vendor is None:
            raise _Refused(FakeError(404, {"error": {"message": f"Not Found: {head.path}"}}), "no such path")
        record.format = vendor.format
        memory = self.memory(vendor)
        if memory.serves(head):
            _refuse(_of_key(vendor, head))
            found = memory.answer(head, raw)
            _refuse((found, "the vendor") if isinstance(found, FakeError) else None)
            return FakeResponse(status=200, steps=(encode(found),))
        ask = self._admitted(vendor, head, raw)
        record.model, record.identity, record.attempt = ask.model, ask.identity, ask.attempt
        record.defects = tuple(self._defects(ask)) if self.strict else ()
        input = self._input(ask)
        reply = self._reply(ask)
        record.reply, record.tokens = reply, self.tally.tokens(ask, reply, input)
        answer = self._written(ask, record, record.tokens)
        fault = self.faults(ask) if self.faults else None
        if fault is None:
            return answer
        record.fault, record.spoiled = fault.name, fault.spoils
        return fault.apply(answer, ask)

    def memory(self, vendor: Vendor) -> Memory:
        """Return the state that this vendor keeps between requests."""
        return self.memories.setdefault(vendor.name, vendor.memory())

    def _admitted(self, vendor: Vendor, head: RequestHead, raw: bytes) -> AcceptedRequest:
        _refuse(_of_head(vendor, head))
        try:
            body = msgspec.json.decode(raw, type=JSONObject) if self.strict else _settings(vendor, raw)
        except ValueError as error:
            raise _Refused(vendor.invalid(f"The request body is not a JSON object: {error}")) from error
        ask = AcceptedRequest(vendor, head, raw, body, self.memory(vendor))
        if self.strict:
            _refuse(next(self._of_body(ask), None))
        ask.number, ask.attempt = self.admitted, self.attempts.get(ask.identity, 0)
        self.admitted += 1
        self.attempts[ask.identity] = ask.attempt + 1
        return ask

    def _of_body(self, ask: AcceptedRequest) -> Iterator[tuple[FakeError, str]]:
        """Return the problems of a body, those of our lint rules first."""
        vendor = ask.vendor
        for found in lint(vendor.judged(ask), format=vendor.format):
            yield vendor.invalid(found.error or found.message, path=found.path), f"{found.code} {found.path}"
        for text in problems(vendor.format, vendor.typed(ask)):
            yield vendor.invalid(text, path=text.partition(":")[0]), "the SDK's types"
        for found in vendor.objections(ask, self.replies):
            yield (vendor.invalid(found) if isinstance(found, str) else found), "the vendor"

    def _input(self, ask: AcceptedRequest) -> int:
        input = self.tally.input(ask)
        window = self.window or (ask.facts.window if ask.facts else None)
        if window and input > window:
            raise _Refused(ask.vendor.too_long(ask, input, window), "too long")
        return input

    def _reply(self, ask: AcceptedRequest) -> Reply:
        try:
            return self.script(ask)
        except Exception as error:
            # The client gets an error, and the record holds the reason for the test.
            raise _Refused(ask.vendor.trouble("internal", 0), f"the script failed: {error!r}") from error

    def _written(self, ask: AcceptedRequest, record: RequestRecord, tokens: Tokens) -> FakeResponse:
        encoded = EncodedReply(ask, cast(Reply, record.reply), tokens)
        self.tally.remember(ask)
        self.replies.add(ask.vendor.reply_id(encoded))
        if self.strict:
            record.then = self._then(ask.vendor.keeps(encoded))
        self.issued |= {call.id: call for call in ask.vendor.call_ids(encoded) if call.id}
        if not ask.stream:
            return FakeResponse(status=200, steps=(encode(ask.vendor.whole(encoded)),))
        events = (*ask.vendor.events(encoded), *([Event(ask.vendor.ends)] if ask.vendor.ends else []))
        steps = tuple(ask.vendor.framed(event) for event in events)
        return FakeResponse(status=200, steps=steps, kind=ask.vendor.stream_kind, streamed=True, events=events)

    def _then(self, keep: Callable[[Outcome], None] | None) -> Callable[[Outcome], None] | None:
        def locked(outcome: Outcome) -> None:
            with self.lock:
                if keep is not None:
                    keep(outcome)

        return locked if keep is not None else None

    def _defects(self, ask: AcceptedRequest) -> Iterator[str]:
        """Return calls that are duplicated or changed, other than those that lost their arguments. Not every
        vendor checks this, but the model would read calls that it never made."""
        seen: set[str] = set()
        for message in ask.request.messages:
            for call in message.tool_calls:
                issued = self.issued.get(call.id)
                back = ScriptedCall(call.name, call.raw or "" if call.malformed else call.arguments)
                if issued and call.id in seen:
                    yield f"The call {call.id} is there twice."
                seen.add(call.id)
                is_shortest = issued is not None and call.name == issued.name and not call.arguments
                if issued and not is_shortest and issued.meant != back.meant and issued.written != back.written:
                    yield f"The call {call.id} was {issued.name}({issued.written}), and is {back.name}({back.written})."

    def breaks(self) -> list[Break]:
        """Return requests that do not extend the previous one. First messages identify a conversation."""
        latest: dict[tuple[str, bytes], tuple[RequestRecord, list[JSONObject], bytes]] = {}
        found: list[Break] = []
        for record in self.records:
            if record.reply is None:
                continue
            begins, head, messages = _parted(record, cast(Vendor, _asked(record.path)))
            if begins in latest:
                earlier, before, head_before = latest[begins]
                at = -1 if head != head_before else _differs(before, messages)
                if at is not None:
                    found.append(Break(earlier, record, at))
            latest[begins] = record, messages, head
        return found


class _Refused(Exception):
    def __init__(self, refusal: FakeError, reason: str = "") -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.reason = f"{reason}: {refusal.said}" if reason else refusal.said


def _asked(path: str) -> Vendor | None:
    return next((each for each in vendors() if each.serves(path)), None)


def _refuse(found: tuple[FakeError, str] | None) -> None:
    if found is not None:
        raise _Refused(*found)


def _of_head(vendor: Vendor, head: RequestHead) -> tuple[FakeError, str] | None:
    if head.method != "POST":
        return vendor.invalid(f"Method {head.method} not allowed.", status=405), "method"
    if (found := _of_key(vendor, head)) is not None:
        return found
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return vendor.invalid(f"Unsupported content type: '{kind}'. Use 'application/json'.", status=415), "type"
    unwelcome = vendor.unwelcome(head)
    return (unwelcome, "head") if unwelcome else None


def _of_key(vendor: Vendor, head: RequestHead) -> tuple[FakeError, str] | None:
    key = vendor.key(head)
    return None if key == KEY or not vendor.key_headers else (vendor.unauthorized(key), "key")


@cache
def _secret() -> frozenset[str]:
    """Return the names of headers that are not recorded."""
    return frozenset(SECRETS).union(*(vendor.key_headers for vendor in vendors()))


def _settings(vendor: Vendor, raw: bytes) -> JSONObject:
    """Return a body without its messages, which are large and slow to parse."""
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    skipped = vendor.formatter.messages_key
    return {name: decode(value) for name, value in fields.items() if name != skipped}


def _parted(record: RequestRecord, vendor: Vendor) -> tuple[tuple[str, bytes], bytes, list[JSONObject]]:
    """Return the first messages, the fields before the messages, and the messages without cache breakpoints."""
    formatter = vendor.formatter
    body: JSONObject = decode(record.raw)
    given = body[formatter.messages_key]
    messages = formatter.without_cache_breakpoints([{"content": given}] if isinstance(given, str) else given)
    request = formatter.decode_request(body)
    head = encode([request.system, request.tools])
    return (vendor.name, encode(messages[:1])), head, messages


def _differs(earlier: list[JSONObject], later: list[JSONObject]) -> int | None:
    """Return the index of the first changed message. The last may have grown, because neighbours are merged."""
    for number, message in enumerate(earlier):
        now = later[number] if number < len(later) else None
        if now == message or (number == len(earlier) - 1 and now is not None and _grown(message, now)):
            continue
        return number
    return None


def _grown(message: JSONObject, now: JSONObject) -> bool:
    key = "parts" if "parts" in message else "content"
    before, after = (each.get(key) for each in (message, now))
    texts = ([{"type": "text", "text": each}] if isinstance(each, str) else each for each in (before, after))
    first, second = (cast(list[JSONObject], each or []) for each in texts)
    return message.get("role") == now.get("role") and second[: len(first)] == first
