"""The doctor reports every problem of a store, and nothing else."""

import pytest

import contextc as cc
from contextc.doctor import Finding, scan_store


def codes(store: cc.Store) -> list[tuple[str, str]]:
    return [(finding.kind, finding.code) for finding in scan_store(store)]


def test_a_sound_store_has_no_findings(store: cc.Store) -> None:
    store.extend("demo", [cc.user("a"), cc.user("b"), cc.user(cc.Media(mime_type="image/png", data=b"x"))])
    store.fork("demo", "other", at=1)
    store.edit("demo", 2, cc.user("B"))
    store.redact("demo", 1)
    assert codes(store) == []


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("UPDATE main.message SET body = replace(body, 'm5', 'M5') WHERE place % 4294967296 = 5", "broken-link"),
        ("UPDATE main.message SET id = x'00' WHERE place % 4294967296 = 5", "broken-link"),
        ("DELETE FROM main.message WHERE place % 4294967296 = 5", "gap"),
        ("UPDATE main.message SET body = x'7b' WHERE place % 4294967296 = 5", "unreadable"),
        ("UPDATE main.branch SET base_id = x'00' WHERE parent IS NOT NULL", "lost-base"),
        ("DELETE FROM main.blob", "missing-blob"),
        ("UPDATE main.blob SET data = x'00'", "changed-blob"),
    ],
)
def test_every_kind_of_damage_is_found(damage: str, code: str) -> None:
    """A store whose rows were changed behind its back: the doctor must see it, or it is worth nothing."""
    with cc.open_store("memory:") as store:
        store.extend("demo", [cc.user(f"m{number}") for number in range(1, 10)])
        store.append("demo", cc.user(cc.Media(mime_type="image/png", data=b"x")))
        store.fork("demo", "fork", at=3)
        store.write(lambda tx: tx.run(damage))
        findings = list(scan_store(store))
        assert {finding.code for finding in findings} == {code}
        assert len(findings) <= 2, "one fault is not reported all the way down the chain"
        assert all(finding.kind == "fault" for finding in findings)
        assert all(finding.would.startswith("would start a branch after message ") for finding in findings)
        if code == "unreadable":
            with pytest.raises(
                cc.errors.StoreCorrupt, match=r"Message 5 on branch 1 of .demo. cannot be read: .* `contextc doctor`"
            ):
                store.load("demo")


def test_open_calls_are_noted_unless_their_turn_is_running(store: cc.Store) -> None:
    calls = [cc.ToolCall(id=name, name="f", arguments={}) for name in ("answered", "open")]
    store.extend("demo", [cc.user("hi"), cc.assistant(tool_calls=calls), cc.tool_result("answered", "f", "ok")])
    (finding,) = scan_store(store)
    assert finding == Finding(
        kind="note",
        code="open-call",
        conversation="demo",
        where="message 2",
        text="Call 'open' of 'f' has no result.",
        why="Every request gets a placeholder result for it.",
        would="would append an error result for call 'open' of 'f'",
        healing="append",
        branches=(store.conversation("demo").branch,),
    )
    with store.lease("demo"):
        assert codes(store) == []


def test_progress_counts_every_message(store: cc.Store) -> None:
    store.extend("demo", [cc.user(str(number)) for number in range(1_500)])
    seen: list[tuple[int, int]] = []
    list(scan_store(store, lambda done, total: seen.append((done, total))))
    assert seen == [(1_000, 1_500), (1_500, 1_500)]
