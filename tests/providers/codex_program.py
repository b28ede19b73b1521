"""The real Codex program and our client, with a temporary home and the fake API."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.formats.streams import StreamReader
from contextc.messages import ToolCall, ToolResult
from contextc.providers import Provider, ProviderCall
from contextc.providers.client import Deliver
from contextc.providers.codex.client import CodexEndpoint
from tests.fake_vendors import KEY, FakeVendors, RequestRecord

MODEL = "gpt-6.1-terra"
LOOK: JSONObject = {
    "type": "function",
    "name": "look",
    "description": "Look at a thing.",
    "inputSchema": {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
}


class CallResult(Struct):
    """Result of a call."""

    events: list[JSONObject]
    reader: StreamReader
    error: cc.errors.ProviderFailed | None = None

    @property
    def text(self) -> str:
        return self.reader.message().text

    @property
    def session(self) -> str:
        return self.reader.session

    @property
    def cursor(self) -> str:
        return self.reader.cursor

    @property
    def methods(self) -> list[str]:
        return [event["method"] for event in self.events if "method" in event]


class Host:
    """Host that approves the tools in `approved`, and runs our tools with a fixed result."""

    def __init__(self, *approved: str) -> None:
        self.approved, self.asked, self.ran = approved, list[ToolCall](), list[ToolCall]()

    async def approve(self, call: ToolCall) -> str:
        self.asked.append(call)
        return "" if call.name in self.approved else "not today"

    async def run(self, call: ToolCall) -> ToolResult:
        self.ran.append(call)
        return ToolResult(call_id=call.id, name=call.name, content=f"{call.arguments['thing']} is there")

    async def admit(self, call: ToolCall) -> str:
        return ""

    async def between_calls(self, deliver: Deliver, results: Collection[str] = ()) -> str:
        return ""


class Codex:
    """A home folder, and the clients that use it."""

    def __init__(self, home: Path, standin: FakeVendors) -> None:
        self.home, self.standin = home, standin
        home.mkdir(exist_ok=True)
        self.environment = {"HOME": str(home), "CODEX_HOME": str(home), "CODEX_TEST_KEY": KEY}

    def provider(self, **facts: Any) -> Provider:  # Any: fields of any type
        given: dict[str, Any] = {"url": self.standin.url("openai_responses"), "key": "CODEX_TEST_KEY", **facts}
        return cc.provider(f"codex:{MODEL}", **given)

    def line(self, env: Mapping[str, str] | None = None, **options: Any) -> CodexEndpoint:
        environment = {**self.environment, **(env or {})}
        return cast(CodexEndpoint, cc.endpoint(self.provider(), env=environment, **options))

    def call(self, items: str | Sequence[JSONObject], after: CallResult | None = None, **fields: Any) -> ProviderCall:
        """Return a call that continues an earlier result, or starts a new thread."""
        session: dict[str, Any] = {"session": after.session, "cursor": after.cursor} if after is not None else {}
        given: dict[str, Any] = {"directory": str(self.home), **session, **fields}
        return ProviderCall(provider=self.provider(), body=body(items, **given.pop("settings", {})), **given)

    async def ask(
        self, line: CodexEndpoint, items: str | Sequence[JSONObject], after: CallResult | None = None, **fields: Any
    ) -> CallResult:
        call = self.call(items, after, **fields)
        result = CallResult([], call.provider.formatter.create_reader())
        try:
            async with aclosing(line.stream(call)) as events:
                async for event in events:
                    result.events.append(event)
                    result.reader.read(event)
        except cc.errors.ProviderFailed as error:
            result.error = error
        return result


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def body(items: str | Sequence[JSONObject], **settings: Any) -> bytes:
    given = [text_message(items)] if isinstance(items, str) else list(items)
    return encode({"model": MODEL, "developerInstructions": "Be brief.", **settings, "items": given})


def text_message(text: str) -> JSONObject:
    return {"type": "userMessage", "content": [{"type": "text", "text": text}]}


def answered(text: str) -> JSONObject:
    return {"type": "agentMessage", "text": text}


def seen(record: RequestRecord) -> list[str]:
    """Return the items that the API received, without Codex's own: texts, and the types of calls and outputs."""
    found: list[str] = []
    for item in decode(record.raw)["input"]:
        if item["type"] != "message":
            found.append(f"{item['type']} {item.get('name') or item.get('output') or ''}".strip())
        elif item["role"] != "developer":
            texts = [block["text"] for block in item["content"]]
            found += [text for text in texts if not text.startswith("<")]
    return found


def directory(record: RequestRecord) -> str:
    """Return the last working directory that Codex reported."""
    texts = [text for item in decode(record.raw)["input"] for text in _texts(item) if "<cwd>" in text]
    return texts[-1].partition("<cwd>")[2].partition("</cwd>")[0]


def _texts(item: JSONObject) -> list[str]:
    return [block.get("text", "") for block in cast(list[JSONObject], item.get("content") or [])]
