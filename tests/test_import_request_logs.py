"""Logs of requests in common envelopes, merged into conversations."""

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.inspection.raw_reply import find_raw_reply
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import export_archive, import_files

TRAFFIC = Path(__file__).parent / "data" / "traffic.jsonl"


def message(role: str, text: str) -> JSONObject:
    return {"role": role, "content": text}


def completion(text: str, **more: object) -> JSONObject:
    message = {"role": "assistant", "content": text, "refusal": None, **more}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "gpt-6",
        "choices": [choice],
        "usage": usage,
    }


def exchange(reply: str, *messages: JSONObject, prompt: str = "Be brief.") -> JSONObject:
    body = {"model": "gpt-6", "messages": [message("system", prompt), *messages]}
    return {"request": body, "response": completion(reply)}


U1, A1, U2, A2, U3 = (
    message("user", "What grows here?"),
    message("assistant", "Thyme does."),
    message("user", "And in winter?"),
    message("assistant", "Moss."),
    message("user", "And in spring?"),
)


def written(path: Path, values: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def texts(store: cc.Store, conversation: str, branch: int | None = None) -> list[str]:
    return [f"{message.role}: {message.text}" for message in store.load(conversation, branch=branch)]


def test_requests_that_each_hold_the_one_before_are_one_conversation(store: cc.Store, tmp_path: Path) -> None:
    """The log repeats the history with every line, and it is stored once."""
    log = written(
        tmp_path / "log.jsonl",
        [exchange("Thyme does.", U1), exchange("Moss.", U1, A1, U2), exchange("Crocus.", U1, A1, U2, A2, U3)],
    )
    summary = import_files(store, [log])
    (taken,) = summary.conversations
    assert (taken.messages, taken.new, taken.branches, taken.input_tokens, taken.output_tokens) == (6, 6, 1, 30, 6)
    assert texts(store, taken.name) == [
        *[f"{each['role']}: {each['content']}" for each in (U1, A1, U2, A2, U3)],
        "assistant: Crocus.",
    ]
    replies = [message for message in store.load(taken.name) if message.role == "assistant"]
    assert [(reply.finish, reply.time) for reply in replies] == [("stop", 1_800_000_000_000)] * 3
    assert import_files(store, [log]).total("new") == 0


def test_a_log_that_has_grown_adds_its_tail(store: cc.Store, tmp_path: Path) -> None:
    lines = [exchange("Thyme does.", U1), exchange("Moss.", U1, A1, U2)]
    import_files(store, [written(tmp_path / "log.jsonl", lines[:1])])
    grown = import_files(store, [written(tmp_path / "log.jsonl", lines)])
    assert (grown.total("new"), len(store.conversations())) == (2, 1)


def test_where_requests_part_there_are_branches(store: cc.Store, tmp_path: Path) -> None:
    """A question that was edited, and an answer that was made again."""
    log = written(
        tmp_path / "log.jsonl",
        [
            exchange("Thyme does.", U1),
            exchange("Moss.", U1, A1, U2),
            exchange("Crocus.", U1, A1, U3),
            exchange("Tulips.", U1, A1, U3),
        ],
    )
    (taken,) = import_files(store, [log]).conversations
    ends = [texts(store, taken.name, branch.number)[2:] for branch in store.branches(taken.name)]
    assert ends == [
        ["user: And in winter?", "assistant: Moss."],
        ["user: And in spring?", "assistant: Crocus."],
        ["user: And in spring?", "assistant: Tulips."],
    ]
    assert texts(store, taken.name)[-1] == "assistant: Tulips."
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []


def test_what_many_requests_share_joins_nothing(store: cc.Store, tmp_path: Path) -> None:
    """One system prompt and the same examples, and two questions: two conversations."""
    log = written(tmp_path / "log.jsonl", [exchange("Moss.", U1, A1, U2), exchange("Crocus.", U1, A1, U3)])
    assert [each.messages for each in import_files(store, [log]).conversations] == [4, 4]
    other = written(tmp_path / "other.jsonl", [exchange("A", U1), exchange("B", U1, A1, U2, prompt="Make a title.")])
    assert len(import_files(store, [other]).conversations) == 2


def test_a_system_prompt_that_contains_the_time_is_the_same_prompt(store: cc.Store, tmp_path: Path) -> None:
    """It changes with every request, and would make each a conversation of its own."""
    lines = [
        exchange("Thyme does.", U1, prompt="It is 12:01."),
        exchange("Moss.", U1, A1, U2, prompt="It is 12:02."),
    ]
    (taken,) = import_files(store, [written(tmp_path / "log.jsonl", lines)]).conversations
    assert taken.messages == 4


def test_old_results_that_were_shortened_are_the_same_results(store: cc.Store, tmp_path: Path) -> None:
    """The first that was seen is kept, in full. By content alone, the second would be another conversation."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked: JSONObject = {"role": "assistant", "content": None, "tool_calls": [call]}

    def result(text: str) -> JSONObject:
        return {"role": "tool", "tool_call_id": "c1", "content": text}

    lines = [
        exchange("Thyme does.", U1, asked, result("Thyme, thyme, thyme.")),
        exchange("Moss.", U1, asked, result("[cleared]"), A1, U2),
    ]
    lines = [{**each, "session_id": "s"} for each in lines]
    (taken,) = import_files(store, [written(tmp_path / "log.jsonl", lines)]).conversations
    assert (taken.branches, taken.tool_calls) == (1, 1)
    (kept,) = [message.tool_results[0] for message in store.load(taken.name) if message.role == "tool"]
    assert (kept.name, kept.text) == ("look", "Thyme, thyme, thyme.")


BODY: JSONObject = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": "Be brief.", "messages": [U1]}
REPLY: JSONObject = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Thyme does."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
STREAM = (
    'event: message_start\ndata: {"type": "message_start", "message": {"role": "assistant", "content": []}}\n\n'
    'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}\n\n'
    'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Thyme does."}}\n\n'
    'data: {"type": "message_stop"}\n\n'
)


@pytest.mark.parametrize(
    "entry",
    [
        {"request": BODY, "response": REPLY},
        {
            "request": {"method": "POST", "url": "/v1/messages", "body": BODY},
            "response": {"status": 200, "body": REPLY},
        },
        {"request": json.dumps(BODY), "response": json.dumps(REPLY)},
        {"request": {"body": json.dumps(BODY)}, "response": {"status_code": 200, "body": json.dumps(REPLY)}},
        {**BODY, "response": REPLY},
        {"body": BODY, "reply": REPLY, "session_id": "s1"},
        {"custom_id": "a", "params": BODY, "result": {"type": "succeeded", "message": REPLY}},
        {"request": BODY, "response": STREAM},
        {"kwargs": BODY, "output": [json.loads(line[6:]) for line in STREAM.split("\n") if line.startswith("data: ")]},
    ],
    ids=["bodies", "http", "texts", "http texts", "inside", "named", "batch", "stream", "events"],
)
def test_envelopes_are_known_by_what_is_in_them(store: cc.Store, tmp_path: Path, entry: JSONObject) -> None:
    (taken,) = import_files(store, [written(tmp_path / "log.jsonl", [entry, {"level": "info"}])]).conversations
    assert texts(store, taken.name) == ["user: What grows here?", "assistant: Thyme does."]


def test_every_exchange_of_the_recorded_traffic_comes_in(store: cc.Store, tmp_path: Path) -> None:
    """Real requests and replies of three providers, in one log; the format of each is seen from itself."""
    everything = [json.loads(line) for line in TRAFFIC.read_text().splitlines()]
    recorded = [each for each in everything if each["api"].startswith(("openai", "anthropic", "gemini"))]
    log = written(
        tmp_path / "log.jsonl",
        [
            {"request": each["request"], "response": {"status": each["status"], "body": each["reply"]}}
            for each in recorded
        ],
    )
    summary = import_files(store, [log])
    replies = sum(
        message.finish is not None
        for each in summary.conversations
        for branch in store.branches(each.name)
        for message in store.load(each.name, branch=branch.number)[branch.base :]
    )
    assert replies == sum(each["status"] == 200 for each in recorded)
    assert [note.partition(",")[0] for note in summary.left_out] == [
        "the history of a request that only the provider stored",
    ]
    assert summary.total("requests") == summary.total("new_requests") == len(recorded)
    known = [entry.record for each in summary.conversations for entry in load_timeline(store, each.name)]
    failed = [record.observed for record in known if record.observed and record.observed.status == "error"]
    assert len(failed) == sum(each["status"] != 200 for each in recorded)
    assert all(facts.error and facts.code >= 400 for facts in failed)
    assert summary.refused == 0


def test_the_two_files_of_a_batch_are_read_together(store: cc.Store, tmp_path: Path) -> None:
    """OpenAI's and Anthropic's; results may come in any order, and some are errors."""
    asked = [
        {
            "custom_id": f"q{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "gpt-6", "messages": [message("user", f"Question {number}")]},
        }
        for number in (1, 2)
    ]
    done = [
        {
            "id": "b",
            "custom_id": f"q{number}",
            "response": {"status_code": 200, "body": completion(f"Answer {number}")},
            "error": None,
        }
        for number in (2, 1)
    ]
    files = [written(tmp_path / "in.jsonl", asked), written(tmp_path / "out.jsonl", done)]
    summary = import_files(store, files)
    assert [each.name for each in summary.conversations] == ["request-log-q1", "request-log-q2"]
    assert texts(store, "request-log-q1") == ["user: Question 1", "assistant: Answer 1"]
    wanted = written(
        tmp_path / "asked.jsonl",
        [{"custom_id": "one", "params": BODY}, {"custom_id": "two", "params": {**BODY, "messages": [U2]}}],
    )
    results = written(
        tmp_path / "results.jsonl",
        [
            {"custom_id": "one", "result": {"type": "succeeded", "message": REPLY}},
            {"custom_id": "two", "result": {"type": "expired"}},
        ],
    )
    again = import_files(store, [results, wanted])
    assert [each.messages for each in again.conversations] == [2, 1]
    assert again.left_out == ()
    (entry,) = load_timeline(store, "request-log-two")
    assert entry.record.observed is not None
    assert entry.record.observed.status == "error"
    with pytest.raises(
        cc.errors.InvalidInput, match=r"has 2 results, and none of the requests.*Import the file of requests"
    ):
        import_files(store, [written(tmp_path / "out.jsonl", done)])


def test_a_har_recording_gives_its_model_calls(store: cc.Store, tmp_path: Path) -> None:
    def entry(url: str, text: str, answer: str, **more: str) -> JSONObject:
        return {
            "startedDateTime": "2026-01-02T03:04:05.000Z",
            "request": {"method": "POST", "url": url, "postData": {"mimeType": "application/json", "text": text}},
            "response": {"status": 200, "content": {"text": answer, **more}},
        }

    packed = base64.b64encode(json.dumps(REPLY).encode()).decode()
    entries = [
        entry("https://example.org/login", "name=ada", "<html>"),
        entry("https://api.anthropic.com/v1/messages", json.dumps(BODY), packed, encoding="base64"),
    ]
    path = tmp_path / "session.har"
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}, indent=1))
    (taken,) = import_files(store, [path]).conversations
    assert texts(store, taken.name) == ["user: What grows here?", "assistant: Thyme does."]
    assert store.load(taken.name)[-1].at.isoformat() == "2026-01-02T03:04:05+00:00"
    (request,) = load_timeline(store, taken.name)
    raw = find_raw_reply(store, request.channel, 1)
    assert raw is not None
    assert (raw.status, raw.data, raw.pieces) == (200, json.dumps(REPLY).encode(), [])


def test_a_raw_response_of_a_har_recording_has_no_credentials_and_is_not_what_contextc_wrote(
    store: cc.Store, tmp_path: Path
) -> None:
    """Guarantee 16.19: a reply may quote the key. What `contextc export` writes is encoded from messages."""
    key = "sk-ant-" + "k" * 40
    quoting = {**REPLY, "content": [{"type": "text", "text": f"Your key is {key}."}]}
    request = {"method": "POST", "url": "https://api.anthropic.com/v1/messages", "postData": {"text": json.dumps(BODY)},
               "headers": [{"name": "x-api-key", "value": key}]}  # fmt: skip
    entry = {"request": request, "response": {"status": 200, "content": {"text": json.dumps(quoting)}}}
    path = tmp_path / "session.har"
    path.write_text(json.dumps({"log": {"entries": [entry]}}))
    (taken,) = import_files(store, [path]).conversations
    (seen,) = load_timeline(store, taken.name)
    raw = find_raw_reply(store, seen.channel, 1)
    assert raw is not None
    assert key.encode() not in raw.data
    assert len(raw.data) == len(json.dumps(quoting))
    path.write_bytes(export_archive(store, taken.name, "har").data)
    with cc.open_store("memory:") as other:
        (again,) = import_files(other, [path]).conversations
        (seen,) = load_timeline(other, again.name)
        assert find_raw_reply(other, seen.channel, 1) is None


def test_a_list_is_read_as_lines_are(store: cc.Store, tmp_path: Path) -> None:
    for name, indent in (("flat", None), ("wide", 2)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps([exchange("Thyme does.", U1), exchange("Moss.", U1, A1, U2)], indent=indent))
        (taken,) = import_files(store, [path], into=name).conversations
        assert (taken.name, taken.messages) == (name, 4)


def test_a_torn_last_line_is_reported_and_a_broken_one_refused(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 15.1: the line is named, and nothing is stored."""
    torn = tmp_path / "torn.jsonl"
    torn.write_text(json.dumps(exchange("Thyme does.", U1)) + '\n{"request": {"mess')
    assert import_files(store, [torn]).left_out == ("line 2, the last, which is truncated",)
    broken = tmp_path / "broken.jsonl"
    broken.write_text(torn.read_text() + "\n" + json.dumps(exchange("Moss.", U2)) + "\n")
    with pytest.raises(cc.errors.InvalidImport, match=r"line 2: .*broken\.jsonl: not valid JSON.*Nothing was imported"):
        import_files(store, [broken])
    assert len(store.conversations()) == 1


def test_the_format_can_be_reported(store: cc.Store, tmp_path: Path) -> None:
    lines = [{"request": {"messages": [U1]}, "response": completion("Thyme does.")}]
    log = written(tmp_path / "log.jsonl", lines)
    (taken,) = import_files(store, [log], format="openai_chat").conversations
    assert texts(store, taken.name) == ["user: What grows here?", "assistant: Thyme does."]
