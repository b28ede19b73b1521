"""Memory of a process that runs turn after turn, in one conversation after the other, for as long as you like.

Each conversation gets two turns with a tool call, on a SQLite file, from a model that answers at once. What the process
holds of a conversation is its channel in a cache of 2,000 channels or 64 MB: until that is full, memory grows with the
number of conversations. `--channels` makes the cache small, so that everything else shows within minutes.
"""

import argparse
import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import contextc as cc
from contextc.compiler.ledger import MAX_CHANNELS, get_channel_cache
from contextc.formats.base import Request
from contextc.testing import FakeModel

LOOKS = 12
TURNS_EACH = 2


def look(query: str) -> str:
    """Look something up."""
    return f"Nothing about {query}." + " more" * 300


def answer(request: Request) -> str | cc.ToolCall:
    if request.messages[-1].role == "tool":
        return "Nothing." + " word" * 40
    return cc.tool_call(f"call-{len(request.messages)}", "look", {"query": "it"})


def read_status() -> dict[str, int]:
    """Return the fields of Linux's status of this process that are in kB."""

    def fields() -> Iterator[tuple[str, int]]:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                yield name, int(value.split()[0])

    return dict(fields())


async def run(folder: Path, turns: int, channels: int) -> None:
    with cc.open_store(folder / "memory.db") as store:
        get_channel_cache(store).channels = channels
        model = FakeModel(answer)
        executor = cc.AgentExecutor(store, model, tools=[cc.tool(look)])
        for number in range(turns + 1):
            if number % max(1, turns // LOOKS) == 0:
                gc.collect()
                status = read_status()
                blocks = sys.getallocatedblocks()
                print(
                    f"{number:>7,} turns: {status['VmRSS'] / 1e3:6.1f} MB resident, {status['RssAnon'] / 1e3:6.1f} "
                    f"anonymous, {blocks:,} blocks of Python",
                    flush=True,
                )
            turn = executor.start(f"conversation-{number // TURNS_EACH}", f"Question {number}" + " more" * 30)
            await turn.wait()
            model.requests.clear()
        await executor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9_000)
    parser.add_argument("--channels", type=int, default=MAX_CHANNELS, help="channels in the cache")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), options.turns, options.channels))


if __name__ == "__main__":
    main()
