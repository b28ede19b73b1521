"""What a compaction has kept and what it has lost, found without a model: Guarantee 7.11."""

import time
from collections.abc import Sequence

import pytest

import contextc as cc
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.window_findings import lossy_compactions
from contextc.compiler.facts_in_texts import MAX_LISTED, Receipt, examine, find_points_to_keep
from contextc.compiler.ledger import StoredSummary, load_latest_summary, save_summary
from contextc.inspection.request_details import load_request_details, page_lines, preview_request_details
from contextc.store.message_log import load_tip, make_place

FACTS = ["src/pay/api.py", "ORD-5512", "retry_limit", "https://example.org/a?b=1", "v2.14.0"]


def compiler(store: cc.Store) -> cc.MessageCompiler:
    """Return a compiler that keeps nothing besides the summary: what left is small enough to be kept whole."""
    provider = cc.provider("anthropic:claude-sonnet-4-5", window=6_000, output=500)
    return cc.MessageCompiler(store, provider, keep_index=0, keep_words=0)


def work(store: cc.Store, facts: Sequence[str] = FACTS) -> cc.MessageCompiler:
    """Fill a conversation with facts in the agent's texts, then with talk that a compaction keeps."""
    store.append("demo", cc.user("Never push to the main branch."))
    for fact in facts:
        store.append("demo", cc.assistant(f"I looked at {fact} " + "text " * 150))
        store.append("demo", cc.user("go on " + "word " * 100))
    for number in range(12):
        store.append("demo", cc.assistant(f"answer {number} " + "text " * 60))
        store.append("demo", cc.user(f"question {number} " + "word " * 60))
    target = compiler(store)
    compiled = target.compile("demo")
    with target.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("fine"))
    return target


def receipt_of(target: cc.MessageCompiler) -> Receipt:
    receipt = target.compactions("demo")[0].receipt
    assert receipt is not None
    return receipt


def test_a_receipt_counts_what_the_next_request_still_has() -> None:
    """In the summary, in messages that stay, and in what the compiler keeps; anything else is named as lost."""
    going = [
        cc.user("Never push to main. Use tabs."),
        cc.assistant(
            [cc.Text("The bug is in src/a.py at 3.5 s."), cc.ToolCall(id="1", name="r", arguments={"p": "b.py"})]
        ),
        cc.tool_result("1", "r", "x1.log y2.log z3.log"),
    ]
    points = find_points_to_keep(going, "<context-summary>\n- order ORD-1\n</context-summary>", ["write the tests"])

    found = examine(points, ["It was src/a.py, ORD-1.", {"text": "user: Never push to main."}, "z3.log"])

    assert (found.facts, found.kept) == (6, 2)  # a todo, 3.5 s, src/a.py, 3.5, b.py, ORD-1
    assert (found.said, found.said_kept) == (2, 1)
    assert (found.results, found.results_kept) == (3, 1)
    assert found.lost[:3] == ("write the tests", "3.5 s", "3.5")
    assert {"Use tabs.", "x1.log", "y2.log"} <= {*found.lost}
    assert found.score == round(3 / 8, 3)


def test_the_facts_of_a_result_are_in_the_order_of_its_text() -> None:
    """Guarantee 7.11: which of them are listed as lost is the same in every process."""
    names = tuple([f"PRJ-{number}" for number in range(100, 200)])
    assert find_points_to_keep([cc.tool_result("1", "r", " ".join(names))], None, []).results == names


def test_a_receipt_names_no_credential_and_a_bounded_number_of_points() -> None:
    key = "sk-ant-REDACTED" + "a1B2" * 16
    going = [cc.user(f"My key is {key} for the test."), *[cc.assistant(f"file_{number}.py") for number in range(200)]]
    found = examine(find_points_to_keep(going, None, [f"rotate {key}"]), "nothing")
    assert key not in str(found)
    assert len(found.lost) == MAX_LISTED


def test_a_summary_that_lacks_facts_is_asked_for_once_more_with_their_names(store: cc.Store) -> None:
    """The better of the two is used, and its receipt is stored with it."""
    target = work(store)
    asked: list[str] = []

    def summarize(messages: Sequence[cc.Message], previous: str | None, instructions: str) -> str:
        asked.append(instructions)
        return f"- {', '.join(FACTS)}" if len(asked) == 2 else "- They worked."

    done = target.compact("demo", summarize, instructions="be short")

    assert len(asked) == 2
    assert all(fact in asked[1] for fact in FACTS)
    assert asked[1].startswith("be short")
    assert done is not None
    assert (done.fallback, FACTS[0] in done.text) == ("", True)
    assert done.receipt == receipt_of(target)
    assert receipt_of(target).lost_facts == 0


