"""Facts about one line of a request: causes of its tokens, tools, calls with their values, results with their calls."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from contextc._json import JSON, JSONObject, encode
from contextc.messages import AnyPart, Media, Message, Reasoning, ToolCall, ToolResult, UserNotice
from contextc.messages.message import to_plain_text

LineCause: TypeAlias = Literal["system", "tool", "result", "history", "reasoning", "media"]
CAUSES: tuple[LineCause, ...] = ("system", "tool", "result", "history", "reasoning", "media")
ResultStatus: TypeAlias = Literal["ok", "error", "denied"]
DENIED_TEXTS = (
    "Not run: the user declined",
    "Not run: this tool needs a person's approval",
    "Not run: the call was altered while it waited for approval",
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "exec command rejected by user",
    "rejected by user",
)
"""Beginnings of results of calls that were not allowed to run: of contextc, Claude Code and Codex."""


class LineCall(NamedTuple):
    """A tool call. `text` is the call with its values; `result` is the number of the line with its result."""

    id: str
    name: str
    text: str
    result: int | None = None


class LineResult(NamedTuple):
    """A tool result. `call` is the number of the line that has the call."""

    call_id: str
    name: str
    status: ResultStatus
    call: int | None = None


class LineDetails(NamedTuple):
    """Facts about one line. `definition` is the tool definition of a line that is one.

    `is_again` is True if the previous request had the message too, but not in the shared prefix. `is_paid_again` is
    True if it is in the shared prefix, but was not read from the cache. `is_changed` is True for a system prompt or
    tool of which the previous request had another version.
    """

    causes: tuple[LineCause, ...]
    calls: tuple[LineCall, ...] = ()
    results: tuple[LineResult, ...] = ()
    is_again: bool = False
    name: str = ""
    definition: JSONObject | None = None
    is_paid_again: bool = False
    is_changed: bool = False

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that this line defines, calls, or has results of."""
        names = [self.name, *(each.name for each in self.calls), *(each.name for each in self.results)]
        return tuple(dict.fromkeys([each for each in names if each]))

    @property
    def is_error(self) -> bool:
        return any([each.status != "ok" for each in self.results])


def describe_parts(parts: Sequence[AnyPart], is_again: bool = False, *, short: bool = False) -> LineDetails:
    """Return the facts about a message with these parts. Calls and results are not paired yet.

    With `short`, calls have no text.
    """
    calls = [
        LineCall(part.id, part.name, "" if short else format_call(part)) for part in parts if type(part) is ToolCall
    ]
    results = [LineResult(part.call_id, part.name, result_status(part)) for part in parts if type(part) is ToolResult]
    causes: dict[LineCause, None] = dict.fromkeys([cause_of(part) for part in parts if type(part) is not UserNotice])
    return LineDetails(tuple(causes) or ("history",), tuple(calls), tuple(results), is_again)


def cause_of(part: AnyPart) -> LineCause:
    """Return the cause of the tokens of a part, as the costs by cause name it."""
    if isinstance(part, Media):
        return "media"
    if isinstance(part, ToolResult):
        has_media = not isinstance(part.content, str) and any([isinstance(each, Media) for each in part.content])
        return "media" if has_media else "result"
    return "reasoning" if isinstance(part, Reasoning) else "history"


def result_status(part: ToolResult) -> ResultStatus:
    if part.text.startswith(DENIED_TEXTS):
        return "denied"
    return "error" if part.is_error else "ok"


def format_call(call: ToolCall) -> str:
    """Return a call with its values, such as `read_file(path="a.py", limit=20)`."""
    if call.malformed:
        return f"{call.name}({call.raw or ''})"
    return f"{call.name}({', '.join([f'{name}={_value(value)}' for name, value in call.arguments.items()])})"


def _value(value: JSON) -> str:
    return encode(value).decode()


def searched_text(message: Message) -> str:
    """Return the text of a message that a search covers: all texts, reasoning, calls and results."""
    if message.redacted:
        return to_plain_text(message)
    extra = [
        part.text if isinstance(part, Reasoning) else format_call(part)
        for part in message.parts
        if isinstance(part, Reasoning | ToolCall)
    ]
    return "\n".join([to_plain_text(message), *extra]) if extra else to_plain_text(message)


def pair_details(lines: Iterable[tuple[int, LineDetails]]) -> Mapping[int, LineDetails]:
    """Return the lines, in order, with calls and results paired. A result belongs to the last call with its id."""
    found: dict[int, LineDetails] = {}
    open_calls: dict[str, tuple[int, int]] = {}
    for number, line in lines:
        if not line.calls and not line.results:
            found[number] = line
            continue
        for place, call in enumerate(line.calls):
            open_calls[call.id] = (number, place)
        results: list[LineResult] = []
        for each in line.results:
            where = open_calls.pop(each.call_id, None)
            if where is None:
                results.append(each)
                continue
            caller = line if where[0] == number else found[where[0]]
            call = caller.calls[where[1]]
            results.append(each._replace(call=where[0], name=each.name or call.name))
            calls = (*caller.calls[: where[1]], call._replace(result=number), *caller.calls[where[1] + 1 :])
            if where[0] == number:
                line = line._replace(calls=calls)
            else:
                found[where[0]] = caller._replace(calls=calls)
        found[number] = line._replace(results=tuple(results))
    return found
