"""The fast path of a step gives the same result as the full path, and is left after any other change.

A handle that stored the last request looks on from there. Everything here happens on another handle of the same file,
so nothing but the store says so.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import contextc as cc
from contextc.compiler import Compiled
from contextc.compiler.ledger import get_channel_cache, load_next

AGENT = "assistant"
TOOLS = [cc.Tool(name="read", description="Reads.", parameters={"type": "object"})]
LONG = "all work and no play " * 2_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[cc.Store, cc.Store]]:
    """Two handles of one file, as two processes have them."""
    address = f"sqlite:///{tmp_path / 'chat.db'}"
    with cc.open_store(address) as mine, cc.open_store(address) as theirs:
        yield mine, theirs


def calls(*ids: str) -> cc.Message:
    return cc.assistant("Let me see.", tool_calls=[cc.ToolCall(id=name, name="read", arguments={}) for name in ids])


def compiler_of(store: cc.Store) -> cc.MessageCompiler:
    return cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5", window=20_000, output=1_000))


def step(compiler: cc.MessageCompiler, reply: cc.Message) -> Compiled:
    compiled = compiler.compile("demo", tools=TOOLS)
    with compiler.attempt(compiled) as attempt:
        attempt.commit(reply)
    return compiled


def begun(store: cc.Store) -> cc.MessageCompiler:
    """A conversation in which the model has just asked for two results."""
    compiler = compiler_of(store)
    store.append("demo", cc.user("Look around.", author="ann"))
    step(compiler, calls("a"))
    store.append("demo", cc.tool_result("a", "read", "one"))
    step(compiler, calls("b", "c"))
    return compiler


def goes_on(compiler: cc.MessageCompiler) -> bool:
    """Whether the next look takes the short way."""
    return load_next(compiler.store, get_channel_cache(compiler.store), compiler.channel("demo")) is not None


def request_facts(compiled: Compiled) -> tuple[object, ...]:
    return compiled.body, compiled.params, compiled.manifest.as_json(), compiled.state, compiled.estimated_input


def results(store: cc.Store) -> None:
    store.append("demo", cc.tool_result("b", "read", "two"))
    store.append("demo", cc.tool_result("c", "read", "three"))


APPENDED: dict[str, Callable[[cc.Store], object]] = {
    "results": results,
    "results the other way round": lambda store: (
        store.append("demo", cc.tool_result("c", "read", "three")),
        store.append("demo", cc.tool_result("b", "read", "two")),
    ),
    "one result": lambda store: store.append("demo", cc.tool_result("b", "read", "two")),
    "a result twice": lambda store: (results(store), store.append("demo", cc.tool_result("b", "read", "other"))),
    "a result of nobody's": lambda store: (results(store), store.append("demo", cc.tool_result("x", "read", "?"))),
    "a long result": lambda store: (
        store.append("demo", cc.tool_result("b", "read", LONG)),
        store.append("demo", cc.tool_result("c", "read", "three")),
    ),
    "a person": lambda store: (results(store), store.append("demo", cc.user("Hurry.", author="ann"))),
    "another person": lambda store: (results(store), store.append("demo", cc.user("Hurry.", author="bob"))),
    "a system message": lambda store: (results(store), store.append("demo", cc.system("Be brief."))),
    "another agent's tool": lambda store: (
        results(store),
        store.append("demo", cc.Message(role="tool", parts=cc.tool_result("b", "read", "mine").parts, author="tester")),
    ),
}  # fmt: skip

CHANGED: dict[str, Callable[[cc.Store], object]] = {
    "an edit": lambda store: store.edit("demo", 1, cc.user("Look elsewhere.", author="ann")),
    "a rewind": lambda store: store.rewind("demo", 3),
    "a clear": lambda store: store.reset("demo"),
    "a redaction": lambda store: store.redact("demo", 3),
    "a pin": lambda store: store.pin("demo", 1),
    "a request of another process": lambda store: step(compiler_of(store), calls("d")),
    "a request that failed": lambda store: (
        lambda compiler: (compiler.begin(compiled := compiler.compile("demo", tools=TOOLS)), compiler.abort(compiled))
    )(compiler_of(store)),
}


@pytest.mark.parametrize("what", APPENDED)
def test_what_was_appended_is_compiled_as_a_cold_start_would(stores: tuple[cc.Store, cc.Store], what: str) -> None:
    """Guarantee 9.2: memory makes a step cheaper, and nothing else."""
    mine, theirs = stores
    compiler = begun(mine)
    APPENDED[what](theirs)
    assert goes_on(compiler)
    short = request_facts(compiler.compile("demo", tools=TOOLS))
    get_channel_cache(mine).clear()
    assert not goes_on(compiler)
    assert request_facts(compiler_of(mine).compile("demo", tools=TOOLS)) == short


@pytest.mark.parametrize("what", CHANGED)
def test_the_short_way_is_left_where_more_happened_than_an_append(stores: tuple[cc.Store, cc.Store], what: str) -> None:
    """Guarantee 9.3: edits, clears, redactions, pins and other requests are seen, whichever process made them."""
    mine, theirs = stores
    compiler = begun(mine)
    results(mine)
    CHANGED[what](theirs)
    theirs.append("demo", cc.user("And now?", author="ann"))
    assert not goes_on(compiler)
    here = request_facts(compiler.compile("demo", tools=TOOLS))
    assert request_facts(compiler_of(theirs).compile("demo", tools=TOOLS)) == here


def test_a_conversation_created_again_is_not_taken_for_the_old_one(stores: tuple[cc.Store, cc.Store]) -> None:
    """Guarantee 9.1: a name that was deleted and reused names another conversation."""
    mine, theirs = stores
    compiler = begun(mine)
    theirs.delete("demo")
    theirs.append("demo", cc.user("Hello."))
    assert not goes_on(compiler)
    assert b"Look around." not in compiler.compile("demo", tools=TOOLS).body


@pytest.mark.parametrize("extra", [cc.system("Not for you.", audience="tester"), cc.user("Hm.", audience="tester")])
def test_results_are_shown_alike_whether_or_not_something_hidden_follows(
    stores: tuple[cc.Store, cc.Store], extra: cc.Message
) -> None:
    """Guarantee 4.1: what an agent does not see makes no difference to what it is shown."""
    mine, _ = stores
    compiler = begun(mine)
    results(mine)
    alone = compiler.compile("demo", tools=TOOLS)
    mine.append("demo", extra)
    beside = compiler.compile("demo", tools=TOOLS)
    assert (beside.body, beside.budget, beside.draft.tail) == (alone.body, alone.budget, alone.draft.tail)
    assert [line for line in beside.manifest.lines if line.shown] == list(alone.manifest.lines)


def test_a_reply_goes_behind_what_came_while_the_model_answered(stores: tuple[cc.Store, cc.Store]) -> None:
    """Guarantee 9.7: a message that arrived meanwhile stays outstanding, and the next request shows it."""
    mine, theirs = stores
    compiler = begun(mine)
    results(mine)
    compiled = compiler.compile("demo", tools=TOOLS)
    compiler.begin(compiled)
    theirs.append("demo", cc.user("Wait!", author="ann"))
    (stored,) = compiler.commit(compiled, cc.assistant("Done."))
    assert stored.seq == 8
    assert not goes_on(compiler)
    body = compiler.compile("demo", tools=TOOLS).body
    assert body.index(b"Wait!") > body.index(b"three") > 0
    get_channel_cache(mine).clear()
    assert compiler.compile("demo", tools=TOOLS).body == body


def test_a_commit_is_refused_where_the_line_has_moved(stores: tuple[cc.Store, cc.Store]) -> None:
    """Guarantee 9.7: against the ledger's version, else StaleCompile; nothing is stored."""
    mine, theirs = stores
    compiler = begun(mine)
    results(mine)
    compiled = compiler.compile("demo", tools=TOOLS)
    compiler.begin(compiled)
    theirs.rewind("demo", 3)
    with pytest.raises(cc.errors.StaleCompile):
        compiler.commit(compiled, cc.assistant("Done."))
    assert [message.seq for message in mine.load("demo")] == [1, 2, 3]


