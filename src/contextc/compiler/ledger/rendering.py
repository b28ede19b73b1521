"""Render an item and its message as the message that a model gets. Deterministic: the item determines the form.

Also executes the tool `fetch_result`, which loads a tool result that was left out of a request or shortened.
"""

import re
from collections.abc import Collection

from msgspec.structs import replace

from contextc.errors import InvalidInput, UnknownConversation, UnknownMessage
from contextc.formats.base import describe_media
from contextc.formats.reasoning_policy import ReasoningPolicy, apply_policy_to_message, contains_reasoning
from contextc.messages import AnyPart, Media, Message, Reasoning, Text, ToolResult
from contextc.messages.parts import UserNotice
from contextc.prompts.escaping import escape_markers
from contextc.store import Store
from contextc.store.ledger_schema import Item
from contextc.tools.spec import Tool

REMOVED_TEXT = "[This message was removed.]"
FETCH_TOOL = Tool(
    name="fetch_result",
    description=(
        "Reads a tool result that was left out of the conversation, or shortened, to save room. The line that stands "
        "in its place says its id."
    ),
    parameters={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id of the result, such as r57."},
            "offset": {"type": "integer", "description": "The character to begin at; 0 is the first."},
            "length": {"type": "integer", "description": "How many characters to read; at most 20000."},
        },
        "required": ["id"],
    },
)


def render_item(item: Item, message: Message | None, *, fetchable: bool = True) -> Message:
    """Return the message for an item: its text, or its stored message in the item's role and form."""
    if message is None or item.kind != "message":
        return Message(role=item.role, parts=(Text(item.text),))
    if message.redacted:
        return replace(message, role=item.role, parts=(Text(REMOVED_TEXT),) if item.role != "tool" else ())
    if (
        item.role == message.role
        and not (item.prefix or item.limit or item.decayed or item.bare or item.blind or item.failed or item.only)
        and not item.inline
        and (message.role != "user" or needs_no_escaping(message))
    ):
        return message
    parts = message.parts
    if message.role == "assistant" and (item.role != "assistant" or item.prefix):  # a prefix marks another agent
        parts = tuple([part for part in parts if type(part) is Text or type(part) is Media])
    if item.inline or item.bare:
        message = apply_policy_to_message(replace(message, parts=parts), "inline" if item.inline else "drop")
        parts = message.parts
    if item.decayed or item.limit:
        results = 0
        shorter: list[AnyPart] = []
        for part in parts:
            if type(part) is ToolResult:
                results += 1
                part = _shorten_result(part, item, _result_id(message.seq, results), fetchable)
            shorter.append(part)
        parts = tuple(shorter)
    if item.only:
        parts = select_results(parts, item.only)
    if item.blind:
        parts = tuple([_described(part) for part in parts])
    if message.role == "user" or (item.role == "user" and message.role == "assistant"):
        parts = tuple([replace(part, text=escape_markers(part.text)) if type(part) is Text else part for part in parts])
    if item.failed:
        why = message.error or ("it was cancelled" if message.status == "cancelled" else "an error")
        parts = (*parts, Text(f"\n[This message broke off: {why}]"))
    if item.prefix:
        parts = _prefixed(parts, item.prefix)
    return replace(message, role=item.role, parts=parts)


def needs_no_escaping(message: Message) -> bool:
    """Return True if no text of a message needs escaping."""
    return all([type(part) is not Text or escape_markers(part.text) == part.text for part in message.parts])


def _prefixed(parts: tuple[AnyPart, ...], prefix: str) -> tuple[AnyPart, ...]:
    for index, part in enumerate(parts):
        if type(part) is Text:
            return (*parts[:index], replace(part, text=prefix + part.text), *parts[index + 1 :])
    return (Text(prefix.rstrip()), *parts)


def _described(part: AnyPart) -> AnyPart:
    if type(part) is Media:
        return Text(describe_media(part))
    if type(part) is ToolResult and type(part.content) is not str:
        return replace(part, content=tuple([Text(describe_media(each)) if type(each) is Media else each
                                            for each in part.content]))  # fmt: skip
    return part


