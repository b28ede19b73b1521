"""Content of a copy of the golden store as today's code reads it: rows, requests, exports.

Values go through the encoders that store and send them, so that a renamed Python attribute changes nothing here, and a
renamed field of JSON does.
"""

import base64
import gzip
import json
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import msgspec

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import format_names
from contextc.interchange import export_lines, export_request
from contextc.store import message_log, session_transcripts
from contextc.store.session_transcripts import TranscriptKey
from contextc.store.turn_records import load_trigger_states
from tests.golden.json_compare import mapped
from tests.golden.scenario_script import LOOK

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "v6"
STORE = GOLDEN / "store.db.gz"
SCHEMA = 6
NOW = "<now>"


class Kept(NamedTuple):
    """A channel of the store, by its columns, and the numbers of its requests."""

    conversation: str
    agent: str
    provider: str
    model: str
    directory: str
    requests: list[int]

    @property
    def label(self) -> str:
        return " | ".join((self.conversation, self.agent, f"{self.provider}:{self.model}", self.directory))


def unpack(folder: Path) -> Path:
    """Write a copy of the golden store, to be opened and changed."""
    file = folder / "store.db"
    file.write_bytes(gzip.decompress(STORE.read_bytes()))
    file.chmod(0o600)
    return file


def read(name: str) -> Any:
    """A recorded file of JSON."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def as_json(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@contextmanager
def alone(root: Path) -> Generator[None]:
    """Work in a folder that is the home, too, without settings of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONTEXTC_", "XDG_"))}
    before = Path.cwd()
    with patch.dict(os.environ, {**kept, "HOME": str(root)}, clear=True):
        os.chdir(root)
        try:
            yield
        finally:
            os.chdir(before)


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def rows(file: Path) -> dict[str, list[JSONObject]]:
    """Every row of every table as JSON, without SQLite's own tables and those of the full-text index."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {
            name: [
                {key: _cell(row[key]) for key in row.keys()}  # noqa: SIM118  # a Row iterates over its values
                for row in connection.execute(
                    f"SELECT * FROM {name} ORDER BY {'key' if name == 'observed_key' else 'rowid'}"
                )
            ]
            for (name,) in names
            if not name.startswith(("sqlite_", "search_term"))
        }


def _cell(value: Any) -> Any:
    """A cell: JSON in bytes as JSON, other bytes as hex."""
    if not isinstance(value, bytes):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return f"hex {value.hex()}"
    return cast(Any, found) if isinstance(found, dict | list) else f"hex {value.hex()}"


TOLD = ("type", "kind", "role", "status", "state", "finish", "mode", "why", "lifecycle", "trigger", "outcome")
"""Fields whose values are names, too."""


def shape(file: Path) -> list[str]:
    """What is stored, without values: the path and the type of everything in every row, and values that are names."""
    found: set[str] = set()

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            inside = cast(JSONObject, value)
            tagged = f"{path}<{inside['type']}>" if isinstance(inside.get("type"), str) else path
            for name, each in inside.items():
                if name != "milliseconds":  # which is left out where it is 0
                    walk(f"{tagged}.{name}", each)
        elif isinstance(value, list):
            for each in cast(list[Any], value):
                walk(f"{path}[]", each)
        else:
            named = path.rpartition(".")[2] in TOLD and isinstance(value, str)
            found.add(f"{path} = {value!r}" if named else f"{path}: {type(value).__name__}")

    for table, all in rows(file).items():
        for row in all:
            walk(table, row)
    return sorted(found)


def channels(file: Path) -> list[Kept]:
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute(
            "SELECT number, conversation, agent, provider, model, directory FROM channel ORDER BY number"
        ).fetchall()
        requests = connection.execute("SELECT place FROM manifest ORDER BY place").fetchall()
    return [
        Kept(*columns, requests=[place & 0xFFFFFFFF for (place,) in requests if place >> 32 == number])
        for number, *columns in found
    ]


PRICED = ("cost", "dollars")
PROSE = ("remarks", "message", "what", "notes", "repair")


def lasting(name: str, value: Any) -> Any:
    """A value of an answer, without prices, which change, and without prose for people, which may be reworded."""
    if name in PRICED and isinstance(value, float | int):
        return "<price>"
    is_sentence = name in PROSE or (name == "why" and str(value).endswith("."))
    return "<prose>" if isinstance(value, str) and is_sentence else value


# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def stored(store: cc.Store) -> JSONObject:
    """Conversations, messages, branches, turns, steps, events and everything else that the store returns."""
    found: JSONObject = {"recovered": as_json(store.recovered), "conversations": {}}
    for each in store.conversations():
        name = each.name
        found["conversations"][name] = {
            "conversation": as_json(each),
            "overview": as_json(store.overview(name)),
            "messages": as_json(store.load(name)),
            "branches": as_json(store.branches(name)),
            "pinned": store.pinned(name),
            "todos": {agent: as_json(store.todos(name, agent)) for agent in ("assistant", "helper")},
            "turns": as_json(store.turns(name)),
            "steps": as_json(store.steps(name)),
            "events": as_json(store.events(name)),
            "queued": as_json(store.queued(name)),
            "triggers": _triggers(store, name),
            "sessions": [  # without `shown`, which is newer than the files
                as_json(msgspec.structs.astuple(each)[:8]) for each in cc.SessionManager(store).sessions(name)
            ],
        }  # fmt: skip
    keys = (TranscriptKey("garden", "session-1"), TranscriptKey("garden", "session-1", "side"))
    found["transcripts"] = [store.read(lambda tx, key=key: session_transcripts.load_entries(tx, key)) for key in keys]
    blob = blob_name(store)
    found["blobs"] = {blob: base64.b64encode(store.blob(blob)).decode()}
    return later_hidden(found)


def _triggers(store: cc.Store, name: str) -> JSONObject:
    """What triggers remember."""
    return cast(
        JSONObject, store.read(lambda tx: load_trigger_states(tx, message_log.load_tip(tx, name).conversation,
        "assistant"))
    )  # fmt: skip


def blob_name(store: cc.Store) -> str:
    """The name of the only blob there is."""
    found = {part.blob for message in store.load("everything") for part in message.parts if isinstance(part, cc.Media)}
    (blob,) = found - {None}
    return str(blob)


def later_hidden(value: Any) -> Any:
    """The same without times after the golden files were written: a killed turn is closed when the store is opened."""
    since = read("about.json")["written"]
    return mapped(value, lambda _, each: NOW if type(each) is int and since < each < 1 << 50 else each)


def compiler(store: cc.Store, channel: Kept) -> cc.MessageCompiler:
    return cc.MessageCompiler(
        store, cc.provider(f"{channel.provider}:{channel.model}", window=50_000, output=4_000)
    )  # fmt: skip


def requests(store: cc.Store, file: Path) -> JSONObject:
    """Every past request, to the byte, and its manifest."""
    found: JSONObject = {}
    for each in channels(file):
        asked: dict[str, Any] = {"name": each.agent, "directory": each.directory or None}
        compile = compiler(store, each)
        for number in each.requests:
            manifest = compile.explain(each.conversation, number, **asked)
            found[f"{each.label} | {number}"] = {
                "body": compile.rebuild(each.conversation, number, **asked).decode(),
                "manifest": as_json(manifest.as_json()),
            }
    return found


PROMPT = cc.PromptFragment("system_prompt", "You look on.")


def upcoming(store: cc.Store, file: Path) -> JSONObject:
    """The next request of every channel, to the byte, and its manifest."""
    found: JSONObject = {}
    for each in channels(file):
        compiled = compiler(store, each).compile(
            each.conversation,
            name=each.agent,
            directory=each.directory or None,
            tools=[LOOK],
            instructions=[PROMPT, cc.PromptFragment("state", "It is dark.", "dynamic")],
        )
        manifest = mapped(as_json(compiled.manifest.as_json()), lasting)
        found[each.label] = {"body": compiled.body.decode(), "session": compiled.session_id, "manifest": manifest}
    return found


def exports(store: cc.Store) -> dict[str, bytes]:
    """Each conversation as JSON Lines, by the name of its file."""
    return {
        f"exports/{number:02}.jsonl": b"".join([line + b"\n" for line in export_lines(store, each.name)])
        for number, each in enumerate(store.conversations(), 1)
    }


def conversions(store: cc.Store) -> JSONObject:
    """One conversation as a request in every format, also in those that no provider is called with."""
    return {name: as_json(export_request(store, "formats", format=name).body) for name in format_names()}
