"""The doctor: observed requests can be rebuilt, and contain no credential in a field like a header."""

import pytest

import contextc as cc
from contextc.doctor import scan_store
from tests.executor.scripted_provider import Scripted, says
from tests.observation.test_continue_observed import run
from tests.observation.test_observe import answer, chat

KEY = "sk-" + "a1B2" * 8


def codes(store: cc.Store) -> list[tuple[str, str]]:
    return [(each.kind, each.code) for each in scan_store(store)]


def watch(store: cc.Store) -> None:
    for said in (("a",), ("a", "b", "c"), ("a", "b", "other"), ("c",)):
        cc.observe(store, request=chat(*said), reply=answer("b"), format="openai_chat", conversation="x")
    cc.observe(store, request=b"no json", format="openai_chat", conversation="x")


def test_sound_requests(store: cc.Store) -> None:
    watch(store)
    store.fork("x", "y")
    cc.observe(store, request=chat("c", "b", "d"), reply=answer("e"), format="openai_chat", conversation="y")
    run(store, Scripted(says("fine")))
    cc.observe(store, request=chat("c", "b", "d"), reply=answer("e"), format="openai_chat", conversation="x")
    assert codes(store) == []


def test_redacted_requests_are_sound(store: cc.Store) -> None:
    watch(store)
    store.redact("x", 1)
    assert [each for each in codes(store) if each[1] in ("changed-request", "stored-credential")] == []


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE main.head SET body = ?", b'{"model": "other"}'),
        ("UPDATE main.shown SET wire = ? WHERE place = (SELECT min(place) FROM main.shown)", b""),
        ("UPDATE main.shown SET wire = ?", b"\x01\xff\xff\xff"),
    ],
    ids=["head", "row", "wire"],
)
def test_changed_requests_are_a_fault(store: cc.Store, statement: str, value: bytes) -> None:
    watch(store)
    store.write(lambda tx: tx.run(statement, value))
    (found,) = [each for each in scan_store(store) if each.code == "changed-request"]
    assert (found.kind, found.conversation, found.healing) == ("fault", "x", "none")


def test_credentials_are_reported_without_their_value(store: cc.Store) -> None:
    for name, fields in (
        ("head", {"extra_headers": {"Authorization": f"Bearer {KEY}"}}),
        ("clean", {"extra_headers": {"Authorization": "[redacted:keys:0123456789abcdef]"}, "api_key": "$KEY"}),
        ("schema", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"api_key": {"type": "string", "description": KEY}}}}}]}),
    ):  # fmt: skip
        cc.observe(store, request=chat("a", **fields), format="openai_chat", conversation=name)
    cc.observe(
        store, request=chat("a", extra_headers={"x-api-key": KEY}), format="openai_chat", conversation="safe",
        redact="keys",
    )  # fmt: skip
    (found,) = list(scan_store(store))
    assert (found.kind, found.code, found.conversation) == ("note", "stored-credential", "head")
    assert "authorization" in found.text
    assert KEY not in str(found)
    assert list(scan_store(store, conversation="safe")) == []
