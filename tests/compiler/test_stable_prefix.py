"""The prefix is stable: recorded conversations, joined and replayed step by step in windows that overflow.

Every request is held against the one before it. Where they do not share their prefix to the byte, the manifest must
have said so, and that may not happen more often than the marks of the cut allow.
"""

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil

import pytest

import contextc as cc
from contextc._json import decode, encode
from contextc.compiler.ledger import get_channel_cache
from tests.compiler.recorded_replay import Recorded, begins_with, blocks, recorded, replay
from tests.conftest import THOROUGH, often, some
from tests.formats.known import having, known

FORGETS = 37  # requests, after which everything in memory is forgotten once


def conversation_for(window: int) -> Recorded:
    """A conversation of several windows; the larger the window, the longer its texts."""
    if window == 8_000:
        return recorded().of_length(often(120, 600))
    return recorded().of_length(340).longer(5 if window == 32_000 else 34)


def todos(number: int) -> Sequence[cc.PromptFragment]:
    """A dynamic fragment that is another one every few requests."""
    return [cc.PromptFragment("todos", f"Todo {number // 5} is open.", lifecycle="dynamic")]


class Account:
    """What a replay came to."""

    def __init__(self, window: int, format: str) -> None:
        self.window, self.format = window, format
        self.requests = self.epochs = self.tokens = self.available = 0
        self.reasons: set[str] = set()
        self.before: list[bytes] = []

    def take(self, compiled: cc.Compiled) -> None:
        """Hold a request against the one before."""
        self.requests += 1
        body = decode(compiled.body)
        now = blocks(body)
        why = compiled.manifest.why
        assert why or begins_with(now, self.before), f"request {self.requests}: the prefix changed without a word"
        if why and self.requests > 1:
            self.epochs += 1
            self.reasons.add(why)
        assert body == decode(encode(compiled.params)), f"request {self.requests}: its bytes are another request"
        assert not cc.lint(compiled.params, format=self.format)
        assert compiled.budget.used <= compiled.budget.available
        self.tokens += sum(entry.item.tokens for entry in compiled.draft.tail)
        self.available, self.before = compiled.budget.available, now


QUICK = (("gemini", 8_000), ("anthropic", 32_000))
WINDOWS = [
    (format, window)
    for format in having("MODEL")
    for window in (8_000, 32_000, 200_000)
    if THOROUGH or (format, window) in QUICK
]


@pytest.mark.parametrize(("format", "window"), WINDOWS)
def test_consecutive_requests_share_their_prefix_except_where_an_epoch_is_announced(format: str, window: int) -> None:
    """Guarantees 9.2, 9.3, 7.4, 13.2: also across a cold start, and with dynamic fragments that change."""
    store = cc.open_store("memory:")
    provider = cc.provider(known(format).MODEL, window=window, output=window // 8)
    compiler = cc.MessageCompiler(store, provider)
    long = conversation_for(window)
    account, bodies = Account(window, format), list[bytes]()
    for compiled in replay(
        compiler, long.messages, system_prompt=long.system_prompt, tools=long.tools, fragments=todos
    ):
        account.take(compiled)
        bodies.append(blake2b(compiled.body).digest())
        if account.requests % FORGETS == 0:
            get_channel_cache(store).clear()
            cold = compiler.compile(
                "long", instructions=[long.system_prompt, *todos(account.requests)], tools=long.tools
            )
            assert cold.body == compiled.body, f"request {account.requests} is another after a cold start"
    assert account.reasons == {"over budget"}
    assert 1 < account.epochs <= ceil(account.tokens / (0.3 * account.available))
    for number in range(1, len(bodies) + 1, max(1, window // 16_000)):
        assert blake2b(compiler.rebuild("long", number)).digest() == bodies[number - 1], f"request {number} is another"


@pytest.mark.parametrize("worth", some([0.7, 1.4], 1))
@pytest.mark.parametrize("format", ["anthropic", "openai_responses"])
def test_a_provider_that_counts_otherwise_is_never_sent_too_much(format: str, worth: float) -> None:
    """Guarantees 6.2, 7.4: its own figures say when to cut; neither too late nor too often."""
    provider = cc.provider(known(format).MODEL, window=8_000, output=1_000)
    compiler = cc.MessageCompiler(cc.open_store("memory:"), provider)
    long = recorded().of_length(300)

    def real(compiled: cc.Compiled) -> int:
        return int((compiled.state.above + compiled.state.tokens) * worth)

    def usage(compiled: cc.Compiled, reply: cc.Message) -> cc.Usage:
        return cc.Usage(input=real(compiled), output=int(compiler.counter.count_message(reply) * worth))

    account = Account(8_000, format)
    for compiled in replay(
        compiler, long.messages, system_prompt=long.system_prompt, tools=long.tools, fragments=todos, usage=usage
    ):
        account.take(compiled)
        assert real(compiled) <= 7_000
        assert compiled.budget.measured == (not compiled.manifest.why)
    assert compiler.loader.factor("+tools") == pytest.approx(worth, rel=0.02)
    assert compiler.factor == 1
    assert 1 < account.epochs <= ceil(account.tokens * worth / (0.3 * account.available))
