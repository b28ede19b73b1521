"""Recorded traffic: the selection in the project, and the whole corpus if it is available."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject

ROOT = Path(__file__).parent.parent.parent
FILES = (ROOT / "tests" / "data" / "traffic.jsonl", ROOT.parent / "shared" / "corpus" / "provider-traffic.jsonl")

TRANSCRIPTS = ROOT / "tests" / "data" / "transcripts.jsonl"


class Exchange(NamedTuple):
    case: str
    vendor: str
    request: JSONObject
    reply: JSON


def accepted(api: str) -> list[Exchange]:
    """The requests of one API that its provider accepted, with its replies."""
    found = [cast(JSONObject, json.loads(line)) for line in _lines() if f'"{api}"' in line]
    return [
        Exchange(each["case"], each["vendor"], each["request"], each["reply"])
        for each in found
        if each["api"] == api and each["status"] == 200
    ]


@cache
def _lines() -> list[str]:
    return [line for path in FILES if path.exists() for line in path.read_text().splitlines()]


def transcripts() -> list[list[JSONObject]]:
    """Whole conversations of a customer-service agent, as OpenAI chat messages."""
    path = ROOT.parent / "shared" / "corpus" / "agent-transcripts.jsonl"
    lines = [*TRANSCRIPTS.read_text().splitlines(), *(path.read_text().splitlines() if path.exists() else [])]
    return [cast(JSONObject, json.loads(line))["messages"] for line in lines]


def events(reply: str) -> list[JSONObject]:
    """The events of a recorded stream."""
    lines = [line.removeprefix("data:").strip() for line in reply.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def normal(value: JSON, key: str = "") -> JSON:
    """A body without null fields, and with strings of content as single text blocks: neither makes a difference."""
    if key in ("content", "system") and isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, dict):
        items = cast(JSONObject, value).items()
        return {name: normal(each, name) for name, each in items if each is not None}
    if isinstance(value, list):
        return [normal(each) for each in cast(list[JSON], value)]
    return value
