"""The conversations that `compile.py` and `cache.py` go through: transcripts of the test data, one after the other.

Everybody gets the same. Calls get ids of their own wherever a transcript comes again, and all of them are of one tool,
because some peers want to be told about each.
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from converters import Said

FILE = Path(__file__).resolve().parent.parent / "tests" / "data" / "transcripts.jsonl"
TURN = 8
"""Steps of a turn: so often the model answers, and a person speaks."""
ANSWER = Said("assistant", "It is done: the reservation is changed as you asked, and the difference is refunded.")
QUESTION = Said("user", "Thank you. Then look at my next reservation, and tell me what a later flight would cost.")


class Step(NamedTuple):
    """What the model replies, and what it is given for it: the result of its call, or a person's next words."""

    reply: Said
    given: Said


@cache
def _transcripts() -> list[list[Any]]:  # Any: JSON
    return [json.loads(line)["messages"] for line in FILE.read_text(encoding="utf-8").splitlines()]


@cache
def system_prompt() -> str:
    return _transcripts()[0][0]["content"]


def history(length: int) -> list[Said]:
    """About so many messages; the last of them waits for an answer."""
    found = list(islice(_endless(), length))
    while found[-1].role == "assistant":
        found.pop()
    return found


def _endless() -> Iterator[Said]:
    spoken = [message for transcript in _transcripts() for message in transcript if message["role"] != "system"]
    for number, message in enumerate(cycle(spoken)):
        yield _said(message, f"_{number // len(spoken)}")


def steps(size: int = 0, *, turn: int = TURN) -> Iterator[Step]:
    """The steps of an agent without end. `size` makes results at least so many characters long."""
    spoken = list(_endless_once())
    calls = [each for each in spoken if each.calls]
    results = cycle(each.text for each in spoken if each.role == "tool")
    for number, call in enumerate(cycle(calls)):
        if number % turn == turn - 1:
            padding = " ".join(_filled(results, size)) if turn == 1 else ""
            yield Step(ANSWER, QUESTION._replace(text=f"{number}. {QUESTION.text} {padding}"))
            continue
        name = f"{call.calls[0][0]}_s{number}"
        text = "\n".join(_filled(results, size))
        yield Step(call._replace(calls=((name, call.calls[0][1]),)), Said("tool", text, call_id=name))


def _endless_once() -> Iterator[Said]:
    return (_said(message, "") for transcript in _transcripts() for message in transcript)


def _filled(texts: Iterator[str], size: int) -> Iterator[str]:
    length = 0
    while length <= size:
        yield (text := next(texts))
        length += len(text) + 1


def _said(message: Any, suffix: str) -> Said:
    calls = [
        (call["id"] + suffix, json.loads(call["function"]["arguments"])) for call in message.get("tool_calls") or ()
    ]
    name = message["tool_call_id"] + suffix if message["role"] == "tool" else ""
    return Said(message["role"], message["content"] or "", tuple(calls), name)
