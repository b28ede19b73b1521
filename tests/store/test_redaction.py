"""Permanent removal of content. Every test runs on every store."""

from datetime import timedelta
from pathlib import Path

import pytest

import contextc as cc
from contextc.doctor import scan_store
from tests.store.stored_text import find_secrets

SECRET = "card 4242 4242 4242 4242"


def test_redacting_takes_the_content_and_leaves_id_and_place(store: cc.Store) -> None:
    """Guarantee 2.8."""
    before = store.extend(
        "demo",
        [cc.user("a"), cc.user(SECRET, meta={"note": SECRET}, extra={"x": {"y": SECRET}}, author="ann"), cc.user("c")],
    )
    redacted = store.redact("demo", 2)
    after = store.load("demo")
    assert [(message.id, message.uid, message.seq) for message in after] == [
        (message.id, message.uid, message.seq) for message in before
    ]
    assert (redacted.parts, redacted.meta, redacted.extra, redacted.author) == ((), None, None, "ann")
    assert redacted.redacted
    assert after[1] == redacted
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []


def test_redacting_is_seen_by_every_fork_and_bumps_their_revision(store: cc.Store) -> None:
    """Guarantee 2.8: what was compiled from the old content must not be used again."""
    store.extend("demo", [cc.user(SECRET), cc.user("b")])
    store.fork("demo", "other")
    store.redact("other", 1)
    assert store.load("demo")[0].redacted
    assert (store.conversation("demo").revision, store.conversation("other").revision) == (1, 1)


def test_a_message_on_a_branch_that_was_left_can_be_redacted(store: cc.Store) -> None:
    secret = store.extend("demo", [cc.user("a"), cc.user(SECRET)])[1]
    store.rewind("demo", 1)
    store.redact("demo", secret)
    assert store.load("demo", branch=store.branches("demo")[0].number)[1].redacted


def test_redacting_takes_media_that_are_not_used_elsewhere(store: cc.Store) -> None:
    """Guarantee 2.8: from blobs too."""
    shared = cc.Media(mime_type="image/png", data=b"shared")
    own = cc.Media(mime_type="image/png", data=b"own")
    first = store.append("demo", cc.user([shared, own]))
    store.append("other", cc.user(shared))
    names = [part.blob or "" for part in first.parts if isinstance(part, cc.Media)]
    store.redact("demo", 1)
    assert store.blob(names[0]) == b"shared"
    with pytest.raises(cc.errors.InvalidInput, match="no blob"):
        store.blob(names[1])


def test_the_root_holds_nothing_to_redact(store: cc.Store) -> None:
    store.append("demo", cc.user("a"))
    with pytest.raises(cc.errors.UnknownMessage, match="The root holds no content"):
        store.redact("demo", 0)


def test_copies_on_other_branches_go_with_a_message(store: cc.Store) -> None:
    """Guarantee 2.8: a client that edits its history sends all that follows again."""
    store.extend("demo", [cc.user("a"), cc.user(SECRET), cc.user(SECRET)])
    store.edit("demo", 1, cc.user("b"))
    store.extend("demo", [cc.user(SECRET), cc.user("other")])
    store.redact("demo", 2)
    first, second = [store.load("demo", branch=each.number) for each in store.branches("demo")]
    assert [each.redacted for each in first] == [False, True, True]
    assert [each.redacted for each in second] == [False, True, False]
    store.extend("same", [cc.user("yes"), cc.user("no"), cc.user("yes")])
    store.redact("same", 3)
    assert [each.redacted for each in store.load("same")] == [False, False, True], "an equal message is no copy"


def test_a_text_is_redacted_wherever_it_is_stored(store: cc.Store) -> None:
    """Guarantee 2.8: also as JSON in a string, with other spellings of its characters, and in a file."""
    text = 'pä"ss\nwörd'
    call = cc.tool_call("c1", "f", {"query": f"is {text} right"})
    media = cc.Media(mime_type="text/plain", data=f"a {text} b".encode())
    store.extend("demo", [cc.user("hi"), cc.assistant(tool_calls=[call]), cc.tool_result("c1", "f", {"found": text})])
    store.append("demo", cc.user(media))
    store.add_todo("demo", f"change {text.splitlines()[0]}")
    store.set_title("demo", 'pä"ss is a title')
    store.enqueue("demo", cc.user(text))
    assert [message.seq for message in store.redact_text("demo", text)] == [2, 3, 4]
    assert [message.redacted for message in store.load("demo")] == [False, True, True, True]
    assert [each.message.text for each in store.queued("demo")] == ["[removed]"]
    assert store.redact_text("demo", 'pä"ss') == []
    assert (store.overview("demo").title, store.todos("demo")[0].text) == (" is a title", "change [removed]")
    assert find_secrets(store, {"text": 'pä"ss'}) == {}


