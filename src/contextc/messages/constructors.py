"""Constructors of messages: `user("hi")`, `assistant("Let me look.", tool_calls=[…])`, `tool_result("c1", …)`."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypedDict, Unpack

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidMessage
from contextc.messages.message import Message, Role, Status, Usage
from contextc.messages.parts import AnyPart, Extra, Part, Reasoning, Text, ToolCall, ToolResult

Content: TypeAlias = str | AnyPart | Iterable[str | AnyPart]


class MessageFields(TypedDict, total=False):
    """The fields of a message that are not its content."""

    author: str | None
    recipients: tuple[str, ...]
    uid: str
    audience: str | None
    as_role: Role | None
    run: str | None
    turn: int | None
    step: int | None
    status: Status
    error: str | None
    finish: str | None
    time: int
    usage: Usage | None
    meta: JSONObject | None
    extra: Extra | None


def user(content: Content, **fields: Unpack[MessageFields]) -> Message:
    """Create a user message from text, a part, or a list of both. `author` distinguishes several users."""
    return Message(role="user", parts=_to_parts(content), **fields)


def system(content: Content, **fields: Unpack[MessageFields]) -> Message:
    """Create a system message within a conversation. `audience` limits it to one agent."""
    return Message(role="system", parts=_to_parts(content), **fields)


def assistant(
    content: Content | None = None,
    *,
    reasoning: str | Reasoning | None = None,
    tool_calls: Iterable[ToolCall] = (),
    **fields: Unpack[MessageFields],
) -> Message:
    """Create an assistant message: reasoning first, then content, then tool calls."""
    if isinstance(tool_calls, Part):
        raise InvalidMessage("must be a list of calls, got one call", field="tool_calls", fix="Pass [call].")
    thought = (Reasoning(text=reasoning) if isinstance(reasoning, str) else reasoning,) if reasoning else ()
    return Message(role="assistant", parts=(*thought, *_to_parts(content), *tool_calls), **fields)


def tool_call(id: str, name: str, arguments: str | Mapping[str, JSON]) -> ToolCall:
    """Create a tool call with arguments as an object, or as the text that the model wrote."""
    # ToolCall parses text itself; the field is typed as the parsed value.
    return ToolCall(id=id, name=name, arguments=arguments if isinstance(arguments, str) else dict(arguments))  # pyright: ignore[reportArgumentType]


def tool_result(
    call_id: str, name: str, content: object = None, *, is_error: bool = False, **fields: Unpack[MessageFields]
) -> Message:
    """Create the tool message for one call. `content` is text, parts (text and media), or a JSON value."""
    # ToolResult converts other values to text itself; the field is typed as the converted value.
    result = ToolResult(call_id=call_id, name=name, content=content, is_error=is_error)  # pyright: ignore[reportArgumentType]
    return Message(role="tool", parts=(result,), **fields)


def _to_parts(content: Content | None) -> tuple[AnyPart, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, bytes) or not isinstance(content, Iterable):
        raise InvalidMessage(
            f"must be text, a part such as Media, or a list of both, got {type(content).__name__}.",
            field="content",
        )
    return tuple(Text(each) if isinstance(each, str) else each for each in content)
