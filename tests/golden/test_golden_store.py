"""A store of an earlier version has the same content today: rows, requests, next requests and exports."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import contextc as cc
from contextc.compiler.compaction import LIVE_REQUEST
from contextc.compiler.ledger import OpenAttempt, StoredSummary
from contextc.compiler.manifest import record_from_json, record_to_json
from contextc.doctor import scan_store
from contextc.events import AnyEvent, decode_event, encode_event
from contextc.executor.summaries import SUMMARY_INSTRUCTIONS
from contextc.interchange import import_lines
from contextc.messages import PART_TYPES, Role, Status, decode_message, encode_message
from contextc.store.ledger_schema import LedgerRow, state_from_json
from contextc.store.turn_records import StepRecord, TurnRecord
from contextc.tools.todos import TODO_STATES
from tests.golden import store_content
from tests.golden.json_compare import assert_same, mapped
from tests.golden.scenario import play
from tests.golden.store_content import GOLDEN, SCHEMA, read, rows

ADDED = (
    "step.body.first_chunk",
    "manifest.body.observed.untimed",
    "manifest.body.shared_counts",
    "manifest.body.previous_input",
    "manifest.body.shared_head",
    "manifest.body.began",
    "manifest.body.is_bare",
    "channel.state.cache_key",
    "head.body.prompt_cache_key",
    "event.body<compaction>.cost",
    "event.body<compaction>.usage.",
    "event.body<compaction>.missing",
    "event.body<compaction>.score",
    "event.body<compaction>.seq",
    "overlay.body.receipt",
    "overlay.body.seen",
    "event.body<error>.failure.",
    "event.body<retry>.failure.",
    "conversation.title",
    "conversation.directory",
    "lease.request",
    "channel.state.head_static",
    "channel.state.tip",
    "channel.state.effort",
    "channel.state.head_place[]",
    "channel.state.tool_hashes[]",
    "overlay.body.anchor_id",
    "turn.body.run",
    "shown.items.items[].q[]",
    "replaced.body.tools",
)
"""Fields that were added since the recording. Stores without them are read as before."""
OF_TOOLS = re.compile(r"^head\.body\..*\.properties\.(?:length|query|(?:id|offset)<\w+>\.description)")
"""What the definitions of `fetch_result` and `search_history` have no longer, or have today."""
ADDED_EVENTS = {"approval-answer", "turn-waiting", "agent-call-start"}


def bodies(file: Path, table: str, column: str) -> list[bytes]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        return [body for (body,) in connection.execute(f"SELECT {column} FROM {table}") if body is not None]


def test_the_file_has_every_kind_of_row_part_and_event(raw: Path) -> None:
    """What the golden store does not hold, it does not protect."""
    found = rows(raw)
    assert found["schema_version"][0]["version"] == SCHEMA
    assert [table for table, all in found.items() if not all] == []
    messages = [row["body"] for row in found["message"]]
    parts = {part["type"] for message in messages for part in message.get("parts", ())}
    assert parts == {str(part.__struct_config__.tag) for part in PART_TYPES}
    events = {row["body"]["type"] for row in found["event"]}
    assert events == {str(event.__struct_config__.tag) for event in get_args(AnyEvent)} - ADDED_EVENTS
    assert {message["role"] for message in messages} == {*get_args(Role)}
    pending = {row["head"].get("status") for row in found["stream"]}
    assert {message.get("status", "sent") for message in messages} | pending == {*get_args(Status)}
    assert {row["state"] for row in found["todo"]} == {*TODO_STATES}
    assert {row["kind"] for row in found["queue"]} == {"steer", "follow-up"}
    assert {row["body"].get("state", "running") for row in found["turn"]} == {"finished", "interrupted", "running"}
    assert {row["body"].get("state", "started") for row in found["step"]} == {"failed", "finished", "started"}
    assert any(row["attempt"] for row in found["channel"])
    assert any(row["redacted"] for row in found["message"])


CODECS: dict[str, tuple[str, str, Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "messages": ("message", "body", decode_message, encode_message),
    "queued messages": ("queue", "body", decode_message, encode_message),
    "events": ("event", "body", decode_event, encode_event),
    "turns": ("turn", "body", msgspec.json.Decoder(TurnRecord).decode, msgspec.json.encode),
    "steps": ("step", "body", msgspec.json.Decoder(StepRecord).decode, msgspec.json.encode),
    "manifests": ("manifest", "body", record_from_json, record_to_json),
    "channel states": ("channel", "state", state_from_json, msgspec.json.encode),
    "attempts": ("channel", "attempt", msgspec.json.Decoder(OpenAttempt).decode, msgspec.json.encode),
    "ledger rows": ("shown", "items", msgspec.json.Decoder(LedgerRow).decode, msgspec.json.encode),
    "summaries": ("overlay", "body", msgspec.json.Decoder(StoredSummary).decode, msgspec.json.encode),
}


@pytest.mark.parametrize("what", CODECS)
def test_stored_json_is_read_and_written_again_to_the_byte(raw: Path, what: str) -> None:
    """A field that has another name today would be dropped when it is read, or written under that name."""
    table, column, decode, encode = CODECS[what]
    found = bodies(raw, table, column)
    assert found
    for body in found:
        assert_same(body.decode(), encode(decode(body)).decode(), f"{table}.{column}")


def test_conversations_are_loaded_as_they_were(store: cc.Store) -> None:
    """Messages with their ids, branches, turns, steps, events, todos, queued input, sessions, transcripts, media."""
    assert_same(read("stored.json"), store_content.stored(store), "the content of the store")


def test_hash_chains_hold(store: cc.Store) -> None:
    """An id is the hash of a message's canonical JSON: a renamed field would break every chain."""
    assert [(each.conversation, each.code) for each in scan_store(store)] == []


