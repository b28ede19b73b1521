"""Details of a request: figures add up, and a page reads no more rows than it shows."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import contextc as cc
from contextc.compiler.draft import Budget
from contextc.inspection.line_details import compute_item_costs
from contextc.inspection.prefix_break import describe_reason, find_break, preview_break
from contextc.inspection.request_details import (
    compute_distribution,
    distribute_window,
    load_request_details,
    page_lines,
    preview_request_details,
)
from contextc.messages import Message

CHAT = cc.provider("openai-chat:gpt-4o", window=10_000, output=1_000)
FRAGMENTS = (cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("state", "busy", "dynamic"))
TOKENS = st.integers(0, 5_000)


@given(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, st.none() | st.integers(1, 20_000))
def test_the_kinds_add_up_to_the_room_there_is(
    system: int,
    tools: int,
    used: int,
    dynamic: int,
    history: int,
    new: int,
    reserve: int,
    margin: int,
    limit: int | None,
) -> None:
    """Guarantee 7.1: also where a provider measured more than was counted; only what is sent can be more than there
    is.
    """
    budget = Budget(window=12_000, system=system, tools=tools, reserve=reserve, margin=margin, limit=limit, used=used)
    parts = distribute_window(budget, dynamic=dynamic, history=history, new=new)
    figures = [getattr(parts, name) for name in parts.__struct_fields__]
    assert min(figures) >= 0
    assert parts.dynamic + parts.history + parts.new == used
    assert sum(figures) == max(limit or 12_000, budget.input)
    assert parts.reserve <= reserve
    assert parts.margin <= margin
    if reserve + margin <= (limit or 12_000) - budget.input:
        assert (parts.reserve, parts.margin) == (reserve, margin)


def test_a_line_costs_by_where_the_cache_ends() -> None:
    """Guarantee 13.1: read up to here, written up to there, new behind it; together what the provider charges."""
    model = cc.model("claude-sonnet-4-5")
    assert model.price is not None
    usage = cc.Usage(input=1_000, output=0, cache_read=300, cache_write=400)
    costs = compute_item_costs(model, [100, 300, 300, 200], 100, usage)
    price = model.price
    assert costs == pytest.approx(
        [
            100 * price.cache_read / 1e6,
            (100 * price.cache_read + 200 * price.cache_write) / 1e6,
            (200 * price.cache_write + 100 * price.input) / 1e6,
            200 * price.input / 1e6,
        ]
    )
    assert sum([each or 0.0 for each in costs]) + 100 * price.cache_read / 1e6 == pytest.approx(
        cc.models.cost(model, usage)
    )
    assert compute_item_costs(model, [10], 0, None) == pytest.approx([10 * price.input / 1e6])


def commit_turns(store: cc.Store, turns: int) -> cc.MessageCompiler:
    compiler = cc.MessageCompiler(store, CHAT)
    for number in range(turns):
        store.append("demo", cc.user(f"question {number}"))
        compiler.commit(compiler.compile("demo", instructions=FRAGMENTS), cc.assistant(f"answer {number}"))
    return compiler


def test_a_page_reads_its_own_messages_and_no_others(store: cc.Store) -> None:
    """A request may have ten thousand messages; one page of it has a few."""
    compiler = commit_turns(store, 6)
    seen = load_request_details(store, compiler.channel("demo"))
    asked: list[int] = []

    def read(places: Sequence[int]) -> Mapping[int, Message]:
        asked.extend(places)
        return seen.load_messages(places)

    def never() -> Mapping[int, str]:
        raise AssertionError("what was left out is not asked for")

    lines, more, _ = page_lines(replace(seen, load_messages=read, load_left_out=never), after=2, limit=3)
    assert [line.index for line in lines] == [2, 3, 4]
    assert more
    assert asked == [item.place for item in seen.items[2:5] if item.place]


def test_before_and_after_a_commit_the_same_is_reported(store: cc.Store) -> None:
    """Guarantee 13.2: a request that is foretold is the one that is then sent. What it cost, only usage says."""
    compiler = commit_turns(store, 3)
    channel = compiler.channel("demo")
    for change in ("nothing", "edit", "prompt"):
        if change == "edit":
            store.edit("demo", 5, cc.user("something else"))
        else:
            store.append("demo", cc.user("more"))
        fragments = FRAGMENTS[:1] if change != "prompt" else (cc.PromptFragment("identity", "You are a poet."),)
        compiled = compiler.compile("demo", instructions=fragments)
        ahead, broke = preview_request_details(store, compiled), preview_break(store, compiled)
        compiler.commit(compiled, cc.assistant("done"))
        sent = load_request_details(store, channel)
        assert (ahead.items, ahead.shared, ahead.size) == (sent.items, sent.shared, sent.size)
        assert compute_distribution(ahead) == compute_distribution(sent)
        foretold = page_lines(ahead)
        assert all([line.cost for line in foretold.lines if line.shown])
        assert foretold._replace(lines=[replace(line, cost=None) for line in foretold.lines]) == page_lines(sent)
        assert broke == find_break(store, channel, CHAT.formatter, sent.record.request)
        assert bool(broke.where) == (change != "nothing")


def test_a_fork_shares_what_its_parent_was_shown(store: cc.Store) -> None:
    """Guarantee 9.9a: it begins with its parent's rows, and breaks where it leaves them."""
    compiler = commit_turns(store, 3)
    store.fork("demo", "copy")
    store.fork("demo", "earlier", at=3)
    for name in ("copy", "earlier"):
        store.append(name, cc.user("go on"))
        compiler.commit(compiler.compile(name, instructions=FRAGMENTS), cc.assistant("done"))
    copy, earlier = (load_request_details(store, compiler.channel(name)) for name in ("copy", "earlier"))
    assert copy.shared > 0
    assert copy.record.why == ""
    assert earlier.record.why == "forked"
    assert 0 < earlier.shared < len(earlier.items)


def test_every_reason_becomes_a_sentence() -> None:
    """A person reads it."""
    for why in ("over budget", "the session was taken over by somebody", "no session"):
        sentence = describe_reason(why)
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert not sentence.endswith("..")
