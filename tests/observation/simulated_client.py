"""A client that makes requests as agents do: it grows, edits, rewinds, compacts, repeats and loses replies."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]


@dataclass
class Exchange:
    """One request of a client, and the reply it got. `texts` are the texts of its messages, in order."""

    client: int
    body: bytes
    reply: Wire | None
    status: int
    texts: list[str]
    headers: dict[str, str]
    action: str


@dataclass
class SimulatedClient:
    """A client of one format. `session` is sent as the session header if it is set."""

    number: int
    rng: random.Random
    format: str
    session: str = ""
    opening: str = ""
    messages: list[tuple[str, str]] = field(default_factory=list)
    tools: int = 2
    made: int = 0
    _last: bytes = b""
    _failed: bool = False

    def text(self, kind: str) -> str:
        self.made += 1
        return f"{kind} {self.number}-{self.made} " + "x" * self.rng.randrange(40)

    def next(self) -> Exchange:
        action = self._change()
        body = self._body()
        style = self.rng.choice([(",", ":"), (", ", ": ")]) if self.rng.random() < 0.1 else (",", ":")
        raw = json.dumps(body, separators=style, indent=1 if self.rng.random() < 0.02 else None).encode()
        texts = [text for _, text in self.messages]
        headers = {"x-claude-code-session-id": self.session} if self.session else {}
        # A repeated first request cannot be told from the first request of another client that begins alike.
        failure = self.rng.random() if len(self.messages) > 1 or not self.opening else 1.0
        if failure < 0.06:
            self._failed = True
            return Exchange(self.number, raw, {"error": {"message": "overloaded"}}, 529, texts, headers, action)
        if failure < 0.1:
            self._failed = True
            return Exchange(self.number, raw, None, 0, texts, headers, action)
        self._failed = False
        answer = self.text("answer")
        self.messages.append(("assistant", answer))
        return Exchange(self.number, raw, self._reply(answer), 200, texts, headers, action)

    def _change(self) -> str:
        if not self.messages:
            self.messages.append(("user", self.opening or self.text("question")))
            return "begin"
        if self._failed:
            return "retry"
        kind = self.rng.random()
        users = [index for index, (role, _) in enumerate(self.messages) if role == "user"]
        if kind < 0.06 and len(users) > 2:
            index = self.rng.choice(users[1:])
            del self.messages[index:]
            self.messages.append(("user", self.text("rewound")))
            return "rewind"
        if kind < 0.1 and len(users) > 2:
            index = self.rng.choice(users[1:])
            self.messages[index] = ("user", self.text("edited"))
            self.messages.append(("user", self.text("question")))
            return "edit"
        if kind < 0.13 and len(users) > 3 and self.session:
            self.messages = [("user", self.text("summary")), *self.messages[-3:], ("user", self.text("question"))]
            return "compact"
        if kind < 0.16 and len(users) > 4 and self.session:
            del self.messages[:2]
            self.messages.append(("user", self.text("question")))
            return "trim"
        self.messages.append(("user", self.text("question")))
        return "grow"

    def _body(self) -> Wire:
        rows = self.messages
        if self.format == "anthropic":
            sent: list[Wire] = []
            for index, (role, text) in enumerate(rows):
                marked = index >= len(rows) - 2 and role == "user"
                mark = {"cache_control": {"type": "ephemeral"}} if marked else {}
                sent.append({"role": role, "content": [{"type": "text", "text": text, **mark}] if marked else text})
            return {
                "model": "claude-opus-5-5",
                "messages": sent,
                "system": "Be brief.",
                "tools": self._tools(),
                "max_tokens": 9,
            }
        if self.format == "gemini":
            sent = [
                {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]} for role, text in rows
            ]
            return {"contents": sent, "systemInstruction": {"parts": [{"text": "Be brief."}]}}
        if self.format == "openai_responses":
            sent = [
                {
                    "type": "message",
                    "role": role,
                    "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}],
                }
                for role, text in rows
            ]
            return {"model": "gpt-5", "instructions": "Be brief.", "input": sent}
        sent = [{"role": role, "content": text} for role, text in rows]
        return {"model": "gpt-5", "messages": [{"role": "system", "content": "Be brief."}, *sent]}

    def _tools(self) -> list[Wire]:
        return [{"name": f"tool{index}", "input_schema": {"type": "object"}} for index in range(self.tools)]

    def _reply(self, text: str) -> Wire:
        if self.format == "anthropic":
            return {
                "id": f"msg_{self.made}", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 10, "output_tokens": 5},
            }  # fmt: skip
        if self.format == "gemini":
            said: Wire = {"role": "model", "parts": [{"text": text}]}
            return {
                "candidates": [{"content": said, "finishReason": "STOP", "index": 0}],
                "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
            }
        if self.format == "openai_responses":
            content: list[Wire] = [{"type": "output_text", "text": text, "annotations": []}]
            item: Wire = {
                "type": "message",
                "id": f"m{self.made}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
            return {
                "id": f"resp_{self.number}_{self.made}", "object": "response", "status": "completed", "output": [item],
                "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
            }  # fmt: skip
        return {
            "id": f"c{self.made}", "object": "chat.completion",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }  # fmt: skip
