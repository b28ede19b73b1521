"""Record one request that other software made, with its reply, as a caller passes them: `cc.observe`."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from contextc._json import fix_surrogates
from contextc.compiler.manifest import ProxyAction
from contextc.errors import InvalidInput
from contextc.observation.exchange_parser import as_bytes, parse_input, parse_reply, reply_value
from contextc.observation.exchange_redaction import Redaction, find_credentials, make_redactor, mask_value
from contextc.observation.observed_request import ObservedRequest, RecordOptions
from contextc.observation.write_observed import record_exchange
from contextc.store import Store, message_log
from contextc.store.raw_replies import pack_raw_reply


def observe(
    store: Store,
    *,
    request: bytes | str | Mapping[str, object],
    reply: object = None,
    format: str | None = None,
    conversation: str | None = None,
    time: int | None = None,
    ended: int | None = None,
    first_chunk: int | None = None,
    headers: Mapping[str, str] | None = None,
    url: str = "",
    status: int | None = None,
    model: str = "",
    provider: str = "",
    redact: Redaction | None = None,
    exchange_id: str = "",
    parent: ObservedRequest | str | None = None,
    actions: Sequence[ProxyAction] = (),
    directory: str = "",
    pieces: Sequence[tuple[int, int]] = (),
) -> ObservedRequest:
    """Record a request that other software made, and its reply.

    `request` is the body as bytes or JSON. `reply` is whole or a list of events, as bytes, text or JSON; None if there
    was none. Times are in Unix milliseconds: `time` is when the request was sent, `ended` when its reply ended,
    and `first_chunk` when the first bytes of a streamed reply arrived.
    `headers` may contain the client's own ids and credentials; they are not stored, and a reply that quotes such a
    credential is stored without it. Without `conversation`, the conversation is found
    by these ids or by content. `redact` removes text before anything is stored: "keys", "tokens", "mail", regular
    expressions, or True for all built-in patterns. Such a request is marked inexact. An exchange with an `exchange_id`
    is recorded once: if it was recorded before, that record is returned. `parent` is the request that started this
    sub-agent, or the name of its conversation: then it is the last request of it. It counts for the first request of a
    conversation. `actions` are what the proxy found or changed. `directory` is where the software works: `contextc mcp`
    finds the conversations of a project by it.

    A `reply` as bytes or text is also kept as it is, its first 256 KiB, unless `redact` finds something in it. `pieces`
    are the times and sizes in which it arrived: milliseconds since `time`, and bytes.
    """
    began = time or message_log.now_ms()
    if not all([isinstance(each or 0, int) for each in (began, ended, first_chunk)]):
        given_times = (time, ended, first_chunk)
        raise InvalidInput("time, ended and first_chunk: expected Unix milliseconds", got=given_times)
    named = {"conversation": conversation, "url": url, "model": model, "provider": provider, "parent": parent}
    named["directory"] = directory
    for name, text in (*named.items(), ("exchange_id", exchange_id)):
        _check_text(name, text)
    headers = {fix_surrogates(name): fix_surrogates(value) for name, value in (headers or {}).items()}
    credentials = find_credentials(headers.items(), urlsplit(url).query)
    raw = _as_raw(mask_value(reply, credentials))
    if reply is not None and credentials:
        reply = mask_value(reply_value(reply), credentials)
    redactor = make_redactor(store, redact)
    sent = as_bytes(request)
    body = redactor.redact_body(sent) if redactor else sent
    given = parse_input(
        body,
        format=format,
        headers=redactor.redact_headers(headers) if redactor else headers,
        url=url,
        model=model,
        provider_name=provider,
        reply=reply,
    )
    answer = found = parse_reply(given.form, reply, status, ended or began)
    if redactor:  # a match may be split between events: then it is in the decoded reply only
        answer = redactor.redact_reply(found)
        raw = raw if answer == found and redactor.redact_body(raw) == raw else b""
    return record_exchange(
        store,
        given,
        answer,
        conversation,
        began=began,
        ended=ended or 0,
        first_chunk=first_chunk,
        code=status or 0,
        options=RecordOptions(
            key=exchange_id,
            inexact=body != sent,
            redacted=body != sent,
            parent=(parent.channel, parent.request) if isinstance(parent, ObservedRequest) else parent or "",
            actions=tuple([redactor.redact_action(each) if redactor else each for each in actions]),
            directory=directory,
            raw=pack_raw_reply(raw, pieces, status=status or 0) if raw else b"",
        ),
    )


def _as_raw(reply: object) -> bytes:
    """Return a reply that was passed as bytes or text, b"" for any other."""
    if isinstance(reply, str):
        return reply.encode(errors="replace")
    return bytes(reply) if isinstance(reply, bytes | bytearray) else b""


def _check_text(name: str, given: object) -> None:
    """Raise InvalidInput for text that is not Unicode, and for an invalid URL."""
    if not isinstance(given, str):
        return
    if fix_surrogates(given) != given:
        raise InvalidInput(f"{name}: contains a lone surrogate", got=given, fix="Pass valid Unicode text.")
    try:
        urlsplit(given if name == "url" else "")
    except ValueError:
        raise InvalidInput("url: not a valid URL", got=given, fix="Pass the address of the request.") from None
