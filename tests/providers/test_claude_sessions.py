"""Claude Code's sessions in our stores, with the SDK's own test suite and more. On every store."""

import asyncio
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import contextc as cc
from tests.fake_vendors import KEY, FakeVendors
from tests.fake_vendors.scripts import Scripted

if TYPE_CHECKING:  # every process of a test run collects this file, and the SDK takes a second
    from claude_agent_sdk import SessionKey

WHERE: "SessionKey" = {"project_key": "-garden", "session_id": "5f2c8a52-6f3e-4d7a-9a3e-2f6b7f5f0001"}


class Apart(cc.providers.ClaudeSessions):
    """A store of its own for each contract, on one and the same: the suite begins each with an empty one."""

    numbers = count(1)

    def __init__(self, store: cc.Store, conversation: str = "") -> None:
        super().__init__(store, conversation)
        self.prefix = f"{next(self.numbers)}:"

    async def append(self, key: "SessionKey", entries: list[Any]) -> None:
        await super().append(self._apart(key), entries)

    async def load(self, key: "SessionKey") -> list[Any] | None:
        return await super().load(self._apart(key))

    async def list_sessions(self, project_key: str) -> list[Any]:
        return await super().list_sessions(self.prefix + project_key)

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        return await super().list_session_summaries(self.prefix + project_key)

    async def delete(self, key: "SessionKey") -> None:
        await super().delete(self._apart(key))

    async def list_subkeys(self, key: Any) -> list[str]:
        return await super().list_subkeys(self._apart(key))

    def _apart(self, key: "SessionKey") -> "SessionKey":
        return {**key, "project_key": self.prefix + key["project_key"]}


def entry(name: str, role: str, text: str, parent: str | None = None) -> Any:
    return {
        "type": role,
        "uuid": f"5f2c8a52-6f3e-4d7a-9a3e-2f6b7f5f1{name:0>3}",
        "parentUuid": parent and f"5f2c8a52-6f3e-4d7a-9a3e-2f6b7f5f1{parent:0>3}",
        "sessionId": WHERE["session_id"],
        "timestamp": f"2026-11-15T10:00:{name:0>2}.000Z",
        "isSidechain": False,
        "cwd": "/garden",
        "message": {"role": role, "content": [{"type": "text", "text": text}]},
    }


@pytest.mark.parametrize("owner", ["", "demo"])
def test_it_does_what_the_sdk_asks_of_a_session_store(store: cc.Store, owner: str) -> None:
    """Guarantee 9.10: the fourteen contracts of the SDK, none of them left out."""
    from claude_agent_sdk.testing import run_session_store_conformance

    store.append("demo", cc.user("hi"))
    asyncio.run(run_session_store_conformance(lambda: Apart(store, owner)))
    for method in ("list_sessions", "list_session_summaries", "delete", "list_subkeys"):
        assert getattr(cc.providers.ClaudeSessions, method, None) is not None


async def test_the_sdk_reads_a_session_from_it(store: cc.Store) -> None:
    """Guarantee 9.10: what its own helpers say of one: title, first prompt, messages; entries given twice are there
    once.
    """
    from claude_agent_sdk import get_session_messages_from_store, list_sessions_from_store

    texts = [entry("1", "user", "What grows here?"), entry("2", "assistant", "Thyme \ud83d.", "1")]
    title: Any = {"type": "custom-title", "customTitle": "Roof garden", "sessionId": WHERE["session_id"]}

    sessions = cc.providers.ClaudeSessions(store)
    await sessions.append(WHERE, texts)
    await sessions.append(WHERE, [*texts, title])
    assert await sessions.load(WHERE) == [*texts, title]
    messages = await get_session_messages_from_store(sessions, WHERE["session_id"], directory="/garden")
    assert [(each.type, each.message["content"][0]["text"]) for each in messages] == [
        ("user", "What grows here?"),
        ("assistant", "Thyme \ud83d."),
    ]
    (listed,) = await list_sessions_from_store(sessions, directory="/garden")
    assert (listed.custom_title, listed.first_prompt, listed.cwd) == ("Roof garden", "What grows here?", "/garden")


async def test_an_append_that_is_cancelled_is_whole_or_not_there(store: cc.Store) -> None:
    """Guarantee 3.2: a cancellation is raised after the transaction, so the outcome is certain."""
    sessions = cc.providers.ClaudeSessions(store)
    writing = asyncio.ensure_future(sessions.append(WHERE, [entry(str(n), "user", "x") for n in range(300)]))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    there = await sessions.load(WHERE)
    assert there is None or len(there) == 300
    await asyncio.sleep(0.05)
    assert await sessions.load(WHERE) == there


async def test_many_appends_at_once_are_all_there(store: cc.Store) -> None:
    """Guarantee 3.2: the summary beside a session is folded once for each, one after the other."""
    sessions = cc.providers.ClaudeSessions(store)
    titles: list[Any] = [{"type": "custom-title", "customTitle": f"title {number}"} for number in range(20)]
    await asyncio.gather(*[sessions.append(WHERE, [title]) for title in titles])
    stored: list[Any] = await sessions.load(WHERE) or []
    assert sorted(each["customTitle"] for each in stored) == sorted(each["customTitle"] for each in titles)
    (summary,) = await sessions.list_session_summaries(WHERE["project_key"])
    assert summary["data"]["custom_title"] == stored[-1]["customTitle"]


def test_the_sdk_is_loaded_when_it_is_needed_and_not_before() -> None:
    code = "import sys, contextc as cc; cc.providers.ClaudeSessions(cc.open_store('memory:')); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"claude_agent_sdk", "anyio"} & set(loaded)


def test_an_invalid_name_is_refused() -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidInput, match="conversation name must be"):
        cc.providers.ClaudeSessions(cc.open_store("memory:"), "a\nb")


@pytest.mark.thorough
def test_the_real_program_continues_with_a_session_when_its_own_files_are_gone(tmp_path: Path) -> None:
    """Guarantee 9.10: another machine has the store alone. What it then sends is what was said, and what is new."""
    from claude_agent_sdk import ClaudeAgentOptions, list_sessions_from_store, query

    store = cc.open_store(tmp_path / "chat.db")
    store.append("demo", cc.user("What grows here?"))
    sessions = cc.providers.ClaudeSessions(store, "demo")
    (tmp_path / "work").mkdir()

    async def ask(standin: FakeVendors, config: str, prompt: str, resume: str | None) -> str:
        options = ClaudeAgentOptions(
            model="claude-opus-5-5",
            system_prompt="Be brief.",
            tools=[],
            setting_sources=[],
            cwd=tmp_path / "work",
            resume=resume,
            session_store=sessions,
            env={
                "HOME": str(tmp_path),
                "CLAUDE_CONFIG_DIR": str(tmp_path / config),
                "ANTHROPIC_BASE_URL": standin.url("anthropic"),
                "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
        )
        found = ""
        async for message in query(prompt=prompt, options=options):
            found = getattr(message, "session_id", None) or found
        return found

    with FakeVendors(Scripted(["Thyme does.", "Moss."]), strict=False) as standin:
        session = asyncio.run(ask(standin, "one", "What grows here?", None))
        asyncio.run(ask(standin, "two", "And in winter?", session))
        last = standin.records[-1].raw
    assert [last.count(text) for text in (b"What grows here?", b"Thyme does.", b"And in winter?")] == [1, 1, 1]
    (listed,) = asyncio.run(list_sessions_from_store(sessions, directory=str(tmp_path / "work")))
    assert listed.session_id == session
    store.delete("demo")
    assert asyncio.run(list_sessions_from_store(sessions, directory=str(tmp_path / "work"))) == []