def _shorten_result(result: ToolResult, item: Item, name: str, fetchable: bool) -> ToolResult:
    text = result.text
    if item.decayed:
        how = f' Call {FETCH_TOOL.name} with id "{name}" to read it.' if fetchable else ""
        line = (
            f"[The result of {result.name}, {len(text):,} characters{_media(result)}, was left out to save room.{how}]"
        )
        return result if type(result.content) is str and len(text) <= len(line) else replace(result, content=line)
    if len(text) <= item.limit:
        return result
    head, tail = item.limit * 3 // 4, item.limit // 4
    gone = len(text) - head - tail
    how = f' Call {FETCH_TOOL.name} with id "{name}" and offset {head} to read on.' if fetchable else ""
    short = f"{text[:head]}\n[… {gone:,} characters were left out.{how} …]\n{text[-tail:]}"
    if type(result.content) is str:
        return replace(result, content=short)
    return replace(result, content=(Text(short), *(part for part in result.content if type(part) is Media)))


def _media(result: ToolResult) -> str:
    shown = [] if type(result.content) is str else [part.kind for part in result.content if type(part) is Media]
    return f" and {len(shown)} {shown[0]}{'s' if len(shown) > 1 else ''}" if shown else ""


def _result_id(seq: int, number: int) -> str:
    """Return the id of a result for `fetch_result`: the message's seq, and the number of the result in it."""
    return f"r{seq}" if number == 1 else f"r{seq}.{number}"


def apply_reasoning_policy(item: Item, message: Message, policy: ReasoningPolicy) -> Item:
    """Return the item with the reasoning policy applied."""
    if policy == "native" or item.role != "assistant" or not contains_reasoning(message):
        return item
    return replace(item, inline=policy == "inline", bare=policy == "drop", signed=False)


def select_results(parts: tuple[AnyPart, ...], ids: Collection[str]) -> tuple[AnyPart, ...]:
    """Return the parts, restricted to results for these call ids."""
    return tuple([part for part in parts if type(part) is not ToolResult or part.call_id in ids])


def has_model_content(message: Message) -> bool:
    """Return True if a message has any part for a model. User notices alone do not count."""
    return any(type(part) is not UserNotice and not (type(part) is Text and not part.text) for part in message.parts)


def has_media(message: Message) -> bool:
    for part in message.parts:
        if type(part) is Media:
            return True
        if (
            type(part) is ToolResult
            and type(part.content) is not str
            and any(type(each) is Media for each in part.content)
        ):
            return True
    return False


def has_signed_reasoning(message: Message, provider: str) -> bool:
    """Return True if a message has reasoning that this provider signed and expects back unchanged."""
    for part in message.parts:
        if type(part) is Reasoning and part.provider == provider and (part.signature or part.data):
            return True
    return False


RESULT_ID = re.compile(r"r(\d{1,9})(?:\.(\d{1,4}))?")
MAX_LENGTH = 20_000


def fetch_result(
    store: Store, conversation: str, agent: str, name: object, offset: object = 0, length: object = MAX_LENGTH
) -> str:
    """Return a section of a tool result as text for the model. Invalid arguments produce a text that explains the
    error.
    """
    match = RESULT_ID.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        return f"{name!r} is no id of a result. Ids look like r57, and stand in the line that says what was left out."
    start, count = _as_count(offset, 0), min(_as_count(length, MAX_LENGTH) or MAX_LENGTH, MAX_LENGTH)
    try:
        if int(match[1]) <= store.conversation(conversation).context_start:
            return f"There is no result {name} in this conversation."
        (message,) = store.load(conversation, after=int(match[1]) - 1, until=int(match[1]))
    except (UnknownMessage, UnknownConversation, InvalidInput, ValueError):
        return f"There is no result {name} in this conversation."
    results = message.tool_results
    number = int(match[2] or 1)
    if message.redacted:
        return f"The result {name} was removed."
    if not 1 <= number <= len(results) or (message.author or agent) != agent:
        return f"There is no result {name} in this conversation."
    text = results[number - 1].text
    piece = text[start : start + count]
    rest = len(text) - start - len(piece)
    if rest > 0:
        return f"{piece}\n[{rest:,} characters follow; read on with offset {start + len(piece)}.]"
    return piece or f"[The result has {len(text):,} characters; there is nothing at offset {start}.]"


def _as_count(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):
        return default
