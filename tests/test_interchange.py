"""Export and import of conversations as JSON Lines, on every store."""

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.interchange import export_lines, import_lines
from contextc.messages import encode_message

GOLDEN = Path(__file__).parent / "data" / "golden"


@pytest.fixture
def target() -> Iterator[cc.Store]:
    with cc.open_store("memory:") as store:
        yield store


def rich_conversation(store: cc.Store) -> None:
    """Branches, an edge, keys, media, a redaction, a failed reply, and a past shared with another conversation."""
    store.extend("base", [cc.user("shared 1"), cc.user("shared 2"), cc.user("not shared")])
    store.fork("base", "demo", at=2)
    store.append("demo", cc.user([cc.Text("look"), cc.Media(mime_type="image/png", data=b"\x89PNG")]), key="k1")
    call = cc.ToolCall(id="c1", name="f", arguments='{"b": 1, "a"')  # pyright: ignore[reportArgumentType]
    store.append("demo", cc.assistant("a\0b", reasoning="?", tool_calls=[call], uid="m-1", usage=cc.Usage(input=9)))
    store.append("demo", cc.tool_result("c1", "f", [cc.Media(mime_type="image/png", data=b"\x89PNG")]))
    store.append("demo", cc.assistant("par", status="error", error="529"))
    store.reset("demo")
    store.append("demo", cc.user("secret"))
    store.redact("demo", 7)
    store.edit("demo", 3, cc.user("edited"))
    store.append("demo", cc.user("later"))


def test_everything_comes_back(store: cc.Store, target: cc.Store) -> None:
    """Guarantee 3.8: lossless."""
    rich_conversation(store)
    found = import_lines(target, export_lines(store, "demo"))
    before = store.conversation("demo")
    assert (found.name, found.root, found.tip, found.length, found.context_start) == (
        before.name,
        before.root,
        before.tip,
        before.length,
        before.context_start,
    )
    theirs, ours = store.branches("demo"), target.branches("demo")
    assert [(each.base, each.length, each.tip, each.current) for each in ours] == [
        (each.base, each.length, each.tip, each.current) for each in theirs
    ]
    for one, two in zip(theirs, ours, strict=True):
        assert target.load("demo", branch=two.number) == store.load("demo", branch=one.number)
    assert [finding for finding in scan_store(target) if finding.kind == "fault"] == []
    picture = target.load("demo", branch=ours[0].number)[2].parts[1]
    assert isinstance(picture, cc.Media)
    assert target.blob(picture.blob or "") == b"\x89PNG"


def test_todos_and_pins_come_back(store: cc.Store, target: cc.Store) -> None:
    """Guarantee 3.8: lossless; and what is pinned is looked for, though nothing but the import has happened."""
    store.extend("demo", [cc.user("one"), cc.assistant("two"), cc.user("three")])
    store.replace_todos("demo", ["Sow", cc.tools.Todo(number=0, text="Buy soil", state="done")])
    store.add_todo("demo", "Water", agent="helper")
    store.pin("demo", 1)
    lines = list(export_lines(store, "demo"))
    assert [msgspec.json.decode(line)["type"] for line in lines] == ["contextc", "todos", "todos", *["message"] * 3]
    import_lines(target, lines)
    assert target.todos("demo") == store.todos("demo")
    assert target.todos("demo", "helper") == store.todos("demo", "helper")
    assert target.add_todo("demo", "Reap").number == 3
    assert target.pinned("demo") == [1]
    assert target.conversation("demo").revision > 0
    again = cc.MessageCompiler(target, cc.provider("anthropic:claude-sonnet-4-5"), policy="sliding_window")
    assert again.compile("demo").draft.pins


def test_pins_come_back_on_the_branches_they_are_on(store: cc.Store, target: cc.Store) -> None:
    """Guarantee 3.8: also those of a past that is shared with another conversation."""
    rich_conversation(store)
    store.pin("base", 1)
    store.pin("base", 3)  # demo does not stand on that one
    store.pin("demo", 4)
    import_lines(target, export_lines(store, "demo"))
    assert target.pinned("demo") == store.pinned("demo") == [1, 4]


