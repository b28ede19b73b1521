"""Vendors' own facts about models, read on request and compared with our tables.

No vendor was called: the replies are stand-ins, and the SDKs' own types accept them.
"""

import asyncio
import logging
from typing import Any

import anthropic
import openai
import pytest
from google.genai import types as google

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.models_api import FactDifference, VendorFacts, ask_vendor
from tests.providers.loopback_server import Arrived, loopback, refused

KEY = "sk-ant-REDACTED-models"
YES: JSONObject = {"supported": True}
NO: JSONObject = {"supported": False}
CAPABILITIES: JSONObject = {
    **dict.fromkeys(("batch", "citations", "code_execution", "image_input", "pdf_input", "structured_outputs"), YES),
    "context_management": {**YES, "clear_tool_uses_20250919": YES, "compact_20260112": NO},
    "effort": {**YES, "low": YES, "medium": YES, "high": YES, "xhigh": YES, "max": NO},
    "thinking": {**YES, "types": {"adaptive": YES, "between_tools": YES, "disabled": NO, "enabled": NO}},
    "server_tools": {**YES, "code_execution": YES, "web_search": YES},
}
OPUS: JSONObject = {
    "type": "model",
    "id": "claude-opus-5-5",
    "display_name": "Claude Opus 5.5",
    "created_at": "2026-09-01T00:00:00Z",
    "lifecycle": "deprecated",
    "retires_at": "2027-09-01T00:00:00Z",
    "max_input_tokens": 1_000_000,
    "max_tokens": 64_000,
    "capabilities": CAPABILITIES,
}
GPT: JSONObject = {
    "id": "gpt-5.4",
    "object": "model",
    "created": 1,
    "owned_by": "openai",
    "shutdown_date": "2027-01-01",
}
FLASH: JSONObject = {
    "name": "models/gemini-3.6-flash",
    "displayName": "Gemini 3.6 Flash",
    "inputTokenLimit": 2_000_000,
    "outputTokenLimit": 65_536,
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


def asked(name: str, reply: JSONObject, status: int = 200) -> tuple[VendorFacts, Arrived]:
    async def ask() -> tuple[VendorFacts, Arrived]:
        async with loopback(refused(status, reply)) as server:
            path = "/v1" if name.startswith(("openai", "groq")) else ""
            found = await ask_vendor(cc.provider(name, url=server.url + path, key="TEST_KEY", window=WINDOWS.get(name)))
            return found, server.arrived[0]

    return asyncio.run(ask())


WINDOWS = {"groq:our-model": 8_000}
CASES: list[Any] = [
    pytest.param(
        "anthropic:claude-opus-5-5",
        OPUS,
        "/v1/models/claude-opus-5-5",
        {
            "output": (128_000, 64_000),
            "efforts": (["low", "medium", "high", "xhigh", "max"], ["low", "medium", "high", "xhigh"]),
            "compaction_threshold": (True, False),
        },
        {"lifecycle": "deprecated", "retires_at": "2027-09-01T00:00:00Z"},
        id="anthropic",
    ),
    pytest.param("openai:gpt-5.4", GPT, "/v1/models/gpt-5.4", {}, {"shutdown_date": "2027-01-01"}, id="openai"),
    pytest.param(
        "groq:our-model",
        {**GPT, "context_window": 131_072},
        "/v1/models/our-model",
        {"window": (8_000, 131_072)},
        {"shutdown_date": "2027-01-01"},
        id="an endpoint like OpenAI's",
    ),
    pytest.param(
        "gemini:gemini-3.6-flash",
        FLASH,
        "/models/gemini-3.6-flash",
        {"window": (1_000_000, 2_000_000)},
        {},
        id="gemini",
    ),
]


@pytest.mark.parametrize(("name", "reply", "path", "differences", "lifecycle"), CASES)
def test_what_the_vendor_says_is_compared(
    name: str, reply: JSONObject, path: str, differences: dict[str, Any], lifecycle: dict[str, str]
) -> None:
    """A table of ours may be out of date. Facts that the vendor does not state are no difference."""
    found, request = asked(name, reply)
    assert request.path.partition("?")[0].endswith(path)
    assert KEY in str(request.headers)
    assert found.differences == [
        FactDifference(fact=fact, ours=ours, vendors=vendors) for fact, (ours, vendors) in differences.items()
    ]
    assert found.lifecycle == lifecycle


def test_the_stand_ins_are_replies_of_the_vendors() -> None:
    anthropic.types.ModelInfo.model_validate(OPUS)
    openai.types.Model.model_validate(GPT)
    assert google.Model.model_validate(FLASH).input_token_limit == 2_000_000


def test_a_refusal_is_an_error_without_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="contextc")
    with pytest.raises(ProviderFailed, match="status 401") as raised:
        asked("anthropic:claude-opus-5-5", {"type": "error", "error": {"type": "x", "message": f"bad {KEY}"}}, 401)
    assert raised.value.kind == "auth"
    assert KEY not in str(raised.value) + caplog.text


def test_a_provider_without_such_an_api_says_so() -> None:
    others = [cc.provider(name, window=9_000) for name in ("bedrock:us.anthropic.claude-opus-4-5", "ollama:llama3.2")]
    for provider in (*others, cc.provider("claude-code")):
        with pytest.raises(InvalidSetting, match=r"has no API that describes its models\. Use the facts of "):
            asyncio.run(ask_vendor(provider))
