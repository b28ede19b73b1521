"""Turns with Mistral, through OpenAI's SDK with our bytes, against a strict fake of Mistral's API."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject, decode
from contextc.errors import FailureKind
from contextc.providers import openai
from contextc.providers.error_mapping import map_error, with_provider_rules
from tests.conftest import some
from tests.fake_vendors import KEY, FakeVendors, Fault, Reply, Scripted, ScriptedCall, faults, listed

SPEC = "mistral:mistral-medium-latest"
REPLIES = (
    Reply("Let me look.", [ScriptedCall("look", {"thing": "a"}), ScriptedCall("look", {"thing": "b"})], "Hm. A look?"),
    Reply(None, [ScriptedCall("look", {"thing": "c"})]),
    Reply("Three things.", (), "That is all."),
)


def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing} is there"


def turned(
    monkeypatch: pytest.MonkeyPatch, faults: Sequence[Fault | None] = (), **settings: JSON
) -> tuple[FakeVendors, list[cc.Message]]:
    """A turn of three steps, and what was stored of it."""
    monkeypatch.setenv("TEST_KEY", KEY)

    async def turn(standin: FakeVendors) -> None:
        provider = cc.provider(SPEC, url=standin.url("mistral"), key="TEST_KEY")
        agent = cc.AgentExecutor(
            store, provider, tools=[look], instructions="Be brief.", settings=settings, triggers=()
        )
        async for _ in agent.run("one", "What is there?"):
            pass

    with cc.open_store("memory:") as store, FakeVendors(Scripted(REPLIES), faults=listed(*faults)) as standin:
        asyncio.run(turn(standin))
        return standin, list(store.load("one"))


def sent(standin: FakeVendors) -> list[JSONObject]:
    """The bodies of the requests that were answered."""
    return [decode(record.raw) for record in standin.records if record.completed and not record.spoiled]


@pytest.mark.parametrize("stream", [True, False])
def test_a_turn_with_tools_is_sent_in_mistrals_format(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    """Guarantees 11.1, 9.2: reasoning goes back signed, ids as they came, each request begins as the one before."""
    standin, messages = turned(monkeypatch, stream=stream)
    assert not standin.refused
    assert standin.desk.breaks() == []
    bodies = sent(standin)
    assert [body["stream"] for body in bodies] == [stream] * 3
    assert all("stream_options" not in body for body in bodies)
    roles = ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [message["role"] for message in bodies[-1]["messages"]] == roles
    asked = bodies[-1]["messages"][2]
    assert [chunk["type"] for chunk in asked["content"]] == ["thinking", "text"]
    assert [len(call["id"]) for call in asked["tool_calls"]] == [9, 9]
    assert messages[-1].text == "Three things."
    assert messages[-1].usage is not None
    assert messages[-1].usage.input > 20


FOUL = [
    faults.overloaded(),
    faults.internal(),
    faults.rate(0.01),
    faults.reset(),
    faults.garbled(0),
    faults.error_inside(0),
    faults.cut(0),
]


@pytest.mark.parametrize(
    ("fault", "stream"),
    some([pytest.param(each, stream, id=f"{each.name}-{stream}") for each in FOUL for stream in (True, False)], 2),
)
def test_a_turn_outlives_what_passes(monkeypatch: pytest.MonkeyPatch, fault: Fault, stream: bool) -> None:
    """Guarantee 11.11: before any output, the same bytes are sent again."""
    standin, messages = turned(monkeypatch, [None, fault, None, None], stream=stream)
    assert not standin.refused
    assert [record.fault for record in standin.records if record.fault] == [fault.name]
    assert len({record.raw for record in standin.records}) == 3
    assert messages[-1].text == "Three things."


def refusal(message: JSON, type: str = "invalid_request_error", code: str | None = None) -> JSONObject:
    return {"object": "error", "message": message, "type": type, "param": None, "code": code}


DETAIL: JSONObject = {"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not"}
SAID: list[tuple[int | None, JSONObject, FailureKind]] = [
    (400, refusal("Tool call id was a but must be a-z, A-Z, 0-9", "invalid_function_call", "3280"), "invalid"),
    (400, refusal("Unexpected role 'system' after role 'tool'", "invalid_request_message_order", "3230"), "invalid"),
    (422, refusal({"detail": [DETAIL]}), "invalid"),
    (
        400,
        refusal(
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
        ),
        "context",
    ),
    (429, refusal("Rate limit exceeded", "rate_limited", "1300"), "rate"),
    (429, {"message": "Requests rate limit exceeded"}, "rate"),
    (429, refusal("Service tier capacity exceeded for this model."), "transient"),
    (401, {"detail": "Unauthorized"}, "auth"),
    (500, refusal("Internal server error", "internal_server_error"), "transient"),
    (None, refusal("Service tier capacity exceeded for this model.", "service_unavailable"), "transient"),
    (None, refusal("Rate limit exceeded", "rate_limited", "1300"), "rate"),
]


@pytest.mark.parametrize(("status", "body", "kind"), SAID, ids=[str(body)[:60] for _, body, _ in SAID])
def test_its_refusals_are_understood(status: int | None, body: JSONObject, kind: FailureKind) -> None:
    """Guarantee 11.11: by its codes and sentences, also in the middle of a stream, where there is no status."""
    failed = map_error("mistral", with_provider_rules(openai.TABLE, cc.provider(SPEC)), body, status=status)
    assert failed.kind == kind
    assert failed.said


def test_it_is_where_it_is_and_has_a_key_of_its_own() -> None:
    """Guarantee 9.11: by its name, or by the name of a model of its vendor."""
    for spec in (SPEC, "mistralai:mistral-medium-latest", "mistral-medium-latest"):
        provider = cc.provider(spec)
        assert (provider.name, provider.format, provider.client) == ("mistral", "mistral", "openai")
        assert (provider.url, provider.key) == ("https://api.mistral.ai/v1", "MISTRAL_API_KEY")
        assert provider.stream_settings == {"stream": True}


def test_without_its_sdk_the_extra_that_brings_it_is_named() -> None:
    """Guarantee 15.1: as the docs have it, and so that a shell takes it."""
    code = """
import asyncio, sys
sys.modules["openai"] = None
import contextc as cc
from contextc.providers import ProviderCall
async def ask(provider):
    async for _ in cc.endpoint(provider).stream(ProviderCall(provider=provider, body=b"{}")): pass
for name in ("mistral", "deepseek"):
    try:
        asyncio.run(ask(cc.provider(f"{name}:own", window=9000)))
    except cc.errors.InvalidSetting as error:
        print(str(error).rpartition(": ")[2])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    again = "pip install --force-reinstall"  # it is installed, and cannot be imported
    assert done.stdout.splitlines() == [f"{again} 'contextc[mistral]'", f"{again} 'contextc[openai]'"]
