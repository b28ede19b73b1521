"""Findings about what fills the window."""

import pytest

import contextc as cc
from contextc.analysis import Finding
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.finding import get_code
from contextc.analysis.window_findings import (
    kept_media,
    large_results,
    repeated_content,
    stale_reminders,
    unused_tools,
)
from tests.analysis.observed_run import ObservedRun, define_tool, words

READ, WRITE = 0.30, 3.75  # dollars per million tokens of the model of the tests
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def find(run: ObservedRun, function: object) -> list[Finding]:
    view = load_conversation_view(run.store, run.conversation)
    return list(function(view))  # type: ignore[operator]


def test_tools_that_were_never_called_are_named_with_their_cost() -> None:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000), define_tool("mail", 1_500)])
    run.ask("Look.")
    for number in range(5):
        run.call("read", f"line {number}", path=f"{number}.txt")
    run.send()
    (found,) = find(run, unused_tools)
    assert found.code == "WIN001"
    assert found.title.startswith("2 of 3 tools were never called")
    assert [each.path for each in found.evidence] == ["tools[1]", "tools[2]"]
    assert "(draw, mail)" in found.title
    # written once, then read five times
    assert found.cost == pytest.approx(found.tokens * (WRITE + 5 * READ) / 1e6, rel=0.05)


def test_only_requests_with_the_unused_tools_are_counted() -> None:
    run = ObservedRun(tools=[define_tool("read")])
    run.ask("Look.")
    for number in range(8):
        if number == 3:
            run.tools = [define_tool("read"), define_tool("draw", 3_000)]
        if number == 6:
            run.tools = [define_tool("read"), define_tool("draw", 3_000), define_tool("mail", 1_500)]
        run.call("read", f"line {number}", path=f"{number}.txt")
        if number == 5:
            (found,) = find(run, unused_tools)
            assert f"{found.tokens:,} tokens in request 6, sent in 3 requests (draw)" in found.title
    (found,) = find(run, unused_tools)
    assert f"{found.tokens:,} tokens in request 8, sent in up to 5 requests (draw, mail)" in found.title


def test_a_tool_that_only_the_last_reply_calls_is_called() -> None:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)])
    run.ask("Look.")
    for number in range(5):
        run.call("read", f"line {number}", path=f"{number}.txt")
    run.send({"type": "tool_use", "id": "toolu_last", "name": "draw", "input": {}}, stop="tool_use")
    assert find(run, unused_tools) == []


def test_short_runs_and_deferred_tools_have_no_unused_tools() -> None:
    run = ObservedRun(tools=[define_tool("draw", 3_000)])
    for number in range(3):
        run.ask(f"Question {number}.")
        run.send()
    assert find(run, unused_tools) == []
    run = ObservedRun(tools=[define_tool("draw", 3_000) | {"defer_loading": True}])
    for number in range(8):
        run.ask(f"Question {number}.")
        run.send()
    assert find(run, unused_tools) == []


def test_a_group_of_tools_is_called_if_one_of_them_is() -> None:
    group = {"type": "namespace", "name": "agents", "tools": [define_tool("spawn", 2_000), define_tool("wait", 10)]}
    for called, expected in (("spawn", 0), ("read", 1)):
        run = ObservedRun(tools=[define_tool("read"), group])
        run.ask("Look.")
        for number in range(5):
            run.call(called, f"line {number}")
        run.send()
        assert len(find(run, unused_tools)) == expected


def test_a_large_result_costs_by_staying() -> None:
    run = ObservedRun(tools=[define_tool("read")])
    run.ask("Read the log.")
    run.call("read", words(8_000), path="huge.log")
    for number in range(4):
        run.call("read", f"line {number}", path=f"{number}.txt")
    run.send()
    (found,) = find(run, large_results)
    assert found.code == "WIN002"
    assert "read (huge.log)" in found.title
    assert "sent 4 more times" in found.title
    assert found.evidence[0].request == 2
    assert found.evidence[0].path == "messages[2].content[0]"
    assert found.cost == pytest.approx(found.tokens * 4 * READ / 1e6, rel=0.05)


def test_a_file_that_was_read_twice_is_repeated_content() -> None:
    run = ObservedRun(tools=[define_tool("read")])
    run.ask("Compare.")
    text = words(1_000)
    run.call("read", text, path="a.py")
    run.call("read", words(400, "x"), path="b.py")
    run.call("read", text, path="a.py")
    run.send()
    run.ask("Again?")
    run.send()
    (found,) = find(run, repeated_content)
    assert found.code == "WIN003"
    assert "The same content 2 times: read (a.py)" in found.title
    assert {each.path for each in found.evidence} == {"messages[2].content[0]", "messages[6].content[0]"}
    assert found.evidence[0].request == 4
    assert found.cost == pytest.approx(found.tokens * (WRITE + READ) / 1e6, rel=0.1)


