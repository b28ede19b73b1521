"""What a request took, in tokens: counted as we count, and what of it a prompt cache would have served.

The cache is the bytes of earlier requests: as much of a request as one of them began with is read from it. That is
what vendors do with tokens, and near enough for figures that only have to be plausible and to tell a kept prefix from a
broken one.
"""

from collections import defaultdict, deque
from math import floor

from contextc.messages import Reasoning, assistant, tool_call
from contextc.tokens import Counter, counter
from contextc.tools import Tool
from tests.standin.reply import Reply, Tokens
from tests.standin.vendor import Ask

KEPT = 64
"""How many requests the cache remembers for each model."""
ENOUGH = 0.9
"""From which share on no better prefix is looked for."""
LEAST = 1024
"""The shortest prefix that is cached, for a model nobody knows."""
BYTES_PER_TOKEN = 4


class Tally:
    """Counts requests and replies, and remembers requests. `exactly`: by their words; otherwise by
    their bytes, and without a cache."""

    def __init__(self, exactly: bool = True) -> None:
        self.exactly = exactly
        self.cache: defaultdict[tuple[str, str], deque[bytes]] = defaultdict(lambda: deque(maxlen=KEPT))

    def input(self, ask: Ask) -> int:
        if not self.exactly:
            return len(ask.raw) // BYTES_PER_TOKEN
        counts, request = _counter(ask), ask.request
        tools = ask.formatter.encode_tools([tool for tool in request.tools if isinstance(tool, Tool)])
        system = counts.system(request.system.text) if request.system else 0
        said = sum(counts.message(message) for message in request.messages)
        return said + system + counts.tools(tools) + counts.settings(request.settings) + counts.overhead

    def tokens(self, ask: Ask, reply: Reply, input: int) -> Tokens:
        """All figures of an exchange."""
        counts = _counter(ask)
        reasoning = counts.text(reply.reasoning) if reply.reasoning else 0
        calls = [tool_call("id", call.name, call.written) for call in reply.calls]
        said = assistant(reply.text or "", reasoning=Reasoning(text=reply.reasoning), tool_calls=calls)
        output = reply.output if reply.output is not None else counts.message(said) + reasoning
        marked = self.exactly and ask.vendor.cache_mark in ask.raw
        read = self.read(ask, input) if marked else 0
        written = input - read if marked and ask.vendor.cache_mark else 0
        return Tokens(input=input, read=read, written=written, output=max(output, reasoning + 1), reasoning=reasoning)

    def read(self, ask: Ask, input: int) -> int:
        """How much of a request the cache has."""
        least = ask.facts.cache_minimum if ask.facts else LEAST
        kept = 0
        for before in reversed(self.cache[ask.vendor.name, ask.model]):
            kept = max(kept, shared(ask.raw, before))
            if kept > ENOUGH * len(ask.raw):
                break
        found = floor(input * kept / len(ask.raw)) // ask.vendor.cache_step * ask.vendor.cache_step
        return found if found >= max(least, 1) else 0

    def remember(self, ask: Ask) -> None:
        kept = self.cache[ask.vendor.name, ask.model]
        if self.exactly and (not kept or kept[-1] != ask.raw):
            kept.append(ask.raw)


def shared(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _counter(ask: Ask) -> Counter:
    tokenizer = ask.facts.tokenizer if ask.facts else "unknown"
    return counter(tokenizer, provider=ask.formatter.provider, model=ask.model)