def test_a_file_without_todos_and_pins_can_be_read_by_version_1(store: cc.Store) -> None:
    """An older version refuses only content that it could not understand."""
    store.append("demo", cc.user("hi"))
    assert msgspec.json.decode(next(export_lines(store, "demo")))["version"] == 1
    store.add_todo("demo", "Sow")
    assert msgspec.json.decode(next(export_lines(store, "demo")))["version"] == 2


def test_todos_and_pins_that_make_no_sense_leave_nothing_behind(store: cc.Store, target: cc.Store) -> None:
    """Guarantee 15.1: the line is named, and nothing is stored."""
    store.append("demo", cc.user("hi"))
    store.add_todo("demo", "Sow")
    store.pin("demo", 1)
    good = list(export_lines(store, "demo"))
    broken: dict[str, list[bytes]] = {
        "line 3: a second todo list for agent 'assistant'": [*good[:2], *good[1:]],
        "line 2: todos must be numbered from 1": changed(good, 1, b'"number":1', b'"number":2'),
        "line 2: todos must be numbered .*, and each text": changed(good, 1, b"Sow", b"Sow  it"),
        r"line 2: todos\[0\]: The text of a todo is blank": changed(good, 1, b"Sow", b" "),
        "line 2: Invalid enum value 'late'": changed(good, 1, b'"open"', b'"late"'),
        "line 2: agent name must be .* got ''": changed(good, 1, b'"assistant"', b'""'),
        "line 1: branch .* has a pin on a missing message": changed(good, 0, b'"pins":[1]', b'"pins":[2]'),
    }
    for problem, lines in broken.items():
        with pytest.raises(cc.errors.InvalidImport, match=problem):
            import_lines(target, lines)
    assert target.conversations() == []


def test_a_file_of_a_later_version_is_refused_before_its_lines_are_read(target: cc.Store) -> None:
    """Guarantee 3.7: it says what to do, whatever else is in it."""
    lines = [b'{"type":"contextc","version":4,"weather":"fine"}', b'{"type":"songs"}']
    with pytest.raises(cc.errors.InvalidImport, match=r"version 4, this contextc reads up to 3. Upgrade contextc"):
        import_lines(target, lines)


def test_keys_and_uids_still_name_their_messages(store: cc.Store, target: cc.Store) -> None:
    """Guarantee 2.7: an append retried after a move is still the same append."""
    store.append("demo", cc.user("pay"), key="order-1")
    named = store.append("demo", cc.user("hi"))
    import_lines(target, export_lines(store, "demo"))
    assert target.append("demo", cc.user("pay"), key="order-1").seq == 1
    assert target.load("demo", until=named.uid)[-1] == named
    target.append("demo", cc.user("new"))
    assert len({message.uid for message in target.load("demo")}) == 3


def test_the_text_is_the_same_after_a_second_journey(store: cc.Store, target: cc.Store) -> None:
    store.extend("demo", [cc.user("a"), cc.user(cc.Media(mime_type="image/png", data=b"x"))])
    first = list(export_lines(store, "demo"))
    import_lines(target, first, "copy")
    second = list(export_lines(target, "copy"))
    assert second[1:] == first[1:]


def test_a_conversation_can_be_copied_within_a_store(store: cc.Store) -> None:
    rich_conversation(store)
    import_lines(store, export_lines(store, "demo"), "copy")
    assert store.load("copy") == store.load("demo")
    store.append("copy", cc.user("only here"))
    store.redact("copy", 1)
    assert store.load("demo")[0].text == "shared 1"


def test_plain_messages_are_appended_as_new_ones(store: cc.Store) -> None:
    """A handwritten file: one message per line, no header."""
    lines = [b'{"role":"user","parts":[{"type":"text","text":"hi"}]}', b"", encode_message(cc.assistant("hello"))]
    assert import_lines(store, lines, "demo").length == 2
    assert import_lines(store, lines, "demo").length == 4
    with pytest.raises(cc.errors.InvalidImport, match=r"do not name their conversation. Pass the name"):
        import_lines(store, lines)


