"""Imported files become timelines: one request per model call, with the usage, the model and the times of the file."""

import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.analysis.conversation_loader import load_single_request
from contextc.analysis.cost_by_content import compute_composition
from contextc.compiler.ledger import load_rows
from contextc.compiler.past_requests import explain, rebuild
from contextc.doctor import scan_store
from contextc.formats import formatter
from contextc.inspection.request_details import compute_distribution, load_request_details
from contextc.inspection.request_timeline import SentRequest, load_timeline
from contextc.interchange import export_archive, import_files, import_transcript
from contextc.interchange.request_import_export import ArchiveFormat
from contextc.store.ledger_schema import RowRange
from contextc.store.message_log import SEQ_MASK
from tests.transcript_files import CLAUDE_ID, GARDEN, TranscriptMessage, claude_lines, codex_lines

MORE = (*GARDEN, ("user", "And in winter?"), ("assistant", "Moss."))


def facts(entries: list[SentRequest]) -> list[tuple[Any, ...]]:
    return [
        (entry.channel.model, entry.record.usage and (entry.record.usage.input, entry.record.usage.output))
        for entry in entries
    ]


def body(store: cc.Store, entry: SentRequest) -> Any:
    form = formatter({"anthropic": "anthropic", "openai": "openai_responses"}[entry.channel.provider])
    return json.loads(rebuild(store, entry.channel, form, entry.record.request))