@pytest.mark.parametrize("by", ["text", "message"])
def test_a_secret_in_an_appended_tool_goes_with_its_text_and_with_a_message_that_it_quotes(
    store: cc.Store, by: str
) -> None:
    """Guarantee 2.8: a tool that is added in the middle of an epoch is stored in the ledger, not in a head."""
    model = cc.provider("anthropic:claude-opus-5-5", betas=["inline-tools-2026-09-15"])
    compiler, offered = cc.MessageCompiler(store, model), [cc.Tool(name="files", description="Reads files.")]
    for text, more in (
        ("Go on.", []),
        (SECRET, [cc.Tool(name="pay", description=f"Pays with {SECRET}.")]),
        ("And?", []),
    ):
        store.append("demo", cc.user(text))
        offered += more
        compiled = compiler.compile("demo", tools=offered)
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Done."))
    assert compiled.state.epoch == 1
    assert {"shown.items", "message.body"} <= find_secrets(store, {"card": SECRET})["card"]
    store.redact("demo", 1)
    assert "shown.items" in find_secrets(store, {"card": SECRET})["card"], "another message is no reason"
    if by == "text":
        assert [message.seq for message in store.redact_text("demo", SECRET)] == [3]
    else:
        store.redact("demo", 3)
    assert find_secrets(store, {"card": SECRET}) == {}
    store.append("demo", cc.user("Again."))
    after = compiler.compile("demo", tools=[offered[0], cc.Tool(name="pay", description="Pays.")])
    assert (after.record.why, [tool["name"] for tool in after.params["tools"]][:2]) == ("redacted", ["files", "pay"])
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []


def test_a_text_that_is_too_short_is_refused(store: cc.Store) -> None:
    """It would be in nearly everything."""
    store.append("demo", cc.user("abc"))
    with pytest.raises(cc.errors.InvalidInput, match="at least 4 characters"):
        store.redact_text("demo", "abc")


def test_nothing_of_it_is_left_in_the_files(tmp_path: Path) -> None:
    """Guarantee 2.8: not in free pages and not in the log either."""
    picture = b"\x89PNG" + SECRET.encode() * 2_000
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        for number in range(50):
            store.append("demo", cc.user(f"filler {number} " * 50))
        store.append("demo", cc.user([cc.Text(SECRET * 500), cc.Media(mime_type="image/png", data=picture)]))
        store.append("gone", cc.user(SECRET))
        store.append("demo", cc.user("last"))
        store.redact("demo", 51)
        store.delete("gone")
        for file in tmp_path.iterdir():
            assert SECRET.encode() not in file.read_bytes(), file.name


def test_messages_beyond_the_retention_age_are_redacted(store: cc.Store) -> None:
    """Guarantee 2.8: retention by age is a setting."""
    store.append("demo", cc.user("old", time=1_000))
    store.append("demo", cc.user("new"))
    assert store.expire(timedelta(days=1)) == 1
    assert store.expire(timedelta(days=1)) == 0
    assert [message.redacted for message in store.load("demo")] == [True, False]
    assert store.conversation("demo").revision == 1


def test_many_old_messages_of_a_conversation_are_redacted_at_once(store: cc.Store) -> None:
    """Guarantee 2.8. Ledgers and events of a conversation are read as a whole, so not once for every few messages."""
    for name in ("one", "two"):
        store.extend(name, [cc.user(f"old {number}", time=1_000) for number in range(510)])
    assert store.expire(timedelta(days=1)) == 1_020
    assert [store.conversation(name).revision for name in ("one", "two")] == [1, 1]
    assert all(message.redacted for name in ("one", "two") for message in store.load(name))


def test_retention_is_applied_when_a_store_is_opened(shared_address: str) -> None:
    with cc.open_store(shared_address) as store:
        store.extend("demo", [cc.user("old", time=1_000 + number) for number in range(1_200)])
    with cc.open_store(shared_address, retention=timedelta(days=30)) as store:
        assert all(message.redacted for message in store.load("demo"))
