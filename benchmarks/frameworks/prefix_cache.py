"""The prompt cache of the stand-in: what a request reads of it, by the provider's rules, in whole blocks.

A prompt consists of the tools, the system prompt and the blocks of the messages, in this order, without cache
breakpoints. OpenAI's cache serves the longest prefix that an earlier request had, down to a multiple of 128 tokens.
Google's implicit cache does the same, to the token.
Anthropic's serves up to a breakpoint of an earlier request, if a breakpoint of this one follows within 20 blocks. It
charges for what is written up to the last breakpoint.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from operator import sub
from typing import NamedTuple, cast

from tests.fake_vendors.replies import Reply, Tokens
from tests.fake_vendors.token_usage import LEAST, UsageMeter
from tests.fake_vendors.vendor import AcceptedRequest

from contextc._json import JSON, JSONObject, decode, encode
from contextc.models.tokens import get_counter

LOOKBACK = 20
MARKS = ("cache_control", "prompt_cache_breakpoint")
MESSAGES, CONTENT = ("input", "messages", "contents"), ("content", "parts")
"""The fields of messages and of their content, in the formats of OpenAI, Anthropic and Google."""


class Block(NamedTuple):
    """A part of a prompt, without its cache breakpoint."""

    content: bytes
    marked: bool


class PrefixCacheMeter(UsageMeter):
    """Counter of tokens with a prompt cache. It has no expiry: a run takes less than a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, set[bytes]] = {}
        self._sizes: dict[bytes, int] = {}
        self._written: tuple[str, list[bytes]] = "", []

    def tokens(self, ask: AcceptedRequest, reply: Reply, input: int) -> Tokens:
        plain = super().tokens(ask, reply, input)
        blocks = [*prompt_blocks(ask.vendor.seen(ask, decode(ask.raw)))]
        prefixes = [*_prefixes(blocks)]
        ends = self._ends(ask, blocks, input)
        entries = self._entries.get(ask.model, set())
        known = [index for index, prefix in enumerate(prefixes) if prefix in entries]
        if ask.vendor.cache_mark:
            marks = [index for index, block in enumerate(blocks) if block.marked]
            known = [at for at in known if any(at <= mark < at + LOOKBACK for mark in marks)]
            last = ends[marks[-1]] if marks else 0
            kept = [prefixes[mark] for mark in marks]
        else:
            last, kept = 0, prefixes
        least = (ask.facts.cache_minimum if ask.facts else 0) or LEAST
        read = ends[known[-1]] // ask.vendor.cache_step * ask.vendor.cache_step if known else 0
        read = read if read >= least else 0
        self._written = ask.model, kept if max(last, input) >= least else []
        written = max(0, last - read) if last >= least else 0
        found = Tokens(input=input, read=read, written=written, output=plain.output, reasoning=plain.reasoning)
        self.observe([*zip(blocks, [*map(sub, ends, [0, *ends])], strict=True)], found)
        return found

    def observe(self, blocks: Sequence[tuple[Block, int]], tokens: Tokens) -> None:
        """Take note of an accepted request: its blocks with their tokens, and the tokens of all."""

    def remember(self, ask: AcceptedRequest) -> None:
        model, kept = self._written
        self._entries.setdefault(model, set()).update(kept)

    def _ends(self, ask: AcceptedRequest, blocks: Sequence[Block], input: int) -> list[int]:
        """Return the tokens up to the end of each block. Their sum is the input that the provider counts."""
        counter = get_counter(
            ask.facts.tokenizer if ask.facts else "unknown", provider=ask.formatter.provider, model=ask.model
        )
        for block in blocks:
            if block.content not in self._sizes:
                self._sizes[block.content] = counter.count_text(" ".join(texts_of(json.loads(block.content))))
        sizes = [*accumulate(self._sizes[block.content] for block in blocks)]
        return [input * size // (sizes[-1] or 1) for size in sizes]


def prompt_blocks(body: JSONObject) -> Iterator[Block]:
    """Return the prompt of a request in the order in which providers cache it."""
    for tool in cast(list[JSONObject], body.get("tools") or []):
        yield _block("tool", tool)
    for part in _system_parts(body):
        yield _block("system", part)
    listed = [*_message_blocks(next((body[name] for name in MESSAGES if name in body), None))]
    if listed and body.get("cache_control"):  # Anthropic marks the last block by itself
        listed[-1] = Block(listed[-1].content, True)
    yield from listed


def _system_parts(body: JSONObject) -> list[JSONObject]:
    google = cast(JSONObject, body.get("systemInstruction") or {})
    return _listed(body.get("system") or body.get("instructions") or google.get("parts") or [])


def _message_blocks(messages: JSON) -> Iterator[Block]:
    for message in _listed(messages or []):
        around = {name: value for name, value in message.items() if name not in (*CONTENT, *MARKS)}
        content = _listed(next((message[name] for name in CONTENT if message.get(name)), None) or [])
        for part in content or [{}]:
            yield _block(around, part, message)


def _block(around: JSON, part: JSONObject, message: JSONObject | None = None) -> Block:
    marked = any(part.get(mark) or (message or {}).get(mark) for mark in MARKS)
    return Block(encode([around, {name: value for name, value in part.items() if name not in MARKS}]), marked)


def _listed(content: JSON) -> list[JSONObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast(list[JSONObject], content)


def texts_of(value: JSON) -> Iterator[str]:
    """Return every string in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from texts_of(each)
    elif isinstance(value, dict):
        for each in cast(JSONObject, value).values():
            yield from texts_of(each)


def _prefixes(blocks: Sequence[Block]) -> Iterator[bytes]:
    state = blake2b(digest_size=16)
    for block in blocks:
        state.update(len(block.content).to_bytes(8, "big") + block.content)
        yield state.digest()
