"""The common core of the framework adapters: recording, fitting, and what goes back to a framework."""

import random
from typing import Any

import pytest

import contextc as cc
from contextc.adapters.history_functions import history_functions
from contextc.adapters.request_preparation import (
    HistoryRewritten,
    PreparedRequest,
    RequestPreparer,
    get_original,
    keep_original,
    require_package,
)
from contextc.compiler.history import HISTORY_TOOLS
from contextc.errors import ContextOverflow, InvalidSetting
from contextc.messages import Message
from contextc.store.message_matching import align_histories
from contextc.store.store import engine_of

MODEL = "openai:gpt-5.4"


def make_steps(count: int, *, size: int = 400, seed: int = 1) -> list[Message]:
    """A user message, then steps of one or two calls with results of mixed sizes."""
    chance = random.Random(seed)
    history = [cc.user("Find the defect.")]
    for step in range(count):
        ids = [f"c{step}_{each}" for each in range(chance.choice((1, 1, 2)))]
        calls = [cc.ToolCall(id=id, name="read", arguments={"path": id}) for id in ids]
        history.append(cc.assistant(f"Step {step}", tool_calls=calls))
        history += [cc.tool_result(id, "read", f"{id} " * chance.randrange(1, size)) for id in ids]
    return history


def list_sent(prepared: PreparedRequest) -> list[Message]:
    return prepared.apply(prepared.history, lambda message: [message])


def find_orphans(messages: list[Message]) -> list[str]:
    """The ids of calls and results whose counterpart is missing, or comes too early."""
    called: list[str] = []
    answered: list[str] = []
    early: list[str] = []
    for message in messages:
        early += [each.call_id for each in message.tool_results if each.call_id not in called]
        called += [each.id for each in message.tool_calls]
        answered += [each.call_id for each in message.tool_results]
    return [*early, *(id for id in called if answered.count(id) != 1)]


def test_a_history_that_repeats_what_is_recorded_adds_nothing(store: cc.Store) -> None:
    """Guarantee 21.2: agent-framework#7211: every round stores the whole conversation again."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = make_steps(3)
    for end in (1, 2, 2, len(history), len(history)):
        preparer.record(history[:end])
    other = RequestPreparer(store, "c", MODEL)
    assert [each.parts for each in other.record(history)] == [each.parts for each in history]
    assert store.conversation("c").length == len(history)
    assert len(store.branches("c")) == 1


def test_equal_messages_are_not_confused(store: cc.Store) -> None:
    """Guarantee 21.2: a user who says the same twice said it twice."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = [cc.user("yes"), cc.assistant("ok"), cc.user("yes"), cc.assistant("ok"), cc.user("yes")]
    for end in range(1, 6):
        preparer.record(history[:end])
    assert [each.text for each in preparer.load()] == ["yes", "ok", "yes", "ok", "yes"]


def test_a_rewritten_history_becomes_a_branch(store: cc.Store) -> None:
    """Guarantee 21.3: the old messages are kept, and a history that matches another branch continues it."""
    preparer = RequestPreparer(store, "c", MODEL)
    first = [cc.user("one"), cc.assistant("1"), cc.user("two")]
    second = [cc.user("one"), cc.assistant("uno"), cc.user("due")]
    preparer.record(first)
    preparer.record(second)
    assert [each.text for each in preparer.load()] == ["one", "uno", "due"]
    preparer.record([*first, cc.assistant("2")])
    assert [each.text for each in preparer.load()] == ["one", "1", "two", "2"]
    assert len(store.branches("c")) == 2
    preparer.record(first[:1])
    assert len(preparer.load()) == 4, "a shorter history is no reason to leave the branch"
    prepared = preparer.prepare(first[:1])
    assert (len(preparer.load()), len(prepared.messages)) == (1, 1), "a request without them rewinds"
    assert len(store.branches("c")) == 3


