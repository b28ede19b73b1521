"""The short way to write a message: `user("hi")`, `assistant("Let me look.", tool_calls=[…])`, `tool_result("c1",
…)`.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypedDict, Unpack

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidMessage
from contextc.messages.message import Message, Role, Status, Usage
from contextc.messages.parts import AnyPart, Extra, Part, Reasoning, Text, ToolCall, ToolResult

Content: TypeAlias = str | AnyPart | Iterable[str | AnyPart]


class Circumstance(TypedDict, total=False):
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


def user(content: Content, **fields: Unpack[Circumstance]) -> Message:
    """What a person said: text, a part, or several of both. `author` tells several people apart."""
    return Message(role="user", parts=_parts(content), **fields)


def system(content: Content, **fields: Unpack[Circumstance]) -> Message:
    """A system message between two others. `audience` makes it one agent's alone."""
    return Message(role="system", parts=_parts(content), **fields)


def assistant(
    content: Content | None = None,
    *,
    reasoning: str | Reasoning | None = None,
    tool_calls: Iterable[ToolCall] = (),
    **fields: Unpack[Circumstance],
) -> Message:
    """What a model said: its reasoning first, then its content, then its calls."""
    if isinstance(tool_calls, Part):
        raise InvalidMessage("one call is not a list of calls. Write tool_calls=[call].", field="tool_calls")
    thought = (Reasoning(text=reasoning) if isinstance(reasoning, str) else reasoning,) if reasoning else ()
    return Message(role="assistant", parts=(*thought, *_parts(content), *tool_calls), **fields)


def tool_call(id: str, name: str, arguments: str | Mapping[str, JSON]) -> ToolCall:
    """A call; its arguments as an object, or as the text the model wrote."""
    # ToolCall takes text apart by itself; its field is typed as what it holds afterwards.
    return ToolCall(id=id, name=name, arguments=arguments if isinstance(arguments, str) else dict(arguments))  # pyright: ignore[reportArgumentType]


def tool_result(
    call_id: str, name: str, content: object = None, *, is_error: bool = False, **fields: Unpack[Circumstance]
) -> Message:
    """The answer to one call. `content` is text, parts (text and media), or anything JSON can hold."""
    # ToolResult turns every other value into text by itself; its field is typed as what it holds afterwards.
    result = ToolResult(call_id=call_id, name=name, content=content, is_error=is_error)  # pyright: ignore[reportArgumentType]
    return Message(role="tool", parts=(result,), **fields)


def _parts(content: Content | None) -> tuple[AnyPart, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, bytes) or not isinstance(content, Iterable):
        raise InvalidMessage(
            f"a {type(content).__name__} is not content. Give text, a part such as Media, or a list of both.",
            field="content",
        )
    return tuple(Text(each) if isinstance(each, str) else each for each in content)
