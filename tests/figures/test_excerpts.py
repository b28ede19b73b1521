"""Excerpts of texts neither begin nor end inside a word: evidence of findings, search hits, lines around a search."""

import random
from functools import partial

import contextc as cc
from contextc.analysis.changed_content import recognise
from contextc.analysis.finding import shorten
from contextc.messages import MAX_WORD, extend_to_words
from contextc.store.conversation_list import search_messages
from contextc.web.request_view import LineTextOptions
from tests.analysis.observed_run import ObservedRun, define_tool, find_by_request, words

TEXT = " ".join([f"word{number}" + "s" * (number % 17) for number in range(400)])
WHOLE = {*TEXT.split()}


def broken_words(excerpt: str) -> list[str]:
    return [each for each in excerpt.replace("…", " ").split() if each not in WHOLE]


def test_pieces_of_a_text_have_whole_words() -> None:
    source = random.Random(5)
    for _ in range(300):
        first = source.randrange(len(TEXT))
        start, end = extend_to_words(TEXT, first, first + source.randrange(300))
        assert broken_words(TEXT[start:end]) == []
    assert extend_to_words("x" * 500, 100, 200) == (100, 200), "a word without an end, such as base64, may be cut"
    assert [extend_to_words("", 0, 9), extend_to_words("one", 1, 2), extend_to_words("a b", 1, 2)] == [
        (0, 0),
        (0, 3),
        (1, 2),
    ]


def test_texts_of_findings_are_cut_between_words() -> None:
    for width in range(20, 200):
        cut = shorten(TEXT, width)
        assert width - MAX_WORD <= len(cut) <= width
        assert broken_words(cut) == []
    assert shorten("x" * 500, 100) == "x" * 99 + "…"


def test_changed_words_are_shown_with_whole_ones_around_them() -> None:
    found = recognise(f"{TEXT} at 10:32 {TEXT}", f"{TEXT} at 10:33 {TEXT}")
    assert broken_words(found.before) == ["at", "10:32"]
    assert broken_words(found.after) == ["at", "10:33"]


def test_hits_of_a_search_have_whole_words() -> None:
    with cc.open_store("memory:") as store:
        store.append("c", cc.user(TEXT))
        for wanted in ("word2", "ord111", "word399"):
            page = store.read(partial(search_messages, text=wanted, before="", limit=5, max_hits=5))
            ((hit,),) = [each.hits for each in page.found]
            assert wanted in hit.excerpt
            assert broken_words(hit.excerpt) == []
    for wanted in ("word7s", "ord200", "word399"):
        assert broken_words(LineTextOptions(width=150, search=wanted).shorten(TEXT)) == []


def test_evidence_of_a_conversation_has_whole_words() -> None:
    run = ObservedRun(tools=[define_tool("read")])
    run.ask("Read.")
    run.call("read", TEXT * 20, path="a.log")
    for _ in range(3):
        run.send()
        run.ask(words(50, "q"))
    (found,) = [each for each in find_by_request(run.store, "run") if each.code == "WIN002"]
    assert broken_words(found.evidence[0].after) == []
