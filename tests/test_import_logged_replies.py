"""Replies in request logs: imported or reported, with the format detected from each reply."""

import json
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.compiler.past_requests import rebuild
from contextc.formats import format_names, formatter
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import ImportSummary, import_files, log_import
from contextc.messages import Reasoning
from contextc.observation.reply_decoding import parse_events
from contextc.providers.registry import format_of_model, formats_of_url

ASKED: JSONObject = {"role": "user", "content": "What grows here?"}
BODY: JSONObject = {"model": "gpt-6", "messages": [ASKED]}
SAID: JSONObject = {"role": "assistant", "content": "Thyme does."}
NOT_UNDERSTOOD = "a reply in an unknown format"


def chunk(text: JSON, index: int = 0) -> JSONObject:
    return {"id": "x", "model": "m", "choices": [{"index": index, "delta": {"content": text}}]}


def stream(*events: JSONObject) -> str:
    return "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events) + "data: [DONE]\n\n"


def pieces(*texts: str) -> str:
    """Ollama's stream: an object a line."""
    lines = [{"model": "l", "message": {"role": "assistant", "content": text}, "done": False} for text in texts]
    return "\n".join(json.dumps(line) for line in [*lines, {"model": "l", "message": {"content": ""}, "done": True}])


def taken(store: cc.Store, path: Path, *lines: JSONObject) -> ImportSummary:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return import_files(store, [path])


def texts_of(store: cc.Store, conversation: str) -> list[str]:
    return [message.text for message in store.load(conversation) if message.role == "assistant"]


@pytest.mark.parametrize(
    "entry",
    [
        {"request": BODY, "response": "Thyme does."},
        {"request": BODY, "response": SAID},
        {"request": BODY, "response": [SAID]},
        {"model": "gpt-6", "input": {"messages": [ASKED]}, "output": SAID},
        {**BODY, "completion": "Thyme does."},
        {"request": BODY, "response": pieces("Thyme", " does.")},
        {"request": BODY, "response": {"status": 200, "body": pieces("Thyme", " does.")}},
        {"request": BODY, "response": stream(chunk("Thyme"), chunk(" does.")).split("\n\n")},
    ],
    ids=["words", "message", "messages", "input and output", "completion", "lines", "lines in http", "list of texts"],
)
def test_a_reply_is_imported_in_any_form(store: cc.Store, tmp_path: Path, entry: JSONObject) -> None:
    summary = taken(store, tmp_path / "log.jsonl", entry)
    (found,) = summary.conversations
    assert (texts_of(store, found.name), summary.left_out) == (["Thyme does."], ())


@pytest.mark.parametrize(
    "expected", ["Use data: addresses.", "data: is a field", '{"answer": 42}', '{"a": 1}\n{"b": 2}']
)
def test_texts_that_look_like_something_else_stay_text(store: cc.Store, tmp_path: Path, expected: str) -> None:
    summary = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": expected})
    assert (texts_of(store, summary.conversations[0].name), summary.left_out) == ([expected], ())


@pytest.mark.parametrize(
    "reply", [{"text": "Thyme."}, 7, [1], {"status": 200, "body": "<html>"}, 'data: {"cho\n\n'], ids=str
)
def test_a_reply_that_is_not_understood_is_reported(store: cc.Store, tmp_path: Path, reply: JSON) -> None:
    summary = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": reply})
    assert summary.conversations[0].messages == 1
    assert [note.partition(",")[0] for note in summary.left_out] == [NOT_UNDERSTOOD]
    assert taken(store, tmp_path / "none.jsonl", {"request": BODY, "response": None}).left_out == ()


def test_other_breaks_than_those_of_lines_stay_in_a_streamed_text(store: cc.Store, tmp_path: Path) -> None:
    text = stream(chunk("Thyme\u2028"), chunk("\x85does."), chunk("!"))
    summary = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": text})
    assert texts_of(store, summary.conversations[0].name) == ["Thyme\u2028\x85does.!"]
    for ending in ("\r\n", "\r"):
        assert len(parse_events(text.replace("\n", ending)).events) == 3


def test_events_that_cannot_be_read_are_counted(store: cc.Store, tmp_path: Path) -> None:
    text = stream(chunk("Thyme")) + 'data: {"cho\n\ndata: {"choi\n\n'
    summary = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": text})
    assert texts_of(store, summary.conversations[0].name) == ["Thyme"]
    (note,) = summary.left_out
    assert note.startswith("an event of a stream that cannot be read")
    assert note.endswith("(2 times)")


@pytest.mark.parametrize("streamed", [False, True])
def test_every_answer_is_a_branch_and_the_first_continues(store: cc.Store, tmp_path: Path, streamed: bool) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    answers = [{"index": index, "message": {**SAID, "content": text}} for index, text in enumerate(("Thyme", "Moss"))]
    events: list[JSONObject] = [
        chunk("Th"),
        chunk("Mo", 1),
        chunk("yme"),
        chunk("ss", 1),
        {"choices": [], "usage": usage},
    ]
    reply = stream(*events) if streamed else {"choices": answers, "usage": usage}
    (found,) = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": reply}).conversations
    assert [store.load(found.name, branch=each.number)[-1].text for each in store.branches(found.name)] == [
        "Thyme",
        "Moss",
    ]
    assert texts_of(store, found.name) == ["Thyme"]
    assert (found.input_tokens, found.output_tokens) == (3, 4)


def test_a_reply_that_reported_no_usage_has_none(store: cc.Store, tmp_path: Path) -> None:
    """Nothing was reported, which is not the same as nothing used."""
    reply = {"choices": [{"message": SAID}]}
    (found,) = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": reply}).conversations
    assert (found.input_tokens, found.output_tokens) == (None, None)
    assert store.load(found.name)[-1].usage is None


