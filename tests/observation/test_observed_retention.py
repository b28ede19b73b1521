"""Observed traffic has a retention and a size limit of its own, which delete nothing of ours."""

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.config import read_settings
from contextc.errors import InvalidSetting
from contextc.interchange import import_files
from contextc.observation import ObservedRequest, limit_observed
from contextc.store.message_log import now_ms
from tests.executor.scripted_provider import SONNET, Scripted, run_turn, says
from tests.observation.test_conversation_match import claude, claude_answer
from tests.observation.test_observe import answer, chat

DAY = 86_400_000


def see(store: cc.Store, name: str | None, days: float, *said: str, size: int = 0, **options: Any) -> ObservedRequest:
    when = now_ms() - int(days * DAY)
    request = chat(*(said or (f"hello {name} " + "x" * size,)))
    return cc.observe(
        store, request=request, reply=answer("b"), format="openai_chat", conversation=name, time=when, **options
    )


def names(store: cc.Store) -> set[str]:
    return {each.name for each in store.conversations()}


def test_old_conversations_are_deleted(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "contextc.observation")
    see(store, "old", 40)
    see(store, "mixed", 40)
    see(store, "mixed", 1, "hello mixed ", "b", "again")
    see(store, "new", 1)
    store.append("own", cc.user("kept", time=now_ms() - 90 * DAY))
    steps: list[tuple[int, int]] = []
    done = limit_observed(store, age=timedelta(days=30), progress=lambda done, all: steps.append((done, all)))
    assert names(store) == {"mixed", "new", "own"}
    assert done.conversations == 1
    assert done.size > 100
    assert steps == [(1, 3)]
    assert [record.getMessage() for record in caplog.records] == [
        f"Deleted 1 observed conversations ({done.size} bytes)"
    ]
    assert limit_observed(store, age=timedelta(days=30)).conversations == 0
    for table in ("observed_key", "observed_conversation", "manifest", "head", "shown"):
        assert store.read(lambda tx, table=table: tx.rows(f"SELECT 1 FROM main.{table}"))


