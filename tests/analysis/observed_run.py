"""Conversations for tests of findings: a client of Anthropic's API whose requests grow, and whose cache always hits."""

from typing import Any

import contextc as cc
from contextc.analysis import Finding
from contextc.analysis.conversation_findings import find_all
from contextc.analysis.conversation_loader import load_conversation_view

MODEL = "claude-sonnet-4-5"
MARK = {"type": "ephemeral"}
TOKEN_LETTERS = 4


def find_by_request(store: cc.Store, conversation: str) -> list[Finding]:
    """Return the findings of a conversation: cache misses by request, then all others."""
    return find_all(load_conversation_view(store, conversation))


def words(count: int, seed: str = "w") -> str:
    """Return a text of about that many tokens, without repetition."""
    return " ".join([f"{seed}{number:x}" for number in range(count // 2)])


def define_tool(name: str, tokens: int = 40) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"name": name, "description": f"{name}: {words(tokens, name[:1])}", "input_schema": schema}


class ObservedRun:
    """A client that records its exchanges. Each `send` is one request and its reply."""

    def __init__(
        self,
        *,
        tools: list[dict[str, Any]] | None = None,
        system: str = "You help.",
        model: str = MODEL,
        store: cc.Store | None = None,
    ) -> None:
        self.store = store or cc.open_store("memory:")
        self.messages: list[dict[str, Any]] = []
        self.tools, self.system, self.model = tools or [], system, model
        self.time, self.count, self.cached = 1_000_000, 0, 0
        self.conversation = ""

    def body(self) -> dict[str, Any]:
        return {
            "model": self.model, "max_tokens": 1_000, "system": self.system, "tools": self.tools,
            "messages": self.messages, "cache_control": MARK,
        }  # fmt: skip

    def ask(self, *content: Any) -> None:
        """Add a message of the user."""
        blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
        self.messages.append({"role": "user", "content": blocks})

    def send(self, *content: dict[str, Any], stop: str = "end_turn", output: int = 50) -> Any:
        """Send everything so far. The reply has some content, which is added to the messages."""
        said = list(content) or [{"type": "text", "text": f"Answer {self.count}."}]
        total = sum([len(str(each)) for each in (*self.messages, *self.tools, self.system)])
        total //= TOKEN_LETTERS
        usage = {
            "input_tokens": 10, "cache_read_input_tokens": self.cached,
            "cache_creation_input_tokens": max(0, total - self.cached - 10), "output_tokens": output,
        }  # fmt: skip
        reply = {
            "id": f"msg_{self.count}", "type": "message", "role": "assistant", "model": self.model, "content": said,
            "stop_reason": stop, "usage": usage,
        }  # fmt: skip
        seen = self._observe(reply=reply)
        self.cached = max(self.cached, total - 10)
        self.messages.append({"role": "assistant", "content": said})
        return seen

    def fail(self, status: int, text: str) -> Any:
        """Send everything so far, and get an error."""
        reply = {"type": "error", "error": {"type": "api_error", "message": text}}
        return self._observe(reply=reply, status=status)

    def call(self, name: str, result: Any, **arguments: Any) -> None:
        """Let the model call a tool, and add its result."""
        id = f"toolu_{self.count}"
        self.send({"type": "tool_use", "id": id, "name": name, "input": arguments}, stop="tool_use")
        self.messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}
        )

    def _observe(self, **facts: Any) -> Any:
        self.count += 1
        self.time += 10_000
        seen = cc.observe(
            self.store, request=self.body(), format="anthropic", time=self.time, ended=self.time + 2_000,
            conversation="run", url="https://api.anthropic.com/v1/messages", **facts,
        )  # fmt: skip
        self.conversation = seen.conversation
        return seen
