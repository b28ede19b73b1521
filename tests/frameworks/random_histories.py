"""Random conversations with tools in OpenAI's chat format, and a check of what windows of all sizes send of them."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from contextc._json import JSONObject
from contextc.errors import ContextOverflow

WINDOWS = (*range(400, 4_000, 400), *range(4_000, 40_001, 4_000))
LARGE_ENOUGH = 4_000
CallIds = tuple[list[str], list[str]]
"""The ids of the calls and those of the results of a request."""


def make_history(seed: int, steps: int = 30) -> list[JSONObject]:
    """Return a random conversation with tools: parallel calls, late results, open calls, several turns."""
    chance = Random(seed)
    messages: list[JSONObject] = [{"role": "user", "content": "Begin."}]
    for number in range(steps):
        ids = [f"call_{seed}_{number}_{each}" for each in range(chance.choice((1, 1, 1, 2, 3)))]
        text = f"Step {number}." if chance.random() < 0.5 else ""
        messages.append({"role": "assistant", "content": text, "tool_calls": [_call(*each) for each in enumerate(ids)]})
        results = [_result(each, "row " * chance.choice((3, 40, 300))) for each in ids]
        chance.shuffle(results)
        if chance.random() < 0.1:
            del results[0]  # its tool was interrupted
        messages += results
        if chance.random() < 0.2:
            messages.append({"role": "assistant", "content": f"Done with {number}."})
            messages.append({"role": "user", "content": f"Go on after {number}."})
    is_open = messages[-1]["role"] == "assistant"
    return [*messages, {"role": "user", "content": "Go on."}] if is_open else messages


def check_windows(
    send: Callable[[int], Sequence[Any]], list_call_ids: Callable[[Sequence[Any]], CallIds], count: int
) -> None:
    """Check the requests of all windows: no orphans in any. `send` returns the messages that were sent.

    `count` is the number of messages of the history.
    """
    outcomes = Counter[str]()
    for window in WINDOWS:
        try:
            sent = send(window)
        except ContextOverflow:
            outcomes["too small"] += 1
            assert window < LARGE_ENOUGH
            continue
        calls, results = list_call_ids(sent)
        assert sorted(calls) == sorted(results)
        assert len({*calls}) == len(calls)
        outcomes["cut" if len(sent) < count else "whole"] += 1
    assert outcomes["cut"] > 2
    assert outcomes["whole"] > 2


def _call(number: int, id: str) -> JSONObject:
    arguments = json.dumps({"number": number})
    return {"id": id, "type": "function", "function": {"name": "read_page", "arguments": arguments}}


def _result(id: str, text: str) -> JSONObject:
    return {"role": "tool", "tool_call_id": id, "content": text}
