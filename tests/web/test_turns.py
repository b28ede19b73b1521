"""Turns over HTTP: start, watch, cancel, steer, approve, resume."""

import json
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.executor.turn_store import GivenInput, TurnStore
from contextc.messages import encode_message
from contextc.web import turn_manager
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.turn_manager import ApprovalView
from tests.cli.chat_terminal import home, recorded, refuses
from tests.executor.scripted_provider import Say, says
from tests.forked_commands import CommandProcess
from tests.growing_containers import BOUNDED, count_entries, grown_containers
from tests.telemetry.exported_spans import TRACEPARENT, came_from, exporting
from tests.web.conftest import Served
from tests.web.sse_reader import kinds, listening, read_events, until

SLOW = "?seconds=0.05"


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    """Two answers, the second of which takes its time."""
    model = recorded(tmp_path / "answers.jsonl", says("Good ", "day."), says("Yes."))
    return ServerOptions(root=tmp_path, model=model, recordings=tmp_path)


def post(server: Served, path: str, status: int = 200, **body: object) -> JSONObject:
    answer = httpx.post(f"{server.url}/api/conversations/{path}", json=body, timeout=120)
    assert answer.status_code == status, answer.text
    return answer.json()


def slowly(tmp_path: Path, *replies: Say | JSONObject, name: str = "slow.jsonl") -> str:
    return recorded(tmp_path / name, *replies) + SLOW


def test_a_turn_runs_by_itself_and_reports_what_happens(server: Served) -> None:
    """Guarantees 12.1, 12.2: the events of a turn come in order, from the number that its beginning names."""
    begun = post(server, "demo/turns", 202, input="Hello")
    assert begun == {"after": 0}
    events = read_events(server.url, "demo")
    assert [event["number"] for event in events] == [*range(1, len(events) + 1)]
    assert kinds(events)[0] == "turn-start"
    assert "".join(event["text"] for event in events if event["type"] == "text-delta") == "Good day."
    again = post(server, "demo/turns", 202, input="Really?")
    assert again == {"after": events[-1]["number"]}
    assert "Yes." in "".join(
        str(event.get("text", "")) for event in read_events(server.url, "demo", after=again["after"])
    )


def test_a_turn_continues_the_trace_of_its_request(server: Served) -> None:
    """Guarantee 25.4: the W3C header of a client, on each request; other requests belong to no trace."""
    with exporting() as exported:
        for headers in ({"traceparent": TRACEPARENT}, {"traceparent": "broken"}):
            url = f"{server.url}/api/conversations/demo/turns"
            begun = httpx.post(url, json={"input": "Hello"}, headers=headers, timeout=120)
            assert begun.status_code == 202
            assert kinds(read_events(server.url, "demo", after=begun.json()["after"]))[-1] == "turn-finish"
        first, second = exported.wait_for("invoke_agent assistant", 2)  # a span ends after its turn is stored
        assert (came_from(first), second.parent) == (TRACEPARENT, None)


def test_a_second_turn_is_refused_while_one_runs(server: Served, tmp_path: Path) -> None:
    """Guarantee 3.2: one turn of an agent at a time."""
    post(server, "demo/turns", 202, input="Hello", model=slowly(tmp_path, says(*"abcdefgh" * 8)))
    refused = post(server, "demo/turns", 409, input="And?")
    assert refused["error"]["kind"] == "ConversationBusy"
    assert post(server, "demo/cancel") == {"cancelled": True}
    assert read_events(server.url, "demo")[-1]["finish"] == "cancelled"


def test_a_turn_with_nothing_to_answer_is_refused(server: Served) -> None:
    post(server, "demo/turns", 202, input="Hello")
    read_events(server.url, "demo")
    assert post(server, "demo/turns", 409)["error"]["kind"] == "NothingNew"
    assert post(server, "demo/cancel") == {"cancelled": False}


