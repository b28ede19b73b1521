"""Import of provider requests as conversations, and export of conversations as provider requests.

An import stores all parts unchanged, with the provider's own fields. Blank messages are not stored. A request is stored
completely or not at all. An export contains the current branch since its last reset, in the provider's format.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import version
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from contextc._json import JSON, JSONObject, as_object, decode_json, encode
from contextc.compiler import ledger
from contextc.compiler.ledger import load_messages_by_place
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.compiler.past_requests import compute_usage_bill, load_channel_provider, rebuild
from contextc.errors import ContextcError, ConversationExists, InvalidInput, InvalidMessage, InvalidRequest
from contextc.formats import formatter
from contextc.formats.base import ConversionNote, Formatter, Request
from contextc.formats.streams import encode_reply
from contextc.interchange.contextc_jsonl import Progress, blob_names
from contextc.interchange.log_import import StoredRequest
from contextc.linting.request_reading import coerce_request
from contextc.messages import Message, Usage, validate_message
from contextc.models import Bill
from contextc.providers.registry import snippet_tables
from contextc.store import Conversation, Store, message_log
from contextc.store.branches import load_conversation
from contextc.store.ledger_schema import Channel
from contextc.store.transaction_engine import Transaction


class ImportedRequest(NamedTuple):
    conversation: Conversation
    warnings: list[str]


class ExportedRequest(NamedTuple):
    body: JSONObject
    warnings: list[str]


def import_requests(
    store: Store, bodies: Mapping[str, JSON], *, format: str, progress: Progress | None = None
) -> list[ImportedRequest]:
    """Create one conversation per request or bare list of messages, named by its key: all of them, or none.

    A system prompt becomes the first message.
    """
    form = formatter(format)
    read = [_read_request(form, name, body) for name, body in bodies.items()]

    def work(tx: Transaction) -> list[Conversation]:
        made: list[Conversation] = []
        for done, (name, entries, _) in enumerate(read, 1):
            if message_log.find_tip(tx, name, lock=True) is not None:
                raise ConversationExists(name)
            message_log.append_messages(tx, name, entries)
            made.append(load_conversation(tx, name))
            if progress:
                progress(done, len(read))
        return made

    return [ImportedRequest(made, each[2]) for made, each in zip(store.write(work), read, strict=True)]


def _read_request(form: Formatter, name: str, body: JSON) -> tuple[str, list[message_log.PendingMessage], list[str]]:
    shaped = coerce_request(form, body)
    request = form.decode_request(shaped.body)
    messages = [*([request.system] if request.system is not None else []), *request.messages]
    kept = [message for message in messages if has_content(message)]
    if not kept:
        raise InvalidRequest(f"{name!r} has no message.")
    notes = [ConversionNote("left out", f"the setting `{setting}`") for setting in request.settings]
    if request.tools:
        notes.append(ConversionNote("left out", f"the definitions of {_count_text(len(request.tools), 'tool')}"))
    if len(kept) < len(messages):
        notes.append(ConversionNote("left out", f"{_count_text(len(messages) - len(kept), 'message')} without content"))
    if shaped.malformed_count:
        notes.append(
            ConversionNote(
                "described", f"content with an invalid structure, in {_count_text(shaped.malformed_count, 'place')}"
            )
        )
    return (
        name,
        [message_log.prepare_entry(validate_message(message)) for message in kept],
        [str(note) for note in notes],
    )


def export_request(store: Store, conversation: str, *, format: str) -> ExportedRequest:
    """Return the conversation as the body of a request, with its system prompt if it begins with one."""
    form = formatter(format)
    history = store.load(conversation, after=store.conversation(conversation).context_start)
    sent = [message for message in history if message.status == "sent"]
    leads = bool(sent) and sent[0].role == "system"
    request = Request(messages=tuple(sent[1:] if leads else sent), system=sent[0] if leads else None)
    blobs = {name: store.blob(name) for message in sent for name in blob_names(message)}
    written = form.encode_with_notes(request, blobs=blobs)
    warnings = [str(note) for note in written.notes]
    if len(sent) < len(history):
        failed = _count_text(len(history) - len(sent), "message")
        warnings.append(str(ConversionNote("left out", f"{failed} that failed or were cancelled")))
    return ExportedRequest(written.body, list(dict.fromkeys(warnings)))


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def has_content(message: Message) -> bool:
    """Return True if a message has content to store. An invalid message is reported when it is stored."""
    try:
        validate_message(message)
    except InvalidMessage:
        return bool(message.tool_calls or message.tool_results or message.text.strip())
    return True


# ── HAR and LHAR ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Export of the requests of a conversation as HAR or LHAR: exact bodies, times, status and usage.
#
# No headers are written, so there are no credentials. Replies are put together from the stored messages. The field
# `_contextc` of an entry names the request in its store: an import recognises it there, and elsewhere it gives the
# conversation its name.


ArchiveFormat: TypeAlias = Literal["har", "lhar"]
ARCHIVE_FORMATS = ("har", "lhar")
OWN_FIELD = "_contextc"
JSON_TYPE = "application/json"
HAR_VERSION = "1.2"
STATUS_TEXTS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests", 500: "Server Error"}
LHAR_FORMATS = {"anthropic": "anthropic-messages", "gemini": "google-gemini"}
UNTIMED: JSONObject = {"send": 0, "receive": 0}


class ExportedArchive(NamedTuple):
    """The bytes of an archive, the number of its requests, and what was left out."""

    data: bytes
    requests: int
    warnings: list[str]


class _Exchange(Struct, frozen=True, kw_only=True):
    """A request of the store, with all that an archive has of it."""

    origin: StoredRequest
    form: Formatter
    body: bytes
    reply: JSON
    url: str
    status: int
    began: int
    ended: int
    first_chunk: int | None
    usage: Usage | None
    bill: Bill | None
    finish: tuple[str, ...]

    @property
    def took(self) -> int:
        return max(0, self.ended - self.began) if self.ended else 0

    @property
    def receiving(self) -> int:
        """Milliseconds from the first part of the reply to its end; 0 if they are not known."""
        return max(0, self.took - self.first_chunk) if self.first_chunk is not None else 0

    @property
    def own_fields(self) -> JSONObject:
        return as_object(msgspec.to_builtins(self.origin))


def export_archive(store: Store, conversation: str, format: ArchiveFormat) -> ExportedArchive:
    """Return the requests of a conversation as an archive. Raise `InvalidInput` if it has none."""
    store.conversation(conversation)  # raises if it does not exist
    warnings: list[str] = []
    found = list(_read_exchanges(store, conversation, warnings))
    if not found:
        why = f": {'; '.join(warnings)}" if warnings else ", because no model has answered in it"
        raise InvalidInput(f"Conversation {conversation!r} has no request to export{why}.")
    data = _as_har(found) if format == "har" else _as_lhar(found)
    return ExportedArchive(data, len(found), warnings)


def _read_exchanges(store: Store, conversation: str, warnings: list[str]) -> Iterator[_Exchange]:
    forms: dict[Channel, Formatter] = {}
    for channel, record in store.read(lambda tx: _load_requests(tx, conversation)):
        try:
            if channel not in forms:
                forms[channel] = load_channel_provider(store, channel).formatter
            form = forms[channel]
            body = rebuild(store, channel, form, record.request)
            yield _make_exchange(store, channel, record, formatter(form.name), body)
        except ContextcError as error:
            warnings.append(f"left out: request {record.request} of {channel}: {error}")


def _load_requests(tx: Transaction, conversation: str) -> list[tuple[Channel, RequestRecord]]:
    """Return the requests of a conversation, oldest first."""
    found = [
        (channel, record_from_json(body))
        for number, channel, *_ in ledger.load_channels(tx, conversation)
        for body in reversed(ledger.load_manifests(tx, number))
    ]
    return sorted(found, key=lambda each: each[1].time)


def _make_exchange(store: Store, channel: Channel, record: RequestRecord, form: Formatter, body: bytes) -> _Exchange:
    facts = record.observed
    produced = store.read(lambda tx: load_messages_by_place(tx, list(record.produced)))
    answers = [produced[place] for place in record.produced if place in produced and not produced[place].redacted]
    reply: JSON = None
    status = facts.code if facts is not None else 200
    if facts is not None and facts.status == "error":
        reply = {"error": {"message": facts.error or "unknown"}}
    elif answers or record.usage is not None:
        blobs = {name: store.blob(name) for message in answers for name in blob_names(message)}
        reply = encode_reply(form, channel.model, answers, record.usage, blobs, _response_id(answers))
        status = status or 200
    began = facts.began if facts is not None and facts.began else record.time
    return _Exchange(
        origin=StoredRequest(
            conversation=channel.conversation,
            agent=channel.agent,
            provider=channel.provider,
            model=channel.model,
            request=record.request,
            format=form.name,
            inexact=facts is not None and facts.inexact,
        ),
        form=form,
        body=body,
        reply=reply,
        url=_request_url(form.name, channel.model),
        status=status,
        began=began,
        ended=_end_time(record, began),
        first_chunk=facts.first_chunk if facts is not None else None,
        usage=record.usage,
        bill=compute_usage_bill(channel, record.usage),
        finish=tuple([answer.finish for answer in answers if answer.finish]),
    )


def _end_time(record: RequestRecord, began: int) -> int:
    if record.observed is not None:
        return record.observed.ended
    return record.time if record.time > began else 0


def _response_id(answers: list[Message]) -> str:
    extra = (answers[0].extra or {}).values() if answers else ()
    return next((facts["id"] for facts in extra if isinstance(facts.get("id"), str)), "")


def _request_url(format: str, model: str) -> str:
    """Return the address of a format. The address that a request was sent to is not stored."""
    facts: Mapping[str, JSON] = snippet_tables().get(format, {})
    return f"{facts.get('url') or ''}{facts.get('path') or ''}".replace("{model}", model).replace("$AWS_REGION", "us")


def _format_time(milliseconds: int) -> str:
    shown = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return shown.replace("+00:00", "Z")


# ── HAR ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _as_har(found: list[_Exchange]) -> bytes:
    entries: list[JSON] = [_har_entry(each) for each in found]
    creator: JSONObject = {"name": "contextc", "version": version("contextc")}
    return encode({"log": {"version": HAR_VERSION, "creator": creator, "pages": [], "entries": entries}})


def _har_entry(each: _Exchange) -> JSONObject:
    reply = encode(each.reply).decode() if each.reply is not None else ""
    message: JSONObject = {"httpVersion": "HTTP/1.1", "cookies": [], "headers": [], "headersSize": -1}
    return {
        "startedDateTime": _format_time(each.began),
        "time": each.took,
        "request": {
            **message,
            "method": "POST",
            "url": each.url,
            "queryString": [],
            "bodySize": len(each.body),
            "postData": {"mimeType": JSON_TYPE, "text": each.body.decode("utf-8", "replace")},
        },
        "response": {
            **message,
            "status": each.status,
            "statusText": STATUS_TEXTS.get(each.status, ""),
            "redirectURL": "",
            "bodySize": len(reply.encode()),
            "content": {"size": len(reply.encode()), "mimeType": JSON_TYPE, "text": reply},
        },
        "cache": {},
        "timings": {**UNTIMED, "wait": each.took - each.receiving, "receive": each.receiving},
        OWN_FIELD: each.own_fields,
    }


# ── LHAR ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _as_lhar(found: list[_Exchange]) -> bytes:
    """Return JSON Lines: the session, and one entry per request."""
    first = found[0]
    trace = blake2b(first.origin.conversation.encode(errors="replace"), digest_size=16).hexdigest()
    session: JSONObject = {
        "type": "session",
        "trace_id": trace,
        "started_at": _format_time(first.began),
        "tool": "contextc",
        "model": first.origin.model,
    }
    lines = [session, *(_lhar_entry(each, trace, number) for each, number in zip(found, count(1), strict=False))]
    return b"".join([encode(line) + b"\n" for line in lines])


def _lhar_entry(each: _Exchange, trace: str, number: int) -> JSONObject:
    span = blake2b(f"{trace}{number}".encode(), digest_size=8).hexdigest()
    usage, body = each.usage or Usage(), as_object(decode_json(each.body))
    uncached = usage.input - usage.cache_read - usage.cache_write
    reply = encode(each.reply) if each.reply is not None else b""
    own = each.own_fields
    if encode(body) != each.body:
        own["body"] = each.body.decode("utf-8", "replace")  # the exact bytes; LHAR has only the JSON value
    return {
        "type": "entry",
        "id": f"{trace}-{number}",
        "trace_id": trace,
        "span_id": span,
        "parent_span_id": None,
        "timestamp": _format_time(each.began),
        "sequence": number,
        "source": {
            "tool": "contextc",
            "tool_version": version("contextc"),
            "agent_role": "main",
            "collector": "contextc",
            "collector_version": version("contextc"),
        },
        "gen_ai": {
            "system": each.origin.provider,
            "request": {
                "model": each.origin.model,
                "max_tokens": body.get("max_tokens"),
                "temperature": body.get("temperature"),
                "top_p": body.get("top_p"),
                "stop_sequences": [],
            },
            "response": {"model": each.origin.model, "finish_reasons": list(each.finish)},
            "usage": {
                "input_tokens": uncached,
                "output_tokens": usage.output,
                "total_tokens": uncached + usage.output,
            },
        },
        "usage_ext": {
            "cache_read_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "cost_usd": each.bill.dollars if each.bill is not None else None,
            **({"cost_is_lower_bound": True} if each.bill is not None and each.bill.is_lower_bound else {}),
        },
        "http": {
            "method": "POST",
            "url": each.url,
            "status_code": each.status or None,
            "api_format": LHAR_FORMATS.get(each.form.name, each.form.name.replace("_", "-")),
            "stream": bool(body.get("stream")),
            "request_headers": {},
            "response_headers": {},
        },
        "timings": {
            "send_ms": 0,
            "wait_ms": each.took - each.receiving,
            "receive_ms": each.receiving,
            "total_ms": each.took,
            "tokens_per_second": None,
        },
        "transfer": {"request_bytes": len(each.body), "response_bytes": len(reply), "compressed": False},
        "raw": {"request_body": body, "response_body": each.reply},
        OWN_FIELD: own,
    }