def test_the_branch_with_the_longest_common_history_is_continued(store: cc.Store) -> None:
    """Guarantee 21.3: an empty or shorter branch is no better, so that nothing is stored again."""
    preparer = RequestPreparer(store, "c", MODEL)
    preparer.record([cc.user("one"), cc.assistant("1"), cc.user("two"), cc.assistant("2")])
    main = store.conversation("c").branch
    store.rewind("c", 1)
    store.append("c", cc.assistant("uno"))
    preparer.record([cc.user("one"), cc.assistant("1"), cc.user("two"), cc.assistant("zwei")])
    assert store.branches("c")[-1].parent == main
    assert store.branches("c")[-1].base == 3
    store.rewind("c", 0)
    store.append("c", cc.user("new"))
    preparer.record([cc.user("one"), cc.assistant("1"), cc.user("two"), cc.assistant("2"), cc.user("three")])
    assert store.conversation("c").branch == main
    assert [each.text for each in preparer.load()] == ["one", "1", "two", "2", "three"]


def talk(preparer: RequestPreparer, turns: int, size: int) -> list[Message]:
    """A framework that keeps its last messages only. Return those of its last request."""
    history: list[Message] = []
    for turn in range(turns):
        history = [*history, cc.user(f"question {turn}")][-size:]
        prepared = preparer.prepare(history)
        assert prepared.is_unchanged
        assert [index for each in prepared.messages for index in each.indexes] == [*range(len(history))]
        history += [cc.assistant(f"answer {turn}")]
        preparer.commit(prepared, history[-1:])
    return history


@pytest.mark.parametrize("size", [3, 6, 7])
def test_a_framework_that_keeps_its_last_messages_adds_only_what_is_new(store: cc.Store, size: int) -> None:
    """Guarantee 21.3: the conversation stays whole, on one branch, and a request has what the framework has."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = talk(preparer, 8, size)
    assert [each.text for each in preparer.load()] == [each.text for each in history]
    assert (len(store.load("c")), len(store.branches("c"))) == (16, 1)


def test_a_reply_generated_again_shares_the_last_messages(store: cc.Store) -> None:
    """Guarantee 21.3: the branch begins after the question, and its context where the framework's list begins."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = talk(preparer, 8, 6)
    preparer.commit(preparer.prepare(history[1:-1]), [cc.assistant("another answer")])
    assert [each.text for each in preparer.load()] == [*[each.text for each in history[1:-1]], "another answer"]
    assert [(each.base, each.length) for each in store.branches("c")] == [(0, 16), (15, 16)]


def test_a_framework_that_has_its_first_messages_again_copies_none(store: cc.Store) -> None:
    """Guarantee 21.3: one part of an agent trims its list, another one does not."""
    preparer = RequestPreparer(store, "c", MODEL)
    talk(preparer, 8, 6)
    whole = [cc.Message(role=each.role, parts=each.parts) for each in store.load("c")]
    for size in (16, 6, 16, 5):
        prepared = preparer.prepare(whole[-size:])
        assert (prepared.is_unchanged, len(prepared.messages), prepared.new_count) == (True, size, 0)
    assert sum(each.length - each.base for each in store.branches("c")) == 16


def test_a_redacted_message_among_the_last_ones_does_not_come_back(store: cc.Store) -> None:
    """Guarantee 21.2: the framework still has it, and has dropped its first messages."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = talk(preparer, 4, 6)
    store.redact("c", 6)
    sent = preparer.prepare([*history[1:], cc.user("next")])
    assert len(store.branches("c")) == 1
    assert "answer 2" not in str([*store.load("c"), *list_sent(sent)])


def test_a_reply_in_a_list_without_its_first_messages_is_committed_with_its_request(store: cc.Store) -> None:
    """Guarantee 21.6: also if the framework drops messages between two requests."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = [*talk(preparer, 4, 6), cc.user("next")]
    preparer.prepare(history)
    preparer.record([*history[3:], cc.assistant("reply")])
    assert len(preparer.compiler.explain("c").record.produced) == 1


def test_a_question_without_a_reply_is_not_taken_for_the_last_messages(store: cc.Store) -> None:
    """Guarantee 21.3: the same question may begin another list. It is recorded, not found in the old one."""
    preparer = RequestPreparer(store, "c", MODEL)
    talk(preparer, 3, 6)
    preparer.record([cc.user("question 1")])
    assert [each.text for each in preparer.load()] == ["question 1"]
    with pytest.raises(HistoryRewritten):
        preparer.prepare([cc.user("question 2"), cc.assistant("answer 2")], may_branch=False)