def test_a_file_that_was_read_again_after_an_edit_is_repeated_in_part() -> None:
    run = ObservedRun(tools=[define_tool("read")])
    run.ask("Edit.")
    lines = [f"line {number}: {words(10, f'v{number}')}" for number in range(80)]
    run.call("read", "\n".join(lines), path="a.py")
    run.call("read", "\n".join([*lines[:40], "changed", *lines[41:]]), path="a.py")
    run.send()
    (found,) = find(run, repeated_content)
    assert "Almost the same content 2 times: read (a.py)" in found.title
    assert found.confidence < 0.9


def test_the_same_text_in_two_messages_is_repeated_content() -> None:
    run = ObservedRun()
    text = words(700)
    for _ in range(3):
        run.ask(f"Rules:\n{text}")
        run.send()
    (found,) = find(run, repeated_content)
    assert "The same content 3 times: a text" in found.title


def test_different_contents_and_contents_of_different_epochs_are_not_repeated() -> None:
    run = ObservedRun()
    run.ask(words(700, "a"))
    run.send()
    run.messages = []
    run.ask("Summary.", words(700, "b"))
    run.send()
    run.messages = []
    run.ask(words(700, "a"))
    run.send()
    assert find(run, repeated_content) == []


def test_images_that_stay_are_one_finding() -> None:
    run = ObservedRun(tools=[define_tool("shoot")])
    run.ask("What is this?", IMAGE)
    run.call("shoot", [{"type": "text", "text": "done"}, IMAGE])
    for number in range(6):
        run.call("shoot", f"no picture {number}")
    run.send()
    (found,) = find(run, kept_media)
    assert found.code == "WIN004"
    assert found.title.startswith("2 images or documents stay")
    assert found.cost is not None
    assert found.cost > 0
    short = ObservedRun()
    short.ask("What is this?", IMAGE)
    for _ in range(3):
        short.send()
        short.ask("And?")
    assert find(short, kept_media) == []
    assert "Leave them out of later requests" in found.fix
    assert "`file_id`" in found.fix


PICTURE = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    ("format", "image", "words"),
    [
        ("gemini", {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}, ("mediaResolution", "fileUri")),
        ("openai_chat", {"type": "image_url", "image_url": {"url": PICTURE}}, ('"detail": "low"', "as a URL")),
        ("openai_responses", {"type": "input_image", "image_url": PICTURE}, ('"detail": "low"', "`file_id`")),
        ("bedrock", {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}, ("s3Location",)),
    ],
)
def test_the_fix_for_images_is_that_of_the_provider(
    format: str, image: dict[str, object], words: tuple[str, ...]
) -> None:
    key, parts = {"gemini": ("contents", "parts"), "openai_responses": ("input", "content")}.get(
        format, ("messages", "content")
    )
    text = {"type": "input_text" if format == "openai_responses" else "text", "text": "What is this?"}
    if format in ("gemini", "bedrock"):
        text.pop("type")
    store, messages = cc.open_store("memory:"), [{"role": "user", parts: [text, image]}]
    for number in range(6):
        request = {key: messages, **({"model": "gpt-5.2"} if "openai" in format else {})}
        cc.observe(store, request=request, format=format, conversation="c", time=1_000_000 + 9_000 * number)
        messages = [*messages, {"role": "user", parts: [{**text, "text": f"And {number}?"}]}]
    (found,) = kept_media(load_conversation_view(store, "c"))
    assert found.fix.startswith("Send smaller images")
    assert [each for each in words if each not in found.fix] == []


def test_reminders_with_a_newer_one_are_stale() -> None:
    run = ObservedRun()
    for number in range(8):
        todo = f"<system-reminder>\nYour todo list is as follows: {words(300, f't{number}')}\n</system-reminder>"
        run.ask(f"Question {number}.", todo)
        run.send()
    (found,) = find(run, stale_reminders)
    assert found.code == "WIN005"
    assert found.title.startswith("7 outdated reminders")
    assert find(run, repeated_content) == []


def test_a_reminder_without_a_newer_one_is_not_stale() -> None:
    run = ObservedRun()
    run.ask("Hello.", f"<system-reminder>\nInstructions of the project: {words(3_000)}\n</system-reminder>")
    for number in range(8):
        run.send()
        run.ask(f"Question {number}.")
    run.send()
    assert find(run, stale_reminders) == []


def test_causes_and_codes_are_registered() -> None:
    causes = {f"WIN00{number + 1}": name for number, name in enumerate(
        ["unused_tools", "large_result", "repeated_content", "media_kept", "stale_reminders"]
    )}  # fmt: skip
    for code, cause in causes.items():
        assert get_code(code).cause == cause
        assert get_code(code).group == "window"
        assert "Recognised:" in get_code(code).description