def test_the_oldest_are_deleted_until_the_rest_fits(store: cc.Store) -> None:
    noise = "".join(chr(97 + (index * index * 7 + index // 5) % 26) for index in range(60_000))
    for number in range(4):
        see(store, f"c{number}", 10 - number, noise[number * 15_000 : number * 15_000 + 15_000])
    store.append("own", cc.user("x" * 100_000))
    assert limit_observed(store, max_bytes=10_000_000).conversations == 0
    done = limit_observed(store, max_bytes=50_000)
    assert "c3" in names(store)
    assert "c0" not in names(store)
    assert done.conversations == 4 - len(names(store) - {"own"}) > 0
    assert limit_observed(store, max_bytes=50_000).conversations == 0
    limit_observed(store, max_bytes=0)
    assert names(store) == {"own"}


def test_own_conversations_and_forks_stay(store: cc.Store) -> None:
    for name in ("forked", "continued", "appended", "pinned", "compiled", "gone"):
        see(store, name, 50)
    store.fork("forked", "fork")
    store.append("appended", cc.user("mine", time=now_ms() - 50 * DAY))
    store.pin("pinned", 1)
    compiler = cc.MessageCompiler(store, "openai:gpt-5")
    compiler.commit(compiler.compile("compiled", retry=True), cc.assistant("x"))
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("fine")), triggers=())
    assert run_turn(executor, "go on", conversation="continued")
    done = limit_observed(store, age=timedelta(days=30), max_bytes=0)
    assert (done.conversations, names(store)) == (
        1, {"forked", "fork", "continued", "appended", "pinned", "compiled"}
    )  # fmt: skip


def test_a_conversation_of_our_own_that_other_software_continues_stays(store: cc.Store) -> None:
    when = now_ms() - 50 * DAY
    store.append("own", cc.user("hello", time=when))
    store.append("own", cc.assistant("b", time=when))
    see(store, "own", 50, "hello", "b", "c")
    assert limit_observed(store, age=timedelta(days=1)).conversations == 1  # the linked one
    assert [each.text for each in store.load("own")] == ["hello", "b"]


def test_a_session_is_deleted_with_its_side_requests(store: cc.Store) -> None:
    headers = {"x-claude-code-session-id": "s1"}
    for days, body, more in (
        (40, claude("a"), {}),
        (40, claude("title?", system="Write a title.", tools=[]), {"x-claude-code-auxiliary-type": "title"}),
        (5, claude("work", system="Sub."), {"x-claude-code-agent-id": "a1"}),
    ):
        cc.observe(
            store, request=body, reply=claude_answer("b"), format="anthropic", headers=headers | more,
            time=now_ms() - days * DAY,
        )  # fmt: skip
    assert len(names(store)) == 3
    assert limit_observed(store, age=timedelta(days=30)).conversations == 0
    assert limit_observed(store, age=timedelta(days=3)).conversations == 3


def test_a_deleted_conversation_can_be_recreated(store: cc.Store) -> None:
    see(store, "a", 40, "one")
    see(store, "a", 40, "one", "b", "two")
    limit_observed(store, age=timedelta(days=1))
    again = see(store, "a", 0, "one", "b", "two", "b", "three")
    assert (again.request, again.record.why) == (1, "first request")
    assert len(store.load("a")) == 6


@pytest.mark.parametrize("options", [{"age": timedelta(0)}, {"age": 3}, {"max_bytes": -1}, {"max_bytes": 1.5}])
def test_invalid_limits(options: Any) -> None:
    with pytest.raises(InvalidSetting):
        limit_observed(cc.open_store("memory:"), **options)


def settings_of(folder: Path, text: str, **variables: str) -> Any:
    user = folder / "user" / "contextc"
    user.mkdir(parents=True)
    (user / "contextc.toml").write_text(text)
    environment = {"XDG_CONFIG_HOME": str(folder / "user"), "HOME": str(folder), **variables}
    return read_settings(environment=environment, folder=str(folder))


def test_settings(tmp_path: Path) -> None:
    found = settings_of(tmp_path, '[observation]\nkeep_days = 30\nmax_bytes = "2GB"\n')
    assert found.parse_observed_age() == timedelta(days=30)
    assert found.parse_observed_size() == 2_000_000_000
    variables = {"CONTEXTC_OBSERVATION_KEEP_DAYS": "7", "CONTEXTC_OBSERVATION_MAX_BYTES": "1_000"}
    found = settings_of(tmp_path / "b", "", **variables)
    assert (found.parse_observed_age(), found.parse_observed_size()) == (timedelta(days=7), 1000)
    found = settings_of(tmp_path / "c", "")
    assert (found.parse_observed_age(), found.parse_observed_size()) == (None, None)
    found = settings_of(tmp_path / "d", "[observation]\nkeep_days = 30\n", CONTEXTC_STORE="memory:")
    assert found.parse_observed_age() is None


@pytest.mark.parametrize(
    "text",
    [
        "observation = 1",
        "[observation]\nkeep_days = 0",
        '[observation]\nkeep_days = "3d"',
        "[observation]\nkeep_days = true",
        '[observation]\nmax_bytes = "many"',
        "[observation]\ndays = 1",
        'observation_keep_days = "3"',
    ],
)
def test_invalid_settings(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting):
        settings_of(tmp_path, text)


def test_imported_conversations_stay(store: cc.Store, tmp_path: Path) -> None:
    """An import is asked for, and mostly old."""
    body = {"model": "gpt-6", "messages": [{"role": "user", "content": "hi"}]}
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"timestamp": 1_700_000_000, "request": body, "response": "Hello."}) + "\n")
    (found,) = import_files(store, [path]).conversations
    assert limit_observed(store, age=timedelta(days=1), max_bytes=0).conversations == 0
    assert [message.text for message in store.load(found.name)] == ["hi", "Hello."]
