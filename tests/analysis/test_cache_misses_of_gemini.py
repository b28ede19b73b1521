"""Cache misses in Gemini's format: another order of the prefix, and media whose size is guessed."""

import json
from pathlib import Path

import contextc as cc
from contextc.analysis import cache_reads
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.interchange import import_files
from contextc.interchange.input_files import InputFile
from tests.analysis.cached_client import FILE, SYSTEM, Body
from tests.analysis.observed_run import find_by_request


def test_the_system_prompt_of_gemini_comes_before_its_tools() -> None:
    """If a tool changes, the system prompt can still be read; if the system prompt changes, nothing can."""
    store = cc.open_store("memory:")
    system, tools = SYSTEM * 2, [{"name": "read", "description": FILE}, {"name": "write", "description": FILE}]
    contents: list[Body] = []
    for number in range(4):
        if number == 2:
            tools = [{"name": "read", "description": f"Changed. {FILE}"}, *tools[1:]]
        if number == 3:
            system = f"Changed. {system}"
        contents = [*contents, {"role": "user", "parts": [{"text": f"Question {number}"}]}]
        body = {
            "systemInstruction": {"parts": [{"text": system}]},
            "tools": [{"functionDeclarations": tools}],
            "contents": contents,
        }
        answer = {"role": "model", "parts": [{"text": "Yes."}]}
        began = 1_790_000_000_000 + number * 9_000
        cc.observe(
            store, request=body, reply={"candidates": [{"content": answer, "finishReason": "STOP"}]}, format="gemini",
            model="gemini-2.5-pro", conversation="c", time=began, ended=began + 1_000,
        )  # fmt: skip
        contents = [*contents, answer]
    requests = load_conversation_view(store, "c").requests
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [each.cause for each in found] == ["first_request", "tools_changed", "system_changed"]
    expected = [each.expected for each in cache_reads(store, "c").requests]
    assert requests[2].system.total <= expected[2] < requests[2].head_totals[1]
    assert expected[3] < 100
    assert found[1].tokens < found[2].tokens


def test_no_more_is_missed_than_the_provider_counted(tmp_path: Path) -> None:
    """Sizes of media can only be guessed. The model is in the reply, where the address is not logged."""
    contents: list[Body] = [{"role": "user", "parts": [{"text": SYSTEM * 4}]}]
    lines: list[str] = []
    for number in range(5):
        answer = {"role": "model", "parts": [{"text": f"Answer {number}."}]}
        usage = {"promptTokenCount": 700 + number, "candidatesTokenCount": 5, "totalTokenCount": 705 + number}
        reply = {"candidates": [{"content": answer, "finishReason": "STOP"}], "usageMetadata": usage}
        body = {"contents": list(contents)}
        lines.append(json.dumps({"request": body, "response": {**reply, "modelVersion": "gemini-2.5-flash"}}))
        contents += [answer, {"role": "user", "parts": [{"text": f"More {number}."}]}]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    store = cc.open_store("memory:")
    import_files(store, [InputFile(tmp_path / "log.jsonl")])
    (conversation,) = store.conversations()
    view = load_conversation_view(store, conversation.name)
    assert {each.channel.model for each in view.requests} == {"gemini-2.5-flash"}
    assert [each.estimated > 5 * each.input for each in view.requests] == [True] * 5
    found = find_by_request(store, conversation.name)
    assert [each.cause for each in found if each.code.startswith("CAC")] == ["first_request", *["below_minimum"] * 4]
    assert all(each.tokens <= 704 for each in found if each.code.startswith("CAC"))
