"""Time of `cc.findings` on a long conversation: 1,000 requests of about 150,000 tokens each; and of what an open page
of the inspector asks for after one more request.

Usage: python benchmarks/findings.py [--requests 1000] [--store FILE]

The conversation is recorded with `cc.observe` first; with `--store`, it is kept in a file and used again. The variants
are an ordinary conversation that only grows, one whose system prompt changes with every request, and one whose client
shortens an old tool result with every request.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

import contextc as cc
from contextc.web.api.analysis import (
    FindingsQuery,
    TimelineQuery,
    list_sub_agents,
    show_conversation_findings,
    show_run_composition,
    show_timeline,
)
from contextc.web.app_state import AppState, ServerOptions

MODEL = "claude-sonnet-4-5"
START_TOKENS = 140_000
ROUNDS = 4
HISTORIES = {
    "grows": "only grows",
    "system": "another system prompt each time",
    "results": "an old result is shortened each time",
}
PARTS = ("timeline", "findings", "sub-agents", "composition")
WORDS = ("the", "cache", "of", "request", "holds", "what", "was", "sent", "before", "and", "a", "model", "has", "read")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--store", default="memory:")
    parser.add_argument("--variants", nargs="*", default=[*HISTORIES], choices=HISTORIES)
    options = parser.parse_args()
    store = cc.open_store(Path(options.store) if options.store != "memory:" else "memory:")
    rows: dict[str, list[str]] = {}
    known = {each.name for each in store.conversations()}
    for variant in options.variants:
        name = f"{variant}-{options.requests}"
        if name not in known:
            list(record(store, name, variant, options.requests))
        cc.findings(store, name)  # imports, and facts of models
        begin = time.process_time()
        found = cc.findings(store, name)
        seconds = time.process_time() - begin
        page = [f"{each * 1000:.1f} ms" for each in measure_page(variant, options.requests).values()]
        rows[variant] = [HISTORIES[variant], f"{len(found):,}", f"{seconds:.2f} s", *page]
    table = Table(title=f"{options.requests:,} requests of about 150,000 tokens", title_justify="left")
    table.caption = "CPU time. All findings; then what an open page asks for after one more request."
    for number, title in enumerate(("history", "found", "all findings", *PARTS)):
        table.add_column(title, justify="right" if number else "left")
    for row in rows.values():
        table.add_row(*row)
    Console(width=120).print(table)


def measure_page(variant: str, count: int) -> dict[str, float]:
    """Return the CPU time of what an open inspector page asks for after one more request, the best of some, with the
    JSON.
    """
    store = cc.open_store("memory:")
    app = AppState(store, ServerOptions())
    made: tuple[Callable[[], object], ...] = (
        lambda: show_timeline(app, "c", TimelineQuery()),
        lambda: show_conversation_findings(app, "c", FindingsQuery()),
        lambda: list_sub_agents(app, "c"),
        lambda: show_run_composition(app, "c"),
    )
    best: dict[str, float] = {}
    for number in record(store, "c", variant, count + ROUNDS):
        if number >= count:
            for name, make in zip(PARTS, made, strict=True):
                begin = time.process_time()
                msgspec.json.encode(make())
                seconds = time.process_time() - begin
                best[name] = min(best.get(name, seconds), seconds)
    return best


def record(store: cc.Store, name: str, variant: str, count: int) -> Iterator[int]:
    """Record a conversation of an agent that reads files: a call and its result with every request.

    Return the number of requests after each of them.
    """
    rng = random.Random(7)
    tools: list[dict[str, Any]] = [
        {"name": f"tool_{n}", "description": prose(rng, 120), "input_schema": {"type": "object", "properties": {}}}
        for n in range(40)
    ]
    system = prose(rng, 8_000)
    messages: list[dict[str, Any]] = [{"role": "user", "content": prose(rng, 200)}]
    tokens = 0
    while tokens < START_TOKENS * 3 // 4:
        messages += step(rng, len(messages), 600)
        tokens += 800
    size = 12  # words of a result: the conversation grows to 150,000 tokens
    for number in range(count):
        if variant == "results" and number % 10 == 9:
            index = 2 + 2 * (number // 10)
            changed = json.loads(json.dumps(messages[index]))
            changed["content"][0]["content"] = "[truncated]"
            messages[index] = changed
        text = f"Time: {number}:00\n{system}" if variant == "system" else system
        mark = {"type": "ephemeral"}
        last = dict(messages[-1])
        if isinstance(last["content"], str):
            last["content"] = [{"type": "text", "text": last["content"]}]
        blocks: list[dict[str, Any]] = last["content"]
        last["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": mark}]
        body: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": 1_000,
            "system": [{"type": "text", "text": text, "cache_control": mark}],
            "tools": tools,
            "messages": [*messages[:-1], last],
        }
        call, result = step(rng, len(messages), size)
        usage = {
            "input_tokens": 10,
            "output_tokens": 30,
            "cache_read_input_tokens": 150_000 if variant == "grows" else 0,
        }
        reply = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": MODEL,
            "content": call["content"], "stop_reason": "tool_use",
            "usage": {**usage, "cache_creation_input_tokens": 100 if variant == "grows" else 150_000},
        }  # fmt: skip
        began = 1_790_000_000_000 + number * 20_000
        cc.observe(store, request=body, reply=reply, conversation=name, time=began, ended=began + 5_000)
        messages += [call, result]
        yield number + 1


def step(rng: random.Random, number: int, words: int) -> list[dict[str, Any]]:
    call = {
        "type": "tool_use",
        "id": f"toolu_{number:06}",
        "name": f"tool_{number % 40}",
        "input": {"path": f"a{number}"},
    }
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number:06}", "content": prose(rng, words)}
    text = {"type": "text", "text": prose(rng, 10)}
    return [{"role": "assistant", "content": [text, call]}, {"role": "user", "content": [result]}]


def prose(rng: random.Random, words: int) -> str:
    return " ".join([rng.choice(WORDS) for _ in range(words)])


if __name__ == "__main__":
    main()