def test_the_number_of_branches_does_not_slow_a_request_down() -> None:
    """Guarantee 21.3: a framework that always keeps the first message makes a branch with each request."""
    memory: Any
    with cc.open_store("memory:") as store:
        preparer, memory = RequestPreparer(store, "c", MODEL), engine_of(store)
        counts: list[int] = []
        for turn in range(24):
            rows: list[str] = []
            memory._connection.set_trace_callback(rows.append)
            preparer.record([cc.user("Start."), *[cc.user(f"{turn + each}") for each in range(4)]])
            counts.append(len(rows))
        assert len(store.branches("c")) == 24
    assert counts[-1] == counts[4]


def test_messages_of_others_are_read_between_two_requests(store: cc.Store) -> None:
    """Guarantee 21.2: also those that follow the last request, and after a redaction or a cleared context."""
    preparer = RequestPreparer(store, "c", MODEL)
    preparer.commit(preparer.prepare([cc.user("one")]), [cc.assistant("1")])
    store.append("c", cc.user("two"))
    history = [cc.user("one"), cc.assistant("1"), cc.user("two")]
    assert preparer.prepare(history).new_count == 0
    store.redact("c", 1)
    assert [each.redacted for each in preparer.load()] == [True, False, False]
    store.reset("c")
    assert preparer.load() == []
    assert len(preparer.prepare([cc.user("three")]).messages) == 1
    assert [each.text for each in preparer.load()] == ["three"]


def test_what_fits_goes_back_as_the_frameworks_own_objects(store: cc.Store) -> None:
    """Guarantee 21.4: nothing is rebuilt without need."""
    history = make_steps(4)
    own = [object() for _ in history]
    prepared = RequestPreparer(store, "c", MODEL).prepare(history, system_prompt="Be brief.")
    assert prepared.is_unchanged
    assert prepared.apply(own, lambda message: pytest.fail(f"rebuilt: {message}")) == own


def test_the_grouping_of_results_does_not_matter(store: cc.Store) -> None:
    """Guarantee 21.2: frameworks keep parallel results in one message or in several."""
    calls = [cc.ToolCall(id=id, name="f", arguments={}) for id in ("a", "b")]
    results = [cc.tool_result("a", "f", "1"), cc.tool_result("b", "f", "2")]
    merged = cc.Message(role="tool", parts=(*results[0].parts, *results[1].parts))
    start = [cc.user("go"), cc.assistant(tool_calls=calls)]
    preparer = RequestPreparer(store, "c", MODEL)
    preparer.record([*start, *results])
    prepared = preparer.prepare([*start, merged])
    assert store.conversation("c").length == 4
    assert prepared.is_unchanged
    assert [each.indexes for each in prepared.messages] == [(0,), (1,), (2,)]


def test_an_open_call_gets_a_result_and_a_lone_result_is_left_out(store: cc.Store) -> None:
    """Guarantee 21.4: pydantic-ai#4728: a dangling call stored once makes every later request fail."""
    history = [
        cc.user("go"),
        cc.assistant(tool_calls=[cc.ToolCall(id="a", name="f", arguments={})]),
        cc.user("and now?"),
        cc.tool_result("z", "f", "nobody asked"),
    ]
    prepared = RequestPreparer(store, "c", MODEL).prepare(history)
    sent = list_sent(prepared)
    assert find_orphans(sent) == []
    assert [each.indexes for each in prepared.messages] == [(0,), (1,), (), (2,)]
    assert [each.role for each in sent] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("seed", range(3))
def test_no_window_size_leaves_an_orphan(seed: int) -> None:
    """Guarantee 21.4: litellm#10696, langchain#29637, openai-agents-python#4322: trimming splits a pair."""
    history = make_steps(24, seed=seed)
    sizes: set[int] = set()
    with cc.open_store("memory:") as store:
        for window in range(2_000, 30_000, 700):
            try:
                prepared = RequestPreparer(store, f"c{window}", MODEL, window=window).prepare(history)
            except ContextOverflow:
                continue
            sent = list_sent(prepared)
            sizes.add(len(sent))
            assert find_orphans(sent) == [], window
            assert sent[0].role == "user", window
            assert prepared.compiled.manifest.budget.input <= window
    assert len(sizes) > 5


