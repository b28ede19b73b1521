"""Answers of the server and the commands about a copy of the golden store, with today's code."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.cli import app
from contextc.store.ledger_schema import channel_id
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from tests.cli.chat_terminal import recorded
from tests.executor.scripted_provider import call, says
from tests.golden.json_compare import TIME, mapped, without_chance
from tests.golden.store_content import alone, as_json, blob_name, channels, lasting, later_hidden, read

LOOKED_AT = ("work", "everything", "a/b ü", "compacted", "small", "program", "replaced", "failures")
"""Conversations whose last requests are inspected over HTTP and by commands."""
STREAMED = ("work", "failures", "cancelled", "interrupted", "compacted", "program")
"""Conversations whose events are recorded in other vocabularies, too."""
ALL_HEADERS, NAMED_HEADERS = ("/api/info",), ("content-type", "cache-control")
DERIVED = ("content-length", "etag", "date")


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
    served = create_application(store, ServerOptions(root=root, model="replay:none.jsonl"))
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
    yield "/api/proxies"
    yield "/api/rules/ANT001"
    yield "/api/chat/work/stream"
    yield "/api/conversations/nobody"
    yield "/api/conversations/work/messages?limit=nothing"
    yield "/api/nothing"
    blob = blob_name(store)
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
                name, name=each.agent, directory=each.directory or None))  # fmt: skip
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
        body = openapi(body, read("http.json")[path]["body"]["schemas"])
    elif answer.status_code >= 400:
        body = mapped(body, lambda name, value: value if name == "kind" else lasting(name, value))
    else:
        body = mapped(body, lasting)
    return {"status": answer.status_code, "headers": headers, "body": later_hidden(body)}


def openapi(document: JSONObject, recorded_schemas: Sequence[JSONObject] = ()) -> JSONObject:
    """The document without prose and without the names of Python classes.

    Schemas are numbered as they are used, first by the recorded endpoints: another endpoint changes no number, and with
    the recorded schemas, no optional field does.
    """
    components: JSONObject = document["components"]["schemas"]
    numbers: dict[str, int] = {}
    schemas: list[Any] = []

    def shape(value: Any, *, names: bool = False) -> Any:
        if isinstance(value, str) and value.startswith("#/components/schemas/"):
            name = value.rpartition("/")[2]
            if name not in numbers:
                numbers[name] = len(numbers)
                schemas.append(None)
                schemas[numbers[name]] = shape(_without_additions(recorded_schemas, numbers[name], components[name]))
            return f"schema {numbers[name]}"
        if isinstance(value, dict):
            return {
                key: shape(inner, names=key in ("properties", "mapping", "paths", "schemas"))
                for key, inner in cast(JSONObject, value).items()
                if names or key not in ("title", "summary", "description", "version")
            }
        return [shape(each) for each in cast(list[Any], value)] if isinstance(value, list) else value

    recorded, served = read("http.json")["/api/openapi.json"]["body"]["paths"], document["paths"]
    known = {
        path: shape({method: served[path][method] for method in methods if method in served[path]}, names=True)
        for path, methods in recorded.items()
        if path in served
    }
    paths = known | {path: known.get(path, {}) | shape(methods, names=True) for path, methods in served.items()}
    rest = {name: shape(value) for name, value in document.items() if name not in ("paths", "components")}
    security = shape(document["components"]["securitySchemes"])
    return {**rest, "paths": paths, "schemas": schemas, "securitySchemes": security}


def _without_additions(recorded: Sequence[JSONObject], number: int, schema: JSONObject) -> JSONObject:
    """A schema without optional fields that are not recorded."""
    if number >= len(recorded) or "properties" not in schema:
        return schema
    kept = {*recorded[number].get("properties", ()), *schema.get("required", ())}
    properties: JSONObject = schema["properties"]
    return {**schema, "properties": {name: each for name, each in properties.items() if name in kept}}


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def streams(store: cc.Store) -> dict[str, str]:
    """The stored events of each conversation as server-sent events, in every vocabulary."""
    served = create_application(store, ServerOptions(model="replay:none.jsonl"))
    found: dict[str, str] = {}
    for each in store.conversations():
        events = store.events(each.name)
        if not events:
            continue
        last = as_json(events[-1])["number"]
        for vocabulary in ("contextc", "agui", "vercel") if each.name in STREAMED else ("contextc",):
            path = f"/api/conversations/{quote(each.name, safe='')}/events"
            result = asyncio.run(_read_stream(served, path, f"vocabulary={vocabulary}", f"id: {last}\n".encode()))
            found[f"{each.name} | {vocabulary}"] = TIME.sub(
                lambda time: str(later_hidden(int(time[0]))), result.decode()
            )
    return found


async def _read_stream(served: Any, path: str, query: str, last: bytes) -> bytes:  # an ASGI application
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
    await asyncio.wait_for(served(scope, receive, send), 60)
    return bytes(body)


def turns(root: Path) -> dict[str, str]:
    """Turns of a recorded model as `useChat` and AG-UI clients read them, without ids and times."""
    (root / "note.txt").write_text("A pond.\n")
    model = recorded(
        root / "model.jsonl",
        says("It ", "is ", "round.", thinks=("Hm, ", "a pond."), output=20),
        says("I read.", call(1, "read_file", path="note.txt"), output=20),
        says("A pond it is.", output=20),
        says("May I?", call(1, "run_command", command="true"), output=20),
    )
    found: dict[str, str] = {}
    with alone(root), cc.open_store("memory:") as store:
        served = create_application(store, ServerOptions(root=root, model=model, tools="all"))
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
            waiting = mapped(client.get("/api/conversations/chat-2").json(), lasting)
            waiting["last_event"] -= 1  # the event `turn-waiting` was added since the recording
            found["waiting"] = _normal(json.dumps(waiting))
            client.post("/api/conversations/chat-2/cancel", json={})
        found["requests"] = _normal(json.dumps([as_json(store.events(name)) for name in ("chat-0", "agui")]))
    return {name: expected.replace(str(root), "<root>") for name, expected in found.items()}


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
    found: Any = mapped(json.loads(out.getvalue()), lasting)
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