def test_what_a_cancelled_turn_wrote_stays(server: Served, tmp_path: Path) -> None:
    """Guarantee 11.10: cancelling keeps what was said, with its status."""
    post(server, "demo/turns", 202, input="Count", model=slowly(tmp_path, says(*[f"{n} " for n in range(200)])))
    with listening(f"{server.url}/api/conversations/demo/events?vocabulary=contextc") as stream:
        until(stream, lambda frame: frame.event == "text-delta")
        assert post(server, "demo/cancel") == {"cancelled": True}
        until(stream, lambda frame: frame.event == "turn-finish")
    with cc.open_store(server.address) as store:
        last = store.load("demo", last=1)[0]
    assert (last.role, last.status) == ("assistant", "cancelled")
    assert last.text.startswith("0 ")  # what was read before the turn was cancelled
    (lost,) = httpx.get(f"{server.url}/api/conversations/demo/timeline").json()["unanswered"]
    assert (lost["seq"], lost["uid"], lost["request"]) == (last.seq, last.uid, 1)
    kept = f"{server.url}/api/conversations/demo/requests/{lost['channel']}/{lost['number']}/lines"
    assert [line["text"] for line in httpx.get(kept).json()["lines"]] == ["Count"]


def test_a_turn_that_another_process_runs_is_not_ours_to_stop(server: Served) -> None:
    with cc.open_store(server.address) as store:
        store.append("demo", cc.user("Hello"))
        with store.lease("demo"):
            refused = post(server, "demo/turns", 409, input="Hello")
            assert refused["error"]["kind"] == "ConversationBusy"


def test_input_that_waits_steers_or_follows(server: Served, tmp_path: Path) -> None:
    """Guarantee 11.9: input during a turn is not lost, and opens the next turn if the current one does not take it."""
    model = slowly(tmp_path, says(*"slowly" * 4), says("And then."))
    post(server, "demo/turns", 202, input="Hello", model=model)
    assert post(server, "demo/follow-up", text="Next")["number"] >= 1
    events = read_events(server.url, "demo")
    assert "queued-input" in kinds(events)
    following = read_events(server.url, "demo", after=events[-1]["number"])
    assert kinds(following)[:2] == ["turn-start", "input-taken"]
    assert post(server, "nobody/steer", 404, text="Hm")["error"]["kind"] == "UnknownConversation"


def waits(server: Served) -> ApprovalView:
    """The one approval that is pending."""
    (found,) = server.desk.turns.approvals("demo")
    return found


def test_a_call_waits_for_approval(server: Served, tmp_path: Path) -> None:
    """A tool that needs approval runs after the approval, and not before."""
    model = recorded(
        tmp_path / "writing.jsonl",
        says(("w1", "write_file", {"path": "note.txt", "content": "hello"})),
        says(("w2", "write_file", {"path": "other.txt", "content": "no"})),
        says("Done."),
    )
    post(server, "demo/turns", 202, input="Write", model=model)
    events = read_events(server.url, "demo", last="approval-request")
    first = waits(server)
    assert (first.call, first.name, first.what) == ("w1", "write_file", "write note.txt")
    assert events[-1]["approval"] == first.id
    assert "+hello" in first.lines
    assert not (tmp_path / "note.txt").exists()
    assert post(server, f"demo/approvals/{first.id}", hash=first.hash, approve=True) == {}
    more = read_events(server.url, "demo", after=events[-1]["number"], last="approval-request")
    assert "tool-result" in kinds(more)
    assert (tmp_path / "note.txt").read_text() == "hello"
    second = waits(server)
    again = post(server, f"demo/approvals/{first.id}", 409, hash=first.hash, approve=True)["error"]
    assert again == {
        "kind": "UnknownApproval",
        "message": f"No pending approval {first.id!r}: already answered, or the turn has ended.",
    }
    post(server, f"demo/approvals/{second.id}", hash=second.hash, approve=False, why="not there")
    rest = read_events(server.url, "demo", after=more[-1]["number"])
    failed = next(event for event in rest if event["type"] == "tool-error")
    assert "not there" in failed["text"]
    assert not (tmp_path / "other.txt").exists()
    assert server.desk.turns.approvals("demo") == []


def test_a_cancelled_turn_drops_its_pending_approvals(server: Served, tmp_path: Path) -> None:
    """Guarantee 11.10: a late approval has no effect."""
    model = recorded(tmp_path / "writing.jsonl", says(("w1", "write_file", {"path": "a", "content": "b"})))
    post(server, "demo/turns", 202, input="Write", model=model)
    read_events(server.url, "demo", last="approval-request")
    asked = waits(server)
    post(server, "demo/cancel")
    read_events(server.url, "demo")
    assert server.desk.turns.approvals("demo") == []
    content = {"hash": asked.hash, "approve": True}
    assert post(server, f"demo/approvals/{asked.id}", 409, **content)["error"]["kind"] == "UnknownApproval"
    assert post(server, "demo/approvals", 409, id=asked.id, **content)["error"]["kind"] == "UnknownApproval"
    assert post(server, f"nobody/approvals/{asked.id}", 404, **content)["error"]["kind"] == "UnknownConversation"


