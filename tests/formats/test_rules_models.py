"""Rules for some models only: they are checked if the request names a model with the known fact."""

from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject

HI: JSONObject = {"role": "user", "content": "hi"}
HELLO: JSONObject = {"role": "assistant", "content": "Hello"}
SEARCHED: JSONObject = {
    "role": "assistant",
    "content": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "roofs"}},
        {"type": "text", "text": "Let me see."},
    ],
}
LOOK: JSONObject = {"name": "look", "input_schema": {"type": "object"}}
FUNCTION: JSONObject = {"type": "function", "function": {"name": "look"}}
SEEN: JSONObject = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aA=="}}],
}


def codes(format: str, body: JSON) -> list[str]:
    return [violation.code for violation in cc.lint(body, format=format)]


def claude(model: str, **body: JSON) -> JSONObject:
    return {"model": model, "max_tokens": 100, "messages": [HI], **body}


def gpt(model: str, **body: JSON) -> JSONObject:
    return {"model": model, "messages": [HI], **body}


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("claude-opus-4-6", ["ANT024"]),
        ("claude-sonnet-5-5", ["ANT024"]),
        ("claude-sonnet-4-5-20250929", []),
        ("claude-opus-9", []),
        ("kimi-k2", []),
        ("my-own-proxy", []),
    ],
)
def test_a_prefill_is_reported_only_for_models_known_to_refuse_it(model: str, found: list[str]) -> None:
    """Guarantee 10.6: nothing is reported for new models or those of other vendors."""
    assert codes("anthropic", claude(model, messages=[HI, HELLO])) == found


def test_a_paused_turn_a_count_and_a_transcript_are_not_a_prefill() -> None:
    """Guarantee 10.6: what Anthropic paused goes back as it is; only a request for an answer is held against the
    rule.
    """
    assert codes("anthropic", claude("claude-opus-5-5", messages=[HI, SEARCHED])) == []
    assert codes("anthropic", claude("claude-opus-5-5", messages=[HI, SEARCHED, HELLO])) == []
    assert codes("anthropic", {"model": "claude-opus-5-5", "messages": [HI, HELLO]}) == []
    assert codes("anthropic", [HI, HELLO]) == []


def test_a_refused_prefill_stays_and_is_followed_by_a_user_message() -> None:
    """Guarantee 10.6: no text is lost."""
    fixed, repairs = cc.fix(claude("claude-opus-5-5", messages=[HI, HELLO]), format="anthropic")
    assert [message["role"] for message in fixed["messages"]] == ["user", "assistant", "user"]
    assert "Hello" in str(fixed["messages"][1])
    assert [repair.code for repair in repairs] == ["ANT024"]


@pytest.mark.parametrize(
    ("model", "choice", "found"),
    [
        ("claude-opus-5-5", {"type": "tool", "name": "look"}, ["ANT025"]),
        ("claude-opus-5-5", {"type": "none"}, []),
        ("claude-haiku-5-5", {"type": "any"}, []),
        ("claude-opus-5", {"type": "any"}, []),
    ],
)
def test_a_tool_is_not_forced_on_models_that_refuse_it(model: str, choice: JSONObject, found: list[str]) -> None:
    """Guarantee 10.6."""
    assert codes("anthropic", claude(model, tools=[LOOK], tool_choice=choice)) == found


def test_a_forced_choice_becomes_auto_and_keeps_its_other_fields() -> None:
    """Guarantee 10.6: tools are not taken away, which would change what was shown."""
    body = claude("claude-opus-5-5", tools=[LOOK], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    fixed, _ = cc.fix(body, format="anthropic")
    assert fixed["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert fixed["tools"] == [LOOK]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (gpt("gpt-5", max_tokens=9), ["OAC021"]),
        (gpt("o3-mini-2025-01-31", max_tokens=9), ["OAC021"]),
        (gpt("gpt-5", max_completion_tokens=9), []),
        (gpt("gpt-4o", max_tokens=9), []),
        (gpt("gpt-oss-120b", max_tokens=9), []),
        (gpt("openai/gpt-5", max_tokens=9), []),
        (gpt("gpt-5", temperature=0, top_p=0.5), ["OAC022", "OAC022"]),
        (gpt("gpt-5", temperature=1), []),
        (gpt("gpt-5.2", temperature=0), []),
        (gpt("gpt-5.2", temperature=0, reasoning_effort="none"), []),
        (gpt("gpt-5.2", temperature=0, reasoning_effort="low"), ["OAC022"]),
        (gpt("gpt-4.1", temperature=0), []),
        (gpt("claude-sonnet-4-6", temperature=0), []),
        (gpt("gpt-5.4", tools=[FUNCTION], reasoning_effort="low"), ["OAC023"]),
        (gpt("gpt-5.4", tools=[FUNCTION]), []),
        (gpt("gpt-5.4", reasoning_effort="low"), []),
        (gpt("gpt-5.2", tools=[FUNCTION], reasoning_effort="low"), []),
        (gpt("gpt-4", messages=[SEEN]), ["OAC024"]),
        (gpt("gpt-4o", messages=[SEEN]), []),
        (gpt("gpt-4-vision-preview", messages=[SEEN]), []),
    ],
)
def test_settings_are_held_against_the_model_that_is_named(body: JSONObject, found: list[str]) -> None:
    """Guarantee 10.6: where it is not certain that a model reasons, nothing is claimed."""
    assert codes("openai_chat", body) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"model": "gpt-5", "temperature": 0.2, "input": "hi"}, ["OAR018"]),
        ({"model": "gpt-5.2", "top_p": 0.2, "reasoning": {"effort": "low"}, "input": "hi"}, ["OAR018"]),
        ({"model": "gpt-5.2", "top_p": 0.2, "input": "hi"}, []),
        ({"model": "gpt-4.1", "temperature": 0.2, "input": "hi"}, []),
    ],
)
def test_sampling_is_held_against_models_that_reason(body: JSONObject, found: list[str]) -> None:
    """Guarantee 10.6."""
    assert codes("openai_responses", body) == found


def test_the_users_model_settings_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 10.6: facts are data, and a setting overrides them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contextc.toml").write_text('[models."claude-opus-5-5"]\nprefill = true\n', encoding="utf-8")
    assert codes("anthropic", claude("claude-opus-5-5", messages=[HI, HELLO])) == []
