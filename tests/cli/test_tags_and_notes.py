"""`contextc tag`, `contextc note`, and `contextc list --tag`."""

import json
from pathlib import Path

import contextc as cc
from tests.cli.conftest import Run
from tests.web.sample_conversations import SONNET, Life, provider_of


def test_tags_and_notes_at_the_command_line(run: Run, tmp_path: Path) -> None:
    """Guarantee 2.9."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        for name in ("one", "two"):
            store.append(name, cc.user("Hello."))
    at = ("--store", address)
    assert run("tag", "one", "bug", "later", *at).stdout == "bug\nlater\n"
    assert run("tag", "one", "later", "--remove", *at).stdout == "bug\n"
    assert run("tag", *at).stdout == "bug\n"
    listed = run("list", "--tag", "bug", *at).stdout
    assert ("one" in listed, "two" in listed) == (True, False)
    assert [each.get("tags") for each in json.loads(run("list", "--json", *at).stdout)] == [["bug"], None]
    assert "look" in run("note", "one", "look\x1b[31m at this", "--about", "ab12/3", *at).stdout
    shown = run("note", "one", *at).stdout
    assert ("about request ab12/3" in shown, "\x1b" in shown) == (True, False)
    (note,) = json.loads(run("note", "one", "--json", *at).stdout)
    assert run("note", "one", "--remove", str(note["number"]), *at).stdout == ""
    assert run("note", "missing", "text", *at).returncode == 2


def test_a_note_names_its_request_by_its_number(run: Run, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/chat.db"
    at = ("--store", address)
    with cc.open_store(address) as store:
        first = Life(store, provider_of(), name="one")
        first.turn("Hello.", usage=cc.Usage(input=400, output=2))
    assert f"about request {first.channel}/1" in run("note", "one", "look", "--request", "1", *at).stdout
    assert "has no request 7" in run("note", "one", "look", "--request", "7", *at).stderr
    with cc.open_store(address) as store:
        second = Life(store, provider_of(SONNET), name="one")
        second.turn("And you?", usage=cc.Usage(input=400, output=2))
    refused = run("note", "one", "look", "--request", "1", *at).stderr
    assert first.channel in refused
    assert second.channel in refused
    noted = run("note", "one", "look", "--request", f"{second.channel}/1", *at).stdout
    assert f"about request {second.channel}/1" in noted
