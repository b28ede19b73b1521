"""Source of a resumed session: the CLI's own file if it equals our record, else the record.

The CLI is the real one, the API a strict stand-in on this machine. What the user has set up is a skill: the CLI lists
those it has at the beginning of a turn, and has none of them in a folder that was made for one session.
"""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.providers.claude_code.sessions import file_matches
from tests.fake_vendors import FakeVendors
from tests.providers.claude_code_program import ProgramReply, call_program, echo, opened, shown

pytestmark = pytest.mark.skipif(find_spec("claude_agent_sdk") is None, reason="claude-agent-sdk is not installed")

SKILL = "---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"
USERS: JSONObject = {"setting_sources": ["user"], "builtin_tools": ["Skill"]}


class Room:
    """A user's home with a skill, a folder to work in, and a store."""

    def __init__(self, home: Path, standin: FakeVendors) -> None:
        self.home, self.standin = home, standin
        self.store = cc.open_store(f"sqlite:{home / 'store.db'}")
        self.store.append("talk", cc.user("Hello"))
        skill = home / "claude" / "skills" / "greet" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(SKILL)

    def turn(self, text: str, after: ProgramReply | None = None, **fields: object) -> ProgramReply:
        """A turn in a process of its own."""

        async def run() -> ProgramReply:
            async with opened(self.standin, self.home, store=self.store) as endpoint:
                given = {"conversation": "talk", "body": USERS, **fields}
                return await call_program(endpoint, self.home, text, after=after, **given)

        return asyncio.run(run())

    def file(self, session: str) -> Path:
        (found,) = (self.home / "claude" / "projects").glob(f"*/{session}.jsonl")
        return found


def has_skill(reply: ProgramReply) -> bool:
    (begin,) = [line for line in reply.lines if line.get("subtype") == "init"]
    return "greet" in begin["skills"]


def test_a_resumed_session_has_what_the_user_has_set_up(tmp_path: Path) -> None:
    """Guarantee 9.5: it goes on in the CLI's own folder, turn after turn, and in our record too."""
    with FakeVendors(echo) as standin:
        room = Room(tmp_path, standin)
        first = room.turn("Hello")
        second = room.turn("Are you there?", first)
        assert [has_skill(reply) for reply in (first, second)] == [True] * 2
        assert first.session == second.session
        assert shown(standin.records[-1]) == [
            ("user", "Hello"),
            ("assistant", "You said: Hello"),
            ("user", "Are you there?"),
        ]
        room.file(second.session).unlink()
        third = room.turn("From the record?", second)
        assert len(shown(standin.records[-1])) == 5
        assert (third.session, has_skill(third)) == (second.session, False)


@pytest.mark.thorough
def test_a_file_that_was_continued_elsewhere_is_not_used(tmp_path: Path) -> None:
    """Guarantee 9.5: a session holds what the ledger knows; text typed into it elsewhere is not in our record."""
    with FakeVendors(echo) as standin:
        room = Room(tmp_path, standin)
        first = room.turn("Hello")
        file = room.file(first.session)
        before = file.read_bytes()
        by_hand = before.replace(first.cursor.encode(), b"7b0c3f6e-5d1f-4f0e-9d0a-2f1c4b5a6d7e").splitlines()[-6:]
        file.write_bytes(before + b"\n".join(by_hand) + b"\n")
        second = room.turn("Are you there?", first)
        assert shown(standin.records[-1]) == [
            ("user", "Hello"),
            ("assistant", "You said: Hello"),
            ("user", "Are you there?"),
        ]
        assert not has_skill(second)


@pytest.mark.thorough
def test_texts_that_belong_to_no_conversation_are_not_stored(tmp_path: Path) -> None:
    """Guarantee 2.8: a summary's session would outlive the redaction of what is in it."""
    with FakeVendors(echo) as standin:
        room = Room(tmp_path, standin)
        kept, passing = room.turn("Hello"), room.turn("Sum this up", conversation="")
        sessions = asyncio.run(
            cc.providers.ClaudeSessions(room.store).list_sessions(room.file(kept.session).parent.name)
        )
        assert [each["session_id"] for each in sessions] == [kept.session]
        assert passing.text == "You said: Sum this up"


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        (b'{"type":"user","uuid":"u0"}\n{"type":"cost"}\n{"type":"assistant","uuid":"a1"}\n', True),
        (b'{"type":"user","uuid":"u0"}\n', False),
        (b'{"type":"assistant","uuid":"a1"}\n{"type":"user","uuid":"u0"}\n', False),
        (b'{"type":"user","uuid":"u0"}\n{"type":"assistant","uuid":"a1"}\n{"type":"system","uuid":"s2"}\n', False),
        (b'{"type":"user","uuid":"u0"}\n{"type":"assistant","uuid":"a1"}\n{"type":"queue-operation"}\n', False),
        (b'{"type":"user","uuid":"u0"}\n{"type":"assistant","uuid":"a1"}\n{"type":"us', False),
        (b"\xff\xfe", False),
    ],
)
def test_a_file_has_the_same_content_only_if_nothing_is_missing_and_nothing_added(
    tmp_path: Path, lines: bytes, same: bool
) -> None:
    """Guarantee 9.5. What the CLI notes down for itself does not matter."""
    entries: list[JSONObject] = [{"type": "user", "uuid": "u0"}, {"type": "assistant", "uuid": "a1"}]
    file = tmp_path / "projects" / "here" / "one.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(lines)
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    assert file_matches({"project_key": "here", "session_id": "one"}, entries, env) is same
    assert not file_matches({"project_key": "here", "session_id": "two"}, entries, env)
