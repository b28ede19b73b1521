"""Imports that end in the middle: the next import continues them."""

import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import file_import, import_files, log_import
from tests.transcript_files import GARDEN, claude_lines

TALK = (
    *GARDEN,
    ("user", "And in winter?"),
    ("assistant", "Moss."),
    ("user", "And in spring?"),
    ("assistant", "Crocus."),
)


class _Crash(BaseException):
    pass


def logged(session: str, turns: int) -> list[JSONObject]:
    """The log of a chat, one exchange per turn."""
    found: list[JSONObject] = []
    messages: list[JSONObject] = []
    for number in range(turns):
        messages = [*messages, {"role": "user", "content": f"{session} asks {number}"}]
        answer = {"role": "assistant", "content": f"answer {number}"}
        choice = {"index": 0, "finish_reason": "stop", "message": answer}
        usage = {"prompt_tokens": 10 * number, "completion_tokens": number + 1}
        sent = {"model": "gpt-6", "messages": messages}
        found.append({"session_id": session, "request": sent, "response": {"choices": [choice], "usage": usage}})
        messages = [*messages, answer]
    return found


def content(store: cc.Store) -> list[object]:
    found: list[object] = []
    for name in sorted(each.name for each in store.conversations()):
        usages = [entry.record.usage for entry in load_timeline(store, name)]
        found.append((name, [message.text for message in store.load(name)], usages))
    return found


def import_until(store: cc.Store, path: Path, writes: int) -> bool:
    """Import a file up to a number of writes. Return True if it ended before that."""
    write, left = store.write, iter(range(writes))

    def crash(*given: Any, **more: Any) -> Any:
        if next(left, None) is None:
            raise _Crash
        return write(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "write", crash)
        try:
            import_files(store, [path])
        except _Crash:
            return False
    return True


@pytest.mark.parametrize("kind", ["log", "session"])
def test_an_import_that_was_killed_is_continued_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Guarantee 16.8: whatever write it had come to, nothing is there by half, missing, or twice."""
    monkeypatch.setattr(log_import, "BATCH_SIZE", 3)
    monkeypatch.setattr(file_import, "BATCH_SIZE", 1)
    path = tmp_path / "file.jsonl"
    lines = claude_lines(TALK, "/garden") if kind == "session" else [*logged("one", 5), *logged("two", 5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with cc.open_store("memory:") as whole:
        import_files(whole, [path])
        expected = content(whole)
    writes = 0
    while True:
        with cc.open_store(f"sqlite:///{tmp_path}/{writes}.db") as store:
            if import_until(store, path, writes):
                break
        with cc.open_store(f"sqlite:///{tmp_path}/{writes}.db") as store:
            import_files(store, [path])
            assert content(store) == expected
            assert import_files(store, [path]).total("new_requests") == 0
            assert [each for each in scan_store(store) if each.kind == "fault"] == []
        writes += 1
    assert writes >= 4
