"""The small front door: a history you add to, and hand to a vendor's own SDK in the shape it wants.

It lives in memory, or on any store. The formatter may be changed at any time, because a history does not depend on it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.compiler import Compiled, MessageCompiler
from contextc.errors import InvalidMessage, InvalidSetting, StaleCompile, UnknownConversation
from contextc.formats.base import Formatter, as_json
from contextc.formats.named import formatter as named_formatter
from contextc.formats.named import tool_formatter
from contextc.messages import (
    AnyPart,
    Content,
    Message,
    ToolCall,
    assistant,
    system,
    tool_call,
    tool_result,
    user,
)
from contextc.models import Model, model
from contextc.providers import Provider
from contextc.store import Store, open_store
from contextc.tools import NativeTool, Tool

log = logging.getLogger("contextc.manager")

ENDLESS = 1 << 40
CHAT_ONLY = {"tool_calls", "tool_call_id", "function_call"}
CHAT_ROLES = ("tool", "function", "developer")
Call = ToolCall | Mapping[str, Any]
"""A call as we have it, or as OpenAI writes it: `{"id": …, "function": {"name": …, "arguments": "…"}}`."""


class MessageManager:
    """A history that is handed to one vendor's SDK, or to another's."""

    def __init__(
        self,
        formatter: Formatter,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        model: str | None = None,
        store: Store | None = None,
        conversation: str = "conversation",
    ) -> None:
        """`max_tokens` caps everything that is sent: system prompt, tools and messages. `model` says by whose tokens.

        `store` and `conversation` say where the history is kept; by default in memory.
        """
        if max_tokens is not None and (
            isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1
        ):
            raise InvalidSetting(
                f"max_tokens={max_tokens!r}: give the tokens that system prompt and messages may take."
            )
        if not isinstance(formatter, Formatter):
            raise InvalidSetting(
                f"{formatter!r} is not a formatter. Write cc.OpenAIFormatter(), cc.AnthropicFormatter() …"
            )
        self.formatter = formatter
        self._system_prompt = system_prompt or None
        self._tools: tuple[Tool | NativeTool, ...] = ()
        self._names: dict[str, str] = {}
        self._store, self._conversation = store if store is not None else open_store("memory:"), conversation
        self._max_tokens, self._model = max_tokens, model
        self._compiler: MessageCompiler | None = None
        self._sent: Compiled | None = None

    def add_message(self, message: Message | Mapping[str, Any]) -> Message:
        """Add a message of ours, or a dict: as OpenAI's chat has it, or as the formatter's own provider does."""
        stored = self._stored(self._taken(message))
        self._names |= {call.id: call.name for call in stored.tool_calls}
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

    def add_reply(self, reply: object) -> Message:
        """Add what a model answered: the reply of the vendor's own SDK, or its JSON."""
        message = self.formatter.decode_reply(reply)
        return self.add_message(self.formatter.spelling.named(message, self._tools))

    def set_system_prompt(self, prompt: str | None) -> None:
        self._system_prompt = prompt or None

    def get_system_prompt(self) -> str | None:
        return self._system_prompt

    def get_formatted_messages(self) -> list[JSONObject]:
        """The history in the formatter's shape, within the limit: the `messages` of that vendor's own SDK call.

        Where it does not all fit, whole turns are left out, oldest first; `ContextOverflow` where even the last does
        not fit. Read what you get, don't write: it is shared with the next.
        """
        try:
            self._sent = self._compiled()
        except UnknownConversation:
            return []
        messages: list[JSONObject] = self._sent.params.get(self.formatter.messages_key, [])
        log.info("formatted %d messages for %s", len(messages), self.formatter.name)
        return messages

    def _compiled(self) -> Compiled:
        if self._compiler is None or self._compiler.provider.formatter is not self.formatter:
            self._compiler = MessageCompiler(self._store, _spoken(self.formatter, self._model), fetch=False)
        return self._compiler.compile(
            self._conversation, system_prompt=self._system_prompt, tools=self._tools, budget=self._max_tokens
        )

    def _stored(self, message: Message) -> Message:
        """Append a message; an answer to what was handed out last, with what that was."""
        sent, self._sent = self._sent, None
        if sent is not None and message.role == "assistant" and sent.is_new and self._compiler is not None:
            try:
                return self._compiler.commit(sent, message)[0]
            except StaleCompile:  # another one wrote in between
                pass
        return self._store.append(self._conversation, message)

    def get_formatted_system_prompt(self) -> str | None:
        """The system prompt, where the format has a place of its own for it; it is among the messages elsewhere.

        System messages that the history begins with are part of it.
        """
        leading = takewhile(lambda message: message.role == "system", self.messages)
        texts = [*(message.text for message in leading), self._system_prompt or ""]
        return self.formatter.get_system_prompt("\n\n".join(text for text in texts if text.strip()))

    def get_formatted_tools(self, tools: Iterable[Tool | NativeTool | Mapping[str, Any]]) -> list[JSONObject]:
        """The tools in the formatter's shape. Calls in later replies name them as you did.

        A dict is read as OpenAI's chat writes a tool, or as the formatter's own provider does.
        """
        self._tools = tuple(self._tool(tool) for tool in tools)
        return self.formatter.encode_tools(self._tools)

    def _tool(self, tool: Tool | NativeTool | Mapping[str, Any]) -> Tool | NativeTool:
        if isinstance(tool, Tool | NativeTool):
            return tool
        (read,) = tool_formatter(tool, self.formatter).decode_tools([dict(tool)])
        return read

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

    def _taken(self, message: object) -> Message:
        if isinstance(message, Message):
            return message
        if isinstance(message, str):
            raise InvalidMessage('a text alone does not say who said it. Write add_user_message("…").')
        plain = as_json(message)
        if not CHAT_ONLY & plain.keys() and plain.get("role") not in CHAT_ROLES:
            form = self.formatter
            if not form.rules.read([plain]).misshapen:
                found = form.decode_request([plain])
                said = [*([found.system] if found.system is not None else []), *found.messages]
                if len(said) == 1:
                    return said[0]
        return self._from_plain(plain)

    def _from_plain(self, message: Mapping[str, Any]) -> Message:
        content = _content(message.get("content"))
        match message.get("role"):
            case "tool" | "function":
                call_id = message.get("tool_call_id") or ""
                name = message.get("name") or self._name_of(call_id)
                return tool_result(call_id, name, message.get("content") if isinstance(content, str) else content)
            case "assistant":
                return assistant(content, tool_calls=[_call(each) for each in message.get("tool_calls") or ()])
            case "user":
                return user(content)
            case "system" | "developer":
                return system(content)
            case role:
                raise InvalidMessage(f"{role!r} is no role. Use system, user, assistant or tool.", field="role")

    def _name_of(self, call_id: str) -> str:
        """The name of the tool that a call asked for: OpenAI's results do not say it."""
        if call_id not in self._names:
            self._names |= {call.id: call.name for message in self.messages for call in message.tool_calls}
        return self._names.get(call_id, "")


def _content(content: object) -> str | list[AnyPart]:
    """A text, or the parts of a list of blocks."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else "" if content is None else str(content)
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in cast(list[object], content)]
    request = named_formatter("openai_chat").decode_request({"messages": [{"role": "user", "content": blocks}]})
    return list(request.messages[0].parts)


def _spoken(formatter: Formatter, model_name: str | None) -> Provider:
    """A provider that is nothing but a formatter, and a window without end where no model is named."""
    known = model(model_name) if model_name else Model(name="", house="", window=ENDLESS, output=0, tokenizer="unknown")
    facts = replace(known, media=("image", "audio", "video", "document"), cache_points=0, binds_reasoning=False)
    return Provider(name=formatter.provider, model=facts, format=formatter.name, asks_for=known.name, speaks=formatter)


def _call(given: Call | object) -> ToolCall:
    if isinstance(given, ToolCall):
        return given
    call = as_json(given)
    function = call.get("function") or call
    return tool_call(call.get("id") or "", function.get("name") or "", function.get("arguments") or {})
