"""Clients of two APIs with a cache each, for tests of cache misses."""

import json
from typing import Any

import contextc as cc
from contextc.analysis import Finding
from tests.analysis.observed_run import find_by_request

MODEL = "claude-sonnet-4-5"
CHAT_MODEL = "gpt-5.2"
MARK = {"type": "ephemeral"}
MINUTE = 60_000
SYSTEM = "You help with this project, and follow its rules. " * 300
FILE = "def main(): return run(parse(read(path)))  # of the project\n" * 150
Body = dict[str, Any]


def tool(name: str, text: str = "") -> Body:
    return {"name": name, "description": text or f"Run {name}. " * 40, "input_schema": {"type": "object"}}


class Client:
    """A client of the Messages API. By default, the provider reads from its cache what the request before sent."""

    format, provider = "anthropic", "anthropic"

    def __init__(self, **settings: Any) -> None:
        self.store = cc.open_store("memory:")
        self.settings: Body = {"model": MODEL, "max_tokens": 500, **settings}
        self.system: list[str] = [SYSTEM]
        self.tools = [tool("read"), tool("write"), tool("search")]
        self.messages: list[Body] = [{"role": "user", "content": [{"type": "text", "text": "Find the bug."}]}]
        self.time = 1_790_000_000_000
        self.marks = True
        self.previous = 0
        self.conversation: str | None = "c"

    def body(self) -> Body:
        messages: list[Body] = json.loads(json.dumps(self.messages))
        system: list[Body] = [{"type": "text", "text": text} for text in self.system]
        if self.marks:
            messages[-1]["content"][-1]["cache_control"] = MARK
            system[-1]["cache_control"] = MARK
        return {**self.settings, "system": system, "tools": self.tools, "messages": messages}

    def send(self, read: int | None = None, *, seconds: int = 5, status: int = 200) -> "Client":
        """Send a request; the model then calls a tool. Without `read`, the cache hits."""
        body = self.body()
        total = len(json.dumps(body)) // 4
        reply, said = self.answer(total, self.previous if read is None else read, len(self.messages))
        cc.observe(
            self.store, request=json.loads(json.dumps(body)), reply=reply, conversation=self.conversation,
            time=self.time, ended=self.time + seconds * 1_000, status=status, format=self.format,
            provider=self.provider,
        )  # fmt: skip
        self.previous = total
        self.time += 20_000
        self.messages = [*self.messages, *said]
        return self

    def answer(self, total: int, read: int, number: int) -> tuple[Body, list[Body]]:
        """Return a reply that calls a tool, and its message with the result of the call."""
        call = {"type": "tool_use", "id": f"toolu_{number:04}", "name": "read", "input": {"path": f"f{number}.py"}}
        usage = {
            "input_tokens": 5, "output_tokens": 20, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(0, total - read - 5),
        }  # fmt: skip
        reply = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": self.settings["model"],
            "content": [call], "stop_reason": "tool_use", "usage": usage,
        }  # fmt: skip
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"# {number}\n{FILE}"}
        return reply, [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]

    def work(self, count: int) -> "Client":
        self.send(0)
        for _ in range(count - 1):
            self.send()
        return self

    def findings(self) -> list[Finding]:
        return [each for each in find_by_request(self.store, "c") if each.code.startswith("CAC")]

    def last(self) -> Finding:
        """Return the only finding after that of the first request."""
        first, *rest = self.findings()
        assert first.cause == "first_request"
        assert first.request == 1
        assert len(rest) == 1, [each.cause for each in rest]
        return rest[0]


class ChatClient(Client):
    """A client of Chat Completions, whose provider caches every prefix in blocks of 128 tokens."""

    format, provider = "openai_chat", "openai"

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = {"model": CHAT_MODEL, **settings}
        self.messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Find the bug."}]
        self.tools: list[Body] = [
            {"type": "function", "function": {"name": name, "description": f"Run {name}. " * 60, "parameters": {}}}
            for name in ("read", "write", "search")
        ]

    def body(self) -> Body:
        return {**self.settings, "tools": self.tools, "messages": self.messages}

    def answer(self, total: int, read: int, number: int) -> tuple[Body, list[Body]]:
        function = {"name": "read", "arguments": json.dumps({"path": f"f{number}.py", "limit": 10})}
        call = {"id": f"call_{number:04}c0ffee", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        reply = {
            "id": f"c{number}", "object": "chat.completion", "created": 1, "model": self.settings["model"],
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": {"prompt_tokens": total, "completion_tokens": 20, "total_tokens": total + 20,
                      "prompt_tokens_details": {"cached_tokens": read // 128 * 128}},
        }  # fmt: skip
        return reply, [message, {"role": "tool", "tool_call_id": call["id"], "content": f"# {number}\n{FILE}"}]
