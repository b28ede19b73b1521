"""How much of a long run a prompt cache would serve, and what the run costs: by how the cut is made.

A conversation starts from nothing and goes on for 1,000 steps of about 1,000 tokens, through a window of 200,000. Three
ways to stay inside it see the same steps: contextc's `chunked` (its default), its `oldest`, and `trim_messages` of
langchain as documented. The latter two cut what is too much, and no more; where they can, at the beginning of a turn.
So they move with every step of a chat, and with every turn of an agent. In one long turn `oldest` cuts between steps;
langchain's recipe has nothing for it, and is left out there.

Each request is held against the one before, block by block, cache marks removed. What a cache serves of it follows the
provider's rule. Anthropic's serves up to a mark that an earlier request left; everybody is given one behind the system
prompt and one at the end, and pays for writing what was not served. OpenAI's serves the common prefix down to a
multiple of 128 tokens, from 1,024 on. All tokens are counted by contextc's counter of that provider. The bill is
for input alone, by the prices of the model; replies are the same for everybody. *After the first cut* leaves out
the time in which everything fits; *cuts* are requests that do not begin with the whole of the one before.
"""

import argparse
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from rich.console import Console
from rich.table import Table

import contextc as cc
from contextc._json import JSON, JSONObject, encode
from contextc.compiler.draft import TrimStrategy
from contextc.models import cost
from contextc.models.tokens import TokenCounter
from converters import CLAUDE, Said, openai_message
from measure import Goal, show_goals
from peers import version
from transcripts import steps, system_prompt
from trimmers import WINDOW, LangChain, Ours

GPT = "gpt-5.5"
FIRST = Said("user", "Please look at all my reservations, one after the other.")
PROVIDERS = {"Anthropic": f"anthropic:{CLAUDE}", "OpenAI": f"openai:{GPT}"}
CHUNKED, OLDEST, SLIDING = "contextc, chunked", "contextc, oldest", "langchain, trim_messages"
STEPS, CHARACTERS = 1_000, 2_400
"""Steps of a run, and the characters of a result that make a step of about 1,000 tokens."""
TURNS = {"an agent, one long turn": 10 * STEPS, "an agent, 8 steps a turn": 8, "a chat, 1 step a turn": 1}
LONGEST_SLID = 8
"""langchain's recipe begins at a person's words; where there are none in the window, it keeps nothing."""
SHARE_GOAL, BILL_GOAL = 0.95, 4.0
GRAIN = 128
SPOKEN = ("text", "content", "input", "arguments", "output", "name", "description", "parameters", "input_schema")
WIDTH = 130


class Request(NamedTuple):
    """The blocks of a request, and after each the tokens up to there; the first is everything before the messages."""

    blocks: list[bytes]
    upto: list[int]

    @property
    def tokens(self) -> int:
        return self.upto[-1]


class Bill(NamedTuple):
    """A run: requests, tokens of input, those of them that a cache served, dollars; the same since the first cut."""

    requests: int
    tokens: int
    served: int
    dollars: float
    full_tokens: int
    full_served: int
    cuts: int

    @property
    def share(self) -> float:
        return self.served / self.tokens

    @property
    def full_share(self) -> float:
        return self.full_served / self.full_tokens if self.full_tokens else 0.0


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Reader:
    """Takes requests apart, and counts each block once."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter, self._counts = counter, dict[bytes, int]()

    def read(self, params: JSONObject) -> Request:
        key = "input" if "input" in params else "messages"
        listed: list[JSONObject] = params[key]
        head = encode([without_marks(params.get(name)) for name in ("system", "instructions", "tools")])
        blocks = [head, *(block for message in listed for block in blocks_of(message))]
        return Request(blocks, list(accumulate([self.block(block)[1] for block in blocks])))

    def block(self, block: bytes) -> tuple[bytes, int]:
        """A block, and its tokens."""
        found = self._counts.get(block)
        if found is None:
            found = self._counts[block] = self._counter.count_text(" ".join(spoken(json.loads(block))))
        return block, found


def blocks_of(message: JSONObject) -> Iterator[bytes]:
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    around = {name: value for name, value in message.items() if name not in ("content", "cache_control", "id")}
    for block in content or ():
        yield encode([around, without_marks(block)])
    if not content:
        yield encode([around])


def without_marks(value: JSON) -> JSON:
    if isinstance(value, list):
        return [without_marks(each) for each in cast(list[JSON], value)]
    if isinstance(value, dict):
        return {name: each for name, each in cast(JSONObject, value).items() if name != "cache_control"}
    return value


def spoken(value: JSON) -> Iterator[str]:
    """What a model reads of a block."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from spoken(each)
    elif isinstance(value, dict):
        for name, each in cast(JSONObject, value).items():
            if name in SPOKEN and not isinstance(each, str | list):
                yield encode(each).decode()
            elif name in SPOKEN or isinstance(each, dict | list):
                yield from spoken(each)


# ── what a cache serves, and what it costs ────────────────────────────────────────────────────────────────────────────


def marked(model: cc.Model, before: Request, now: Request, common: int) -> int:
    """Up to a mark of the request before: its end, or behind its head."""
    for end in (len(before.blocks), 1):
        if common >= end and now.upto[end - 1] >= model.cache_minimum:
            return now.upto[end - 1]
    return 0


def grained(model: cc.Model, before: Request, now: Request, common: int) -> int:
    tokens = now.upto[common - 1] if common else 0
    return tokens // GRAIN * GRAIN if tokens >= model.cache_minimum else 0