# ── a request that was not sent ───────────────────────────────────────────────────────────────────────────────────────


def waiting(store: cc.Store, *, is_first: bool) -> cc.MessageCompiler:
    """A conversation of which a request was compiled, and not sent: the first one, or one after an answer."""
    compiler = compiler_of(store)
    store.append("demo", cc.user("Look around.", author="ann"))
    if is_first:
        store.append("demo", calls("a"))
    else:
        step(compiler, calls("a"))
    store.append("demo", cc.tool_result("a", "read", "one"))
    store.append("demo", calls("b", "c"))
    results(store)
    store.append("demo", cc.user("And there?", author="ann"))
    compiler.compile("demo", tools=TOOLS)
    return compiler


def is_extended(compiler: cc.MessageCompiler) -> bool:
    """Whether the next request is made from the one before it."""
    seen = compiler.loader.load(compiler.channel("demo"), "|None", None, None, has_instructions=False)
    return seen.unsent is not None


@pytest.mark.parametrize("is_first", [True, False])
def test_a_request_that_was_not_sent_is_extended_as_a_cold_start_would(
    stores: tuple[cc.Store, cc.Store], is_first: bool
) -> None:
    """Guarantee 9.2: memory makes a request cheaper, and nothing else, however often a request is compiled."""
    mine, theirs = stores
    compiler = waiting(mine, is_first=is_first)
    for text in ("Hurry.", "", "Please."):
        if text:
            theirs.append("demo", cc.user(text, author="ann"))
        assert is_extended(compiler)
        short = request_facts(compiler.compile("demo", tools=TOOLS))
        assert request_facts(compiler_of(theirs).compile("demo", tools=TOOLS)) == short
    get_channel_cache(mine).clear()
    assert not is_extended(compiler)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("what", CHANGED)
def test_a_request_is_not_extended_where_more_happened_than_an_append(
    stores: tuple[cc.Store, cc.Store], what: str, is_first: bool
) -> None:
    """Guarantee 9.3: edits, clears, redactions, pins and other requests are seen, whichever process made them."""
    mine, theirs = stores
    compiler = waiting(mine, is_first=is_first)
    CHANGED[what](theirs)
    theirs.append("demo", cc.user("And now?", author="ann"))
    assert not is_extended(compiler)
    here = request_facts(compiler.compile("demo", tools=TOOLS))
    assert request_facts(compiler_of(theirs).compile("demo", tools=TOOLS)) == here


def test_a_fork_is_not_extended_before_it_has_a_request_of_its_own(stores: tuple[cc.Store, cc.Store]) -> None:
    """Guarantee 9.2: until then it begins with what was sent in the conversation that it was forked from."""
    mine, _ = stores
    mine.append("parent", cc.user("Look around.", author="ann"))
    mine.fork("parent", "demo")
    mine.append("demo", cc.user("Look there.", author="ann"))
    compiler = compiler_of(mine)
    compiler.compile("demo", tools=TOOLS)
    assert not is_extended(compiler)
