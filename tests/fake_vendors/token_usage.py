"""Token usage of requests, counted with our tokenizers, and simulated prompt caches.

The caches of Anthropic, Bedrock and OpenAI follow their rules: breakpoints, keys, settings and lifetimes, by a clock.
Those of the others contain the bytes of earlier requests. The longest shared prefix counts as read from the cache. This
is precise enough to distinguish a kept prefix from a broken one.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from math import floor
from time import time

from contextc._json import decode
from contextc.messages import Reasoning, assistant, tool_call
from contextc.models.tokens import TokenCounter, get_counter
from contextc.tools.definitions import Tool
from tests.analysis.traces.simulated_cache import SimulatedCache
from tests.fake_vendors.replies import Reply, Tokens
from tests.fake_vendors.vendor import AcceptedRequest

KEPT = 64
"""Number of cached requests per model."""
ENOUGH = 0.9
"""Share of a request from which a prefix is good enough to end the search."""
LEAST = 1024
"""Shortest cached prefix in tokens, for an unknown model."""
BYTES_PER_TOKEN = 4


class UsageMeter:
    """Counter of tokens with a prompt cache. With `exactly=False`, tokens are estimated from bytes, without a cache.
    `clock` returns the time in seconds.
    """

    def __init__(self, exactly: bool = True, clock: Callable[[], float] = time) -> None:
        self.exactly, self.clock = exactly, clock
        self.simulated: dict[str, SimulatedCache] = {}
        self.cache: defaultdict[tuple[str, str], deque[bytes]] = defaultdict(lambda: deque(maxlen=KEPT))

    def input(self, ask: AcceptedRequest) -> int:
        if not self.exactly:
            return len(ask.raw) // BYTES_PER_TOKEN
        counts, request = _counter(ask), ask.request
        tools = ask.formatter.encode_tools([tool for tool in request.tools if isinstance(tool, Tool)])
        system = counts.count_system(request.system.text) if request.system else 0
        text = sum(counts.count_message(message) for message in request.messages)
        return text + system + counts.count_tools(tools) + counts.count_settings(request.settings) + counts.overhead

    def tokens(self, ask: AcceptedRequest, reply: Reply, input: int) -> Tokens:
        """Return the token usage of a request and its reply."""
        counts = _counter(ask)
        reasoning = counts.count_text(reply.reasoning) if reply.reasoning else 0
        calls = [tool_call("id", call.name, call.written) for call in reply.calls]
        text = assistant(reply.text or "", reasoning=Reasoning(text=reply.reasoning), tool_calls=calls)
        output = reply.output if reply.output is not None else counts.count_message(text) + reasoning
        read = written = long = 0
        if self.exactly and ask.vendor.cache_rules:
            read, written, long = self.serve(ask, input)
        elif self.exactly and ask.vendor.cache_mark in ask.raw:
            read = self.read(ask, input)
            written = input - read if ask.vendor.cache_mark else 0
        return Tokens(
            input=input,
            read=read,
            written=written,
            written_long=long,
            output=max(output, reasoning + 1),
            reasoning=reasoning,
        )

    def serve(self, ask: AcceptedRequest, input: int) -> tuple[int, int, int]:
        """Return the tokens that a cache with the rules of its vendor reads, writes, and writes for long."""
        rules = ask.vendor.cache_rules
        if rules not in self.simulated:
            self.simulated[rules] = SimulatedCache(rules, kept=KEPT)
        now = round(self.clock() * 1000)
        use = self.simulated[rules].send(ask.vendor.seen(ask, decode(ask.raw)), ask.model, now, now)
        read, written, long = [input * each // max(use.total, 1) for each in (use.read, use.written, use.written_long)]
        return read // ask.vendor.cache_step * ask.vendor.cache_step, written, long

    def read(self, ask: AcceptedRequest, input: int) -> int:
        """Return the number of cached tokens of a request."""
        least = ask.facts.cache_minimum if ask.facts else LEAST
        kept = 0
        for before in reversed(self.cache[ask.vendor.name, ask.model]):
            kept = max(kept, shared(ask.raw, before))
            if kept > ENOUGH * len(ask.raw):
                break
        found = floor(input * kept / len(ask.raw)) // ask.vendor.cache_step * ask.vendor.cache_step
        return found if found >= max(least, 1) else 0

    def remember(self, ask: AcceptedRequest) -> None:
        kept = self.cache[ask.vendor.name, ask.model]
        if self.exactly and (not kept or kept[-1] != ask.raw):
            kept.append(ask.raw)


def shared(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two byte strings."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _counter(ask: AcceptedRequest) -> TokenCounter:
    tokenizer = ask.facts.tokenizer if ask.facts else "unknown"
    return get_counter(tokenizer, provider=ask.formatter.provider, model=ask.model)
