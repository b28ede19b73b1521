"""Random clients at once: bodies are rebuilt, every message is once on its branch, prefixes are those of the bytes."""

import random
from collections import Counter

import msgspec
import pytest

import contextc as cc
from contextc.compiler.past_requests import comparable_bytes, split_at_conversation, strip_marks
from contextc.formats import formatter
from tests.conftest import often
from tests.observation.simulated_client import Exchange, SimulatedClient

FORMATS = ("anthropic", "openai_chat", "openai_responses", "gemini")


def elements(format: str, exchange: Exchange) -> list[bytes]:
    body = msgspec.json.decode(exchange.body)
    rows = body[formatter(format).messages_key]
    return [comparable_bytes(msgspec.json.encode(row)) for row in rows if row.get("role") != "system"]


def count_shared(before: list[bytes], now: list[bytes]) -> int:
    """Return the number of leading elements that two requests share, by their bytes."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(before), len(now)))


def count_shared_bytes(format: str, exchange: Exchange, before: list[bytes], shared: int) -> int:
    """Return the bytes of the shared prefix: whole segments of the previous request, without cache breakpoints.

    A segment begins with output of the model and has what follows it; its elements are joined by commas.
    """
    starts = [
        index
        for index, each in enumerate(before)
        if not index or (is_output(each) and not is_output(before[index - 1]))
    ]
    end = max((each for each in [*starts, len(before)] if each <= shared), default=0)
    parts = split_at_conversation(exchange.body, formatter(format).messages_key)
    assert parts is not None
    size = sum(len(strip_marks(raw).base) for raw in parts.elements[:end])
    return size + end - sum(start < end for start in starts)


def is_output(element: bytes) -> bool:
    return msgspec.json.decode(element)["role"] in ("assistant", "model")


@pytest.mark.parametrize("seed", range(often(3, 400)))
def test_random_clients(seed: int) -> None:
    rng = random.Random(seed)
    store = cc.open_store("memory:")
    clients = [
        SimulatedClient(
            number,
            random.Random(seed * 100 + number),
            rng.choice(FORMATS),
            session=f"session-{number}" if rng.random() < 0.5 else "",
            opening="hello" if rng.random() < 0.3 else "",
        )
        for number in range(rng.randint(2, 7))
    ]
    names: dict[int, str] = {}
    sent: dict[int, list[bytes]] = {}
    for step in range(rng.randint(10, 60)):
        client = rng.choice(clients)
        exchange = client.next()
        seen = cc.observe(
            store,
            request=exchange.body,
            reply=exchange.reply,
            format=client.format,
            headers=exchange.headers,
            status=exchange.status or None,
            time=1_000 + step,
        )
        assert seen.body == exchange.body, exchange.action
        assert names.setdefault(client.number, seen.conversation) == seen.conversation, exchange.action
        assert list(names.values()).count(seen.conversation) == 1, exchange.action
        on_branch = [message.text for message in store.load(seen.conversation, branch=seen.record.branch)]
        assert max(Counter(on_branch).values()) == 1, exchange.action
        rest = iter(on_branch)
        assert all(text in rest for text in exchange.texts), exchange.action
        now, before = elements(client.format, exchange), sent.get(client.number, [])
        shared = count_shared(before, now)
        assert bool(seen.record.why) == (not before or shared < len(before)), exchange.action
        assert seen.record.shared_bytes == count_shared_bytes(client.format, exchange, before, shared), exchange.action
        sent[client.number] = now
    store.close()