def test_the_prefix_stays_while_an_agent_works() -> None:
    """Guarantee 21.5: cuts are rare, and between them a request extends the one before it."""
    history = make_steps(60, size=600)
    replies = [at for at, message in enumerate(history) if message.role == "assistant"]
    breaks, before, usage = 0, list[Message](), None
    with cc.open_store("memory:") as store:
        preparer = RequestPreparer(store, "c", MODEL, window=32_000)
        for at in replies:
            prepared = preparer.prepare(history[:at])
            sent = list_sent(prepared)
            assert find_orphans(sent) == []
            breaks += sent[: len(before)] != before
            before = sent
            usage = cc.Usage(input=prepared.compiled.estimated_input, output=10)
            preparer.commit(prepared, [history[at]], usage=usage)
        assert store.conversation("c").length == replies[-1] + 1
        manifest = preparer.compiler.explain("c")
    assert 0 < breaks == manifest.epoch - 1 <= len(replies) // 5
    assert manifest.record.request == len(replies)
    assert manifest.record.usage == usage


def test_a_reply_that_is_only_in_the_next_history_is_committed_with_its_request(store: cc.Store) -> None:
    """Guarantee 21.6: the request has its reply and its usage, also without a call of `commit`."""
    preparer = RequestPreparer(store, "c", MODEL)
    usage = cc.Usage(input=7, output=2)
    preparer.prepare([cc.user("hi")])
    preparer.record([cc.user("hi"), cc.assistant("hello", usage=usage), cc.user("bye")])
    record = preparer.compiler.explain("c").record
    assert (record.request, record.usage, len(record.produced)) == (1, usage, 1)
    assert store.conversation("c").length == 3
    preparer.prepare([cc.user("hi"), cc.assistant("hello"), cc.user("bye")])
    preparer.prepare([cc.user("hi"), cc.assistant("hello"), cc.user("bye")])  # the first one failed
    assert preparer.compiler.explain("c").record.request == 1


def test_what_follows_a_reply_is_stored_with_it(store: cc.Store) -> None:
    """Guarantee 21.3: a call and its result, in one transaction; the next request has both."""
    preparer = RequestPreparer(store, "c", MODEL)
    reply = cc.assistant(tool_calls=[cc.ToolCall(id="a", name="f", arguments={})])
    result = cc.tool_result("a", "f", "1")
    prepared = preparer.prepare([cc.user("go")])
    assert len(preparer.commit(prepared, [reply], following=[result])) == 1
    assert [each.role for each in store.load("c")] == ["user", "assistant", "tool"]
    again = preparer.prepare([cc.user("go"), reply, result])
    assert (again.is_unchanged, again.new_count, len(again.messages)) == (True, 0, 3)
    other = RequestPreparer(store, "c", MODEL)
    other.commit(other.prepare([cc.user("go"), reply, result]), [cc.assistant("from another")])
    stored = preparer.commit(again, [cc.assistant("done")], following=[cc.user("thanks")])
    assert [each.text for each in stored] == ["done"]
    assert [each.text for each in preparer.load()][-2:] == ["done", "thanks"]
    assert len(store.branches("c")) == 2


def test_a_history_that_must_not_branch_is_refused(store: cc.Store) -> None:
    """Guarantee 21.3: the caller decides where it goes; nothing is written."""
    preparer = RequestPreparer(store, "c", MODEL)
    preparer.record([cc.user("one"), cc.assistant("1"), cc.user("two")])
    with pytest.raises(HistoryRewritten) as caught:
        preparer.prepare([cc.user("one"), cc.user("three")], may_branch=False)
    assert caught.value.seq == 1
    assert (len(store.branches("c")), store.conversation("c").length) == (1, 3)


def test_a_reply_is_kept_if_another_process_was_faster(store: cc.Store) -> None:
    """Guarantee 21.3: langgraph#8115: concurrent runs on one conversation lose messages without an error."""
    one, two = RequestPreparer(store, "c", MODEL), RequestPreparer(store, "c", MODEL)
    history = [cc.user("hi")]
    first, second = one.prepare(history), two.prepare(history)
    two.commit(second, [cc.assistant("from two")])
    stored = one.commit(first, [cc.assistant("from one")])
    assert [each.text for each in stored] == ["from one"]
    texts = [[each.text for each in store.load("c", branch=branch.number)] for branch in store.branches("c")]
    assert sorted(texts) == [["hi", "from one"], ["hi", "from two"]]


