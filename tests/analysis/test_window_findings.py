"""Findings about what fills the window."""

import pytest

import contextc as cc
from contextc.analysis import Finding
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.finding import get_code
from contextc.analysis.window_findings import (
    kept_media,
    repeated_content,
    unused_tools,
)
from tests.analysis.observed_run import ObservedRun, define_tool, words

READ, WRITE = 0.30, 3.75  # dollars per million tokens of the model of the tests
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def find(run: ObservedRun, function: object) -> list[Finding]:
    view = load_conversation_view(run.store, run.conversation)
    return list(function(view))  # type: ignore[operator]


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


def test_a_group_of_tools_is_called_if_one_of_them_is() -> None:
    group = {"type": "namespace", "name": "agents", "tools": [define_tool("spawn", 2_000), define_tool("wait", 10)]}
    for called, expected in (("spawn", 0), ("read", 1)):
        run = ObservedRun(tools=[define_tool("read"), group])
        run.ask("Look.")
        for number in range(5):
            run.call(called, f"line {number}")
        run.send()
        assert len(find(run, unused_tools)) == expected


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


def test_causes_and_codes_are_registered() -> None:
    causes = {f"WIN00{number + 1}": name for number, name in enumerate(
        ["unused_tools", "large_result", "repeated_content", "media_kept", "stale_reminders"]
    )}  # fmt: skip
    for code, cause in causes.items():
        assert get_code(code).cause == cause
        assert get_code(code).group == "window"
        assert "Recognised:" in get_code(code).description
