"""The list of conversations, and search by content. Every test runs on every store."""

from pathlib import Path
from typing import cast

import pytest

import contextc as cc
from contextc.errors import ConversationExists, InvalidInput, UnknownConversation
from contextc.interchange import export_lines, import_lines
from contextc.store import conversation_list
from contextc.store.branches import count_branches, list_conversations
from contextc.store.conversation_list import (
    LIST_ORDER,
    SELECT_CONVERSATIONS,
    ConversationPage,
    SearchHit,
    load_page,
    search_conversations,
    search_messages,
)
from contextc.store.message_log import LAST_ACTIVE
from contextc.store.transaction_engine import Row, Transaction


def names(store: cc.Store, search: str = "") -> list[str]:
    return [each.name for each in store.overviews(search=search).found]


def at(text: str, time: int, role: str = "user") -> cc.Message:
    return cc.user(text, time=time) if role == "user" else cc.assistant(text, time=time)


def test_the_one_that_was_last_used_comes_first(store: cc.Store) -> None:
    """Guarantee 3.1: a page of a list, in the order people look for."""
    for name, time in (("old", 1_000), ("new", 3_000), ("middle", 2_000)):
        store.append(name, at("hello", time))
    assert names(store) == ["new", "middle", "old"]
    store.append("old", at("again", 4_000))
    assert names(store) == ["old", "new", "middle"]


def test_pages_have_no_gaps_even_with_equal_times(store: cc.Store) -> None:
    for number in range(7):
        store.append(f"c{number}", at("same moment", 5_000))
    seen: list[str] = []
    before = ""
    for _ in range(10):
        page = store.overviews(before=before, limit=3)
        seen += [each.name for each in page.found]
        if not (before := page.next):
            break
    assert seen == [f"c{number}" for number in reversed(range(7))]


def test_an_overview_reports_what_a_list_shows(store: cc.Store) -> None:
    store.append("demo", cc.system("Be short.", time=1))
    store.append("demo", at("What is\n\n  a monad? " + "x" * 200, 2))
    store.append("demo", at("A monoid.", 3, "assistant"))
    store.edit("demo", 2, cc.user("What is a functor?", time=4))
    found = store.overview("demo")
    assert (found.title, found.length, found.branches) == ("What is a functor?", 2, 2)
    assert found.spoken == store.load("demo")[-1].time
    assert (found.running, found.model, found.excerpt) == (False, "", "")
    store.switch("demo", store.branches("demo")[0].number)
    before = store.overview("demo")
    assert before.title == ("What is a monad? " + "x" * 200)[:80]
    assert (before.length, before.spoken) == (3, 3)


def test_a_title_leaves_out_the_context_of_the_client(store: cc.Store) -> None:
    context = "<system-reminder>\n# Environment\n</system-reminder>\n"
    blocks = cc.Message(
        role="user", parts=(cc.Text(context), cc.Text(context), cc.Text("Fix the test."), cc.Text(context))
    )
    store.append("claude", blocks)
    store.append("codex", cc.user("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\na\n</INSTRUCTIONS>"))
    store.append("codex", cc.user("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"))
    store.append("codex", cc.user("Add a flag."))
    store.append("only", cc.user(context))
    store.append("open", cc.user("<system-reminder> is a tag"))
    found = {each.name: each.title for each in store.overviews().found}
    assert (found["claude"], found["codex"]) == ("Fix the test.", "Add a flag.")
    assert found["only"] == "<system-reminder> # Environment </system-reminder>"
    assert found["open"] == "<system-reminder> is a tag"
    assert store.load("claude")[0].text == context * 2 + "Fix the test." + context, "the content is unchanged"


def test_the_summary_of_a_compaction_is_no_title(store: cc.Store) -> None:
    summary = "This session is being continued from a previous conversation that ran out of context. We fixed a bug."
    for message in (cc.user(summary), cc.assistant("Understood."), cc.user("Now write a test.")):
        store.append("compacted", message)
    (found,) = store.overviews().found
    assert found.title == "Now write a test."


def test_a_fork_has_the_title_of_what_it_shares(store: cc.Store) -> None:
    store.extend("demo", [at("first", 10), at("answer", 20, "assistant"), at("second", 30)])
    store.fork("demo", "one", at=2)
    store.fork("one", "two", at=1)
    found = {each.name: each for each in store.overviews().found}
    assert [found[name].title for name in ("demo", "one", "two")] == ["first"] * 3
    assert [(found[name].length, found[name].spoken) for name in ("demo", "one", "two")] == [(3, 30), (2, 20), (1, 10)]
    assert names(store)[:2] == ["two", "one"], "what was made last is what somebody wants to go on with"


