"""LHAR files (LLM HTTP Archive) of Context Lens: lines with sessions and entries, or one object with both.

An entry has bodies only if they were captured in full. Its usage is stored if the reply states none.
"""

from collections.abc import Iterator

from contextc._json import JSON, JSONObject, as_object, as_objects
from contextc.interchange.found_conversation import parse_time
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_import import FIRST_ERROR_STATUS, LoggedExchange, first_chunk_time
from contextc.interchange.sources.har import OWN_FIELD, read_stored_request, with_origin
from contextc.interchange.spans import find_path
from contextc.messages import Usage

ABOUT = "LHAR files (LLM HTTP Archive) of Context Lens"
NO_BODIES = "an entry without bodies"
ENTRY_FIELDS = {"type", "trace_id", "gen_ai", "http", "raw"}


def matches(sample: FileSample) -> bool:
    return any(_entries(value) for value in sample.objects)


def read_log(given: ImportInput) -> Iterator[tuple[str, LoggedExchange | None]]:
    for file in given.files:
        for placed in file.values():
            for number, entry in enumerate(_entries(placed.value), 1):
                where = placed.position if placed.position != "the file" else f"entry {number}"
                yield f"{file.name}, {where}", _exchange(entry)


def read_exchanges(value: JSON) -> list[LoggedExchange]:
    """Return the model calls in a value of a file."""
    return [found for entry in _entries(value) if (found := _exchange(entry)).body is not None]


def _entries(value: JSON) -> list[JSONObject]:
    held = as_object(value)
    if held.keys() >= ENTRY_FIELDS and held.get("type") == "entry":
        return [held]
    return as_objects(as_object(held.get("lhar")).get("entries"))


def _exchange(entry: JSONObject) -> LoggedExchange:
    raw, http = as_object(entry.get("raw")), as_object(entry.get("http"))
    body, reply = as_object(raw.get("request_body")), raw.get("response_body")
    if not body:
        return LoggedExchange(note=NO_BODIES, id=str(entry.get("id") or ""))
    own = as_object(entry.get(OWN_FIELD))
    time, took = parse_time(entry.get("timestamp")), find_path(entry, "timings.total_ms")
    ended = time + int(took) if isinstance(took, int | float) and took > 0 else 0
    status = code if isinstance(code := http.get("status_code"), int) else 0
    failed = status >= FIRST_ERROR_STATUS or bool(as_object(reply).get("error"))
    stored_as = read_stored_request(own)
    text = own.get("body")
    found = LoggedExchange(
        body=body,
        text=text if isinstance(text, str) else "",
        reply=None if failed else reply,
        error=reply if failed else None,
        failed=failed,
        status=status,
        conversation="" if stored_as is not None else _conversation(entry),
        address=str(http.get("url") or ""),
        headers={name: str(value) for name, value in as_object(http.get("request_headers")).items()},
        time=time,
        ended=ended,
        first_chunk=first_chunk_time(ended, find_path(entry, "timings.receive_ms")),
        usage=_usage(entry),
    )
    return with_origin(found, stored_as) if stored_as is not None else found


def _conversation(entry: JSONObject) -> str:
    trace, role = str(entry.get("trace_id") or ""), find_path(entry, "source.agent_role")
    return trace if role in (None, "main") else f"{trace}-{role}"


def _usage(entry: JSONObject) -> Usage | None:
    def figure(path: str) -> int:
        return int(found) if isinstance(found := find_path(entry, path), int | float) else 0

    read, write = figure("usage_ext.cache_read_tokens"), figure("usage_ext.cache_write_tokens")
    given, output = figure("gen_ai.usage.input_tokens"), figure("gen_ai.usage.output_tokens")
    if not (given or output or read or write):
        return None
    return Usage(input=given + read + write, output=output, cache_read=read, cache_write=write)
