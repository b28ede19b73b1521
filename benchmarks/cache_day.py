"""What the prompt cache of a working day costs: by the lifetime that is asked for, and by the pauses between requests.

An agent works through a day of eight hours. Between two turns are pauses of 1 to 90 minutes (or of 1 to 4, for 25
turns), drawn from a seed; a turn has four steps, 20 seconds apart, and each brings a result of about 1,000 tokens. The
requests are those that `MessageCompiler` makes with the option `cache`. The caches are those of the stand-ins in the
tests: they follow the vendors' rules on breakpoints, keys and lifetimes. *Mixed* is the head for an hour and the
messages for five minutes. The bill is for input alone, by the prices of the model; replies are the same for all rows.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path
from random import Random
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.analysis.traces.simulated_cache import SimulatedCache

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.compiler.prompt_cache import CacheLifetime
from contextc.models import cost

MINUTE = 60_000
HOURS, MAX_TURNS, STEPS, STEP_SECONDS = 8, 25, 4, 20
SEEDS = range(3)
PAUSES = {"1 to 90 minutes": 90, "1 to 4 minutes": 4}
WORDS = "the result of a search in a long list of orders with names dates prices and remarks "
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openai": "gpt-6.1-terra",
}
WIRES = {"anthropic": "anthropic", "bedrock": "bedrock", "openai": "responses"}
MIXED = "1h head, 5m messages"
ROWS: dict[str, tuple[tuple[str, CacheLifetime], ...]] = {
    "anthropic": (("off", "off"), ("5m", "5m"), ("1h", "1h"), (MIXED, "1h")),
    "bedrock": (("off", "off"), ("5m", "5m"), ("1h", "1h"), (MIXED, "1h")),
    "openai": (("off: no key", "off"), ("30m", "30m"), ("12h", "12h")),
}


class Bill(NamedTuple):
    """A number of days: requests, tokens of input, those that the cache served, those that were written, dollars."""

    requests: int = 0
    tokens: int = 0
    served: int = 0
    written: int = 0
    dollars: float = 0.0

    def add(self, other: "Bill") -> "Bill":
        return Bill(
            requests=self.requests + other.requests,
            tokens=self.tokens + other.tokens,
            served=self.served + other.served,
            written=self.written + other.written,
            dollars=self.dollars + other.dollars,
        )


def times(longest: int, seed: int) -> Iterator[tuple[int, bool]]:
    """Yield when each request of a day is sent, in milliseconds, and whether it begins a turn.

    Short pauses are more frequent than long ones: as many are below 10 minutes as above.
    """
    chance, now = Random(seed), 1_790_000_000_000
    end = now + HOURS * 60 * MINUTE
    for _ in range(MAX_TURNS):
        if now > end:
            return
        for step in range(STEPS):
            yield now, step == 0
            now += STEP_SECONDS * 1000
        now += round(exp(chance.uniform(0, log(longest))) * MINUTE)


def requests(model: str, cache: CacheLifetime, longest: int, seed: int) -> Iterator[tuple[int, JSONObject]]:
    """Yield the bodies of a day, with the time of each."""
    chance = Random(seed)
    tools = [
        cc.Tool(name=f"search_{n}", description=WORDS * 12, parameters={"type": "object", "properties": {}})
        for n in range(12)
    ]
    with cc.open_store("memory:") as store:
        compiler = cc.MessageCompiler(store, model, cache=cache)
        for number, (now, is_first) in enumerate(times(longest, seed)):
            if is_first:
                store.append("day", cc.user(f"Question {number}: {WORDS}"))
            else:
                store.append("day", cc.tool_result(f"call{number - 1}", "search_0", _text(chance, 320)))
            compiled = compiler.compile("day", instructions=WORDS * 100, tools=tools)
            compiler.begin(compiled)
            yield now, decode(compiled.body)
            is_last = number % STEPS == STEPS - 1
            calls = [] if is_last else [cc.tool_call(f"call{number}", "search_0", {})]
            compiler.commit(compiled, cc.assistant(_text(chance, 60) if is_last else "", tool_calls=calls))


def _text(chance: Random, words: int) -> str:
    return " ".join([f"{chance.choice(WORDS.split())}{chance.randrange(100)}" for _ in range(words)])


def with_short_messages(body: JSONObject) -> JSONObject:
    """Return the body with the default lifetime for all breakpoints in the messages."""
    written = json.dumps(body["messages"]).replace(', "ttl": "1h"', "")
    return {**body, "messages": json.loads(written)}


def bill(provider: str, row: str, cache: CacheLifetime, longest: int) -> Bill:
    name = f"{provider}:{MODELS[provider]}"
    model, found = cc.provider(name).model, Bill()
    change: Callable[[JSONObject], JSONObject] = with_short_messages if row == MIXED else lambda body: body
    for seed in SEEDS:
        simulated = SimulatedCache(WIRES[provider], kept=64)
        for now, body in requests(name, cache, longest, seed):
            use = simulated.send(change(body), model.name, now, now)
            usage = cc.Usage(
                input=use.total, cache_read=use.read, cache_write=use.written, cache_write_long=use.written_long
            )
            found = found.add(Bill(1, use.total, use.read, use.written, cost(model, usage) or 0.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What the prompt cache of a working day costs, by its lifetime.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    options = parser.parse_args()
    found: dict[str, Bill] = {}
    table = Table("provider", "cache", title=f"A day of {HOURS} hours, mean of {len(SEEDS)}", title_justify="left")
    for pauses in PAUSES:
        table.add_column(f"pauses of {pauses}: requests", justify="right")
        for column in ("from cache", "written", "bill"):
            table.add_column(column, justify="right")
    for provider, rows in ROWS.items():
        for row, cache in rows:
            cells: list[str] = []
            for pauses, longest in PAUSES.items():
                each = found[f"{provider}, {row}, {pauses}"] = bill(provider, row, cache, longest)
                cells += [
                    f"{each.requests / len(SEEDS):.0f}",
                    f"{each.served / each.tokens:.1%}",
                    f"{each.written / each.tokens:.1%}",
                    f"${each.dollars / len(SEEDS):.2f}",
                ]
            table.add_row(provider, row, *cells)
        table.add_section()
    Console(width=150).print(table)
    if options.json:
        options.json.write_text(json.dumps({name: each._asdict() for name, each in found.items()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