def changed(lines: list[bytes], number: int, old: bytes, new: bytes) -> list[bytes]:
    assert old in lines[number]
    return [line.replace(old, new) if index == number else line for index, line in enumerate(lines)]


def test_a_file_that_was_changed_cut_off_or_mixed_up_leaves_nothing_behind(store: cc.Store, target: cc.Store) -> None:
    """Guarantee 15.1: the line is named, and nothing is stored."""
    store.extend("demo", [cc.user("one"), cc.user("two"), cc.user(cc.Media(mime_type="image/png", data=b"x"))])
    store.rewind("demo", 1)
    good = list(export_lines(store, "demo"))
    blob = next(index for index, line in enumerate(good) if b'"blob"' in line[:15])
    broken: dict[str, list[bytes]] = {
        "line 2: message 1 was changed": changed(good, 1, b"one", b"ONE"),
        "line 4: message 3 of branch": [*good[:2], *good[3:]],
        "the header states 3 messages, got 2": good[:-1],
        "line 1: a contextc file must begin with its header": good[1:],
        "line 2: Expected `object`, got `array`": changed(good, 1, b"{", b"["),
        "line 2: Object contains unknown field `colour`": changed(good, 1, b'"branch"', b'"colour":1,"branch"'),
        f"line {blob + 1}: blob .* is corrupt": changed(good, blob, base64.b64encode(b"x"), base64.b64encode(b"y")),
        f"line {blob + 1}: blob .* is not valid base64": changed(good, blob, base64.b64encode(b"x"), b"???"),
        "a second header": [*good, good[0]],
        "line 1: the file has version 99": changed(good, 0, b'"version":1', b'"version":99'),
        "line 1: branch .* has no valid parent": changed(good, 0, b'"parent":', b'"parent":9'),
        "line 1: root must be": changed(good, 0, b'"root":"0', b'"root":"g'),
        "line 1: the current branch 77": changed(good, 0, b'"branch":', b'"branch":77'),
        "line 1: the file is empty": [],
    }
    for problem, lines in broken.items():
        with pytest.raises(cc.errors.InvalidImport, match=problem) as caught:
            import_lines(target, lines)
        assert "Nothing was imported" in str(caught.value)
    assert target.conversations() == []
    import_lines(target, good)
    with pytest.raises(cc.errors.ConversationExists):
        import_lines(target, good)


def test_progress_is_reported(store: cc.Store, target: cc.Store) -> None:
    store.extend("demo", [cc.user(str(number)) for number in range(2_500)])
    seen: list[tuple[int, int]] = []
    lines = list(export_lines(store, "demo", lambda done, total: seen.append((done, total))))
    assert seen == [(1_000, 2_500), (2_000, 2_500), (2_500, 2_500)]
    seen.clear()
    import_lines(target, lines, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2_500, 2_500)


def test_a_conversation_of_version_1_loads(store: cc.Store) -> None:
    """The golden file is never written again: what it holds must load, and mean the same, in every later version."""
    lines = (GOLDEN / "v1.jsonl").read_bytes().splitlines()
    import_lines(store, lines)
    expected = [msgspec.json.decode(line)["message"] for line in lines if b'"type":"message"' in line[:20]]
    stored = {
        message.id: message
        for branch in store.branches("golden")
        for message in store.load("golden", branch=branch.number)
    }
    assert {entry["id"] for entry in expected} == set(stored)
    for entry in expected:
        assert msgspec.json.decode(encode_message(stored[entry["id"]])) == entry
    assert store.conversation("golden").tip == "0000000bb50a6e6debda22c069e365656148f193"


def test_a_sqlite_file_of_version_1_opens(tmp_path: Path) -> None:
    """Guarantee 3.7: older is migrated forward."""
    copy = tmp_path / "v1.db"
    copy.write_bytes((GOLDEN / "v1.db").read_bytes())
    with cc.open_store(copy) as store, cc.open_store("memory:") as reference:
        import_lines(reference, (GOLDEN / "v1.jsonl").read_bytes().splitlines())
        assert store.load("golden") == reference.load("golden")
        assert list(scan_store(store)) == list(scan_store(reference))
        store.append("golden", cc.user("and on"))
