"""Findings about what fills the window."""

import pytest

import contextc as cc
from contextc.analysis import Finding
from contextc.analysis.conversation_loader import load_conversation_view, load_single_request
from contextc.analysis.cost_by_content import INPUT_KINDS, compute_composition, compute_run_composition
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


def work_with_appended_tools(model: str, *, after: int = 8) -> cc.Store:
    """Run a conversation whose tools come in messages: `draw` is never called, others are; `late` comes at the end."""
    store, offered = cc.open_store("memory:"), [cc.Tool(name="read", description="Reads. " * 40)]
    betas = ["inline-tools-2026-09-15"] if model.startswith("anthropic") else []
    compiler = cc.MessageCompiler(store, cc.provider(model, betas=betas) if betas else cc.provider(model), fetch=False)
    for number in range(3 + after):
        if number == 1:
            offered += [cc.Tool(name="draw", description=words(4_000, "d"))]
        if number == 2:
            offered += [cc.Tool(name="mail", description=words(3_000, "m"))]
        if number == after + 1:
            offered += [cc.Tool(name="late", description=words(3_000, "l"))]
        store.append("c", cc.user(f"Question {number}."))
        compiled = compiler.compile("c", tools=offered, system_prompt="Be exact. " * 400)
        size, read = compiled.budget.input, compiled.record.shared_tokens if number else 0
        usage = cc.Usage(input=size, output=5, cache_read=read, cache_write=size - read)
        calls = [cc.tool_call(f"c{number}", "mail" if number == 4 else "read", {})] if number in (4, 5) else []
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant(None if calls else "Done.", tool_calls=calls, usage=usage))
        if calls:
            store.append("c", cc.tool_result(f"c{number}", calls[0].name, "Done."))
        assert compiled.state.epoch == 1
    return store


@pytest.mark.parametrize("model", ["anthropic:claude-opus-5-5", "openai:gpt-5.6-sol"])
def test_tools_that_came_in_messages_are_tools(model: str) -> None:
    """A tool that is appended costs in each request as one that is declared: as a tool, not as history."""
    store = work_with_appended_tools(model)
    view = load_conversation_view(store, "c")
    (found,) = unused_tools(view)
    assert "1 of 4 tools were never called" in found.title
    assert "(draw)" in found.title
    assert found.tokens > 2_000
    (evidence,) = found.evidence
    assert evidence.after.startswith("draw: ")
    assert evidence.path.startswith(("messages[", "input["))
    costs = cc.analysis.conversation_costs(store, "c")
    lines = {each.label: each for each in costs.lines}
    assert lines["tool definition: draw"].tokens > lines["tool definition: mail"].tokens > 2_000
    assert lines["history"].tokens < 2_000
    assert sum([each.cost or 0.0 for each in costs.lines]) == pytest.approx(costs.cost)
    assert found.cost == pytest.approx(lines["tool definition: draw"].cost, rel=0.02)
    channel = view.requests[0].channel
    for number in (3, 11):
        composition = compute_composition(load_single_request(store, channel, number))
        assert sum([each.tokens for each in composition.nodes]) == composition.tokens
        (tools,) = [each for each in composition.nodes if each.kind == "tool"]
        assert isinstance(tools.children, tuple)
        assert {each.name for each in tools.children} >= {"read", "draw", "mail"}
    last = compute_run_composition(view).requests[-1]
    assert last.tokens[INPUT_KINDS.index("tool")] == pytest.approx(tools.tokens, abs=3)
    assert last.tokens[INPUT_KINDS.index("overhead")] == 0


def test_a_tool_that_has_just_come_in_a_message_is_not_unused() -> None:
    """A model that was given a tool may call it in one of the next requests."""
    assert (
        list(unused_tools(load_conversation_view(work_with_appended_tools("openai:gpt-5.6-sol", after=2), "c"))) == []
    )


def test_a_deferred_tool_costs_nothing_until_it_is_found() -> None:
    """Its definition is in the request, and no model reads it."""
    run = ObservedRun(tools=[define_tool("read"), {**define_tool("draw", 3_000), "defer_loading": True}])
    run.ask("Look.")
    for number in range(5):
        run.call("read", f"line {number}", path=f"{number}.txt")
    assert find(run, unused_tools) == []
    lines = {each.label for each in cc.analysis.conversation_costs(run.store, "run").lines}
    assert "tool definition: read" in lines
    assert "tool definition: draw" not in lines


def test_causes_and_codes_are_registered() -> None:
    causes = {f"WIN00{number + 1}": name for number, name in enumerate(
        ["unused_tools", "large_result", "repeated_content", "media_kept", "stale_reminders"]
    )}  # fmt: skip
    for code, cause in causes.items():
        assert get_code(code).cause == cause
        assert get_code(code).group == "window"
        assert "Recognised:" in get_code(code).description
