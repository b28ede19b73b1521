"""Opened files: a store of their own with the whole inspector, nothing in the store of the server, and the import."""

import gzip
import json
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.interchange import export_lines
from contextc.web import opened_files
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application

DATA = Path(__file__).parent.parent / "data"
BYTES = {"Content-Type": "application/octet-stream"}
PATIENCE = 60.0


def open_file(client: TestClient, name: str, data: bytes) -> Any:  # JSON
    """Open a file, and return its view when it is read."""
    answer = client.post("/api/files", params={"name": name}, content=data, headers=BYTES)
    assert answer.status_code == 202, answer.text
    view, deadline = answer.json(), time.monotonic() + PATIENCE
    while view["state"] == "reading":
        assert time.monotonic() < deadline, "the file is not read"
        time.sleep(0.01)
        view = client.get(f"/api/files/{view['id']}").json()
    return view


def exchange(text: str, answer: str, *before: JSONObject) -> JSONObject:
    body: JSONObject = {"model": "gpt-4o", "messages": [*before, {"role": "user", "content": text}]}
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
    reply = {"id": f"r-{text}", "object": "chat.completion", "model": "gpt-4o", "choices": [choice]}
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
    return {
        "request": {
            "method": "POST",
            "url": "https://api.openai.com/v1/chat/completions",
            "headers": [],
            "postData": {"mimeType": "application/json", "text": json.dumps(body)},
        },
        "response": {"status": 200, "content": {"text": json.dumps({**reply, "usage": usage})}},
        "startedDateTime": "2026-03-01T10:00:00Z",
        "time": 1200,
    }


def har() -> bytes:
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
    entries = [exchange("one", "1"), exchange("two", "2", *history)]
    return json.dumps(
        {"log": {"version": "1.2", "creator": {"name": "x", "version": "1"}, "entries": entries}}
    ).encode()


