"""Stored token counts: a message is counted only once."""

import contextc as cc
from contextc.messages import hash_content, user
from contextc.models.tokens import (
    Calibration,
    get_counter,
    load_calibrations,
    load_counts,
    save_calibration,
    save_counts,
)
from contextc.store.transaction_engine import Transaction


def test_counts_are_stored_by_content_and_tokenizer(store: cc.Store) -> None:
    """Guarantee 6.3: on every store, more at once than one statement takes."""
    counts = get_counter("claude")
    made = {hash_content(each): counts.count_message(each) for each in (user(f"message {n}") for n in range(1_200))}
    store.write(lambda tx: save_counts(tx, counts.tokenizer, made))
    hashes = list(made)
    assert store.read(lambda tx: load_counts(tx, counts.tokenizer, [*hashes, b"unknown"])) == made
    assert store.read(lambda tx: load_counts(tx, "another", hashes)) == {}
    assert store.read(lambda tx: load_counts(tx, counts.tokenizer, [])) == {}


def test_a_count_that_is_kept_stays(store: cc.Store) -> None:
    """Guarantee 6.3: two processes may count the same at once."""
    store.write(lambda tx: save_counts(tx, "t", {b"a": 5}))
    store.write(lambda tx: save_counts(tx, "t", {b"a": 6, b"b": 7}))
    assert store.read(lambda tx: load_counts(tx, "t", [b"a", b"b"])) == {b"a": 5, b"b": 7}


def test_a_calibration_is_kept_per_model_and_kind_of_request(store: cc.Store) -> None:
    """Guarantee 6.2"""
    assert store.read(lambda tx: load_calibrations(tx, "m")) == {}
    store.write(lambda tx: save_calibration(tx, "m", Calibration(1.25, 4)))
    store.write(lambda tx: save_calibration(tx, "m", Calibration(1.5, 5)))
    store.write(lambda tx: save_calibration(tx, "m+tools+schema", Calibration(0.75, 2)))
    store.write(lambda tx: save_calibration(tx, "m-mini", Calibration(1.75, 1)))
    expected = {"": Calibration(1.5, 5), "+tools+schema": Calibration(0.75, 2)}
    assert store.read(lambda tx: load_calibrations(tx, "m")) == expected
    assert store.read(lambda tx: load_calibrations(tx, "other")) == {}


def test_what_was_learned_about_a_model_makes_no_writer_wait(postgres_address: str) -> None:
    """Every conversation with the model writes this row; one process that is frozen there would stop all of them."""
    with cc.open_store(postgres_address) as store, cc.open_store(f"{postgres_address}&lock_timeout=0.2") as other:
        store.write(lambda tx: save_calibration(tx, "m", Calibration(1.25, 4)))

        def work(tx: Transaction) -> None:
            save_calibration(tx, "m", Calibration(1.5, 5))
            other.write(lambda tx: save_calibration(tx, "m", Calibration(1.75, 6)))

        store.write(work)
        assert other.read(lambda tx: load_calibrations(tx, "m")) == {"": Calibration(1.5, 5)}
