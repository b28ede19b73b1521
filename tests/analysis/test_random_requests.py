"""Findings about requests of any shape: valid ones that were recorded, with random changes."""

import json
from pathlib import Path
from random import Random
from typing import Any

import contextc as cc
from contextc.errors import InvalidInput
from tests.conftest import often

TRAFFIC = Path(__file__).parent.parent / "data" / "traffic.jsonl"
ODD: list[Any] = [
    *(None, "", 0, 1.5, True, [], {}, [None], ["x"], "text", {"type": "x"}, {"text": None}, [{"type": "text"}]),
    *({"a": {"b": [1, {"c": None}]}}, "\0", [[[]]], {"cachePoint": {"type": "default"}}, {"cache_control": None}),
]
START = 1_790_000_000_000


def change(value: Any, rng: Random) -> Any:
    """Return JSON with a few values left out, moved or replaced."""
    if rng.random() < 0.03:
        return rng.choice(ODD)
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {name: change(each, rng) for name, each in fields.items() if rng.random() > 0.02}
    if isinstance(value, list):
        values: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        found = [change(each, rng) for each in values if rng.random() > 0.03]
        if rng.random() < 0.05:
            rng.shuffle(found)
        return found
    return value


def test_any_request_has_findings_or_none() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in TRAFFIC.read_text().splitlines()]
    rng = Random(11)
    found = 0
    for _ in range(often(40, 1_000)):
        store, entry = cc.open_store("memory:"), rng.choice(lines)
        time = START
        for number in range(rng.randint(2, 5)):
            time += rng.choice([100, 10_000, 1_000_000])
            body = change(entry["request"], rng) if number else entry["request"]
            reply = change(entry["reply"], rng) if rng.random() < 0.3 else entry["reply"]
            try:
                cc.observe(store, request=body, reply=reply, format=entry["api"], conversation="c", time=time)
            except InvalidInput:
                continue
        if store.conversations():
            for each in cc.findings(store, "c"):
                assert 0 <= each.confidence <= 1
                assert each.tokens >= 0
                assert each.evidence
                found += 1
    assert found > 40


def test_redacted_content_is_not_compared() -> None:
    store = cc.open_store("memory:")
    messages: list[dict[str, Any]] = [{"role": "user", "content": "The key is abc. " + "word " * 3_000}]
    for number in range(3):
        reply = {
            "id": f"c{number}", "object": "chat.completion", "created": 1, "model": "gpt-5.2",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],
        }  # fmt: skip
        body = {"model": "gpt-5.2", "messages": messages}
        cc.observe(
            store, request=body, reply=reply, format="openai_chat", conversation="c", time=START + number * 9_000
        )
        messages = [*messages, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"And {number}?"}]
    store.redact("c", store.load("c")[0].id)
    assert [each.cause for each in cc.findings(store, "c") if each.code.startswith("CAC")] == ["first_request"]