def test_a_recording_has_the_whole_inspector_and_leaves_the_store_alone(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: requests, usage, findings, differences and the exact bytes, as of a watched program."""
    view = open_file(client, "calls.har", har())
    assert (view["state"], view["requests"], view["notes"]) == ("ready", 2, [])
    (name,) = view["conversations"]
    base = f"/api/files/{view['id']}/conversations/{quote(name, safe='')}"
    timeline = client.get(f"{base}/timeline").json()
    assert [each["request"] for each in timeline["requests"]] == [1, 2]
    assert timeline["totals"]["input"] == 100
    channel = timeline["requests"][0]["channel"]
    assert client.get(f"{base}/requests/{channel}/2/diff").status_code == 200
    assert client.get(f"{base}/findings").status_code == 200
    reply = client.get(f"{base}/requests/{channel}/2/reply").json()
    assert "2" in json.dumps(reply)
    assert client.get(f"/api/files/{view['id']}/overview").json()["found"] == 1
    assert store.conversations() == []
    assert client.get("/api/conversations").json()["conversations"] == []


def test_requests_without_their_answers_have_not_failed(client: TestClient) -> None:
    """A file of request bodies: the answers are in the messages of the following ones, or are not recorded, and no
    time is stated.
    """
    bodies = [json.loads(each["request"]["postData"]["text"]) for each in json.loads(har())["log"]["entries"]]
    view = open_file(client, "bodies.jsonl", "\n".join(map(json.dumps, bodies)).encode())
    (name,) = view["conversations"]
    base = f"/api/files/{view['id']}/conversations/{quote(name, safe='')}"
    timeline = client.get(f"{base}/timeline").json()
    assert [each["observed"]["status"] for each in timeline["requests"]] == ["unrecorded"] * 2
    assert "failed" not in timeline["totals"]
    channel = timeline["requests"][0]["channel"]
    reply = client.get(f"{base}/requests/{channel}/1/reply").json()
    assert (reply["status"], reply["began"]) == ("unrecorded", None)
    assert [(each["time"], each["observed"]["began"]) for each in timeline["requests"]] == [(0, None)] * 2
    assert client.get(f"{base}/requests/{channel}/1").json()["time"] == 0
    shared = client.get(f"{base}/export", params={"format": "html"}).text
    assert shared.count('"began":0') == 2
    imported = client.post(f"/api/files/{view['id']}/import")
    assert imported.status_code == 200, imported.text
    listed = client.get("/api/conversations").json()["conversations"]
    assert [each["observed"]["imported"] for each in listed] == [True], "or the list shows it as live"
    assert client.get(f"{base}/findings").json()["findings"] == []


def test_an_opened_file_cannot_be_changed_and_is_imported_whole(client: TestClient, store: cc.Store) -> None:
    view = open_file(client, "calls.har", har())
    (name,) = view["conversations"]
    base = f"/api/files/{view['id']}"
    for method, path in (
        ("POST", "/conversations"),
        ("DELETE", f"/conversations/{quote(name, safe='')}"),
        ("PATCH", f"/conversations/{quote(name, safe='')}"),
        ("POST", f"/conversations/{quote(name, safe='')}/turns"),
    ):
        refused = client.request(method, base + path, json={})
        assert refused.status_code == 409, path
        assert refused.json()["error"]["message"] == "An opened file cannot be changed. Import it first."
    assert client.post(f"{base}/overview/findings", json={"names": [name]}).status_code == 200
    first = client.post(f"{base}/import", json={}).json()
    assert first == {"conversations": [name], "notes": []}
    assert [message.text for message in store.load(name)] == ["one", "1", "two", "2"]
    assert client.get(f"/api/conversations/{name}/timeline").json()["totals"]["input"] == 100
    assert client.post(f"{base}/import", json={}).json()["conversations"] == [name]  # nothing doubled
    assert len(store.load(name)) == 4


def test_an_export_is_opened_with_its_requests_and_a_transcript_too(client: TestClient, store: cc.Store) -> None:
    store.append("mine", cc.user("hello"))
    exported = b"\n".join(export_lines(store, "mine"))
    store.delete("mine")
    view = open_file(client, "mine.jsonl", exported)
    assert view["conversations"] == ["mine"]
    transcript = (DATA / "claude_code" / "transcript-resumed.jsonl").read_bytes()
    seen = open_file(client, "transcript-resumed.jsonl", transcript)
    assert seen["state"] == "ready"
    listed = client.get(f"/api/files/{seen['id']}/conversations").json()["conversations"]
    assert [each["name"] for each in listed] == seen["conversations"]
    database = open_file(client, "llm.db", (DATA / "imports" / "llm.db").read_bytes())
    assert len(database["conversations"]) == 3


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}',
        '[{"role": "user", "content": "hi"}]',
        "curl https://api.openai.com/v1/chat/completions -d '{}'",
        "neither",
    ],
)
def test_a_single_request_is_no_recording(client: TestClient, text: str) -> None:
    view = open_file(client, "given.json", text.encode())
    assert (view["state"], view["conversations"]) == ("request", [])
    refused = client.get(f"/api/files/{view['id']}/conversations")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "NotReady")


def test_what_cannot_be_read_says_why_by_the_name_of_the_file(client: TestClient) -> None:
    view = open_file(client, "../../calls.har.gz", b"\x1f\x8b\x08 packed")
    assert (view["name"], view["state"]) == ("calls.har.gz", "failed")
    assert view["error"]["message"].startswith("calls.har.gz cannot be unpacked: ")


def test_a_packed_recording_and_an_archive_are_opened(client: TestClient) -> None:
    """Guarantee 13.1: as the files in them are; the names are those without the packing."""
    plain, packed = open_file(client, "calls.har", har()), open_file(client, "calls.har.gz", gzip.compress(har()))
    assert (packed["state"], packed["conversations"]) == ("ready", plain["conversations"])
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("run/calls.har", har())
        archive.writestr("notes.txt", "hello")
    several = open_file(client, "all.zip", target.getvalue())
    assert (several["state"], several["conversations"]) == ("ready", plain["conversations"])
    assert "all.zip/notes.txt" in several["notes"][0]


def test_a_closed_file_and_the_oldest_of_too_many_are_deleted(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_files, "MAX_OPENED_FILES", 2)
    first, second, third = [open_file(client, f"{number}.har", har()) for number in range(3)]
    gone = client.get(f"/api/files/{first['id']}")
    assert gone.json()["error"]["message"] == "This file is not open any more. Open it again."
    assert [each["id"] for each in client.get("/api/files").json()["files"]] == [second["id"], third["id"]]
    left = client.delete(f"/api/files/{second['id']}").json()
    assert [each["id"] for each in left["files"]] == [third["id"]]
    assert client.get(f"/api/files/{second['id']}/conversations").status_code == 404


def test_the_end_of_the_server_leaves_no_file_behind(
    store: cc.Store, options: ServerOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    application = create_application(store, options)
    with TestClient(application, base_url="http://127.0.0.1:8377") as client:
        open_file(client, "calls.har", har())
        (held,) = folder.iterdir()
        assert held.stat().st_mode & 0o077 == 0
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("name", ["..", "/", "x" * 5_000, "\u00e9" * 200 + ".har", "a\0b.har"])
def test_any_name_of_a_file_is_accepted(client: TestClient, name: str) -> None:
    view = open_file(client, name, har())
    assert (view["state"], len(view["conversations"])) == ("ready", 1)


def test_a_full_disk_is_an_error_with_a_fix(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no-folder"))
    refused = client.post("/api/files", content=har(), headers=BYTES)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (507, "DiskFull")
    assert "set TMPDIR to another folder" in refused.json()["error"]["message"]


def test_a_file_that_is_too_large_or_is_no_file_is_refused(store: cc.Store, options: ServerOptions) -> None:
    with TestClient(
        create_application(store, replace(options, max_file_bytes=100)), base_url="http://127.0.0.1:8377"
    ) as client:
        large = client.post("/api/files", content=b"x" * 101, headers=BYTES)
        assert (large.status_code, large.json()["error"]["kind"]) == (413, "TooLarge")
        pieces = client.post("/api/files", content=iter([b"x" * 60, b"x" * 60]), headers=BYTES)
        assert pieces.status_code == 413
        assert client.post("/api/files", json={}).status_code == 415
        assert client.get("/api/files").json()["files"] == []
