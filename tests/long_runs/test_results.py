"""The page of proofs is generated from its figures, and the figures meet the requested numbers."""

from collections import Counter
from pathlib import Path

import pytest

from tests.long_runs import proof, proof_names
from tests.long_runs.checkpoints import Kept
from tests.long_runs.results import PAGE, added, load, page
from tests.long_runs.runner import Failed, Piece, pieces, prove, work


def test_the_page_is_made_from_the_figures() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load())


@pytest.mark.parametrize("name", proof_names())
def test_what_was_tried_was_tried_as_often_as_it_has_to_be(name: str) -> None:
    of, figures = proof(name), load().get(name, {})
    assert set(figures) == set(of.subjects())
    assert [subject for subject, each in figures.items() if each.counts[of.COUNTED] < of.GOAL] == []


def test_a_proof_is_cut_into_pieces_that_are_all_of_it() -> None:
    cut = list(pieces("ledger", ["all providers"], 0.013))
    assert [piece.size for piece in cut] == [50, 50, 30]
    assert len({piece.seed for piece in cut}) == 3
    apart = list(pieces("turns", ["anthropic", "openai"], 0.2))
    assert [(piece.subjects, piece.seed) for piece in apart] == [
        (("anthropic",), 0),
        (("anthropic",), 1),
        (("openai",), 0),
        (("openai",), 1),
    ]


def test_a_piece_that_fails_explains_how_it_is_seen_again() -> None:
    failed = work(Piece("ledger", (), 0, 1))  # no subject to count for
    assert isinstance(failed, Failed)
    assert failed.piece == Piece("ledger", (), 0, 1)
    assert "IndexError" in failed.trace


@pytest.mark.parametrize("name", ["histories", "conversions", "ledger"])
def test_a_small_piece_counts_what_it_did(name: str) -> None:
    of = proof(name)
    subjects = of.subjects()[:2]
    counts = of.run(subjects, 1, 3)
    assert {subject: each[of.COUNTED] for subject, each in counts.items()} == dict.fromkeys(subjects, 3)


def test_a_run_that_was_broken_off_continues_where_it_was(tmp_path: Path) -> None:
    work_of = list(pieces("ledger", ["all providers"], 0.0101))
    assert [piece.size for piece in work_of] == [50, 50, 1]
    first = Kept("abc1234", tmp_path)
    for piece in work_of[:2]:
        first.keep(piece, {"all providers": Counter(runs=piece.size)})
    with (tmp_path / "abc1234.jsonl").open("ab") as file:
        file.write(b'[["ledger", ["all prov')  # killed while it wrote
    texts: list[tuple[int, int]] = []
    counts = prove(work_of, Kept("abc1234", tmp_path), lambda done, total: texts.append((done, total)))
    assert isinstance(counts, dict)
    assert (counts["all providers"]["runs"], texts) == (101, [(101, 101)])
    assert Kept("abc1234+", tmp_path).done == {}


def test_figures_of_one_subject_leave_the_others_alone() -> None:
    results = added({}, "turns", {"a": Counter(turns=1), "b": Counter(turns=1)}, day="x", commit="1")
    results = added(results, "turns", {"b": Counter(turns=2)}, day="x", commit="2")
    assert [(name, each.counts["turns"], each.commit) for name, each in results["turns"].items()] == [
        ("a", 1, "1"),
        ("b", 2, "2"),
    ]