def test_what_is_still_missing_is_named_in_the_index(store: cc.Store) -> None:
    """First of all, although the index has no room for everything that left."""
    provider = cc.provider("anthropic:claude-sonnet-4-5", window=6_000, output=500)
    others = [f"note-{name * 2}{at}-{1000 + at}.txt" for at, name in enumerate("abcdefghijklmnopqrstuvwxyz")]
    work(store, [*FACTS, *others])
    target = cc.MessageCompiler(store, provider, keep_words=0, keep_index=0.02)
    lost = target.compact("demo", lambda messages, previous: "- They worked.", name="assistant")
    assert lost is not None
    store.append("demo", cc.user("and now?"))
    compiled = target.compile("demo")
    index = next(line.text for line in compiled.manifest.lines if line.text.startswith("<history-index>"))
    missing = store.read(lambda tx: load_latest_summary(tx, "assistant", load_tip(tx, "demo"), len))
    assert missing is not None
    assert missing.missing
    assert lost.receipt is not None
    assert lost.receipt.lost_facts < len(missing.missing), "the receipt counts what the index names"
    assert sum([fact in index for fact in missing.missing]) > 3


def test_what_the_next_summary_drops_is_named_in_the_index_with_its_message(store: cc.Store) -> None:
    """Its message left long ago, and only the summary before had it."""
    work(store)
    target = cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5", window=6_000, output=500))
    for known in (FACTS, FACTS[:-1]):
        for number in range(12):
            store.append("demo", cc.assistant(f"answer {number} " + "text " * 60))
            store.append("demo", cc.user(f"question {number} " + "word " * 60))
        summary = f"They worked {'on this ' * 30}: {', '.join(known)}"  # more than a digest keeps of it
        assert target.compact("demo", lambda messages, previous, summary=summary: summary) is not None
        compiled = target.compile("demo")
        with target.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("fine"))
    assert receipt_of(target).lost_facts == 0
    seq = next(message.seq for message in store.load("demo") if FACTS[-1] in message.text)
    index = next(line.text for line in compiled.manifest.lines if line.text.startswith("<history-index>"))
    assert f"r{seq}: {FACTS[-1]}" in index


def test_a_function_without_instructions_is_called_once(store: cc.Store) -> None:
    target = work(store)
    calls: list[int] = []

    def summarize(messages: Sequence[cc.Message], previous: str | None) -> str:
        calls.append(len(messages))
        return "- They worked."

    done = target.compact("demo", summarize)
    assert done is not None
    assert len(calls) == 1


def test_a_summary_that_loses_more_than_a_digest_is_not_used(store: cc.Store) -> None:
    """The digest has the last answer, so an empty phrase would lose what is in it."""
    target = compiler(store)
    for number in range(30):
        store.append("demo", cc.user(f"What about ORD-{number}00? " + "word " * 30))
        store.append("demo", cc.assistant("fine " + "text " * 30))
    done = target.compact("demo", lambda messages, previous: "They talked.")
    assert done is not None
    assert done.fallback == "the summary lost more than a digest does"


def test_a_receipt_is_in_the_manifest_and_a_lossy_compaction_is_a_finding(store: cc.Store) -> None:
    """`explain` and the inspector describe the summary's line, and the finding names what was lost."""
    target = work(store)
    at = store.read(lambda tx: load_tip(tx, "demo"))
    lost = Receipt(facts=10, kept=2, lost=("src/pay/api.py", "ORD-5512"))
    stored = StoredSummary(text="<context-summary>short</context-summary>", time=1, receipt=lost)
    store.write(lambda tx: save_summary(tx, at, "assistant", make_place(at.branch, 9), stored, 0))
    store.append("demo", cc.user("and now?"))
    compiled = target.compile("demo")
    with target.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("fine"))

    line = next(line for line in target.explain("demo").lines if line.kind == "summary")
    requests = (load_request_details(store, compiled.channel), preview_request_details(store, target.compile("demo")))
    inspected = [each for request in requests for each in page_lines(request).lines if each.kind == "summary"]
    found = list(lossy_compactions(load_conversation_view(store, "demo")))

    assert line.why == "keeps 2 of 10 facts; lost: src/pay/api.py, ORD-5512"
    assert [each.why for each in inspected] == [line.why, line.why]
    assert [each.code for each in found] == ["CMP001"]
    assert "keeps 2 of 10 facts" in found[0].title
    assert [each.after for each in found[0].evidence] == ["src/pay/api.py", "ORD-5512"]


def test_redaction_removes_a_receipt(store: cc.Store) -> None:
    """Guarantee 3.6: what a summary lost is quoted from messages."""
    target = work(store, [*FACTS, "secret_plan_77"])
    assert target.compact("demo", lambda messages, previous: "- They worked.") is not None
    assert (
        "secret_plan_77" in str(store.read(lambda tx: tx.rows("SELECT body FROM main.overlay")))
        or not receipt_of(target).lost_facts
    )
    seq = next(message.seq for message in store.load("demo") if "secret_plan_77" in message.text)

    store.redact("demo", seq)

    assert store.read(lambda tx: tx.rows("SELECT body FROM main.overlay")) == []
    assert target.compactions("demo") == []


@pytest.mark.thorough
def test_a_receipt_takes_little_time() -> None:
    """In proportion to the text, and far below the time of a model call."""
    text = "the value of customer_id in src/pay/api.py was wrong because of ORD-5512 after 30 ms and then " * 40
    going = [cc.tool_result(str(number), "read", f"{text} line_{number}.py") for number in range(200)]
    begin = time.process_time()
    examine(find_points_to_keep(going, None, []), [text])
    assert time.process_time() - begin < 2