def test_a_redacted_message_is_not_recorded_again(store: cc.Store) -> None:
    """Guarantee 21.2: and the framework does not send it any more."""
    preparer = RequestPreparer(store, "c", MODEL)
    history = [cc.user("my key is 123"), cc.assistant("noted"), cc.user("thanks")]
    preparer.record(history)
    store.redact("c", 1)
    prepared = preparer.prepare(history)
    assert len(store.branches("c")) == 1
    assert "123" not in "".join(each.text for each in list_sent(prepared))


def test_the_frameworks_own_form_is_kept_and_redacted(store: cc.Store) -> None:
    """Guarantee 21.1: what the framework stored comes back equal in another process."""
    preparer = RequestPreparer(store, "c", MODEL)
    preparer.record([keep_original(cc.user("hi"), "lab", {"kind": "message", "n": 1})])
    assert get_original(store.load("c")[0], "lab") == {"kind": "message", "n": 1}
    assert get_original(store.redact("c", 1), "lab") is None


def test_a_missing_or_old_framework_names_the_command() -> None:
    """Guarantee 21.1: and an adapter that is not used imports nothing."""
    with pytest.raises(InvalidSetting, match="pip install 'no-such-framework>=2'"):
        require_package("no_such_framework", "no-such-framework", "2")
    with pytest.raises(InvalidSetting, match=r"version 999 or newer, got .* pip install --upgrade"):
        require_package("msgspec", "msgspec", "999")
    require_package("msgspec", "msgspec", "0.1")


def test_histories_are_compared_by_what_a_model_reads() -> None:
    """Guarantee 21.2: reasoning and metadata do not count; text, calls and results do."""
    stored = [cc.user("a"), cc.assistant("b", reasoning="why"), cc.user("c")]
    assert align_histories(stored, [cc.user("a", author="ann"), cc.assistant("b")])[1:3] == (2, 2)
    assert align_histories(stored, [cc.user("a"), cc.assistant("B")])[1:3] == (1, 1)
    assert align_histories(stored, [cc.system("a")])[1:3] == (0, 0)
    picture = cc.Media(mime_type="image/png", data=b"png")
    assert align_histories([cc.user([picture])], [cc.user([picture])]).given == 1
    assert align_histories([cc.user([picture])], [cc.user([cc.Media(mime_type="image/png", data=b"x")])]).given == 0


def test_an_agent_of_a_framework_reads_what_its_request_left_out() -> None:
    """Guarantee 22.3: with `fetch_result` among its tools, a line in place of a result names the id to read it by."""
    store = cc.open_store("memory:")
    search, fetch = history_functions(store, lambda: "c")
    history = [*make_steps(3), *make_steps(30, seed=2)[1:]]
    history[2] = cc.tool_result(history[1].tool_calls[0].id, "read", f"The port is 8443. {'So. ' * 600}")
    preparer = RequestPreparer(store, "c", MODEL, window=6_000)
    sent = list_sent(preparer.prepare(history, tools=[cc.tool(search), cc.tool(fetch)]))
    assert "The port is 8443." not in str(sent)
    assert "fetch_result" in str(sent)
    assert "r3 (tool, result of read)\nThe port is 8443." in search("which port")
    assert fetch("r3").startswith("The port is 8443.")
    assert fetch("r3", 4).startswith("port is")


def test_functions_for_frameworks_are_described_like_the_tools_themselves() -> None:
    """A framework makes the definition of a tool from the function: name, parameters and docstring."""
    offered = {tool.name: tool for tool in HISTORY_TOOLS}
    for function in history_functions(cc.open_store("memory:"), "c"):
        made = cc.tool(function).tool
        tool = offered[made.name]
        assert made.description == function.__doc__ == tool.description
        assert {*made.parameters["properties"]} == {*tool.parameters["properties"]}
        assert made.parameters["required"] == tool.parameters.get("required", ["query"])


def test_an_adapter_refuses_to_offer_tools_that_nobody_would_run(store: cc.Store) -> None:
    """Guarantee 22.4: the error names the functions that the framework can run."""
    with pytest.raises(InvalidSetting, match="history_functions"):
        RequestPreparer(store, "c", MODEL, fetch=True)
