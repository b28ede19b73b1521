"""Rules specific to the AI SDK. Each was tried with version 7.0.169 and a fake model."""

from contextc._json import JSON, JSONObject
from contextc.formats.vercel.rules import find_unknown_fields, parse_request


def shown(role: str, *parts: JSONObject) -> JSONObject:
    return {"id": "m", "role": role, "parts": list(parts)}


def tool_part(state: str, **fields: JSON) -> JSONObject:
    return {"type": "tool-look", "toolCallId": "a", "state": state, "input": {}, **fields}


TEXT = {"type": "text", "text": "hi"}
SPOKEN = shown("user", TEXT)


def test_unknown_fields_of_a_ui_message_are_found_once() -> None:
    """A message with several steps is several turns, and its fields are looked at once."""
    message = {
        **shown(
            "assistant",
            {"type": "step-start"},
            {**tool_part("output-available", output="1"), "colour": 1},
            {"type": "data-weather", "data": 1, "anything": 1},
            {"type": "step-start"},
            {**TEXT, "size": 2},
        ),
        "mood": "good",
    }
    found = find_unknown_fields(parse_request({"messages": [SPOKEN, message]}))
    assert sorted(".".join(map(str, finding.path)) for finding in found) == [
        "messages.1.mood",
        "messages.1.parts.1.colour",
        "messages.1.parts.4.size",
    ]
