"""Import of sessions of other programs: found in their directories, read completely, never written."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.interchange import import_session, import_transcript, list_sessions
from tests.transcript_files import (
    CLAUDE_ID,
    CODEX_ID,
    GARDEN,
    TranscriptMessage,
    claude_file,
    claude_lines,
    codex_file,
    codex_lines,
    written,
)

MORE: Sequence[TranscriptMessage] = (*GARDEN, ("user", "And in winter?"), ("assistant", "Moss."))
SEGMENT = "01a1dfb0-9435-7681-aa80-56e95a3b867d"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the directories of both programs. The user's own are not read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    return tmp_path


@pytest.fixture
def garden(config: Path) -> str:
    """A directory in which both were at work."""
    (config / "garden").mkdir()
    directory = str(config / "garden")
    written(claude_file(config / "claude", directory), claude_lines(GARDEN, directory), time=1_800_000_000)
    written(codex_file(config / "codex"), codex_lines(GARDEN, directory), time=1_800_000_000)
    return directory


def texts_of(store: cc.Store, conversation: str) -> list[str]:
    """What a conversation says, in one line a message."""
    return [
        f"{message.role}: {message.text}"
        + "".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        + "".join(f"{result.call_id} {result.text}" for result in message.tool_results)
        for message in store.load(conversation)
    ]


CLAUDE_SAID = [
    "user: What grows here?",
    "assistant: Look({'at': 'the bed'})",
    "tool: toolu_1 Thyme.",
    "assistant: Thyme does.",
]
CODEX_SAID = [
    "user: What grows here?",
    "assistant: look({'at': 'the bed'})",
    "tool: call_1 Thyme.",
    "assistant: Thyme does.",
]
EACH = pytest.mark.parametrize(
    ("source", "name", "expected"),
    [("claude-code", "claude-code-3d7dca91", CLAUDE_SAID), ("codex", "codex-01a1dfb0-8cf9", CODEX_SAID)],
)


@EACH
def test_a_session_is_found_and_taken_in_whole(
    store: cc.Store, garden: str, source: str, name: str, expected: list[str]
) -> None:
    """Guarantee 3.8: calls and results included; it is a conversation like any other."""
    (listed,), more = list_sessions(source, directory=garden)
    assert (listed.messages, listed.title, listed.directory, more) == (4, "What grows here?", garden, 0)
    assert listed.time == 1_800_000_000_000
    taken = import_session(store, source, listed.id[:10])
    assert (taken.conversation.name, taken.added, taken.warnings) == (name, 4, [])
    assert texts_of(store, name) == expected
    assert list(scan_store(store)) == []
    store.append(name, cc.user("Go on."))
    assert len(cc.MessageCompiler(store, "anthropic:claude-opus-5-5").compile(name).params["messages"]) == 5


@EACH
def test_the_programs_files_stay_as_they_were(
    store: cc.Store, config: Path, garden: str, source: str, name: str, expected: list[str]
) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in config.rglob("*.jsonl")}
    list_sessions(source, directory=None)
    import_session(store, source, directory=garden)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in config.rglob("*.jsonl")} == before
    assert texts_of(store, name) == expected


@EACH
def test_importing_again_adds_what_is_new_and_nothing_twice(
    store: cc.Store, config: Path, garden: str, source: str, name: str, expected: list[str]
) -> None:
    """Guarantee 3.5: a transcript that has grown adds its tail."""
    import_session(store, source, directory=garden)
    tip = store.conversation(name).tip
    again = import_session(store, source, directory=garden)
    assert (again.added, again.conversation.tip) == (0, tip)
    written(claude_file(config / "claude", garden), claude_lines(MORE, garden))
    written(codex_file(config / "codex"), codex_lines(MORE, garden))
    grown = import_session(store, source, directory=garden)
    assert grown.added == 2
    assert texts_of(store, name) == [*expected, "user: And in winter?", "assistant: Moss."]
    assert len(store.branches(name)) == 1


def test_a_conversation_that_continued_by_itself_is_not_mixed_with_the_session(
    store: cc.Store, config: Path, garden: str
) -> None:
    """Guarantee 15.1: refused, with the way out, and nothing is stored."""
    import_session(store, "claude-code", directory=garden)
    store.append("claude-code-3d7dca91", cc.user("Something else."))
    assert import_session(store, "claude-code", directory=garden).added == 0
    written(claude_file(config / "claude", garden), claude_lines(MORE, garden))
    with pytest.raises(cc.errors.InvalidInput, match=r"differ after message 4\. .* another name"):
        import_session(store, "claude-code", directory=garden)
    assert store.conversation("claude-code-3d7dca91").length == 5
    assert import_session(store, "claude-code", directory=garden, into="other").added == 6


def test_another_conversation_of_that_name_is_left_alone(store: cc.Store, garden: str) -> None:
    store.append("demo", cc.user("Mine."))
    with pytest.raises(cc.errors.ConversationExists):
        import_session(store, "codex", directory=garden, into="demo")
    assert texts_of(store, "demo") == ["user: Mine."]


def test_sessions_are_listed_by_directory_newest_first(config: Path, garden: str) -> None:
    """Two directories may have one folder: then the one that the transcript names counts."""
    other = config / "gar-den"
    twin = config / "gar.den"
    for number, place in enumerate((other, twin)):
        place.mkdir()
        session = f"{number}{CLAUDE_ID[1:]}"
        lines = claude_lines([("user", place.name)], str(place), session)
        lines.append({"type": "custom-title", "customTitle": f"Bed {number}", "sessionId": session})
        written(claude_file(config / "claude", str(place), session), lines, time=1_800_000_001 + number)
    assert claude_file(config / "claude", str(other)).parent == claude_file(config / "claude", str(twin)).parent

    def titles(directory: str | None, limit: int | None = None) -> tuple[list[str], int]:
        listed, more = list_sessions("claude-code", directory=directory, limit=limit)
        return [each.title for each in listed], more

    assert titles(str(other)) == (["Bed 0"], 0)
    assert titles(None) == (["Bed 1", "Bed 0", "What grows here?"], 0)
    assert titles(None, limit=1) == (["Bed 1"], 2)
    assert titles(str(config / "nowhere")) == ([], 0)


def test_a_session_that_was_shortened_is_listed_by_its_last_prompt(config: Path, garden: str) -> None:
    """Its first message is a summary, which says little about it."""
    lines = claude_lines([("user", "This session is being continued."), ("assistant", "Moss.")], garden)
    lines[1]["isCompactSummary"] = True
    lines.append({"type": "last-prompt", "lastPrompt": "And in winter?", "sessionId": CLAUDE_ID})
    written(claude_file(config / "claude", garden), lines)
    assert [each.title for each in list_sessions("claude-code", directory=garden)[0]] == ["And in winter?"]


def test_files_that_are_not_sessions_are_not_listed(config: Path, garden: str) -> None:
    """Files of subagents, of other programs, of sessions in which nothing was said, or that cannot be read."""
    folder = claude_file(config / "claude", garden).parent
    for name in ("agent-1.jsonl", "notes.jsonl"):
        written(folder / name, claude_lines(GARDEN, garden))
    written(folder / f"0{CLAUDE_ID[1:]}.jsonl", [{"type": "queue-operation"}])
    (folder / f"1{CLAUDE_ID[1:]}.jsonl").write_bytes(b"\xff\xfe\n{")
    (folder / f"2{CLAUDE_ID[1:]}.jsonl").mkdir()
    assert [each.id for each in list_sessions("claude-code", directory=garden)[0]] == [CLAUDE_ID]
    agent = codex_lines(GARDEN, garden, f"{CODEX_ID[:-1]}e")
    agent[0]["payload"]["source"] = {"subagent": {"thread_spawn": {"parent_thread_id": CODEX_ID}}}
    written(codex_file(config / "codex", f"{CODEX_ID[:-1]}e"), agent)
    assert [each.id for each in list_sessions("codex", directory=garden)[0]] == [CODEX_ID]


def test_a_thread_that_was_taken_back_is_read_through_all_its_files(store: cc.Store, config: Path, garden: str) -> None:
    """Codex begins a new file where a turn is reverted; what is behind the cut is no longer said."""
    earlier = codex_lines(MORE, garden)
    written(codex_file(config / "codex"), earlier)
    base = {"thread_id": CODEX_ID, "end_ordinal_exclusive": 6, "end_byte_offset": 0}
    later: Sequence[TranscriptMessage] = [("user", "And in spring?"), ("assistant", "Crocus.")]
    written(codex_file(config / "codex", segment=SEGMENT), codex_lines(later, garden, first=6, base=base))
    (listed,), _ = list_sessions("codex", directory=garden)
    assert (listed.id, listed.messages) == (CODEX_ID, 6)
    import_session(store, "codex", CODEX_ID)
    assert texts_of(store, "codex-01a1dfb0-8cf9") == [*CODEX_SAID, "user: And in spring?", "assistant: Crocus."]
    alone = codex_file(config / "codex", segment=SEGMENT).read_bytes()
    with pytest.raises(cc.errors.InvalidInput, match=f"continues another one, {CODEX_ID}, whose file is missing"):
        import_transcript(store, alone, into="alone")
    elsewhere = written(config / "elsewhere" / "copy.jsonl", [json.loads(line) for line in alone.splitlines()])
    with pytest.raises(cc.errors.InvalidInput, match="whose file is missing"):
        import_transcript(store, elsewhere.read_bytes(), path=elsewhere)
    codex_file(config / "codex").unlink()
    (listed,), _ = list_sessions("codex", directory=garden)
    assert listed.title.startswith("cannot be read: The transcript continues another one")
    with pytest.raises(cc.errors.InvalidInput, match="whose file is missing"):
        import_session(store, "codex", directory=garden)


def test_a_line_that_was_cut_off_is_left_out_and_reported(store: cc.Store, config: Path, garden: str) -> None:
    """A program that was killed while it wrote leaves half a line."""
    path = claude_file(config / "claude", garden)
    path.write_bytes(path.read_bytes() + b'{"type":"assistant","mess')
    taken = import_session(store, "claude-code", directory=garden)
    assert (taken.added, taken.warnings) == (4, ["left out: 1 line that cannot be read: line 7"])


def test_lone_surrogates_and_invalid_utf8_are_imported(store: cc.Store, config: Path, garden: str) -> None:
    path = claude_file(config / "claude", garden)
    text = json.dumps(claude_lines([("user", "Sun \ud83d")], garden)[1]).encode()
    path.write_bytes(text.replace(b"Sun", b"S\xfcn") + b"\n")
    import_session(store, "claude-code", directory=garden, into="odd")
    assert texts_of(store, "odd") == ["user: S\ufffdn \ufffd"]


@pytest.mark.parametrize(
    ("source", "session", "message"),
    [
        ("gemini-cli", None, "Source 'gemini-cli' not found. Known sources: claude-code, codex"),
        ("codex", "ffff", "codex has no session 'ffff' on this machine. Call `list_sessions"),
        ("codex", "", "codex has no session ''"),
        ("codex", "01a1", "'01a1' matches 2 sessions of codex: .* Pass more characters of the id"),
        ("claude-code", None, "No session of claude-code found in .*nowhere. Pass another directory"),
    ],
)
def test_what_cannot_be_found_is_reported_with_the_way_out(
    store: cc.Store, config: Path, garden: str, source: str, session: str | None, message: str
) -> None:
    """Guarantee 15.1."""
    written(codex_file(config / "codex", f"{CODEX_ID[:-1]}e"), codex_lines(GARDEN, garden, f"{CODEX_ID[:-1]}e"))
    with pytest.raises(cc.errors.InvalidInput, match=message):
        import_session(store, source, session, directory=str(config / "nowhere"))
    assert store.conversations() == []


def test_a_transcript_is_known_by_what_is_in_it(store: cc.Store, garden: str) -> None:
    for lines, name in (
        (claude_lines(GARDEN, garden), "claude-code-3d7dca91"),
        (codex_lines(GARDEN, garden), "codex-01a1dfb0-8cf9"),
    ):
        data = b"\n".join(json.dumps(line).encode() for line in lines)
        assert import_transcript(store, data).conversation.name == name
    with pytest.raises(cc.errors.InvalidInput, match="not a transcript of claude-code or codex"):
        import_transcript(store, b'{"role": "user", "content": "hi"}')
    with pytest.raises(cc.errors.InvalidInput, match="the session has no message"):
        import_transcript(store, b'{"type": "session_meta", "payload": {"id": "x"}}')
