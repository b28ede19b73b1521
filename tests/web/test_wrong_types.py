"""The endpoints of AG-UI and of Vercel's SDK with a value of the wrong type in every place of a body."""

import copy
from collections.abc import Iterator
from typing import cast

import httpx
import pytest

from contextc._json import JSON, JSONObject
from tests.conftest import often, some
from tests.web.conftest import Served

AGUI: JSONObject = {
    "threadId": "t",
    "runId": "r",
    "messages": [
        {"id": "u", "role": "user", "name": "ann", "content": [{"type": "text", "text": "hi"}]},
        {
            "id": "a",
            "role": "assistant",
            "content": "x",
            "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"id": "m", "role": "tool", "content": "x", "toolCallId": "c", "error": "e"},
    ],
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    "forwardedProps": {"model": "replay:none.jsonl"},
    "state": {},
    "context": [],
    "resume": [{"interruptId": "1:a", "status": "resolved", "payload": {"approved": True}}],
}
VERCEL: JSONObject = {
    "id": "v",
    "messages": [
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {}},
        {
            "id": "a",
            "role": "assistant",
            "parts": [
                {
                    "type": "tool-f",
                    "toolCallId": "c",
                    "state": "approval-responded",
                    "input": {},
                    "approval": {"id": "1:a", "approved": True, "reason": "r"},
                }
            ],
        },
    ],
    "trigger": "submit-message",
    "messageId": "a",
    "model": "replay:none.jsonl",
}
VALUES: list[JSON] = [{"a": 1}, 5, None, "x", [1], [{"a": [{"b": 1}]}]]


def _damaged(body: JSONObject) -> Iterator[JSONObject]:
    for path in _paths(body):
        for value in VALUES[: often(2, 6)]:
            made = copy.deepcopy(body)
            holder: JSON = made
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = value
            yield made


def _paths(value: JSON, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = cast(JSONObject, value).items() if isinstance(value, dict) else enumerate(value)
    for step, each in items:
        yield (*path, step)
        if isinstance(each, dict | list):
            yield from _paths(each, (*path, step))


@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        ("/api/agui", [AGUI, {**AGUI, "resume": list[JSON]()}]),
        ("/api/chat", [VERCEL, {**VERCEL, "messages": VERCEL["messages"][:1]}]),
    ],
)
def test_a_value_of_the_wrong_type_is_the_clients_error(server: Served, path: str, bodies: list[JSONObject]) -> None:
    """The model does not exist, so that a body that is accepted starts no turn that takes time."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for body in some([each for whole in bodies for each in _damaged(whole)], 40):
            answer = client.post(path, json=body)
            assert answer.status_code < 500, (answer.text, body)
