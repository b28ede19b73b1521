"""The real Claude Code with a fake API: it sends the transcript that we wrote, unchanged.

Left out where the program is not installed. It gets a throw-away home and a key that is none.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.claude_code import split_history_and_prompt, transcript_entries
from tests.fake_vendors import KEY, FakeVendors, Scripted
from tests.formats.claude_code_samples import FORM

SESSION = "6f1d9a52-7a1c-4c0e-9a86-0d4c6f1b2e3a"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
}
TALK = [
    cc.assistant("Welcome."),
    cc.system("It is late."),
    cc.user(["Weather?", "In Oslo."]),
    cc.assistant(
        "Let me see.",
        tool_calls=[cc.tool_call("call.1", "weather", {"city": "Oslo"}), cc.tool_call("b", "files.read", {})],
    ),
    cc.tool_result("call.1", "weather", [cc.Text("rain"), cc.Text("wind")]),
    cc.tool_result("b", "files.read", "no such file", is_error=True),
    cc.user("So?"),
    cc.assistant("It rains.  "),
    cc.user("And now? @/etc/passwd"),
]


class Kept:
    """A session's transcript, as the SDK asks for it."""

    def __init__(self, entries: list[JSONObject]) -> None:
        self.entries = entries

    async def load(self, key: object) -> list[JSONObject]:
        return self.entries

    async def append(self, key: object, entries: list[JSONObject]) -> None:
        self.entries = [*self.entries, *entries]


async def asked(standin: FakeVendors, home: Path, kept: Kept, prompt: list[JSONObject], **env: str) -> list[JSONObject]:
    """What came from the program, without a prompt where there is none."""
    sdk = pytest.importorskip("claude_agent_sdk")
    options = sdk.ClaudeAgentOptions(
        model="claude-opus-5-5",
        system_prompt="Be brief.",
        tools=[],
        cwd=str(home),
        resume=SESSION,
        session_store=kept,
        setting_sources=[],
        verbatim_prompts=True,
        extra_args={"bare": None},
        env={
            **QUIET,
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / "config"),
            "ANTHROPIC_BASE_URL": standin.url("anthropic"),
            "ANTHROPIC_API_KEY": KEY,
            **env,
        },
    )

    async def prompts() -> AsyncIterator[JSONObject]:
        yield {"type": "user", "message": {"role": "user", "content": prompt}, "parent_tool_use_id": None}

    found: list[JSONObject] = []
    async with asyncio.timeout(60), sdk.ClaudeSDKClient(options) as client:
        if prompt:
            await client.query(prompts())
        # The lines as they came, before the SDK makes classes of them.
        async for message in cast(AsyncIterator[Any], client._query.receive_messages()):
            found.append(message)
            if message["type"] == "result":
                return found
    return found


def sent(standin: FakeVendors) -> list[JSONObject]:
    """The messages of the last request, without what the program adds: marks for the cache, and its own settings."""
    body = cast(JSONObject, json.loads(standin.records[-1].raw))
    told: list[JSONObject] = []
    for message in cast(list[JSONObject], body["messages"]):
        if message["role"] != "system":
            told.append({"role": message["role"], "content": [_plain(block) for block in message["content"]]})
    return told


def _plain(block: JSONObject) -> JSONObject:
    return {name: value for name, value in block.items() if name != "cache_control"}


def test_a_history_of_others_is_sent_as_it_was_compiled(tmp_path: Path) -> None:
    """Guarantee 9.10: messages, calls and results, by the program's own import; and its answer is read."""
    lines = FORM.format(TALK)
    history, prompt = split_history_and_prompt(lines)
    kept = Kept(transcript_entries(history, session=SESSION, cwd=str(tmp_path)))
    with FakeVendors(Scripted(["Still raining."])) as standin:
        events = asyncio.run(asked(standin, tmp_path, kept, prompt))
        assert standin.refused == []
        (opening, *rest) = sent(standin)
    assert opening["content"][0]["text"] == "(The conversation begins with the assistant.)"
    assert rest == [line["message"] for line in lines]
    reader = FORM.create_reader()
    for event in events:
        reader.read(event)
    assert (reader.finished, reader.session, reader.message().text) == (True, SESSION, "Still raining.")
    assert reader.cursor in [entry.get("uuid") for entry in kept.entries]
    assert FORM.decode_request(kept.entries).messages[-1].text == "Still raining."


@pytest.mark.thorough
def test_an_answer_goes_on_from_results(tmp_path: Path) -> None:
    """Guarantee 9.10: a history that ends with results is continued, with text of ours after them and none between."""
    history, prompt = split_history_and_prompt(FORM.format(TALK[1:7]))
    kept = Kept(transcript_entries(history, session=SESSION, cwd=str(tmp_path)))
    interrupted = {
        "CLAUDE_CODE_RESUME_INTERRUPTED_TURN": "1",
        "CLAUDE_CODE_RESUME_PROMPT": "\n".join([block["text"] for block in prompt]),
    }
    with FakeVendors(Scripted(["It rains."])) as standin:
        asyncio.run(asked(standin, tmp_path, kept, [], **interrupted))
        assert standin.refused == []
        assert sent(standin) == [line["message"] for line in FORM.format(TALK[1:7])]