THOUGHT: JSONObject = {"type": "thinking", "thinking": [{"type": "text", "text": "Dry soil."}]}
BLOCKS: list[JSON] = [THOUGHT, {"type": "text", "text": "Thyme does."}]


@pytest.mark.parametrize(
    ("url", "model", "reply"),
    [
        ("https://api.mistral.ai/v1/chat/completions", "m", {"choices": [{"message": {**SAID, "content": BLOCKS}}]}),
        ("", "magistral-medium-latest", {"choices": [{"message": {**SAID, "content": BLOCKS}}]}),
        ("/v1/chat/completions", "m", {"choices": [{"message": {**SAID, "content": BLOCKS}}]}),
        ("", "m", stream(chunk([THOUGHT]), chunk("Thyme does."))),
    ],
    ids=["host", "model", "reply", "stream"],
)
def test_reasoning_is_read_in_the_format_it_is_in(
    store: cc.Store, tmp_path: Path, url: str, model: str, reply: JSON
) -> None:
    """Mistral's, whose requests use the same path as OpenAI's: no text of ours becomes model output."""
    entry = {"url": url, "request": {**BODY, "model": model}, "response": reply}
    (found,) = taken(store, tmp_path / "log.jsonl", entry).conversations
    thought, text = store.load(found.name)[-1].parts
    assert isinstance(thought, Reasoning)
    assert thought.text == "Dry soil."
    assert isinstance(text, cc.Text)
    assert text.text == "Thyme does."


def test_a_stream_of_bedrock_is_known_by_its_events(store: cc.Store, tmp_path: Path) -> None:
    events: list[JSON] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Thyme does."}}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    body = {"messages": [{"role": "user", "content": [{"text": "What grows here?"}]}]}
    summary = taken(store, tmp_path / "log.jsonl", {"request": body, "response": events})
    assert texts_of(store, summary.conversations[0].name) == ["Thyme does."]


def test_addresses_and_models_report_the_format() -> None:
    assert formats_of_url("https://api.mistral.ai/v1/chat/completions") == ("mistral",)
    assert formats_of_url("https://example.org/v1/chat/completions?x=1")[0] == "openai_chat"
    assert formats_of_url("/v1/messages") == ("anthropic",)
    assert formats_of_url("x/models/gemini-3:streamGenerateContent?alt=sse") == ("gemini",)
    assert (formats_of_url(""), formats_of_url("/login"), formats_of_url("http://[")) == ((), (), ())
    assert (format_of_model("claude-sonnet-4-5"), format_of_model("nobody-knows")) == ("anthropic", "")
    for name in format_names():
        text = Path(log_import.__file__).read_text(encoding="utf-8")
        assert f'"{name}"' not in text, f"{name}: exchanges are told apart by asking, not by name"
        assert formatter(name).name == name


def test_calls_without_messages_are_skipped(store: cc.Store, tmp_path: Path) -> None:
    """Also where only the reply says that they were for embeddings."""
    asked = {"model": "e", "input": ["one", "two"]}
    reply = {"object": "list", "data": [{"embedding": [0.5]}]}
    summary = taken(
        store,
        tmp_path / "log.jsonl",
        {"url": "https://example.org/v1/embeddings", "request": asked, "response": {"data": []}},
        {"request": asked, "response": reply},
        {"request": BODY, "response": SAID},
    )
    assert len(summary.conversations) == 1
    places = f"first at {tmp_path / 'log.jsonl'}, line 1, line 2 (2 times)"
    assert summary.left_out == (f"a call that is not a chat, such as embeddings, {places}",)


def test_lines_that_are_left_out_are_named(store: cc.Store, tmp_path: Path) -> None:
    """The first three of them."""
    summary = taken(store, tmp_path / "log.jsonl", {"request": BODY, "response": SAID}, *[{"level": "info"}] * 4)
    places = f"first at {tmp_path / 'log.jsonl'}, line 2, line 3, line 4 (4 times)"
    assert summary.left_out == (f"a line without a request, {places}",)


def test_broken_base64_of_a_recording_is_reported(store: cc.Store, tmp_path: Path) -> None:
    entry = {
        "request": {"url": "https://example.org/v1/chat/completions", "postData": {"text": json.dumps(BODY)}},
        "response": {"status": 200, "content": {"text": "!!no", "encoding": "base64"}},
    }
    path = tmp_path / "session.har"
    path.write_text(json.dumps({"log": {"entries": [entry]}}))
    (note,) = import_files(store, [path]).left_out
    assert note.startswith("a reply with invalid base64, first at")
    assert note.endswith("entry 1")


def test_settings_and_tools_are_part_of_the_recorded_request(store: cc.Store, tmp_path: Path) -> None:
    """Equal lines are two calls; fields of the logger are no part of a body."""
    warm = {"request": {**BODY, "temperature": 1}, "response": SAID, "timestamp": 1_800_000_000}
    summary = taken(store, tmp_path / "log.jsonl", warm, warm)
    assert (summary.left_out, summary.total("requests")) == ((), 2)
    (entry, *_) = load_timeline(store, summary.conversations[0].name)
    assert json.loads(rebuild(store, entry.channel, formatter("openai_chat"), 1)) == warm["request"]
    assert (entry.record.time, entry.record.observed and entry.record.observed.status) == (1_800_000_000_000, "ok")
    bare = {**BODY, "response": SAID, "timestamp": 1_800_000_000, "url": "/v1/chat/completions"}
    (found,) = taken(store, tmp_path / "bare.jsonl", bare).conversations
    (entry,) = load_timeline(store, found.name)
    assert json.loads(rebuild(store, entry.channel, formatter("openai_chat"), 1)) == BODY
