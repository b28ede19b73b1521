"""The real Claude Code program with the fake API, in a temporary home and with a fake key."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from contextc._json import JSON, JSONObject, decode, encode
from contextc.messages import ToolCall, ToolResult
from contextc.providers import ProviderCall, endpoint, provider
from contextc.providers.claude_code.client import ClaudeCodeEndpoint
from contextc.providers.client import Deliver
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Fault, Reply, RequestRecord, faults

MODEL = "claude-opus-5-5"
KEY_NAME = "STAND_IN_KEY"
SLOW = "Take your time."


class ProgramReply(NamedTuple):
    """Result of a call."""

    lines: list[JSONObject]
    pid: int

    @property
    def notes(self) -> list[str]:
        return [line["text"] for line in self.lines if line["type"] == "contextc.note"]

    @property
    def session(self) -> str:
        return next(line["session_id"] for line in self.lines if "session_id" in line)

    @property
    def cursor(self) -> str:
        return [line["uuid"] for line in self.lines if line["type"] == "assistant"][-1]

    @property
    def text(self) -> str:
        return self.lines[-1]["result"]


class Host:
    """Host that runs our tools with a fixed result and denies the CLI's own tools."""

    def __init__(self, result: str = "12 degrees", why_not: str = "Not today.") -> None:
        self.result, self.why_not = result, why_not
        self.ran: list[ToolCall] = []
        self.asked: list[ToolCall] = []

    async def approve(self, call: ToolCall) -> str:
        self.asked.append(call)
        return self.why_not

    async def run(self, call: ToolCall) -> ToolResult:
        self.ran.append(call)
        return ToolResult(call_id=call.id, name=call.name, content=self.result)

    async def admit(self, call: ToolCall) -> str:
        return ""

    async def between_calls(self, deliver: Deliver, results: Collection[str] = ()) -> str:
        return ""


def echo(ask: AcceptedRequest) -> Reply:
    """Script that repeats the last message."""
    return Reply(f"You said: {last_text(ask.body)}")


def last_text(body: JSONObject) -> str:
    users = [message for message in body["messages"] if message["role"] == "user"]
    return [block.get("text", "") for block in _blocks(users[-1])][-1]


def slow_where_asked(ask: AcceptedRequest) -> Fault | None:
    return faults.stalled(0.6) if last_text(ask.body) == SLOW else None


def environment(home: Path) -> dict[str, str]:
    """Return the environment that restricts a CLI to the fake API."""
    return {
        KEY_NAME: KEY,
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


@asynccontextmanager
async def opened(standin: FakeVendors, home: Path, **options: JSON) -> AsyncGenerator[ClaudeCodeEndpoint, None]:
    """Open an endpoint and close it at the end of the context."""
    async with line_to(standin, home, **options) as found:
        yield found


def line_to(standin: FakeVendors, home: Path, **options: JSON) -> ClaudeCodeEndpoint:
    """Return an endpoint. Our system prompt replaces the CLI's, to keep requests small."""
    replies = provider(f"claude-code:{MODEL}", url=standin.url("anthropic"), key=KEY_NAME)
    env = environment(home) | options.pop("env", {})
    found = endpoint(replies, **{"env": env, "prompt": "replace", **options})
    assert isinstance(found, ClaudeCodeEndpoint)
    return found


def user(content: JSON) -> JSONObject:
    return {"type": "user", "message": {"role": "user", "content": content}}


def assistant(*content: str | JSONObject) -> JSONObject:
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    return {"type": "assistant", "message": {"role": "assistant", "content": blocks}}


def call_of(endpoint: ClaudeCodeEndpoint, home: Path, *messages: JSONObject | str, **fields: JSON) -> ProviderCall:
    """Return a call like those of the executor. `body` adds fields to the body."""
    body: JSONObject = {
        "model": MODEL,
        "system_prompt": "Be brief.",
        "include_partial_messages": True,
        "builtin_tools": [],
        "setting_sources": [],
        **fields.pop("body", {}),
        "messages": [user(each) if isinstance(each, str) else each for each in messages],
    }
    after: ProgramReply | None = fields.pop("after", None)
    where: JSONObject = {"session": after.session, "cursor": after.cursor} if after is not None else {}
    given: JSONObject = {"provider": endpoint.provider, "directory": str(home), **where, **fields}
    return ProviderCall(body=encode(body), **given)


async def call_program(
    endpoint: ClaudeCodeEndpoint, home: Path, *messages: JSONObject | str, **fields: JSON
) -> ProgramReply:
    """Send a call and return its result. `after` is the last reply of the session."""
    lines: list[JSONObject] = []
    pid = 0
    async for line in endpoint.stream(call_of(endpoint, home, *messages, **fields)):
        lines.append(line)
        pid = next((live.pid for live in endpoint.running if live.session == line.get("session_id")), pid)
    return ProgramReply(lines, pid)


async def stream_after_first_delta(
    endpoint: ClaudeCodeEndpoint, call: ProviderCall
) -> AsyncGenerator[JSONObject, None]:
    """Start a call and return its stream after the first delta."""
    lines = endpoint.stream(call)
    async for line in lines:
        if line["type"] == "stream_event" and line["event"]["type"] == "content_block_delta":
            break
    return lines


def shown(record: RequestRecord) -> list[tuple[str, str]]:
    """Return role and text of the messages in a request, without the CLI's own messages."""
    body: JSONObject = decode(record.raw)
    found = [(message["role"], block) for message in body["messages"] for block in _blocks(message)]
    return [(role, _block_text(block)) for role, block in found if role != "system" and not _is_reminder(block)]


async def gone(pid: int, seconds: float = 60.0) -> bool:
    """Return True if a process ends within the given seconds."""
    return await _becomes(lambda: not os.path.exists(f"/proc/{pid}"), seconds)


async def _becomes(true: Callable[[], bool], seconds: float) -> bool:
    for _ in range(int(seconds / 0.02)):
        if true():
            return True
        await asyncio.sleep(0.02)
    return true()


def _blocks(message: JSONObject) -> list[JSONObject]:
    content: JSON = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is_reminder(block: JSONObject) -> bool:
    return str(block.get("text", "")).startswith("<system-reminder>")


def _block_text(block: JSONObject) -> str:
    match block["type"]:
        case "text":
            return block["text"]
        case "tool_use":
            return f"{block['id']}: {block['name']}({encode(block['input']).decode()})"
        case "tool_result":
            return f"{block['tool_use_id']}: {''.join(_block_text(each) for each in _blocks(block))}"
        case other:
            return other