def billed(model: cc.Model, requests: Iterable[Request]) -> Bill:
    before: Request | None = None
    count = tokens = served = full_tokens = full_served = cuts = 0
    dollars, full = 0.0, False
    for now in requests:
        read = 0
        if before is not None:
            common = shared(before.blocks, now.blocks)
            read = (marked if model.cache_points else grained)(model, before, now, common)
            lost = common < len(before.blocks)
            cuts += lost
            full = full or lost
        usage = cc.Usage(input=now.tokens, cache_read=read, cache_write=now.tokens - read)
        dollars += cost(model, usage) or 0.0
        count, tokens, served = count + 1, tokens + now.tokens, served + read
        if full:
            full_tokens, full_served = full_tokens + now.tokens, full_served + read
        before = now
    return Bill(count, tokens, served, dollars, full_tokens, full_served, cuts)


def shared(before: list[bytes], now: list[bytes]) -> int:
    for index, (old, new) in enumerate(zip(before, now, strict=False)):
        if old != new:
            return index
    return min(len(before), len(now))


# ── who cuts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


STRATEGIES: tuple[tuple[str, TrimStrategy], ...] = ((CHUNKED, "chunked"), (OLDEST, "oldest"))


def ours(provider: str, strategy: TrimStrategy, turn: int, count: int) -> Iterator[JSONObject]:
    subject = Ours("memory:", provider=provider, strategy=strategy)
    subject.fill([FIRST])
    for step in islice(steps(CHARACTERS, turn=turn), count):
        yield subject.step(subject.made(step)).params
    subject.close()


def langchain(reader: Reader, turn: int, count: int) -> Iterator[Request]:
    """What it keeps, in the blocks of its messages. It counts as contextc does, so that both fill the same window."""
    subject = LangChain()
    base: Any = import_module("langchain_core.messages").BaseMessage  # Any: not part of this project's environment
    read: dict[int, tuple[bytes, int]] = {}

    def counter(message: Any) -> int:
        return read[id(message)][1]

    def add(*said: Said) -> None:
        subject.messages += [subject.message(each) for each in said]
        for message, each in zip(subject.messages[-len(said) :], said, strict=True):
            read[id(message)] = reader.block(encode([openai_message(each)]))

    counter.__annotations__["message"] = base  # how it is told that messages are counted one by one
    subject.fill([])
    read[id(subject.messages[0])] = reader.block(encode([{"role": "system", "content": system_prompt()}]))
    add(FIRST)
    for step in islice(steps(CHARACTERS, turn=turn), count):
        kept = [read[id(message)] for message in subject.trimmed(counter)]
        yield Request([block for block, _ in kept], list(accumulate([tokens for _, tokens in kept])))
        add(*step)


def compare(turn: int, vendor: str, count: int, *, peers: bool) -> dict[str, Bill]:
    name = PROVIDERS[vendor]
    with cc.open_store("memory:") as store:
        compiler = cc.MessageCompiler(store, cc.provider(name, window=WINDOW))
    model, reader = compiler.provider.model, Reader(compiler.counter)
    found = {
        label: billed(model, map(reader.read, ours(name, strategy, turn, count))) for label, strategy in STRATEGIES
    }
    if peers and turn <= LONGEST_SLID:
        found[SLIDING] = billed(model, langchain(reader, turn, count))
    return found


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def table(title: str, bills: dict[str, Bill]) -> Table:
    found = Table(title=title, title_justify="left")
    found.add_column("cut", no_wrap=True)
    for column in ("cuts", "input a request", "served", "after the first cut", "bill", "times chunked's"):
        found.add_column(column, justify="right", no_wrap=True)
    for name, bill in bills.items():
        found.add_row(
            name,
            f"{bill.cuts:,}",
            f"{bill.tokens // bill.requests:,}",
            f"{bill.share:.1%}",
            f"{bill.full_share:.1%}",
            f"${bill.dollars:,.2f}",
            f"{bill.dollars / bills[CHUNKED].dollars:.2f}",
        )
    return found


def goals(title: str, bills: dict[str, Bill]) -> Iterator[Goal]:
    chunked = bills[CHUNKED]
    yield Goal(
        f"{title}: a cache serves {SHARE_GOAL:.0%} of the input", chunked.share >= SHARE_GOAL, f"{chunked.share:.1%}"
    )
    sliding = bills.get(SLIDING, bills[OLDEST])
    times = sliding.dollars / chunked.dollars
    yield Goal(f"{title}: {BILL_GOAL:.0f} times cheaper than a sliding cut", times >= BILL_GOAL, f"{times:.2f}")


def save(path: Path, found: dict[str, dict[str, Bill]], reached: Sequence[Goal]) -> None:
    bills = {title: {name: bill._asdict() for name, bill in each.items()} for title, each in found.items()}
    path.write_text(json.dumps({"bills": bills, "goals": [goal._asdict() for goal in reached]}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="What a prompt cache serves of a long run, and what it costs.")
    parser.add_argument("--quick", action="store_true", help="500 steps only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    options = parser.parse_args()
    console = Console(width=WIDTH)
    packages = ("langchain-core", "langchain-anthropic", "langchain-openai")
    versions = {name: version(name) for name in ("contextc", *packages)}
    shown = ", ".join(f"{name} {found or 'not installed'}" for name, found in versions.items())
    console.print(f"Python {platform.python_version()}, {shown}", highlight=False, soft_wrap=True)
    count, peers = STEPS // 2 if options.quick else STEPS, all(versions[name] for name in packages)
    found: dict[str, dict[str, Bill]] = {}
    for shape, turn in TURNS.items():
        for vendor, name in PROVIDERS.items():
            title = f"{vendor} ({name.partition(':')[2]}), {shape}"
            found[title] = compare(turn, vendor, count, peers=peers)
            console.print(table(title, found[title]))
    reached = [goal for title, bills in found.items() for goal in goals(title, bills)]
    show_goals(console, reached)
    if options.json:
        save(options.json, found, reached)


if __name__ == "__main__":
    main()
