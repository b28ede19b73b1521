"""Observed requests: bytes in the store beside the last body, CPU beside decoding and encoding the body's JSON.

A client makes 1,000 requests that grow to the given size, as Anthropic's Messages with moving cache breakpoints and as
Chat Completions. Every body is rebuilt and compared. Ratios are comparable; absolute times depend on the machine.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import contextc as cc

REQUESTS = 1_000
WORDS = 60
Wire = dict[str, Any]


def text(rng: random.Random, words: int) -> str:
    return " ".join("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(words))


def anthropic_body(history: list[Wire], tools: list[Wire]) -> Wire:
    sent = [dict(message) for message in history]
    for index in (-1, -3):
        if len(sent) >= -index:
            *before, last = sent[index]["content"]
            sent[index]["content"] = [*before, {**last, "cache_control": {"type": "ephemeral"}}]
    system = [{"type": "text", "text": "You are an agent. " * 100, "cache_control": {"type": "ephemeral"}}]
    return {"model": "claude-opus-5-5", "messages": sent, "system": system, "tools": tools, "max_tokens": 32_000}


def run(format: str) -> tuple[str, ...]:
    rng = random.Random(7)
    tools = [{"name": f"tool{n}", "description": text(rng, 30), "input_schema": {"type": "object"}} for n in range(20)]
    history: list[Wire] = []
    seen: list[tuple[cc.observation.ObservedRequest, bytes]] = []
    ours = plain = 0.0
    with tempfile.TemporaryDirectory() as folder:
        store = cc.open_store(Path(folder) / "observed.db")
        body = b""
        for number in range(REQUESTS):
            said = text(rng, WORDS)
            answer = text(rng, WORDS // 3)
            usage = {"input_tokens": 3, "output_tokens": 20, "cache_read_input_tokens": number * 150}
            if format == "anthropic":
                history.append({"role": "user", "content": [{"type": "text", "text": said}]})
                body = json.dumps(anthropic_body(history, tools), separators=(",", ":")).encode()
                content = [{"type": "text", "text": answer}]
                reply: Wire = {
                    "id": f"msg_{number}", "type": "message", "role": "assistant", "content": content,
                    "model": "claude-opus-5-5", "stop_reason": "end_turn", "usage": usage,
                }  # fmt: skip
                history.append({"role": "assistant", "content": content})
            else:
                history.append({"role": "user", "content": said})
                body = json.dumps({"model": "gpt-5", "messages": history}).encode()
                message = {"role": "assistant", "content": answer}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                reply = {"id": f"c{number}", "object": "chat.completion", "choices": [choice]}
                history.append(message)
            start = time.process_time()
            json.dumps(json.loads(body))
            plain += time.process_time() - start
            start = time.process_time()
            observed = cc.observe(store, request=body, reply=reply, format=format)
            ours += time.process_time() - start
            seen.append((observed, body))
            if sys.stderr.isatty():
                print(f"\r{format}: {number + 1} of {REQUESTS}", end="", file=sys.stderr, flush=True)
        wrong = sum(each.body != sent for each, sent in seen)
        store.close()
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return (
        format,
        f"{len(body):,}",
        f"{size / len(body):.2f}",
        f"{ours / plain:.2f}",
        f"{ours / REQUESTS * 1e3:.1f} ms",
        f"{wrong} of {len(seen)}",
    )


def main() -> None:
    table = Table(title=f"{REQUESTS:,} requests of a growing conversation", title_justify="left")
    columns = ("format", "last body, bytes", "store / last body", "CPU / loads and dumps", "CPU", "bodies that differ")
    for number, title in enumerate(columns):
        table.add_column(title, justify="right" if number else "left")
    table.caption = "CPU of one request, on average; loads and dumps: of Python's json."
    for name in ("anthropic", "openai_chat"):
        table.add_row(*run(name))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
