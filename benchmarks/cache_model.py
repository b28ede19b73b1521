"""Compare the cache model with recorded traffic: cache reads as expected beside those that providers reported.

Usage: python benchmarks/cache_model.py FILE.jsonl …

A line of a file has `case`, `api`, `vendor`, `status`, `request` and `reply`. The case is `NAME#NUMBER`, and all lines
of one name are one conversation. A line with `messages` only is a whole conversation without usage: each answer in it
is one request, and the findings show whether the model expects a miss where there is none.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import contextc as cc
from contextc.errors import ContextcError

START, STEP = 1_790_000_000_000, 10_000
TOLERANCE = 0.1
PROVIDERS: dict[str, str] = {"google": "gemini", "other": ""}
MODEL = "gpt-4o"


class Read(NamedTuple):
    """One request: the cache reads that were expected and reported, its input, and the cause that was found."""

    case: str
    provider: str
    expected: int
    reported: int | None
    input: int
    cause: str

    @property
    def is_close(self) -> bool:
        return abs(self.expected - (self.reported or 0)) <= max(128, TOLERANCE * max(self.reported or 0, self.expected))


def main() -> None:
    reads: list[Read] = []
    skipped = 0
    for path in sys.argv[1:]:
        conversations: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        with open(path, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                conversations[entry["case"].partition("#")[0]].append(entry)
        for name, entries in conversations.items():
            store = cc.open_store("memory:")
            skipped += record(store, entries)
            for each in store.conversations():
                reads += read_cases(store, each.name, name)
            store.close()
    print(f"{len(reads):,} requests, {skipped:,} lines skipped")
    show(reads)


def record(store: cc.Store, entries: list[dict[str, Any]]) -> int:
    """Record the exchanges of one conversation, and return the number of those that could not be recorded."""
    skipped = 0
    for number, entry in enumerate(entries):
        if "messages" in entry:
            record_transcript(store, entry["messages"])
            continue
        began = START + number * STEP
        try:
            cc.observe(
                store, request=entry["request"], reply=entry["reply"], format=entry["api"], status=entry["status"],
                provider=PROVIDERS.get(str(entry["vendor"]), str(entry["vendor"])), conversation="c", time=began,
                ended=began + STEP // 2, model=entry.get("model", ""),
            )  # fmt: skip
        except (ContextcError, ValueError, TypeError):
            skipped += 1
    return skipped


def record_transcript(store: cc.Store, messages: list[dict[str, Any]]) -> None:
    """Record each answer of a conversation as the reply to a request with everything before it."""
    for at, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        reply = {
            "id": f"r{at}", "object": "chat.completion", "model": MODEL, "created": 0,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }  # fmt: skip
        began = START + at * STEP
        body = {"model": MODEL, "messages": messages[:at]}
        cc.observe(
            store, request=body, reply=reply, format="openai_chat", conversation="c", time=began, ended=began + 9
        )


def read_cases(store: cc.Store, conversation: str, name: str) -> Iterator[Read]:
    for each in cc.analysis.cache_reads(store, conversation).requests:
        yield Read(
            f"{name}#{each.request}",
            each.provider if each.reported is not None else f"{each.provider} (no usage)",
            each.expected,
            each.reported,
            each.input,
            each.cause,
        )


def show(reads: list[Read]) -> None:
    rows: defaultdict[str, list[Read]] = defaultdict(list)
    for each in reads:
        rows[each.provider].append(each)
    print(
        f"{'provider':28}{'requests':>9}{'close':>7}{'input':>10}{'expected':>10}{'reported':>10}{'error':>8}  causes"
    )
    for provider, some in sorted(rows.items()):
        causes: defaultdict[str, int] = defaultdict(int)
        for each in some:
            causes[each.cause or "-"] += 1
        total, expected = sum([each.input for each in some]), sum([each.expected for each in some])
        reported = sum([each.reported or 0 for each in some])
        error = sum([abs(each.expected - (each.reported or 0)) for each in some if each.reported is not None])
        print(
            f"{provider:28}{len(some):9,}{sum([each.is_close for each in some]):7,}{total:10,}{expected:10,}"
            f"{reported:10,}{error / max(1, total):8.1%}  "
            f"{', '.join([f'{name} {count}' for name, count in sorted(causes.items())])}"
        )
    print("\nNot close:")
    for each in reads:
        if each.reported is not None and not each.is_close:
            figures = f"expected {each.expected:,}, reported {each.reported:,} of {each.input:,}"
            print(f"  {each.case[-90:]}: {figures} ({each.cause})")


if __name__ == "__main__":
    main()
