"""Examples of bytes on the compiler page, run with the vendors' SDKs: they are sent unchanged."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import httpx2
import pytest

import contextc as cc
from contextc._json import JSONObject

PAGE = Path(__file__).parent.parent.parent / "docs" / "compiler.md"
ANTHROPIC: JSONObject = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 8, "output_tokens": 3},
}
OPENAI: JSONObject = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-6.1-terra",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def line_of_page(client: str) -> str:
    (line,) = re.findall(rf"^reply = ({client}\.post\(.*\))$", PAGE.read_text(encoding="utf-8"), re.M)
    return line


def answering(reply: JSONObject, seen: list[httpx2.Request]) -> httpx2.Client:
    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        seen.append(request)
        return httpx2.Response(200, json=reply)

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def anthropic_client(http: httpx2.Client) -> object:
    from anthropic import Anthropic  # loads for seconds

    return Anthropic(api_key="key", http_client=http)


def openai_client(http: httpx2.Client) -> object:
    from openai import OpenAI  # loads for seconds

    return OpenAI(api_key="key", http_client=http)


@pytest.mark.parametrize(
    ("name", "client", "model", "reply", "path"),
    [
        ("client", anthropic_client, "anthropic:claude-opus-5-5", ANTHROPIC, "/v1/messages"),
        ("openai_client", openai_client, "openai:gpt-6.1-terra", OPENAI, "/v1/responses"),
    ],
)
def test_an_sdk_sends_the_bytes_as_they_are_and_reads_the_reply(
    name: str, client: Callable[[httpx2.Client], object], model: str, reply: JSONObject, path: str
) -> None:
    """`compiled.body` is the same request as `params`, and the SDK keeps its keys and parsing."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    compiler = cc.MessageCompiler(store, model)
    compiled = compiler.compile("demo", instructions="Be brief.")
    seen: list[httpx2.Request] = []
    names = {
        name: client(answering(reply, seen)),
        "compiled": compiled,
        "anthropic": import_module("anthropic"),
        "openai": import_module("openai"),
    }
    with compiler.attempt(compiled) as attempt:
        attempt.commit(eval(line_of_page(name), names))
    (request,) = seen
    assert (request.url.path, request.content) == (path, compiled.body)
    assert request.headers["content-type"] == "application/json"
    assert "key" in request.headers.get("x-api-key", request.headers.get("authorization", ""))
    assert json.loads(compiled.body) == compiled.params
    assert store.load("demo")[-1].text == "hello"
