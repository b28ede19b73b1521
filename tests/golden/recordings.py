"""Everything that the golden files hold, read out of a copy of the golden store with today's code.

Values go through the encoders that store and send them, so that a renamed Python attribute changes nothing here, and a
renamed field of JSON does.
"""

import asyncio
import base64
import gzip
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch
from urllib.parse import quote

import msgspec
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.cli import app
from contextc.formats import format_names
from contextc.store import places, transcripts
from contextc.store.transcripts import TranscriptKey
from contextc.store.turns import trigger_states
from contextc.transfer import export_lines, export_request
from contextc.web.app import application
from contextc.web.channels import channel_id
from contextc.web.desk import Options
from tests.cli.chatting import calls, recorded, says
from tests.golden.compare import TIME, mapped, without_chance
from tests.golden.scenario import LOOK

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "v6"
STORE = GOLDEN / "store.db.gz"
SCHEMA = 6
LOOKED_AT = ("work", "everything", "a/b ü", "compacted", "small", "program", "replaced", "failures")
"""Conversations whose last requests are inspected over HTTP and by commands."""
STREAMED = ("work", "failures", "cancelled", "interrupted", "compacted", "program")
"""Conversations whose events are recorded in other vocabularies, too."""
ALL_HEADERS, NAMED_HEADERS = ("/api/info",), ("content-type", "cache-control")
DERIVED = ("content-length", "etag", "date")
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
    """Every row of every table as JSON, without SQLite's own tables."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {
            name: [
                {key: _cell(row[key]) for key in row.keys()}  # noqa: SIM118  # a Row iterates over its values
                for row in connection.execute(f"SELECT * FROM {name} ORDER BY rowid")
            ]
            for (name,) in names
            if not name.startswith("sqlite_")
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
            "sessions": [as_json(msgspec.structs.astuple(each)) for each in cc.SessionManager(store).sessions(name)],
        }  # fmt: skip
    keys = (TranscriptKey("garden", "session-1"), TranscriptKey("garden", "session-1", "side"))
    found["transcripts"] = [store.read(lambda tx, key=key: transcripts.load(tx, key)) for key in keys]
    blob = _blob(store)
    found["blobs"] = {blob: base64.b64encode(store.blob(blob)).decode()}
    return later_hidden(found)


def _triggers(store: cc.Store, name: str) -> JSONObject:
    """What triggers remember."""
    return cast(
        JSONObject, store.read(lambda tx: trigger_states(tx, places.head(tx, name).conversation, "assistant"))
    )  # fmt: skip


def _blob(store: cc.Store) -> str:
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
        asked: dict[str, Any] = {"agent": each.agent, "directory": each.directory or None}
        compile = compiler(store, each)
        for number in each.requests:
            manifest = compile.explain(each.conversation, number, **asked)
            found[f"{each.label} | {number}"] = {
                "body": compile.rebuild(each.conversation, number, **asked).decode(),
                "manifest": as_json(manifest.as_json()),
            }
    return found


def upcoming(store: cc.Store, file: Path) -> JSONObject:
    """The next request of every channel, to the byte, and its manifest."""
    found: JSONObject = {}
    for each in channels(file):
        compiled = compiler(store, each).compile(
            each.conversation,
            agent=each.agent,
            directory=each.directory or None,
            system_prompt="You look on.",
            tools=[LOOK],
            fragments=[cc.PromptFragment("state", "It is dark.", "dynamic")],
        )
        manifest = mapped(as_json(compiled.manifest.as_json()), _lasting)
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


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


BROKEN: JSONObject = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 0,
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c 1", "name": "look", "input": {}}]},
        {"role": "user", "content": "And?"},
    ],
}
POSTED: dict[str, JSONObject] = {
    "/api/lint": {"body": BROKEN, "format": "anthropic"},
    "/api/fix": {"body": BROKEN, "format": "anthropic"},
    "/api/convert": {"body": BROKEN, "target": "openai_chat"},
    "/api/open": {"text": json.dumps(BROKEN)},
}
"""Requests that change nothing in the store."""


def http(store: cc.Store, file: Path, root: Path) -> JSONObject:
    """What the server answers to every GET request that needs no running turn, by path."""
    served = application(store, Options(root=root, model="replay:none.jsonl"))
    client = TestClient(served, base_url="http://127.0.0.1:8377", raise_server_exceptions=False)
    with alone(root), client:
        found = {path: _answer(client.get(path), path) for path in _paths(store, file)}
        posted = {path: _answer(client.post(path, json=body), path) for path, body in POSTED.items()}
        return found | posted


def _paths(store: cc.Store, file: Path) -> Iterator[str]:
    yield "/api/info"
    yield "/api/openapi.json"
    yield "/api/conversations?limit=3"
    yield "/api/conversations?search=pond&limit=3"
    yield "/api/rules/ANT001"
    yield "/api/chat/work/stream"
    yield "/api/conversations/nobody"
    yield "/api/conversations/work/messages?limit=nothing"
    yield "/api/nothing"
    blob = _blob(store)
    yield f"/api/blobs/{blob}?type=image/png"
    kept = channels(file)
    for name in [each.name for each in store.conversations() if not each.name.startswith("format/")]:
        here = f"/api/conversations/{quote(name, safe='')}"
        theirs = [each for each in kept if each.conversation == name]
        yield here
        for what in ("branches", "messages", "notices"):
            yield f"{here}/{what}"
        if theirs:
            yield f"{here}/timeline"
        if name not in LOOKED_AT:
            continue
        if name == "a/b ü":
            yield f"{here}/export"
        for each in theirs:
            channel = channel_id(cc.MessageCompiler(store, cc.provider(f"{each.provider}:{each.model}")).channel(
                name, agent=each.agent, directory=each.directory or None))  # fmt: skip
            yield f"{here}/channels/{channel}/ledger"
            yield f"{here}/next?channel={channel}"
            for what in ("", "/body", "/diff", "/lines?parts=true", "/lint"):
                yield f"{here}/requests/{channel}/{each.requests[-1]}{what}"


def _answer(answer: Any, path: str) -> JSONObject:  # of the client's HTTP library
    shown = answer.headers if path in ALL_HEADERS else {name: answer.headers.get(name) for name in NAMED_HEADERS}
    headers = {name: value for name, value in shown.items() if name not in DERIVED}
    body: Any = answer.text
    if answer.headers.get("content-type", "").startswith("application/json"):
        body = answer.json()
        if "/body" in path:
            body = answer.text  # to the byte
    elif answer.headers.get("content-type", "").startswith("image/"):
        body = answer.content.hex()
    if path == "/api/info":
        body = {name: type(value).__name__ for name, value in body.items()} | {
            "provider": sorted(body["providers"][0]),
            "formats": body["formats"],
        }
    elif "/rules/" in path:
        body = {name: type(value).__name__ for name, value in body.items()}
    elif path == "/api/openapi.json":
        body = openapi(body)
    elif answer.status_code >= 400:
        body = mapped(body, lambda name, value: value if name == "kind" else _lasting(name, value))
    else:
        body = mapped(body, _lasting)
    return {"status": answer.status_code, "headers": headers, "body": later_hidden(body)}


PRICED = ("cost", "dollars")
PROSE = ("remarks", "message", "what", "notes")


def _lasting(name: str, value: Any) -> Any:
    """A value of an answer, without prices, which change, and without prose for people, which may be reworded."""
    if name in PRICED and isinstance(value, float | int):
        return "<price>"
    is_sentence = name in PROSE or (name == "why" and str(value).endswith("."))
    return "<prose>" if isinstance(value, str) and is_sentence else value


def openapi(document: JSONObject) -> JSONObject:
    """The document without prose and without the names of Python classes; schemas are numbered as they are used."""
    components: JSONObject = document["components"]["schemas"]
    numbers: dict[str, int] = {}
    schemas: list[Any] = []

    def shape(value: Any, *, names: bool = False) -> Any:
        if isinstance(value, str) and value.startswith("#/components/schemas/"):
            name = value.rpartition("/")[2]
            if name not in numbers:
                numbers[name] = len(numbers)
                schemas.append(None)
                schemas[numbers[name]] = shape(components[name])
            return f"schema {numbers[name]}"
        if isinstance(value, dict):
            return {
                key: shape(inner, names=key in ("properties", "mapping", "paths", "schemas"))
                for key, inner in cast(JSONObject, value).items()
                if names or key not in ("title", "summary", "description", "version")
            }
        return [shape(each) for each in cast(list[Any], value)] if isinstance(value, list) else value

    paths = shape(document["paths"], names=True)
    rest = {name: shape(value) for name, value in document.items() if name not in ("paths", "components")}
    security = shape(document["components"]["securitySchemes"])
    return {**rest, "paths": paths, "schemas": schemas, "securitySchemes": security}


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def streams(store: cc.Store) -> dict[str, str]:
    """The stored events of each conversation as server-sent events, in every vocabulary."""
    served = application(store, Options(model="replay:none.jsonl"))
    found: dict[str, str] = {}
    for each in store.conversations():
        events = store.events(each.name)
        if not events:
            continue
        last = as_json(events[-1])["number"]
        for vocabulary in ("contextc", "agui", "vercel") if each.name in STREAMED else ("contextc",):
            path = f"/api/conversations/{quote(each.name, safe='')}/events"
            told = asyncio.run(_told(served, path, f"vocabulary={vocabulary}", f"id: {last}\n".encode()))
            found[f"{each.name} | {vocabulary}"] = TIME.sub(lambda time: str(later_hidden(int(time[0]))), told.decode())
    return found


async def _told(served: Any, path: str, query: str, last: bytes) -> bytes:  # an ASGI application
    """A stream up to the frame with this id; then the reader leaves."""
    body, left = bytearray(), asyncio.Event()
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> JSONObject:
        for message in asked:
            return cast(JSONObject, message)
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: JSONObject) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, path
        body.extend(message.get("body", b""))
        if last in body:
            left.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8377")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8377),
    }  # fmt: skip
    await asyncio.wait_for(served(scope, receive, send), 20)
    return bytes(body)


def turns(root: Path) -> dict[str, str]:
    """Turns of a recorded model as `useChat` and AG-UI clients read them, without ids and times."""
    (root / "note.txt").write_text("A pond.\n")
    model = recorded(
        root / "model.jsonl",
        says("It ", "is ", "round.", thinks=("Hm, ", "a pond.")),
        calls("read_file", {"path": "note.txt"}, "I read."),
        says("A pond it is."),
        calls("run_command", {"command": "true"}, "May I?"),
    )
    found: dict[str, str] = {}
    with alone(root), cc.open_store("memory:") as store:
        served = application(store, Options(root=root, model=model, tools="all"))
        with TestClient(served, base_url="http://127.0.0.1:8377", raise_server_exceptions=False) as client:
            for number, text in enumerate(("What is it?", "Read the note.", "Run it.")):
                if number == 1:
                    asked: JSONObject = {
                        "threadId": "agui", "runId": f"run-{number}", "state": {}, "tools": [], "context": [],
                        "messages": [{"id": "m1", "role": "user", "content": text}], "forwardedProps": {},
                    }  # fmt: skip
                    answer = client.post("/api/agui", json=asked)
                else:
                    message = {"id": f"m{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
                    answer = client.post("/api/chat", json={"id": f"chat-{number}", "messages": [message]})
                assert answer.status_code == 200, answer.text
                headers = "".join(
                    [f"{name}: {value}\n" for name, value in answer.headers.items() if name not in DERIVED]
                )
                found[text] = f"{headers}\n{_normal(answer.text)}"
            waiting = mapped(client.get("/api/conversations/chat-2").json(), _lasting)
            found["waiting"] = _normal(json.dumps(waiting))
            client.post("/api/conversations/chat-2/cancel", json={})
        found["requests"] = _normal(json.dumps([as_json(store.events(name)) for name in ("chat-0", "agui")]))
    return {name: told.replace(str(root), "<root>") for name, told in found.items()}


TOKEN = re.compile(r'(\d+:|"(?:approval|id)": ?")[\w-]{22}(?=")')
ROOTED = re.compile(r'("(?:used|hash)":) ?(?:\d+|"[0-9a-f]+")')
"""What depends on the path of the folder that tools work in."""


def _normal(text: str) -> str:
    return without_chance(ROOTED.sub(r'\1 "<rooted>"', TOKEN.sub(r"\1<approval>", text)))


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def commands(file: Path, root: Path) -> JSONObject:
    """What commands print with `--json` about the golden store."""
    (root / "broken.json").write_text(json.dumps(BROKEN))
    address = f"sqlite:///{file}"
    asked: dict[str, tuple[str, ...]] = {
        "list": ("list", "--store", address),
        "doctor": ("doctor", "--store", address),
        "doctor --format": ("doctor", "--store", address, "--format", "openai_chat"),
        "lint": ("lint", str(root / "broken.json"), "--format", "anthropic"),
    }
    for name in LOOKED_AT:
        asked[f"explain {name}"] = ("explain", name, "--store", address)
        asked[f"explain {name} --requests"] = ("explain", name, "--requests", "--store", address)
    for name in ("work", "a/b ü", "compacted", "small", "replaced"):
        asked[f"compile {name}"] = ("compile", name, "--store", address)
    asked["explain everything --model"] = ("explain", "everything", "--model", "openai-chat:gpt-4o", "--store", address)
    with alone(root):
        return {name: _printed((*arguments, "--json")) for name, arguments in asked.items()}


def _printed(arguments: tuple[str, ...]) -> JSONObject:
    out, code = StringIO(), 0
    with redirect_stdout(out):
        try:
            app(list(arguments))
        except SystemExit as ended:
            code = ended.code
    found: Any = mapped(json.loads(out.getvalue()), _lasting)
    if arguments[0] == "doctor" and isinstance(found, dict):
        found, settings = cast(JSONObject, found), cast(JSONObject, found)["settings"]
        found = {name: value if name in SEEN else type(value).__name__ for name, value in found.items()}
        found["settings"] = sorted(settings)
        found["findings"] = [_without_prose(each, ("text", "why", "would")) for each in found["findings"]]
    return {"exit": code, "printed": later_hidden(found)}


SEEN = ("conversations", "recovered", "findings", "healed")
"""What `doctor` prints of the store; the rest is about the machine."""


def _without_prose(finding: JSONObject, names: tuple[str, ...]) -> JSONObject:
    return {name: type(value).__name__ if name in names else value for name, value in finding.items()}


def everything(file: Path) -> dict[str, Any]:
    """All recorded files of JSON, by name; `file` is a copy of the golden store, which is opened and changed."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, cc.open_store(file) as store:
        root = Path(folder)
        found["stored.json"] = stored(store)
        found["requests.json"] = requests(store, file)
        found["next.json"] = upcoming(store, file)
        found["formats.json"] = conversions(store)
        found |= exports(store)
        found["http.json"] = http(store, file, root)
        found["streams.json"] = streams(store)
        found["turns.json"] = turns(root)
        found["commands.json"] = commands(file, root)
    return found