def test_a_conversation_may_begin_with_nothing_reported(store: cc.Store) -> None:
    made = store.begin("fresh")
    assert (made.name, made.length) == ("fresh", 0)
    found = store.overview("fresh")
    assert (found.title, found.length, found.branches, found.spoken) == ("", 0, 1, 0)
    with pytest.raises(ConversationExists):
        store.begin("fresh")
    assert store.append("fresh", cc.user("hi")).seq == 1


def test_a_turn_that_holds_the_conversation_is_running(store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    with store.lease("demo"):
        assert store.overview("demo").running
    assert not store.overview("demo").running


def test_unknown_conversations_and_invalid_pages_are_refused(store: cc.Store) -> None:
    with pytest.raises(UnknownConversation):
        store.overview("nobody")
    for limit in (0, 501):
        with pytest.raises(InvalidInput):
            store.overviews(limit=limit)
    for before in ("yesterday", "1-2-3-4-5"):
        with pytest.raises(InvalidInput):
            store.overviews(before=before)
    assert store.overviews() == ([], "")


def test_search_ignores_case_and_shows_the_match(store: cc.Store) -> None:
    store.append("a", at("Wir treffen uns an der Straße.", 1))
    store.append("b", at('He said "yes" and left:\nC:\\temp', 2))
    store.append("Straßenfest", at("nothing of that kind", 3))
    store.append("c", cc.assistant(cc.ToolCall(id="straße", name="straße", arguments={"straße": 1}), time=4))
    found = store.overviews(search="STRASSE").found
    assert [(each.name, each.excerpt) for each in found] == [
        ("Straßenfest", ""),
        ("c", 'calls straße({"straße":1})'),
        ("a", "Wir treffen uns an der Straße."),
    ]
    assert names(store, search='said "YES"') == names(store, search="left: c:\\TEMP") == ["b"]
    assert names(store, search="absent") == []


def test_names_come_first_and_none_is_reported_twice(store: cc.Store) -> None:
    for number in range(6):
        store.append(f"fox {number}" if number % 2 else f"other {number}", at("the fox", number + 1))
    seen: list[str] = []
    page = store.overviews(search="fox", limit=2)
    while True:
        seen += [each.name for each in page.found]
        if not page.next:
            break
        page = store.overviews(search="fox", limit=2, before=page.next)
    assert seen == ["fox 5", "fox 3", "fox 1", "other 4", "other 2", "other 0"]


def test_what_another_branch_reports_is_not_found(store: cc.Store) -> None:
    store.extend("demo", [at("needle", 1), at("hay", 2)])
    store.fork("demo", "fork")
    store.edit("demo", 1, cc.user("thread"))
    assert names(store, search="needle") == ["fork"]


def test_a_search_that_had_enough_continues_where_it_stopped(store: cc.Store) -> None:
    """However long the histories are: a page of a search reads some messages, and no more."""
    store.extend("long", [at("needle at the bottom", 1), *[at("hay", 2)] * 3_000])
    store.append("last", at("needle", 3))
    pages: list[ConversationPage] = []
    before = ""
    while not pages or before:
        pages.append(store.read(lambda tx, b=before: search_conversations(tx, "needle", before=b, work=1_000)))
        before = pages[-1].next
    seen = [(each.name, each.excerpt) for page in pages for each in page.found]
    assert seen == [("last", "needle"), ("long", "needle at the bottom")]
    assert len(pages) == 4


def test_hits_name_the_message_and_the_part_that_matches(store: cc.Store) -> None:
    """Calls and results are found by name, argument and content, also where JSON has quotes."""
    call = cc.ToolCall(id="1", name="read_file", arguments={"path": "src/needle.py", "lines": [1, 2]})
    store.extend(
        "demo",
        [
            at("Where is the needle?", 1),
            cc.assistant("I look.", tool_calls=[call], time=2),
            cc.tool_result("1", "read_file", "no such file: needle", time=3),
            cc.assistant("It is gone.", time=4),
        ],
    )
    store.append("needles", at("other", 5))
    page = store.read(lambda tx: search_messages(tx, "Needle"))
    assert [(each.conversation.name, [hit[1:] for hit in each.hits]) for each in page.found] == [
        ("needles", []),
        ("demo", [(3, "tool", "result", "read_file"), (2, "assistant", "call", "read_file"), (1, "user", "text", "")]),
    ]
    assert (page.messages, page.conversations, page.next) == (5, 2, "")

    def found(text: str) -> list[SearchHit]:
        page = store.read(lambda tx: search_messages(tx, text, max_hits=1))
        return [hit for each in page.found for hit in each.hits]

    assert [(hit.seq, hit.part) for hit in found('"path":"src/needle.py","lines"')] == [(2, "call")]
    assert [hit.seq for hit in found("read_file: no such")] == [3]
    assert [(hit.seq, hit.part) for hit in found('look. calls read_file({"path"')] == [(2, "")]
    assert [hit.seq for hit in found('"')] == [2]
    with pytest.raises(cc.errors.InvalidInput, match="max_hits"):
        store.read(lambda tx: search_messages(tx, "a", max_hits=0))


def test_a_search_for_all_hits_continues_within_a_conversation(store: cc.Store) -> None:
    store.extend("needle", [at(f"needle {number}" if number % 700 == 0 else "hay", 1) for number in range(2_101)])
    seqs: list[int] = []
    searched, before = 0, ""
    while True:
        page = store.read(lambda tx, b=before: search_messages(tx, "needle", before=b, work=600))
        seqs += [hit.seq for each in page.found for hit in each.hits]
        searched += page.messages
        if not (before := page.next):
            break
    assert seqs == [2_101, 1_401, 701, 1]
    assert searched == 2_101


def test_all_hits_are_counted_and_older_ones_can_be_asked_for(store: cc.Store) -> None:
    store.extend("demo", [at("needle" if number % 2 else "hay", 1) for number in range(1, 24)])
    store.append("other", at("one needle", 2))

    def search(before: str = "", limit: int = 20) -> list[tuple[str, list[int], int, str]]:
        page = store.read(lambda tx: search_messages(tx, "needle", before=before, limit=limit))
        return [(each.conversation.name, [hit.seq for hit in each.hits], each.total, each.more) for each in page.found]

    other, (name, seqs, count, more) = search()
    assert other == ("other", [1], 1, "")
    assert (name, seqs, count) == ("demo", [23, 21, 19, 17, 15], 12)
    ((name, seqs, count, more),) = search(more, 1)
    assert (name, seqs, count) == ("demo", [13, 11, 9, 7, 5], 7)
    ((name, seqs, count, more),) = search(more, 1)
    assert (name, seqs, count, more) == ("demo", [3, 1], 2, "")


def test_a_page_needs_a_constant_number_of_queries(store: cc.Store) -> None:
    for number in range(60):
        store.extend(f"c{number}", [at(f"question {number}", number + 1), at("answer", number + 1, "assistant")])

    def asked(limit: int) -> int:
        count: list[str] = []

        class Counting:
            def __init__(self, tx: Transaction) -> None:
                self.dialect, self.again, self.tx = tx.dialect, tx.is_retry, tx

            def rows(self, sql: str, *values: object) -> list[Row]:
                count.append(sql)
                return self.tx.rows(sql, *values)

        found = store.read(lambda tx: load_page(cast(Transaction, Counting(tx)), limit=limit))
        assert len(found.found) == limit
        return len(count)

    assert asked(2) == asked(60) <= 8


def test_an_excerpt_shows_the_text_where_letters_grow_when_case_is_ignored(store: cc.Store) -> None:
    """Upper and lower case are compared in a form that is longer than the text: ß is ss there, ﬃ is ffi."""
    store.append("demo", at("ß" * 300 + " the NEEDLE is here " + "ﬃ" * 300, 1_000))
    [found] = store.overviews(search="needle").found
    assert "the NEEDLE is here" in found.excerpt
    assert found.excerpt.startswith("…ß")
    assert found.excerpt.endswith("ﬃ…")
    store.append("short", at("Straße", 2_000))
    assert [each.excerpt for each in store.overviews(search="strasse").found] == ["Straße"]


def test_the_order_follows_whatever_is_reported_last_on_the_current_branch(store: cc.Store) -> None:
    """The order is stored, so everything that moves a conversation has to keep it."""
    store.append("a", at("one", 1_000))
    store.append("b", at("two", 2_000))
    assert names(store) == ["b", "a"]
    store.append("a", at("three", 3_000))  # another second
    store.append("a", at("four", 3_500))  # the same second
    assert names(store) == ["a", "b"]
    store.append("b", at("five", 5_000))
    store.rewind("b", 0)
    store.append("b", at("older", 2_000))
    assert names(store) == ["a", "b"], "what was said on a branch that was left does not count"
    store.switch("b", store.branches("b")[0].number)
    assert names(store) == ["b", "a"]
    store.edit("b", 1, cc.user("now"))
    assert names(store) == ["b", "a"]
    lines = list(export_lines(store, "a"))
    store.delete("a")
    import_lines(store, lines)
    assert names(store) == ["b", "a"]
    assert store.read(lambda tx: tx.rows(f"SELECT count(*) FROM main.conversation WHERE spoken <> {LAST_ACTIVE}")) == [
        (0,)
    ]


def test_a_page_is_read_along_an_index_and_nothing_is_sorted(tmp_path: Path) -> None:
    """Sorting all conversations for each page makes a page slower with every conversation."""
    with cc.open_store(tmp_path / "store.db") as store:
        for before in ("", "where (c.spoken, c.number) < (1, 1)"):
            plan = store.read(
                lambda tx, before=before: tx.rows(
                    f"EXPLAIN QUERY PLAN {SELECT_CONVERSATIONS} {before} {LIST_ORDER} LIMIT 50"
                )
            )
            steps = " / ".join(str(step[3]) for step in plan)
            assert "conversation_spoken" in steps
            assert "TEMP B-TREE" not in steps
        sql = "EXPLAIN QUERY PLAN SELECT number FROM main.branch WHERE conversation = 'a'"
        assert "branch_conversation" in str(store.read(lambda tx: tx.rows(sql)))


def test_all_conversations_are_described_in_one_query(store: cc.Store) -> None:
    """Four queries for each took seconds where there are many."""
    store.extend("a", [at("one", 1_000), at("two", 2_000)])
    store.reset("a")
    store.fork("a", "b", at=1)
    store.edit("a", 1, cc.user("else"))
    store.begin("c")
    asked: list[str] = []

    class Asked:
        def __init__(self, tx: Transaction) -> None:
            self.dialect, self.again, self.tx = tx.dialect, tx.is_retry, tx

        def rows(self, sql: str, *values: object) -> list[Row]:
            asked.append(sql)
            return self.tx.rows(sql, *values)

    found = store.read(lambda tx: list_conversations(cast(Transaction, Asked(tx))))
    assert found == [store.conversation(name) for name in ("a", "b", "c")]
    assert len(asked) == 1
    assert store.read(count_branches) == {name: len(store.branches(name)) for name in ("a", "b", "c")}


def test_a_conversation_is_renamed_and_named_after_its_first_message_again(store: cc.Store) -> None:
    """The name, which is its address, stays; a search finds the title that was given."""
    store.append("demo", at("What is a monad?", 1_000))
    store.append("other", at("Something else", 2_000))
    assert store.set_title("demo", "  Burritos\n explained ").title == "Burritos explained"
    assert store.overview("demo").title == "Burritos explained"
    assert [each.name for each in store.overviews(search="burrito").found] == ["demo"]
    assert [(each.name, each.title) for each in store.overviews().found][1] == ("demo", "Burritos explained")
    assert store.set_title("demo", "").title == "What is a monad?"
    assert store.overviews(search="burrito").found == []
    with pytest.raises(InvalidInput, match="at most 200 characters"):
        store.set_title("demo", "x" * 201)
    with pytest.raises(UnknownConversation):
        store.set_title("nobody", "x")


NAMES = ("Straße 9", "STRASSE nine", "größer", "Привет мир", "天气 today", "plain old name", "o\u2126m", "ﬁle", "x")
TITLES = {"x": "Ein Über-Titel", "ﬁle": "temperature 20\u212a"}


def test_names_are_found_among_many(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are not compared one by one are found by an index, where there is one, by the same rules."""
    monkeypatch.setattr(conversation_list, "RECENT_NAMES", 2)
    for name in NAMES:
        store.begin(name)
    for name, title in TITLES.items():
        store.set_title(name, title)
    for number in range(4):
        store.begin(f"newer {number}")
    parts = {each[start:][:size] for each in (*NAMES, *TITLES.values()) for size in (2, 3, 5) for start in range(9)}
    for wanted in [*sorted({part.strip() for part in parts} - {""}), "strasse", "FILE", "20K", "nothing"]:
        folded = " ".join(wanted.split()).casefold()
        expected = {each for each in NAMES if folded in each.casefold() or folded in TITLES.get(each, "").casefold()}
        expected |= {f"newer {number}" for number in range(4) if folded in f"newer {number}"}
        assert {each.name for each in store.overviews(search=wanted).found} == expected, wanted
    store.set_title("x", "")
    store.delete("plain old name")
    assert store.overviews(search="über-titel").found == []
    assert store.overviews(search="plain old").found == []
