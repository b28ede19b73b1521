"""`contextc delete` and `contextc redact`: preview, confirmation, and removal of content from the store."""

import json
import os
import pty
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import contextc as cc
from tests.cli.chat_terminal import home
from tests.cli.conftest import Run
from tests.forked_commands import CommandProcess

DELETE = ("delete", "demo")
REDACT = ("redact", "demo", "2")


@pytest.fixture
def filled(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.extend("demo", [cc.user("hi"), cc.assistant("the secret\nin full"), cc.user("bye")])
    return address


def state(address: str) -> list[str]:
    """The texts of the conversation; nothing where it is gone."""
    with cc.open_store(address) as store:
        return [each.text for one in store.conversations() for each in store.load(one.name)]


WHOLE = ["hi", "the secret\nin full", "bye"]


def test_a_conversation_is_deleted(run: Run, filled: str) -> None:
    done = run(*DELETE, "--yes", "--store", filled)
    assert (done.returncode, done.stdout, done.stderr) == (0, "deleted demo: 3 messages\n", "")
    assert state(filled) == []
    assert "Conversation 'demo' not found" in run(*DELETE, "--yes", "--store", filled).stderr


def test_the_branches_that_go_are_counted(run: Run, filled: str) -> None:
    with cc.open_store(filled) as store:
        store.rewind("demo", 1)
    done = run(*DELETE, "--yes", "--json", "--store", filled)
    assert json.loads(done.stdout) == {"conversation": "demo", "messages": 1, "pending_erasure": 0}
    with cc.open_store(filled) as store:
        store.extend("demo", [cc.user("a"), cc.user("b")])
        store.rewind("demo", 1)
    assert run(*DELETE, "--yes", "--store", filled).stdout == "deleted demo: 1 message, 2 branches\n"


@pytest.mark.parametrize("by", ["seq", "uid", "id"])
def test_one_message_is_redacted(run: Run, filled: str, by: str) -> None:
    with cc.open_store(filled) as store:
        message = store.load("demo")[1]
    done = run("redact", "demo", str(getattr(message, by)), "--yes", "--store", filled)
    assert done.stdout == "redacted message 2 of demo\n"
    assert (done.returncode, done.stderr) == (0, "")
    with cc.open_store(filled) as store:
        assert [each.redacted for each in store.load("demo")] == [False, True, False]
        assert store.load("demo")[1].id == message.id


def test_a_message_on_a_branch_that_was_left_is_redacted(run: Run, filled: str) -> None:
    with cc.open_store(filled) as store:
        message = store.load("demo")[1]
        store.rewind("demo", 1)
    done = run("redact", "demo", message.uid, "--yes", "--json", "--store", filled)
    assert json.loads(done.stdout) == {
        "conversation": "demo",
        "message": 2,
        "uid": message.uid,
        "role": "assistant",
        "pending_erasure": 0,
    }


def test_a_text_is_redacted_wherever_it_is(run: Run, filled: str) -> None:
    with cc.open_store(filled) as store:
        store.set_title("demo", "about the secret")
    assert "no terminal" in run("redact", "demo", "--text", "the secret", "--store", filled).stderr
    done = run("redact", "demo", "--text", "-", "--yes", "--store", filled, text="the secret\n")
    assert done.stdout == "redacted 1 message of demo and removed the text elsewhere\n"
    with cc.open_store(filled) as store:
        assert ([each.redacted for each in store.load("demo")], store.overview("demo").title) == (
            [False, True, False],
            "about ",
        )
    again = run("redact", "demo", "--text", "the secret", "--yes", "--json", "--store", filled)
    assert json.loads(again.stdout) == {"conversation": "demo", "uids": [], "pending_erasure": 0}
    assert "Pass one of them" in run("redact", "demo", "--yes", "--store", filled).stderr


@pytest.mark.parametrize("number", ["0", "4", "nobody"])
def test_a_message_that_is_not_there_is_named_before_anything_is_asked(run: Run, filled: str, number: str) -> None:
    refused = run("redact", "demo", number, "--store", filled)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, False)
    assert state(filled) == WHOLE


@pytest.mark.parametrize("command", [DELETE, REDACT])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_without_a_terminal_nothing_goes_unless_yes_is_given(
    run: Run, filled: str, command: tuple[str, ...], more: tuple[str, ...]
) -> None:
    refused = run(*command, *more, "--store", filled)
    assert (refused.returncode, refused.stdout) == (2, "")
    shown = "Delete demo (3 messages)" if command is DELETE else "Redact message 2 of demo"  # an error may be logged
    assert refused.stderr == f"error: {shown}: no terminal to confirm it at. Add --yes.\n"
    assert state(filled) == WHOLE


@pytest.mark.parametrize(("answer", "left"), [("y\n", ["hi", "", "bye"]), ("n\n", WHOLE)])
def test_a_terminal_shows_what_is_deleted_and_asks(filled: str, tmp_path: Path, answer: str, left: list[str]) -> None:
    ours, theirs = pty.openpty()
    with CommandProcess(
        *[*REDACT, "--store", filled],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=home(tmp_path, COLUMNS="200", NO_COLOR="1"),
    ) as process:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 1 << 16)
        os.write(ours, answer.encode())
        process.wait()
    os.close(ours)
    assert "Redact message 2 of demo (assistant: the secret…)?" in shown.decode()
    assert (process.returncode, state(filled)) == (0, left)


@pytest.mark.parametrize("command", [DELETE, REDACT])
def test_content_that_a_reader_keeps_in_the_log_is_reported_as_pending(
    run: Run, filled: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """A success that is reported while the content can still be read is a false one."""
    with closing(sqlite3.connect(tmp_path / "chat.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchall()
        done = run(*command, "--yes", "--store", filled)
        assert (done.returncode, "pending: the content is still in the store's files" in done.stderr) == (0, True)
