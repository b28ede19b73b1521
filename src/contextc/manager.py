"""The small front door: a history you add to, and hand to a vendor's own SDK in the shape it wants.

It lives in memory, or on any store. The formatter may be changed at any time, because a history does not depend on it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.errors import InvalidMessage, InvalidSetting, UnknownConversation
from contextc.formats.base import Formatter
from contextc.messages import (
    AnyPart,
    Content,
    Media,
    Message,
    ToolCall,
    ToolResult,
    assistant,
    tool_call,
    tool_result,
    user,
)
from contextc.store import Store, open_store

log = logging.getLogger("contextc.manager")

Call = ToolCall | Mapping[str, Any]
"""A call as we have it, or as OpenAI writes it: `{"id": …, "function": {"name": …, "arguments": "…"}}`."""


class MessageManager:
    def __init__(
        self,
        formatter: Formatter,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        store: Store | None = None,
        conversation: str = "conversation",
    ) -> None:
        """`store` and `conversation` say where the history is kept; by default in memory."""
        if max_tokens is not None:
            raise InvalidSetting(
                "max_tokens is not enforced in this version, and a limit that does not limit would be worse than none. "
                "Leave it out."
            )
        self.formatter = formatter
        self._system_prompt = system_prompt or None
        self._store, self._conversation = store if store is not None else open_store("memory:"), conversation

    def add_message(self, message: Message | Mapping[str, Any]) -> Message:
        """Add a message of ours, or one as `{"role": …, "content": …}` with `tool_calls`, `tool_call_id` and `name`."""
        stored = self._store.append(
            self._conversation, message if isinstance(message, Message) else _from_plain(message)
        )
        log.info("added message %d: %s", stored.seq, stored.role)
        log.debug("message %d says: %s", stored.seq, stored.text)
        return stored

    def add_user_message(self, content: Content) -> Message:
        return self.add_message(user(content))

    def add_assistant_message(
        self, content: Content | None = None, tool_calls: Sequence[Call] | None = None
    ) -> Message:
        return self.add_message(assistant(content, tool_calls=[_call(each) for each in tool_calls or ()]))

    def add_tool_result(self, tool_call_id: str, name: str, result: object, *, is_error: bool = False) -> Message:
        return self.add_message(tool_result(tool_call_id, name, result, is_error=is_error))

    def set_system_prompt(self, prompt: str | None) -> None:
        self._system_prompt = prompt or None

    def get_system_prompt(self) -> str | None:
        return self._system_prompt

    def get_formatted_messages(self) -> list[JSONObject]:
        """The history in the formatter's shape: the `messages` of that vendor's own SDK call."""
        messages = self.formatter.format([self._with_bytes(each) for each in self.messages], self._system_prompt)
        log.info("formatted %d messages for %s", len(messages), self.formatter.name)
        return messages

    def get_formatted_system_prompt(self) -> str | None:
        """The system prompt, where the format has a place of its own for it; it is among the messages elsewhere."""
        return self.formatter.get_system_prompt(self._system_prompt)

    def reset(self) -> None:
        """Begin anew. On a store, what was said stays in the record."""
        if self.messages:
            self._store.reset(self._conversation)

    @property
    def messages(self) -> list[Message]:
        """What was said since the beginning, or since the last reset."""
        try:
            edge = self._store.conversation(self._conversation).edge
        except UnknownConversation:
            return []
        return self._store.load(self._conversation, after=edge)

    def _with_bytes(self, message: Message) -> Message:
        """The message with its media's bytes where they are needed, which is here."""
        if not any(isinstance(part, Media | ToolResult) for part in message.parts):
            return message
        return replace(message, parts=tuple(self._attached(part) for part in message.parts))

    def _attached(self, part: AnyPart) -> AnyPart:
        if isinstance(part, Media) and part.blob is not None:
            return replace(part, data=self._store.blob(part.blob), blob=None)
        if isinstance(part, ToolResult) and not isinstance(part.content, str):
            return replace(part, content=tuple(cast(Any, self._attached(each)) for each in part.content))
        return part


def _from_plain(message: Mapping[str, Any]) -> Message:
    match message.get("role"):
        case "tool" | "function":
            return tool_result(message.get("tool_call_id") or "", message.get("name") or "", message.get("content"))
        case "assistant":
            return assistant(
                message.get("content"), tool_calls=[_call(each) for each in message.get("tool_calls") or ()]
            )
        case "user":
            return user(message.get("content") or "")
        case "system":
            return replace(user(message.get("content") or ""), role="system")
        case role:
            raise InvalidMessage(f"{role!r} is no role. Use system, user, assistant or tool.", field="role")


def _call(call: Call) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function") or call
    return tool_call(call.get("id") or "", function.get("name") or "", function.get("arguments") or {})
