"""Headers and beta flags of requests that a framework sends: passed on whole, or refused by name."""

from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.adapters.request_preparation import RequestPreparer, merge_headers, refuse_headers
from contextc.errors import InvalidSetting

FLAG = "inline-tools-2026-09-15"
SECRET = "Bearer sk-ant-REDACTED"


def tool(name: str) -> JSONObject:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}


def test_a_prepared_request_has_the_headers_that_the_framework_must_send() -> None:
    """Without its flags, a vendor refuses what is in the request. Values of headers are not stored."""
    store = cc.open_store("memory:")
    provider = cc.provider("anthropic:claude-opus-5-5", betas=[FLAG], headers={"x-team": SECRET})
    prepared = RequestPreparer(store, "demo", provider).prepare([cc.user("Hi!")])
    assert prepared.headers == {"anthropic-beta": FLAG, "x-team": SECRET}
    assert prepared.compiled.manifest.record.betas == (FLAG,)
    plain = RequestPreparer(store, "plain", "anthropic:claude-opus-5-5").prepare([cc.user("Hi!")])
    assert plain.headers == {}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, {"anthropic-beta": FLAG, "x-team": "search"}),
        ({"X-Team": "mine"}, {"X-Team": "mine", "anthropic-beta": FLAG}),
        ({"Anthropic-Beta": f"own-1, {FLAG}"}, {"Anthropic-Beta": f"own-1,{FLAG}", "x-team": "search"}),
    ],
    ids=["none", "a header of the caller", "flags of the caller"],
)
def test_headers_of_the_caller_are_kept_and_flags_are_joined(
    given: dict[str, str] | None, sent: dict[str, str]
) -> None:
    assert merge_headers(given, {"anthropic-beta": FLAG, "x-team": "search"}) == sent


def test_headers_that_cannot_be_passed_on_are_named_without_their_values() -> None:
    """Otherwise a flag would be missing, and the vendor's error would not say why."""
    provider = cc.provider("anthropic:claude-opus-5-5", betas=[FLAG], headers={"x-team": SECRET})
    with pytest.raises(InvalidSetting, match=rf"cannot pass {FLAG}, x-team to the framework") as raised:
        refuse_headers(provider)
    assert SECRET not in str(raised.value)
    refuse_headers(cc.provider("anthropic:claude-opus-5-5"))


def test_flags_that_belong_into_the_body_are_refused() -> None:
    """A framework writes the body itself."""
    provider = cc.provider("bedrock:us.anthropic.claude-opus-5-5", betas=[FLAG])
    with pytest.raises(InvalidSetting, match=rf"cannot pass {FLAG} to the framework"):
        RequestPreparer(cc.open_store("memory:"), "demo", provider)


@pytest.mark.parametrize("options", [{"native": cc.compiler.NativeContext(compact_at=90_000)}, {"cache": "1h"}])
def test_options_that_a_framework_would_not_send_are_refused(options: Any) -> None:
    """Otherwise the manifest would name what was never sent."""
    with pytest.raises(InvalidSetting, match="native, cache: an adapter cannot pass settings"):
        RequestPreparer(cc.open_store("memory:"), "demo", "anthropic:claude-opus-5-5", **options)


def test_instructions_that_change_begin_an_epoch() -> None:
    """The framework sends them at the head. A message that states them again would be one that nobody wrote."""
    preparer = RequestPreparer(cc.open_store("memory:"), "demo", "openai:gpt-5.4")
    history = [cc.user("Hi! " * 2_000)]
    preparer.commit(preparer.prepare(history, system_prompt="Be brief. " * 50), [cc.assistant("Hello.")])
    history += [cc.assistant("Hello."), cc.user("Go on.")]
    prepared = preparer.prepare(history, system_prompt="Be precise. " * 50)
    assert prepared.is_unchanged
    assert prepared.compiled.manifest.record.epoch == 2


def test_a_tool_that_is_added_begins_an_epoch() -> None:
    """The framework sends all tools at the head. A line on an added tool would be a message that nobody wrote."""
    store = cc.open_store("memory:")
    preparer = RequestPreparer(store, "demo", "openai:gpt-5.4")
    history = [cc.user("Hi!")]
    preparer.commit(preparer.prepare(history, tools=[tool("read")]), [cc.assistant("Hello.")])
    history += [cc.assistant("Hello."), cc.user("Go on.")]
    prepared = preparer.prepare(history, tools=[tool("read"), tool("write")])
    assert prepared.is_unchanged
    assert (prepared.compiled.manifest.record.epoch, prepared.compiled.manifest.record.features) == (2, ())