@pytest.mark.parametrize("id", ["..", "w\n1", "a/b"])
def test_a_call_with_any_id_can_be_answered(server: Served, tmp_path: Path, id: str) -> None:
    """Models name their calls as they like; an answer names the approval, by an id of ours."""
    writes = says((id, "write_file", {"path": "a.txt", "content": "b"}))
    model = recorded(tmp_path / "writing.jsonl", writes, writes, says("Done."))
    post(server, "demo/turns", 202, input="Write", model=model)
    first = read_events(server.url, "demo", last="approval-request")
    asked = waits(server)
    assert asked.call == id
    assert post(server, "demo/approvals", id=asked.id, hash=asked.hash, approve=True) == {}
    read_events(server.url, "demo", after=first[-1]["number"], last="approval-request")
    second = waits(server)
    assert post(server, f"demo/approvals/{second.id}", hash=second.hash, approve=False) == {}


def test_a_conversation_stays_with_the_model_it_was_given(server: Served, tmp_path: Path) -> None:
    other = recorded(tmp_path / "other.jsonl", says("I am another."), says("Still another."))
    post(server, "demo/turns", 202, input="Hello", model=other)
    first = read_events(server.url, "demo")
    begun = post(server, "demo/turns", 202, input="Who are you?")
    events = "".join(str(event.get("text", "")) for event in read_events(server.url, "demo", after=begun["after"]))
    assert "Still another." in events
    assert first[1]["model"] == "other"


