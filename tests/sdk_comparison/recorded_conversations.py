"""Recorded requests of every provider, and transcripts of agents."""

from collections.abc import Iterator
from functools import cache

import contextc as cc
from contextc.formats import format_names, formatter
from contextc.formats.base import Request
from tests.formats.traffic import accepted, transcripts
from tests.sdk_comparison.request_pairs import LOOK, Conversation
from tests.sdk_comparison.sdk_limits import extra_left_out


@cache
def recorded() -> tuple[tuple[str, Conversation], ...]:
    """Each conversation in a request that a provider accepted, once."""
    return tuple(_recorded())


def _recorded() -> Iterator[tuple[str, Conversation]]:
    seen: set[str] = set()
    for name in format_names():
        for exchange in accepted(name):
            found = extra_left_out(conversation(formatter(name).decode_request(exchange.request)), name)
            if (text := str(found)) not in seen:
                seen.add(text)
                yield f"{name}: {exchange.case}", found


@cache
def agents() -> tuple[tuple[str, Conversation], ...]:
    """Each transcript."""
    decode = formatter("openai_chat").decode_request
    return tuple((f"transcript {number}", conversation(decode(each))) for number, each in enumerate(transcripts()))


def conversation(request: Request) -> Conversation:
    prompt = request.system.text if request.system is not None else ""
    tools = tuple(tool for tool in request.tools if isinstance(tool, cc.Tool))
    return Conversation(messages=request.messages, prompt=prompt or None, tools=tools or (LOOK,))
