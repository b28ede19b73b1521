"""Items of the Responses API as messages: what comes back, and how much is stored for it."""

import random
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.adapters.request_preparation import get_original
from contextc.adapters.responses_items import ORIGINAL, decode_items, encode_items, load_items

ITEMS: list[JSONObject] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": "  "},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_audio", "x": 1}]},
    {"type": "message", "role": "developer", "content": "careful"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAabc"},
    {"type": "reasoning", "summary": []},
    {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"},
    {"type": "function_call", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
    {"type": "function_call_output", "call_id": 7, "output": {"deep": [1]}},
    {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
    {"type": "from_next_year", "value": None},
    {},
]


def fail(name: str) -> bytes:
    raise AssertionError(f"no blob is needed, got {name}")


@pytest.mark.parametrize("seed", range(40))
def test_items_come_back_equal_through_a_store(seed: int) -> None:
    """Guarantee 21.1: whatever they contain, and in any order."""
    chance = random.Random(seed)
    items = chance.choices(ITEMS, k=chance.randrange(1, 12))
    with cc.open_store("memory:") as store:
        store.extend("c", [each.message for each in decode_items(items)])
        assert [item for message in store.load("c") for item in load_items(message, fail)] == items


def test_the_output_of_one_response_is_one_message() -> None:
    """Guarantee 21.1: so a cut does not separate reasoning, text and calls; a result gets the name of its tool."""
    reply: list[Any] = [ITEMS[4], {"type": "message", "role": "assistant", "content": "ok"}, ITEMS[7]]
    found = decode_items([ITEMS[0], *reply, ITEMS[9], ITEMS[0]])
    assert [each.message.role for each in found] == ["user", "assistant", "tool", "user"]
    assert [len(each.items) for each in found] == [1, 3, 1, 1]
    assert found[2].message.tool_results[0].name == "f"


def test_items_are_stored_twice_only_if_they_must_be() -> None:
    """Guarantee 21.1: usual items are encoded again from the message."""
    plain = [{"role": "user", "content": "hi"}, {"type": "function_call_output", "call_id": "c", "output": "1"}]
    assert [get_original(each.message, ORIGINAL) for each in decode_items(plain)] == [None, None]
    odd = decode_items([{"content": "hi", "role": "user"}])[0].message
    assert get_original(odd, ORIGINAL) == [{"content": "hi", "role": "user"}]
    assert encode_items(odd, fail) == [{"role": "user", "content": "hi"}]


def test_media_are_stored_once() -> None:
    """Guarantee 21.1: the bytes are a blob of the store, and the item comes back with them."""
    url = "data:image/png;base64,iVBORw0KGgo="
    item: JSONObject = {"role": "user", "content": [{"type": "input_image", "detail": "auto", "image_url": url}]}
    with cc.open_store("memory:") as store:
        stored = store.append("c", decode_items([item])[0].message)
        assert get_original(stored, ORIGINAL) is None
        assert load_items(stored, store.blob) == [item]
