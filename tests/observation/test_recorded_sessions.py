"""Recorded sessions of real clients at once: each request goes to its conversation, and its bytes are rebuilt."""

import random
from collections.abc import Sequence

import pytest

import contextc as cc
from contextc.observation import ObservedRequest
from contextc.store.message_log import SEQ_BITS, SEQ_MASK
from tests.conftest import often
from tests.observation.recorded_sessions import FOLDER, Exchange, load

CLIENTS = sorted([path.name.partition(".")[0] for path in FOLDER.glob("*.jsonl.gz")])
COMPACTED = {
    "claude_code 7": ["main"],
    "claude_code 8": ["main"],
    "claude_code 15": ["main"],
    "codex 5": ["main"] * 4,
}
"""The sessions in which the client compacted its history, with the conversation of each request after it."""
Key = tuple[str, int, str]


def interleave(rng: random.Random, clients: Sequence[str], *, with_headers: bool) -> list[tuple[int, Exchange]]:
    """Return the exchanges of all sessions with their index, in random order. Each session keeps its own order."""
    sessions: dict[tuple[str, int], list[tuple[int, Exchange]]] = {}
    for client in clients:
        for index, exchange in enumerate(load(client)):
            if not with_headers and client == "claude_code" and exchange.conversation.startswith("count"):
                continue  # it has no id but the header
            sessions.setdefault((client, exchange.session), []).append((index, exchange))
    order = [key for key, each in sessions.items() for _ in each]
    rng.shuffle(order)
    rest = {key: iter(each) for key, each in sessions.items()}
    return [next(rest[key]) for key in order]


def load_links(store: cc.Store) -> dict[str, tuple[str, str, int]]:
    """Return kind, parent conversation and place of the parent request of each conversation."""
    rows = store.read(
        lambda tx: list(
            tx.rows(
                "SELECT c.name, o.kind, p.name, o.parent_place FROM main.observed_conversation o"
                " JOIN main.conversation c"
                " ON c.number = o.conversation LEFT JOIN main.conversation p ON p.number = o.parent"
            )
        )
    )
    return {name: (kind, parent or "", place) for name, kind, parent, place in rows}


def find_mistakes(seed: int, clients: Sequence[str], *, with_headers: bool) -> list[str]:
    """Record the sessions and return what is not as labelled."""
    store = cc.open_store("memory:")
    mistakes: list[str] = []
    seen: dict[tuple[str, int], ObservedRequest] = {}
    by_label: dict[Key, str] = {}
    by_name: dict[str, Key] = {}
    exchanges = interleave(random.Random(seed), clients, with_headers=with_headers)
    for step, (index, exchange) in enumerate(exchanges):
        found = cc.observe(
            store,
            request=exchange.request.encode(),
            reply=exchange.response.encode(),
            headers=exchange.headers if with_headers else {},
            url=f"http://127.0.0.1{exchange.path}",
            status=exchange.status,
            time=1_000_000 + 10 * step,
            ended=1_000_005 + 10 * step,
        )
        seen[exchange.client, index] = found
        where = f"{exchange.client} {index}: session {exchange.session}, {exchange.conversation}"
        key = (exchange.client, exchange.session, exchange.conversation)
        if found.body != exchange.request.encode():
            mistakes.append(f"{where}: the body differs")
        if found.record.remarks:
            mistakes.append(f"{where}: {found.record.remarks}")
        if found.status != ("ok" if exchange.status == 200 else "error"):
            mistakes.append(f"{where}: {found.status} {found.record.observed}")
        if by_label.setdefault(key, found.conversation) != found.conversation:
            mistakes.append(f"{where}: is in {found.conversation}, not in {by_label[key]}")
        if by_name.setdefault(found.conversation, key) != key:
            mistakes.append(f"{where}: shares {found.conversation} with {by_name[found.conversation]}")
    links = load_links(store)
    for index, exchange in exchanges:
        found = seen[exchange.client, index]
        where = f"{exchange.client} {index}: session {exchange.session}, {exchange.conversation}"
        kind, parent, place = links[found.conversation]
        if kind != exchange.kind:
            mistakes.append(f"{where}: is {kind}")
        labelled = seen[exchange.client, exchange.parent] if exchange.parent is not None else None
        expected = (labelled.conversation, labelled.request) if labelled is not None else ("", 0)
        if (parent, place & SEQ_MASK) != expected:
            mistakes.append(f"{where}: parent {parent} {place >> SEQ_BITS} {place & SEQ_MASK}, not {expected}")
    store.close()
    return mistakes


@pytest.mark.parametrize("seed", range(often(1, 100)))
def test_conversations_are_separated(seed: int) -> None:
    assert find_mistakes(seed, CLIENTS, with_headers=True) == []


@pytest.mark.parametrize("seed", range(1, often(2, 100)))
@pytest.mark.thorough
def test_without_headers(seed: int) -> None:
    """Only SDKs and frameworks, which send no ids, are matched by content; the others have ids in their bodies."""
    assert find_mistakes(seed, CLIENTS, with_headers=False) == []


def test_compactions_are_named() -> None:
    store = cc.open_store("memory:")
    found: dict[str, list[str]] = {}
    for client in ("claude_code", "codex"):
        for exchange in load(client):
            seen = cc.observe(
                store,
                request=exchange.request.encode(),
                reply=exchange.response.encode(),
                headers=exchange.headers,
                url=f"http://127.0.0.1{exchange.path}",
                status=exchange.status,
            )
            if seen.record.why == "compacted by the client":
                found.setdefault(f"{client} {exchange.session}", []).append(exchange.conversation)
    store.close()
    assert found == COMPACTED


def test_the_recordings_are_what_is_claimed() -> None:
    loaded = {name: load(name) for name in CLIENTS}
    sessions = {(name, each.session) for name, some in loaded.items() for each in some}
    kinds = {(name, each.session, each.conversation): each.kind for name, some in loaded.items() for each in some}
    assert len(sessions) >= 30
    assert sum(kind == "agent" for kind in kinds.values()) >= 10
    assert sum(kind == "side" for kind in kinds.values()) >= 10
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_500_000
    names = {name for some in loaded.values() for each in some for name in each.headers}
    assert not {name for name in names if "auth" in name or "key" in name or "cookie" in name}