def jsonl(lines: list[JSONObject]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_every_reply_of_a_claude_code_session_is_a_request(store: cc.Store) -> None:
    lines = claude_lines(MORE, "/garden")
    for number, line in enumerate(lines):
        if line["type"] == "assistant":
            usage = {"input_tokens": 3, "cache_read_input_tokens": 100 * number, "output_tokens": number}
            line["message"]["usage"] = usage
    taken = import_transcript(store, jsonl(lines))
    entries = load_timeline(store, taken.conversation.name)
    assert facts(entries) == [
        ("claude-opus-5-5", (203, 2)),
        ("claude-opus-5-5", (403, 4)),
        ("claude-opus-5-5", (603, 6)),
    ]
    assert [len(body(store, entry)["messages"]) for entry in entries] == [1, 3, 5]
    assert all(entry.record.observed is not None and entry.record.observed.inexact for entry in entries)
    assert all(entry.cost for entry in entries)
    stored = store.load(taken.conversation.name)
    assert [message.at.second for message in stored] == [0, 1, 2, 3, 4, 5]
    assert [entry.record.time for entry in entries] == [stored[at].time for at in (1, 3, 5)]
    assert [entry.record.produced[0] & 0xFFFF for entry in entries] == [2, 4, 6]
    assert [entry.record.why for entry in entries] == ["first request", "", ""]
    assert "What grows here?" in str(explain(store, entries[0].channel, 1))
    assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_what_a_program_adds_is_not_spread_over_the_messages_of_its_transcript() -> None:
    """Guarantee 6.2: a transcript lacks system prompt and tools. They are one figure, and messages keep their own."""
    store = cc.open_store("memory:")
    text = "The same long text. " * 400
    messages: list[TranscriptMessage] = [
        ("user", "What grows in the garden, and where does it come from?"),
        *[each for number in (1, 2, 3) for each in (("call", f"bed {number}"), ("result", text))],
        ("assistant", "Thyme does."),
    ]
    lines = claude_lines(messages, "/garden")
    for line in lines:
        if line["type"] == "assistant":
            line["message"]["usage"] = {"input_tokens": 4, "cache_read_input_tokens": 17_000, "output_tokens": 20}
    name = import_transcript(store, jsonl(lines)).conversation.name
    channel = load_timeline(store, name)[0].channel
    details = load_request_details(store, channel, 1)
    assert details.budget.input == 17_004
    assert details.tokens[0] < 30
    assert details.tokens == [item.tokens for item in details.items]
    assert compute_distribution(details).overhead == 17_004 - details.tokens[0]
    account = str(explain(store, channel, 1))
    assert f"overhead {17_004 - details.tokens[0]:,} tokens: added by the program, not in the transcript" in account
    assert "redacted" not in account
    assert "inexact: the stored body is not the one that was sent" in account
    (history, added) = compute_composition(load_single_request(store, channel, 1)).nodes
    assert (history.kind, history.tokens) == ("history", details.tokens[0])
    assert (added.kind, added.tokens) == ("overhead", 17_004 - details.tokens[0])
    (repeated,) = [each for each in cc.findings(store, name) if each.code == "WIN003"]
    result = load_request_details(store, channel, 4).items[2].tokens
    assert result * 0.8 <= repeated.tokens <= result * 3


def test_a_session_that_grew_adds_its_new_calls(store: cc.Store) -> None:
    import_transcript(store, jsonl(claude_lines(GARDEN, "/garden")))
    for expected in (2, 3, 3):
        taken = import_transcript(store, jsonl(claude_lines(MORE if expected == 3 else GARDEN, "/garden")))
        assert len(load_timeline(store, taken.conversation.name)) == expected


def test_what_was_taken_back_stays_readable_on_a_branch(store: cc.Store) -> None:
    """Guarantee 16.8: a question was taken back. The calls before were paid for, and a branch has their messages."""
    lines = claude_lines(MORE, "/garden")[1:-1]
    asked = {**lines[0], "uuid": f"{CLAUDE_ID[:-4]}00aa", "timestamp": "2026-11-15T10:02:00.000Z", "parentUuid": None}
    answer: JSONObject = {**lines[-1], "uuid": f"{CLAUDE_ID[:-4]}00ab", "timestamp": "2026-11-15T10:02:01.000Z"}
    answer["parentUuid"], answer["message"] = asked["uuid"], {**lines[-1]["message"], "id": "msg_new"}
    taken = import_transcript(store, jsonl([*lines, asked, answer]))
    assert [message.text for message in store.load(taken.conversation.name)] == ["What grows here?", "Moss."]
    entries = load_timeline(store, taken.conversation.name)
    assert [usage for _, usage in facts(entries)] == [(100, 20)] * 4
    assert [len(entry.record.produced) for entry in entries] == [1, 1, 1, 1]
    left, now = store.branches(taken.conversation.name)
    assert [message.text for message in store.load(taken.conversation.name, branch=left.number)][-2:] == [
        "And in winter?", "Moss.",
    ]  # fmt: skip
    assert store.conversation(taken.conversation.name).branch == now.number
    assert import_transcript(store, jsonl([*lines, asked, answer])).added == 0
    assert len(load_timeline(store, taken.conversation.name)) == 4
    assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_a_reply_that_was_being_written_is_unfinished_and_completed_later(store: cc.Store) -> None:
    """Guarantee 16.8: nothing of it is lost, and nothing counted twice."""
    lines = claude_lines(GARDEN, "/garden")[1:-1]
    lines[-1]["message"] |= {"stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
    name = import_transcript(store, jsonl(lines)).conversation.name

    def last() -> object:
        record = load_timeline(store, name)[-1].record
        return record.observed and record.observed.status, record.usage and record.usage.output

    assert last() == ("unfinished", 1)
    lines[-1]["message"] |= {"stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 7}}
    for _ in range(2):
        import_transcript(store, jsonl(lines))
        assert (last(), len(load_timeline(store, name))) == (("ok", 7), 2)


def test_redacted_text_of_a_session_is_not_stored_with_its_calls(store: cc.Store) -> None:
    """Guarantee 2.8: neither in those that were recorded, nor in those that the next import adds."""
    name = import_transcript(store, jsonl(claude_lines(GARDEN, "/garden"))).conversation.name
    store.redact(name, 1)
    import_transcript(store, jsonl(claude_lines(MORE, "/garden")))
    entries = load_timeline(store, name)
    assert len(entries) == 3
    rows = store.read(lambda tx: load_rows(tx, [RowRange(1, 0, SEQ_MASK)]))
    assert not any(b"What grows" in row.chunk for row in rows)
    assert any(b"And in winter?" in row.chunk for row in rows)
    assert "What grows" not in str(explain(store, entries[-1].channel, 3))


def test_the_lines_of_one_reply_are_one_call(store: cc.Store) -> None:
    lines = claude_lines((("user", "Hi"), ("assistant", "One"), ("assistant", "Two")), "/garden")
    for line in lines[2:4]:
        line["message"]["id"] = "msg_x"
    lines[3]["message"]["usage"] = {"input_tokens": 7, "output_tokens": 9}
    name = import_transcript(store, jsonl(lines)).conversation.name
    assert facts(load_timeline(store, name)) == [("claude-opus-5-5", (7, 9))]


def codex_session() -> list[JSONObject]:
    """A thread with a call and its result; the figures are repeated once with other limits."""
    lines = codex_lines(GARDEN, "/garden")
    total = {"input_tokens": 0, "output_tokens": 0}

    def count(at: int, input: int, output: int) -> JSONObject:
        last = {"input_tokens": input, "cached_input_tokens": 5, "output_tokens": output, "reasoning_output_tokens": 1}
        total["input_tokens"] += input
        total["output_tokens"] += output
        info = {"total_token_usage": dict(total), "last_token_usage": last}
        payload = {"type": "token_count", "info": info, "rate_limits": {}}
        return {"timestamp": f"2026-11-15T10:00:{at:02}.000Z", "type": "event_msg", "payload": payload}

    context = {"timestamp": "2026-11-15T10:00:00.000Z", "type": "turn_context", "payload": {"model": "gpt-5"}}
    first = count(10, 50, 6)
    second = count(20, 70, 8)
    return [*lines[:2], context, *lines[2:4], first, {**first}, *lines[4:], second]


def test_every_counted_call_of_codex_is_a_request(store: cc.Store) -> None:
    taken = import_transcript(store, jsonl(codex_session()))
    entries = load_timeline(store, taken.conversation.name)
    assert facts(entries) == [("gpt-5", (50, 6)), ("gpt-5", (70, 8))]
    usages = [entry.record.usage for entry in entries]
    assert all(usage is not None and (usage.cache_read, usage.reasoning) == (5, 1) for usage in usages)
    assert [len(body(store, entry)["input"]) for entry in entries] == [1, 3]
    assert [[place & 0xFFFF for place in entry.record.produced] for entry in entries] == [[2], [4]]
    assert [message.at.isoformat()[:10] for message in store.load(taken.conversation.name)] == ["2026-11-15"] * 4
    assert len(load_timeline(store, import_transcript(store, jsonl(codex_session())).conversation.name)) == 2
    assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_a_summary_counts_the_requests_of_a_session(store: cc.Store, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(jsonl(codex_session()))
    (taken,) = import_files(store, [path]).conversations
    assert (taken.requests, taken.new_requests, taken.input_tokens, taken.output_tokens) == (2, 2, 120, 14)
    (again,) = import_files(store, [path]).conversations
    assert (again.requests, again.new_requests, again.input_tokens) == (2, 0, 120)


# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def otlp(*spans: JSONObject) -> JSONObject:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def pairs(attributes: JSONObject) -> list[JSONObject]:
    def value(given: Any) -> JSONObject:
        if isinstance(given, int):
            return {"intValue": str(given)}
        return {"stringValue": given}

    return [{"key": name, "value": value(given)} for name, given in attributes.items()]


def span(number: int, attributes: JSONObject, **more: object) -> JSONObject:
    began = 1_800_000_000 + 10 * number
    return {
        "traceId": "t", "spanId": f"s{number}", "name": "chat", "attributes": pairs(attributes),
        "startTimeUnixNano": f"{began}000000000", "endTimeUnixNano": f"{began + 2}500000000", **more,
    }  # fmt: skip


def part_message(role: str, *parts: JSONObject, **more: object) -> JSONObject:
    return {"role": role, "parts": list(parts), **more}


def text(content: str) -> JSONObject:
    return {"type": "text", "content": content}


ASKED = part_message("user", text("What grows here?"))
CALL = part_message("assistant", {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": "bed"}})
RESULT = part_message("tool", {"type": "tool_call_response", "id": "c1", "response": "Thyme."})
ANSWER = part_message("assistant", text("Thyme does."), finish_reason="stop")


def gen_ai(given: list[JSONObject], said: list[JSONObject], **more: object) -> JSONObject:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.system_instructions": json.dumps([text("Be brief.")]),
        "gen_ai.input.messages": json.dumps(given),
        "gen_ai.output.messages": json.dumps(said),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 40,
        **more,
    }


def loaded(store: cc.Store, path: Path, *values: object, source: str) -> tuple[str, list[SentRequest]]:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    summary = import_files(store, [path])
    assert summary.source == source
    assert import_files(store, [path]).total("new_requests") == 0
    (found,) = summary.conversations
    return found.name, load_timeline(store, found.name)


def test_spans_of_opentelemetry_are_requests(store: cc.Store, tmp_path: Path) -> None:
    """In any order; tool calls included; in the format of their provider, so that they have a cost."""
    first = span(1, gen_ai([ASKED], [CALL], **{"gen_ai.conversation.id": "garden"}))
    second = span(2, gen_ai([ASKED, CALL, RESULT], [ANSWER], **{"gen_ai.conversation.id": "garden"}))
    tool = span(3, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"})
    name, entries = loaded(store, tmp_path / "spans.jsonl", otlp(second, tool), otlp(first), source="opentelemetry")
    assert name == "opentelemetry-garden"
    assert [(message.role, message.text) for message in store.load(name)] == [
        ("user", "What grows here?"), ("assistant", ""), ("tool", ""), ("assistant", "Thyme does."),
    ]  # fmt: skip
    assert facts(entries) == [("claude-sonnet-4-5", (100, 7))] * 2
    assert [entry.record.usage and entry.record.usage.cache_read for entry in entries] == [40, 40]
    known = [entry.record.observed for entry in entries]
    assert [each and (each.began, each.ended) for each in known] == [
        (1_800_000_010_000, 1_800_000_012_500), (1_800_000_020_000, 1_800_000_022_500),
    ]  # fmt: skip
    assert all(entry.cost and entry.record.observed and entry.record.observed.inexact for entry in entries)
    assert body(store, entries[1])["messages"][2]["content"][0]["tool_use_id"] == "c1"
    assert [entry.record.why for entry in entries] == ["first request", ""]


def test_older_events_of_opentelemetry_are_read(store: cc.Store, tmp_path: Path) -> None:
    """Events of a span; events of a log; numbered attributes. A call without its messages is reported."""
    plain = {"gen_ai.system": "openai", "gen_ai.request.model": "gpt-5", "gen_ai.usage.input_tokens": 9}
    plain["gen_ai.usage.output_tokens"] = 2

    def event(name: str, **attributes: object) -> JSONObject:
        return {"name": name, "timeUnixNano": "1", "attributes": pairs(attributes)}

    events = [
        event("gen_ai.user.message", content="Hi"),
        event("gen_ai.choice", message=json.dumps({"role": "assistant", "content": "Ho"}), finish_reason="stop"),
    ]
    numbered = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Hi", "gen_ai.completion.0.content": "Ho"}
    old = [event("gen_ai.content.prompt", **{"gen_ai.prompt": json.dumps([{"role": "user", "content": "Hi"}])})]
    old += [event("gen_ai.content.completion", **{"gen_ai.completion": json.dumps([{"content": "Ho"}])})]
    record = {
        "spanId": "s4",
        "eventName": "gen_ai.user.message",
        "body": {"kvlistValue": {"values": pairs({"content": "Hi"})}},
    }
    choice = {"kvlistValue": {"values": [{"key": "message", "value": {"stringValue": '{"content": "Ho"}'}}]}}
    logs = {
        "resourceLogs": [
            {"scopeLogs": [{"logRecords": [record, {"spanId": "s4", "eventName": "gen_ai.choice", "body": choice}]}]}
        ]
    }
    spans = otlp(
        span(1, plain, events=events), span(2, {**plain, **numbered}), span(3, plain, events=old), span(4, plain),
        span(5, plain),
    )  # fmt: skip
    path = tmp_path / "spans.jsonl"
    path.write_text(f"{json.dumps(logs)}\n{json.dumps(spans)}\n")
    summary = import_files(store, [path])
    assert [[message.text for message in store.load(each.name)] for each in summary.conversations] == [["Hi", "Ho"]] * 4
    assert (summary.total("input_tokens"), summary.total("output_tokens")) == (36, 8)
    (note,) = summary.left_out
    assert note.startswith("a model call whose messages were not captured")


def test_spans_of_openinference_are_requests(store: cc.Store, tmp_path: Path) -> None:
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    shared = {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-5", "llm.provider": "openai", "session.id": "one",
        "llm.token_count.prompt": 50, "llm.token_count.completion": 5, "llm.token_count.total": 55,
        "llm.token_count.prompt_details.cache_read": 20, "llm.invocation_parameters": '{"temperature": 0}',
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "What grows here?",
    }  # fmt: skip
    first = {**shared, f"{call}.id": "c1", f"{call}.function.name": "look", f"{call}.function.arguments": "{}"}
    first["llm.output_messages.0.message.role"] = "assistant"
    later = {name.replace("output_messages.0", "input_messages.1"): value for name, value in first.items()}
    later |= {
        "llm.input_messages.2.message.role": "tool", "llm.input_messages.2.message.tool_call_id": "c1",
        "llm.input_messages.2.message.content": "Thyme.",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Thyme does.",
    }  # fmt: skip
    printed: JSONObject = {
        "name": "ChatCompletion", "context": {"trace_id": "0x1", "span_id": "0x2"}, "attributes": later, "events": [],
        "start_time": "2027-01-15T08:00:20.000000Z", "end_time": "2027-01-15T08:00:21Z",
        "status": {"status_code": "OK"},
    }  # fmt: skip
    chain = span(9, {"openinference.span.kind": "CHAIN"})
    name, entries = loaded(
        store, tmp_path / "spans.jsonl", printed, otlp(chain, span(1, first)), source="openinference"
    )
    assert name == "openinference-one"
    assert [message.text for message in store.load(name)] == ["What grows here?", "", "", "Thyme does."]
    assert facts(entries) == [("gpt-5", (50, 5))] * 2
    assert [entry.record.usage and entry.record.usage.cache_read for entry in entries] == [20, 20]
    assert body(store, entries[0])["temperature"] == 0
    assert all(entry.cost and entry.record.observed and entry.record.observed.inexact for entry in entries)


# ── HAR and LHAR ──────────────────────────────────────────────────────────────────────────────────────────────────────


def exchanges() -> list[JSONObject]:
    """Two turns with a tool, an error and a reply that never came."""
    asked: list[JSONObject] = [{"role": "user", "content": "What grows here?"}]
    call = [{"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "bed"}}]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "Thyme."}]
    usage = {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10}

    def reply(content: list[JSONObject], stop: str) -> JSONObject:
        made = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
        return {**made, "content": content, "stop_reason": stop, "usage": usage}

    def request(*messages: JSONObject) -> str:
        body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": "Be brief.", "messages": list(messages)}
        return json.dumps(body, indent=1)

    more = [*asked, {"role": "assistant", "content": call}, {"role": "user", "content": result}]
    last = [*more, {"role": "assistant", "content": "Thyme does."}, {"role": "user", "content": "And?"}]
    url = "https://api.anthropic.com/v1/messages?key=secret"
    headers = [{"name": "x-api-key", "value": "sk-secret"}]
    return [
        {
            "startedDateTime": f"2026-01-02T03:04:0{number}.000Z", "time": 250,
            "request": {"method": "POST", "url": url, "headers": headers, "postData": {"text": sent}},
            "response": {"status": status, "content": {"text": json.dumps(answer) if answer else ""}},
        }
        for number, (sent, status, answer) in enumerate(
            [
                (request(*asked), 529, {"type": "error", "error": {"type": "overloaded", "message": "Overloaded"}}),
                (request(*asked), 200, reply(call, "tool_use")),
                (request(*more), 200, reply([{"type": "text", "text": "Thyme does."}], "end_turn")),
                (request(*last), 0, None),
            ]
        )
    ]  # fmt: skip


def summed_up(store: cc.Store, name: str) -> list[object]:
    return [
        (
            entry.channel, entry.record.request, entry.record.usage, entry.cost, entry.record.time,
            entry.record.observed and (
                entry.record.observed.status, entry.record.observed.code, entry.record.observed.error,
                entry.record.observed.began, entry.record.observed.ended,
            ),
            rebuild(store, entry.channel, formatter("anthropic"), entry.record.request),
        )
        for entry in load_timeline(store, name)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["har", "lhar"])
def test_an_archive_gives_the_same_conversation_again(store: cc.Store, tmp_path: Path, kind: ArchiveFormat) -> None:
    path = tmp_path / "session.har"
    path.write_text(json.dumps({"log": {"entries": exchanges()}}))
    (found,) = import_files(store, [path]).conversations
    before = summed_up(store, found.name)
    assert [record[5][0] for record in before] == ["error", "ok", "ok", "unanswered"]  # type: ignore[index]
    assert [json.loads(str(record[-1], "utf-8"))["model"] for record in before] == ["claude-sonnet-4-5"] * 4  # type: ignore[arg-type]
    archive = export_archive(store, found.name, kind)
    assert (archive.requests, archive.warnings) == (4, [])
    assert b"secret" not in archive.data
    file = tmp_path / f"out.{kind}"
    file.write_bytes(archive.data)
    again = import_files(store, [file])
    assert [(each.name, each.requests, each.new_requests) for each in again.conversations] == [(found.name, 4, 0)]
    with cc.open_store("memory:") as other:
        summary = import_files(other, [file])
        assert (summary.source, summary.left_out) == (kind, ())
        assert summed_up(other, found.name) == before
        assert [(message.role, message.parts) for message in other.load(found.name)] == [
            (message.role, message.parts) for message in store.load(found.name)
        ]


def test_our_own_requests_are_exported_too(store: cc.Store, tmp_path: Path) -> None:
    store.append("talk", cc.user("What grows here?"))
    compiler = cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5")
    compiled = compiler.compile("talk")
    compiler.commit(compiled, cc.assistant("Thyme does.", finish="stop", usage=cc.Usage(input=12, output=3)))
    file = tmp_path / "talk.har"
    file.write_bytes(export_archive(store, "talk", "har").data)
    (again,) = import_files(store, [file]).conversations
    assert (again.name, again.new, again.new_requests) == ("talk", 0, 0)
    with cc.open_store("memory:") as other:
        import_files(other, [file])
        assert [message.text for message in other.load("talk")] == ["What grows here?", "Thyme does."]
        (entry,) = load_timeline(other, "talk")
        assert facts([entry]) == [("claude-sonnet-4-5", (12, 3))]
        assert body(other, entry) == json.loads(compiled.body)
    store.append("empty", cc.user("Hi"))
    with pytest.raises(cc.errors.InvalidInput, match="no model has answered"):
        export_archive(store, "empty", "har")


def test_an_entry_of_lhar_without_bodies_is_reported(store: cc.Store, tmp_path: Path) -> None:
    """By default, Context Lens captures no bodies. A reply without usage gets that of the entry."""
    usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    entry = {
        "type": "entry", "id": "e1", "trace_id": "abc123", "timestamp": "2026-01-02T03:04:05Z", "sequence": 1,
        "gen_ai": {"system": "openai", "usage": usage}, "usage_ext": {"cache_read_tokens": 2, "cache_write_tokens": 0},
        "http": {"url": "https://api.openai.com/v1/chat/completions", "status_code": 200},
        "timings": {"total_ms": 1500}, "raw": {"request_body": None, "response_body": None},
    }  # fmt: skip
    sent = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}
    said = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Ho"}}]}
    full = {**entry, "id": "e2", "raw": {"request_body": sent, "response_body": said}}
    path = tmp_path / "session.lhar"
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in ({"type": "session", "trace_id": "abc123"}, entry, full))
    )
    summary = import_files(store, [path])
    (found,) = summary.conversations
    assert (found.name, found.input_tokens, found.output_tokens) == ("lhar-abc123", 7, 3)
    assert summary.left_out[0].startswith("an entry without bodies")
    (line,) = load_timeline(store, found.name)
    assert line.record.time - 1_767_323_045_000 == 1500


def test_a_turn_that_codex_rolled_back_stays_readable_on_a_branch(store: cc.Store) -> None:
    """Guarantee 16.8: its calls were paid for."""
    lines = codex_session()
    rolled: JSONObject = {"timestamp": "2026-11-15T10:00:30.000Z", "type": "event_msg"}
    rolled["payload"] = {"type": "thread_rolled_back", "num_turns": 1}
    said: list[JSONObject] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And in winter?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Moss."}]},
    ]
    later: list[JSONObject] = [
        {"timestamp": "2026-11-15T10:00:40.000Z", "type": "response_item", "payload": each} for each in said
    ]
    counted = {**lines[-1], "timestamp": "2026-11-15T10:00:41.000Z"}
    info = {"total_token_usage": {"input_tokens": 999}, "last_token_usage": {"input_tokens": 90, "output_tokens": 9}}
    counted["payload"] = {"type": "token_count", "info": info}
    given = jsonl([*lines, rolled, *later, counted])
    name = import_transcript(store, given).conversation.name
    assert [message.text for message in store.load(name)] == ["And in winter?", "Moss."]
    entries = load_timeline(store, name)
    assert facts(entries) == [("gpt-5", (50, 6)), ("gpt-5", (70, 8)), ("gpt-5", (90, 9))]
    assert [len(entry.record.produced) for entry in entries] == [1, 1, 1]
    left = store.branches(name)[0]
    assert [message.text for message in store.load(name, branch=left.number)][-1] == "Thyme does."
    assert import_transcript(store, given).added == 0
    assert len(load_timeline(store, name)) == 3
    assert [each for each in scan_store(store) if each.kind == "fault"] == []