def test_a_recorded_conversation_continues_with_the_model_that_is_shown(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the server's own model, unless its provider cannot be called."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    request = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
    for name, provider in (("seen", "anthropic"), ("elsewhere", "lab")):
        cc.observe(
            server.desk.store, request=request, reply=reply, format="anthropic", provider=provider, conversation=name
        )
        shown = httpx.get(f"{server.url}/api/conversations/{name}").json()["model"]
        assert shown == f"{provider}:claude-sonnet-4-5"
    for name, used in (("seen", "anthropic"), ("elsewhere", "replay")):
        post(server, f"{name}/turns", 202, input="More")
        assert [each["provider"] for each in read_events(server.url, name) if each["type"] == "step-start"] == [used]


def test_a_model_that_is_not_there_is_refused_before_a_turn_begins(server: Served) -> None:
    assert post(server, "demo/turns", 400, input="Hi", model="nobody:nothing")["error"]["kind"] == "InvalidSetting"
    assert post(server, "demo/turns", 400, input="Hi", model="openai:no-such")["error"]["kind"] == "UnknownModel"
    answer = httpx.get(f"{server.url}/api/conversations/demo/events")
    assert answer.status_code == 404


def test_recordings_that_a_client_names_are_not_read(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 13.3: a client may not read the files of the server, nor make it wait for one."""
    secret = tmp_path / "key.txt"
    secret.write_text("private-words\n")
    own = recorded(tmp_path / "own.jsonl", says("Mine."), says("Still mine."))
    recorded(tmp_path / "other.jsonl", says("Not mine."))
    with TestClient(
        create_application(store, ServerOptions(root=tmp_path, model=own)), base_url="http://127.0.0.1"
    ) as client:
        for path in (secret, tmp_path / "other.jsonl", tmp_path / "nowhere", "/dev/null", "\0"):
            asked = {"input": "Hi", "model": f"replay:{path}"}
            for answer in (
                client.post("/api/conversations/demo/turns", json=asked),
                client.post("/api/agui", json=run_of(asked["model"])),
                client.post("/api/chat", json=chat_of(asked["model"])),
            ):
                assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "ForeignRecording")
                assert "private" not in answer.text
        assert store.conversations() == []
        assert client.post("/api/conversations/demo/turns", json={"input": "Hi", "model": own}).status_code == 202


def test_recordings_of_a_folder_may_be_named_if_the_server_allows_it(store: cc.Store, tmp_path: Path) -> None:
    """And no other content of it is shown."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    there = recorded(folder / "there.jsonl", says("Here."))
    outside = recorded(tmp_path / "outside.jsonl", says("Not here."))
    (folder / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (folder / "key.txt").write_text("private-words\n")
    options = ServerOptions(root=tmp_path, model="replay:none.jsonl", recordings=folder)
    with TestClient(create_application(store, options), base_url="http://127.0.0.1") as client:

        def status(model: str) -> tuple[int, str]:
            answer = client.post("/api/conversations/demo/turns", json={"input": "Hi", "model": model})
            return answer.status_code, answer.text

        for other in (outside, f"replay:{folder}/link.jsonl", f"replay:{folder}/../outside.jsonl"):
            assert status(other)[0] == 403
        assert status(f"replay:file://{tmp_path}/outside.jsonl")[0] == 403
        for odd, expected in (
            ("key.txt", "line 1: expected a JSON object"),
            (".", "must be a regular file"),
            ("gone", "cannot read"),
        ):
            code, text = status(f"replay:{folder}/{odd}")
            assert (code, expected in text, "private" in text) == (400, True, False)
        assert status(there)[0] == 202


def run_of(model: str) -> JSONObject:
    message = {"id": "m1", "role": "user", "content": "Hi"}
    return {"threadId": "demo", "runId": "r", "messages": [message], "forwardedProps": {"model": model}}


def chat_of(model: str) -> JSONObject:
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    return {"id": "demo", "messages": [message], "model": model}


def test_a_provider_that_fails_ends_the_turn_and_the_next_one_continues(server: Served, tmp_path: Path) -> None:
    """Guarantee 11.11: an error ends a turn, never the conversation."""
    model = recorded(tmp_path / "failing.jsonl", refuses(401, "No such key."), says("Here I am."))
    post(server, "demo/turns", 202, input="Hello", model=model)
    events = read_events(server.url, "demo")
    assert kinds(events)[-2:] == ["error", "turn-finish"]
    begun = post(server, "demo/turns", 202)
    assert read_events(server.url, "demo", after=begun["after"])[-1]["finish"] == "stop"


def test_a_turn_of_a_killed_process_is_resumed(server: Served, tmp_path: Path) -> None:
    """Guarantee 3.6: what a dead process left is put right, and its turn goes on."""
    slow = slowly(tmp_path, says(*[f"{n} " for n in range(2_000)]))
    command = ["chat", "Hello", "--conversation", "demo", "--model", slow, "--store", server.address]
    with CommandProcess(*command, cwd=tmp_path, env=home(tmp_path)) as process:
        with cc.open_store(server.address) as store:
            deadline = time.monotonic() + 60
            while not has_reply(store) and time.monotonic() < deadline:
                time.sleep(0.05)
        refused = post(server, "demo/approvals", 409, id="c1", hash="x", approve=True)["error"]
        assert refused["kind"] == "RunsElsewhere"
        assert f"process {process.pid} on this machine" in refused["message"]
        assert post(server, "demo/steer", text="Faster")["running"]
        process.kill()
    begun = post(server, "demo/turns", 202, resume=True)
    events = read_events(server.url, "demo", after=begun["after"])
    assert events[0]["resumed"]
    assert events[-1]["finish"] == "stop"
    assert "interrupted" in kinds(read_events(server.url, "demo"))


def test_the_turn_of_a_killed_process_ends_for_all_watchers(server: Served, tmp_path: Path) -> None:
    """A server that shares the store detects it by itself: its streams get the event, and the partial text is a
    message.
    """
    slow = slowly(tmp_path, says(*[f"{n} " for n in range(2_000)]))
    command = ["chat", "Hello", "--conversation", "demo", "--model", slow, "--store", server.address]
    with cc.open_store(server.address) as store:
        store.begin("demo")
    with listening(f"{server.url}/api/conversations/demo/events?vocabulary=contextc") as stream:
        with CommandProcess(*command, cwd=tmp_path, env=home(tmp_path)) as process:
            until(stream, lambda frame: frame.event == "text-delta" and "1 " in frame.json["text"])
            process.kill()
        until(stream, lambda frame: frame.event == "interrupted")
    assert post(server, "demo/cancel") == {"cancelled": False, "interrupted": True}
    found = httpx.get(f"{server.url}/api/conversations/demo").json()
    assert (found["running"], found["pending"]) == (None, None)
    assert not httpx.get(f"{server.url}/api/conversations").json()["conversations"][0]["running"]
    last = httpx.get(f"{server.url}/api/conversations/demo/messages").json()["messages"][-1]
    assert (last["role"], last["status"]) == ("assistant", "error")
    assert last["parts"][0]["text"].startswith("0 1 ")
    assert not post(server, "demo/steer", text="Are you there?")["running"]


def test_a_turn_of_another_machine_is_closed_when_its_lease_has_ended(client: TestClient, store: cc.Store) -> None:
    """No process of another machine can be looked up. A client that opens the conversation later sees that it ended."""
    TurnStore(store, "demo", "assistant", store.acquire("demo")).open(GivenInput([cc.user("Hello")]), resume=False)
    store.write(lambda tx: tx.run("UPDATE main.lease SET holder = 'elsewhere 7 1'"))
    assert client.get("/api/conversations/demo").json()["running"]["turn"] == 1
    decision = {"id": "c1", "hash": "x", "approve": True}
    refused = client.post("/api/conversations/demo/approvals", json=decision)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "RunsElsewhere")
    assert "process 7 on another machine" in refused.json()["error"]["message"]
    cancelled = client.post("/api/conversations/demo/cancel", json={}).json()
    assert cancelled == {"cancelled": True, "requested": True}
    store.write(lambda tx: tx.run("UPDATE main.lease SET expires = 0"))
    assert client.get("/api/conversations/demo").json()["running"] is None
    assert client.post("/api/conversations/demo/cancel", json={}).json() == {"cancelled": False, "interrupted": True}


def has_reply(store: cc.Store) -> bool:
    with suppress(cc.errors.UnknownConversation):
        return any(event.__struct_config__.tag == "text-delta" for event in store.events("demo"))
    return False


def test_old_messages_are_summarized_on_request(server: Served, tmp_path: Path) -> None:
    """Guarantee 7.5: a summary on demand."""
    with cc.open_store(server.address) as store:
        for number in range(30):
            store.append("demo", cc.user(f"Question {number}: " + "why " * 400))
            store.append("demo", cc.assistant(f"Answer {number}: " + "because " * 400))
    model = recorded(tmp_path / "sums.jsonl", *[says("It was about reasons.")] * 8)
    found = post(server, "demo/compact/preview", model=model)["preview"]
    done = post(server, "demo/compact", model=model, instructions="keep the reasons")
    assert done["upto"] == found["upto"] > 0
    assert done["after"] < done["before"] == found["before"]
    assert 0 < done["score"] <= 1
    assert post(server, "demo/compact/undo") == {"upto": done["upto"]}
    assert post(server, "demo/compact/undo") == {"upto": 0}
    with cc.open_store(server.address) as store:
        events = [event for event in store.events("demo") if isinstance(event, cc.events.CompactionFinished)]
    assert [(event.upto, event.undone) for event in events] == [(done["upto"], False), (done["upto"], True)]
    assert post(server, "nobody/compact", 404, model=model)["error"]["kind"] == "UnknownConversation"


def test_lines_that_are_unused_are_closed_and_no_turn_is_kept(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: what is over is in the store, and nowhere else."""
    monkeypatch.setattr(turn_manager, "MAX_EXECUTORS", 3)
    for number in range(6):
        model = recorded(tmp_path / f"model{number}.jsonl", says("Hello."))
        post(server, f"demo{number}/turns", 202, input="Hi", model=model)
        read_events(server.url, f"demo{number}")
    running = server.desk.turns
    deadline = time.monotonic() + 60
    while running.running_conversations and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running.running_conversations
    assert len(running.executors) == 3


def test_a_body_that_cannot_be_read_reports_where(server: Served) -> None:
    answer = post(server, "demo/turns", 400, inputs="Hello")
    assert "inputs" in answer["error"]["message"]
    role = post(server, "demo/turns", 400, input=json.loads(encode_message(cc.assistant("I am no input."))))
    assert role["error"]["kind"] == "InvalidInput"


def test_a_server_keeps_nothing_of_turns_that_have_ended(server: Served, tmp_path: Path) -> None:
    """Turns, streams and their watchers leave no entries for their conversations but those of bounded caches."""
    count = 15
    model = recorded(tmp_path / "many.jsonl", *[says("Good day.")] * (2 * count))

    def serve(first: int) -> None:
        for number in range(first, first + count):
            post(server, f"visitor-{number}/turns", 202, input="Hello", model=model)
            assert kinds(read_events(server.url, f"visitor-{number}"))[-1] == "turn-finish"

    serve(0)
    before = count_entries()
    serve(count)
    recorded_calls = "Replay.calls"  # as many as the recording has replies
    assert grown_containers(before, count) <= {*BOUNDED, "TurnManager._models", recorded_calls}