def not_measured(name: str, value: Any) -> Any:
    """The account of a request without usage as it is today. When it was recorded, its total was called measured."""
    if name == "manifest" and value["budget"]["measured"] and value.get("usage") is None:
        return {**value, "budget": {**value["budget"], "measured": False, "exact": False}}
    return value


def test_past_requests_are_built_again_to_the_byte(store: cc.Store, file: Path) -> None:
    assert_same(mapped(read("requests.json"), not_measured), store_content.requests(store, file), "a past request")


def test_next_requests_are_compiled_to_the_byte(store: cc.Store, file: Path) -> None:
    """Another byte in a request is a cache miss, and a new epoch, in every store there is."""
    assert_same(mapped(read("next.json"), not_measured), store_content.upcoming(store, file), "a next request")


def test_a_conversation_is_the_same_request_in_every_format(store: cc.Store) -> None:
    assert_same(read("formats.json"), store_content.conversions(store), "a request")


def test_exports_are_the_same_to_the_byte(store: cc.Store) -> None:
    for name, lines in store_content.exports(store).items():
        expected = (GOLDEN / name).read_bytes()
        assert_same(expected.decode().split("\n"), lines.decode().split("\n"), f"{name}, by lines,")


def test_exports_are_imported_with_the_same_ids() -> None:
    kept = read("stored.json")["conversations"]
    with cc.open_store("memory:") as new:
        for each in sorted((GOLDEN / "exports").glob("*.jsonl")):
            made = import_lines(new, each.read_bytes().splitlines())
            then = kept[made.name]
            assert made.tip == then["conversation"]["tip"], made.name
            assert_same(
                then["messages"], store_content.later_hidden(store_content.as_json(new.load(made.name))), f"{made.name}"
            )
        assert len(new.conversations()) == len(kept)


def test_the_same_turns_send_and_store_the_same(raw: Path, tmp_path: Path) -> None:
    """What is written today has the names and the shapes of what was written then, and models read the same texts."""
    file = tmp_path / "new.db"
    with cc.open_store(file) as new:
        sent = play(new, file)
    asking = [text.partition(".")[0].encode() for text in (SUMMARY_INSTRUCTIONS, LIVE_REQUEST)]
    of_turns = [body.decode() for body in sent if not any(text in body for text in asking)]
    assert_same(read("sent.json"), of_turns, "what was sent")  # requests for a summary are in no ledger
    then, now = (dict.fromkeys(store_content.shape(each), "stored") for each in (raw, file.with_suffix(".copy")))
    then = {path: each for path, each in then.items() if not OF_TOOLS.search(path)}
    now = {path: each for path, each in now.items() if not path.startswith(ADDED) and not OF_TOOLS.search(path)}
    assert_same(then, now, "what was stored")


def test_golden_files_are_those_of_the_recorded_store() -> None:
    """The store and the recordings were written together; none is to be replaced alone."""
    assert read("about.json")["schema"] == SCHEMA
    names = {each.name for each in GOLDEN.iterdir()}
    assert names == {
        "README.md", "about.json", "commands.json", "exports", "formats.json", "http.json", "names.json", "next.json",
        "requests.json", "sent.json", "sentences.json", "store.db.gz", "stored.json", "streams.json", "turns.json",
    }  # fmt: skip
