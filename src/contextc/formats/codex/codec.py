"""Codex: items, events, turns and rollouts, encoded and decoded."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import ClassVar, Literal, NamedTuple, TypeAlias, assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, encode_canonical
from contextc.formats.base import (
    NO_PARAMETERS,
    EncodedSegment,
    PartEncoder,
    Request,
    append_text,
    decode_definition,
    extra_of,
    merge_extra,
    other_fields,
    own_extra,
    text_of,
    with_extra,
)
from contextc.formats.lint_engine import FieldTypes
from contextc.formats.message_preparation import (
    IdentifierCodec,
    NameCodec,
    decode_base64,
    from_data_url,
    guess_media_type,
    media_from_url,
    to_data_url,
)
from contextc.formats.openai_responses import OpenAIResponsesFormatter
from contextc.formats.request_settings import object_or_empty
from contextc.messages import (
    SYSTEM_CONTEXT,
    AnyPart,
    Extra,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserNotice,
    tool_call,
)
from contextc.tools.definitions import NativeTool, Tool

# ── names and ids ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Tool names and call ids as Codex accepts them: those of the Responses API, except reserved names.
#
# Codex refuses reserved names: "dynamic tool name is reserved: mcp__x". They are encoded like names with invalid
# characters.


RESERVED_PREFIX = "mcp__"
ENCODED_PREFIX = "mcp_x5F__"


class UnreservedNames(IdentifierCodec):
    """Tool names, except those that Codex reserves for tools of MCP servers."""

    reserved: ClassVar[str] = RESERVED_PREFIX

    def is_unchanged(self, text: str) -> bool:
        return super().is_unchanged(text) and not text.startswith(self.reserved)

    def _reencode(self, text: str) -> str:
        if not text.startswith(self.reserved):
            return super()._reencode(text)
        rest = super()._reencode(text.removeprefix(self.reserved)) if text != self.reserved else ""
        whole = ENCODED_PREFIX + rest
        return whole if self._sound.fullmatch(whole) else super()._reencode(f"_{text}")


IDS = IdentifierCodec("a-zA-Z0-9_-", 64, accepted=".{1,64}")
NAMES = UnreservedNames("a-zA-Z0-9_-", 128)
NAME_CODEC = NameCodec("codex", ids=IDS, names=NAMES)


# ── items ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The item types of a Codex thread: the fields of each, and which of them are tool calls with results.
#
# An item contains a call and its result, which are two parts in contextc. So each type of call defines how its tool
# name, arguments and output are read, and where an output is written. The call keeps the rest of the item in `extra`,
# so that it is sent back as the same item.


Content: TypeAlias = str | tuple[Text | Media, ...]

RUNNING, COMPLETED, FAILED = "inProgress", "completed", "failed"
STATES = (RUNNING, COMPLETED, FAILED, "declined", "interrupted")
IMPLIED_STATES = (COMPLETED, RUNNING)
ITEM_TYPES: dict[str, FieldTypes] = {
    "userMessage": {"content": list, "clientId?": str},
    "hookPrompt": {"fragments": list},
    "agentMessage": {"text": str, "phase?": str, "questions?": list},
    "functionCallOutput": {"name": str, "output": (str, list), "namespace?": str},
    "plan": {"text": str},
    "reasoning": {"summary?": list, "content?": list},
    "commandExecution": {
        "command": str,
        "commandActions": list,
        "cwd": str,
        "status": str,
        "aggregatedOutput?": str,
        "exitCode?": int,
    },
    "fileChange": {"changes": list, "status": str},
    "mcpToolCall": {"server": str, "tool": str, "status": str, "result?": dict, "error?": dict},
    "dynamicToolCall": {"tool": str, "status": str, "contentItems?": list, "success?": bool, "namespace?": str},
    "collabAgentToolCall": {
        "agentsStates": dict,
        "receiverThreadIds": list,
        "senderThreadId": str,
        "status": str,
        "tool": str,
        "prompt?": str,
    },
    "subAgentActivity": {"agentPath": str, "agentThreadId": str, "kind": str},
    "webSearch": {"query": str, "action?": dict, "results?": list},
    "imageView": {"path": str},
    "sleep": {"durationMs": int},
    "imageGeneration": {"result": str, "status": str, "revisedPrompt?": str},
    "enteredReviewMode": {"review": str},
    "exitedReviewMode": {"review": str},
    "contextCompaction": {},
}
USER_BLOCKS: dict[str, FieldTypes] = {
    "text": {"text": str, "text_elements?": list},
    "image": {"url?": str, "fileId?": str, "detail?": str},
    "localImage": {"path": str, "detail?": str},
    "audio": {"url": str},
    "localAudio": {"path": str},
    "skill": {"name": str, "path": str},
    "mention": {"name": str, "path": str},
}
"""The blocks of a user message, which `turn/start` also takes."""
RESULT_BLOCKS: dict[str, FieldTypes] = {
    "inputText": {"text": str},
    "inputImage": {"imageUrl": str},
    "inputAudio": {"audioUrl": str},
}
"""The blocks that a client tool returns."""
USER_ITEMS = ("userMessage", "hookPrompt")


class CallType(NamedTuple):
    """The conversion of an item type to a call and its result.

    `field` is the field of its output, and `write` returns its new value. The arguments of a `arguments_late` type are
    known only when it is complete.
    """

    name: Callable[[JSONObject], str]
    arguments: Callable[[JSONObject], JSON]
    output: Callable[[JSONObject], Content]
    field: str = ""
    write: Callable[[JSONObject, ToolResult], JSON] | None = None
    arguments_late: bool = False


def is_running(item: JSONObject) -> bool:
    return item.get("status") == RUNNING


def is_error(item: JSONObject) -> bool:
    return (
        item.get("success") is False or item.get("status", COMPLETED) not in IMPLIED_STATES or bool(item.get("error"))
    )


def with_result(item: JSONObject, kind: CallType, result: ToolResult) -> JSONObject:
    """Return the item with this result in place of any other."""
    state = item.get("status")
    if state is not None and (state == RUNNING or is_error(item) != result.is_error):
        item = {**item, "status": FAILED if result.is_error else COMPLETED}
    if kind.write is None or kind.output(item) == result.content:
        return item
    return {**item, kind.field: kind.write(item, result)}


def result_block(part: Text | Media) -> JSONObject | None:
    """Return a part of a result as a block of a client tool, or None if Codex does not support it."""
    if isinstance(part, Text):
        return {"type": "inputText", "text": part.text}
    url = to_data_url(part, {}) or part.url
    if url is None or part.kind not in ("image", "audio"):
        return None
    return {"type": "inputImage", "imageUrl": url} if part.kind == "image" else {"type": "inputAudio", "audioUrl": url}


def result_content(blocks: Iterable[JSONObject]) -> Content:
    """Return the content that a client tool returned: a single text as str, anything else as parts."""
    parts = [_part(block) for block in blocks]
    if not parts:
        return ""
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].text else tuple(parts)


def _part(block: JSONObject) -> Text | Media:
    url = text_of(block.get("imageUrl") or block.get("audioUrl"))
    if block.get("type") not in ("inputImage", "inputAudio") or not url:
        return Text(text_of(block.get("text")))
    default = "image/png" if block["type"] == "inputImage" else "audio/wav"
    return from_data_url(url) or Media(mime_type=guess_media_type(url, default), url=url)


def _write_blocks(item: JSONObject, result: ToolResult) -> JSON:
    parts = (Text(result.content),) if isinstance(result.content, str) and result.content else result.content
    return [block for part in cast(tuple[Text | Media, ...], parts or ()) if (block := result_block(part)) is not None]


def _read_blocks(item: JSONObject) -> Content:
    return result_content(cast(list[JSONObject], item.get("contentItems") or []))


def _read_mcp(item: JSONObject) -> Content:
    """Return the output of an MCP server from its blocks, or its error text."""
    error, result = object_or_empty(item.get("error")), object_or_empty(item.get("result"))
    parts: list[Text | Media] = []
    for block in cast(list[JSON], result.get("content") or []):
        said = object_or_empty(block)
        data = decode_base64(text_of(said.get("data"))) if said.get("type") in ("image", "audio") else None
        kind = text_of(said.get("mimeType"))
        if said.get("type") == "text":
            parts.append(Text(text_of(said.get("text"))))
        elif data and "/" in kind:
            parts.append(Media(mime_type=kind, data=data))
        else:
            parts.append(Text(encode(block).decode()))
    if error:
        parts.append(Text(text_of(error.get("message"))))
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else tuple(parts) or ""


def _write_mcp(item: JSONObject, result: ToolResult) -> JSON:
    return {**object_or_empty(item.get("result")), "content": [{"type": "text", "text": result.text}]}


def _read_image(item: JSONObject) -> Content:
    data = decode_base64(text_of(item.get("result")))
    return (Media(mime_type="image/png", data=data),) if data else text_of(item.get("status"))


def _read_list(name: str) -> Callable[[JSONObject], Content]:
    def output(item: JSONObject) -> Content:
        value: JSON = item.get(name)
        return value if isinstance(value, str) else encode(value).decode() if value else ""

    return output


def _select_fields(*names: str) -> Callable[[JSONObject], JSON]:
    """Return a function that reads these fields of an item as arguments."""
    return lambda item: {name: item[name] for name in names if item.get(name) is not None}


def _fixed_name(name: str) -> Callable[[JSONObject], str]:
    return lambda item: name


def _dynamic_name(item: JSONObject) -> str:
    space = item.get("namespace")
    return f"{space}__{item['tool']}" if space else text_of(item.get("tool"))


def _mcp_name(item: JSONObject) -> str:
    return f"mcp__{item.get('server')}__{item.get('tool')}"


def _read_arguments(item: JSONObject) -> JSON:
    return item.get("arguments")


def _write_nothing(item: JSONObject) -> JSON:
    return {}


def _write_text(item: JSONObject, result: ToolResult) -> JSON:
    return result.text


def _read_field(name: str) -> Callable[[JSONObject], str]:
    def text(item: JSONObject) -> str:
        return text_of(item.get(name))

    return text


CALL_TYPES: dict[str, CallType] = {
    "dynamicToolCall": CallType(_dynamic_name, _read_arguments, _read_blocks, "contentItems", _write_blocks),
    "commandExecution": CallType(
        _fixed_name("shell"),
        _select_fields("command", "cwd"),
        _read_list("aggregatedOutput"),
        "aggregatedOutput",
        _write_text,
    ),
    "fileChange": CallType(_fixed_name("apply_patch"), _select_fields("changes"), _read_field("status")),
    "mcpToolCall": CallType(_mcp_name, _read_arguments, _read_mcp, "result", _write_mcp),
    "collabAgentToolCall": CallType(
        _read_field("tool"), _select_fields("prompt", "receiverThreadIds", "model"), _read_list("agentsStates")
    ),
    "webSearch": CallType(
        _fixed_name("web_search"), _select_fields("query", "action"), _read_list("results"), arguments_late=True
    ),
    "imageView": CallType(_fixed_name("view_image"), _select_fields("path"), _read_list("")),
    "imageGeneration": CallType(
        _fixed_name("image_generation"), _select_fields("revisedPrompt"), _read_image, arguments_late=True
    ),
    "functionCallOutput": CallType(
        _read_field("name"), _write_nothing, _read_list("output"), "output", _write_text, arguments_late=True
    ),
}


# ── lines of codex exec ───────────────────────────────────────────────────────────────────────────────────────────────
# Conversion of `codex exec --json` lines into the equivalent notifications of the app-server.


ITEM_TYPE_NAMES = {
    "agent_message": "agentMessage",
    "reasoning": "reasoning",
    "command_execution": "commandExecution",
    "file_change": "fileChange",
    "mcp_tool_call": "mcpToolCall",
    "collab_tool_call": "collabAgentToolCall",
    "web_search": "webSearch",
    "todo_list": "plan",
}
ITEM_METHODS = {"item.started": "item/started", "item.updated": "item/started", "item.completed": "item/completed"}
LINE_PREFIXES = ("thread.", "turn.", "item.")
TURN_STATUSES = {"turn.completed": "completed", "turn.failed": "failed"}
WARNING_TYPE = "error"
"""An item that is not part of the thread: a warning for the user."""


class Notification(NamedTuple):
    method: str
    params: JSONObject


def is_exec_line(event: JSONObject) -> bool:
    """Return True if this is a line, of a known or a new type."""
    kind = text_of(event.get("type"))
    return (kind == "error" or kind.startswith(LINE_PREFIXES)) and "id" not in event


def to_notification(event: JSONObject) -> Notification:
    """Return a line as a notification. Its usage is that of the whole thread so far, and is ignored."""
    kind = text_of(event.get("type"))
    if kind in ITEM_METHODS:
        item = event.get("item")
        return Notification(
            ITEM_METHODS[kind], {"item": to_thread_item(cast(JSONObject, item) if isinstance(item, dict) else {})}
        )
    if kind == "thread.started":
        return Notification("thread/started", {"thread": {"id": event.get("thread_id")}})
    if kind == "error":  # it may retry; `turn.failed` reports the final failure
        return Notification("error", {"error": {"message": event.get("message")}, "willRetry": True})
    if kind == "turn.started":
        return Notification("turn/started", {})
    if kind not in TURN_STATUSES:
        return Notification("", {})
    ended: JSONObject = {"status": TURN_STATUSES[kind], "error": event.get("error")}
    return Notification("turn/completed", {"turn": ended})


def to_thread_item(item: JSONObject) -> JSONObject:
    """Return an item of `codex exec --json` as an item of a thread, and any other unchanged."""
    kind = text_of(item.get("type"))
    if kind not in ITEM_TYPE_NAMES or (kind == "reasoning" and "text" not in item):
        return item
    made = {_camel(name): value for name, value in item.items()} | {"type": ITEM_TYPE_NAMES[kind]}
    if isinstance(status := made.get("status"), str):
        made["status"] = _camel(status)
    return ITEM_CONVERTERS[kind](made) if kind in ITEM_CONVERTERS else made


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _command(item: JSONObject) -> JSONObject:
    return {"cwd": "", "commandActions": [], **item}


def _reasoning(item: JSONObject) -> JSONObject:
    return {"type": "reasoning", "id": item.get("id"), "summary": [text_of(item.get("text"))], "content": []}


def _change(item: JSONObject) -> JSONObject:
    def shaped(change: JSONObject) -> JSONObject:
        kind: JSON = change.get("kind")
        return {"diff": "", **change, "kind": {"type": kind} if isinstance(kind, str) else kind}

    return {**item, "changes": [shaped(change) for change in cast(list[JSONObject], item.get("changes") or [])]}


def _plan(item: JSONObject) -> JSONObject:
    todos = cast(list[JSONObject], item.get("items") or [])
    lines = [f"- [{'x' if todo.get('completed') else ' '}] {text_of(todo.get('text'))}" for todo in todos]
    return {"type": "plan", "id": item.get("id"), "text": "\n".join(lines)}


ITEM_CONVERTERS: dict[str, Callable[[JSONObject], JSONObject]] = {
    "command_execution": _command,
    "reasoning": _reasoning,
    "file_change": _change,
    "todo_list": _plan,
}


# ── collecting events ─────────────────────────────────────────────────────────────────────────────────────────────────
# Events of a running Codex: notifications of the app-server, or the lines of `codex exec --json`.
#
# Display and storage share one pass over the events: `EventCollector.read` returns what an event adds, and the steps
# keep everything. A step is one answer of the model with the results of its tools. It ends where the usage of the
# model call is reported, or where the model continues after a result. Events of other threads, such as those of
# sub-agents, are ignored.


PARAGRAPH_BREAK = "\n\n"
SHOWN_TEXT_KEY = "thinks"
"""Key in a streamed reasoning item: which of its two texts came first, and was shown."""
REASONING_DELTAS = {
    "item/reasoning/summaryTextDelta": ("summary", "summaryIndex"),
    "item/reasoning/textDelta": ("content", "contentIndex"),
}
COMPACTION = "contextCompaction"
DeltaKind: TypeAlias = Literal["text", "reasoning", "call", "result"]


class ItemDelta(NamedTuple):
    """An addition to an item: a piece of text or reasoning, a call, or a result."""

    what: DeltaKind
    item: JSONObject
    text: str = ""


class ModelStep:
    """One answer of the model: its items by id, and the tokens of the model call."""

    def __init__(self) -> None:
        self.items: dict[str, JSONObject] = {}
        self.usage: JSONObject | None = None
        self.answered = False


def is_event(wire: JSONObject) -> bool:
    """Return True if this is a notification, a line, or a response to the client, and not an item."""
    answers = "type" not in wire and "id" in wire and ("result" in wire or "error" in wire)
    return isinstance(wire.get("method"), str) or is_exec_line(wire) or answers


def completed_notification(item: JSONObject) -> JSONObject:
    """Return a notification that this item is complete."""
    return {"method": "item/completed", "params": {"item": item}}


def collect_items(events: Iterable[JSONObject]) -> list[JSONObject]:
    """Return all items of the events, including the user's, each in its last state."""
    gathered = EventCollector(include_users=True)
    for event in events:
        gathered.read(event)
    return [item for step in gathered.steps for item in step.items.values()]


def reasoning_text(item: JSONObject) -> str:
    """Return the text of a reasoning item: its summary, or else the original reasoning."""
    names = ("content", "summary") if item.get(SHOWN_TEXT_KEY) == "content" else ("summary", "content")
    texts = next((item[name] for name in names if item.get(name)), ())
    return PARAGRAPH_BREAK.join(cast(list[str], texts))


class EventCollector:
    """The state of a turn so far. With `include_users` it also collects user messages, of any number of turns."""

    def __init__(self, *, include_users: bool = False) -> None:
        self.users = include_users
        self.thread = self.turn = self.status = ""
        self.model: str | None = None
        self.error: JSONObject | None = None
        self.compacted = False
        self.notes: list[str] = []
        self.steps: list[ModelStep] = []
        self._places: dict[str, ModelStep] = {}
        self._given: dict[str, int] = {}
        self._done: set[str] = set()
        self._compacting = False
        self._total: JSON = None

    def read(self, event: JSONObject) -> list[ItemDelta]:
        """Return what this event adds."""
        told = to_notification(event) if is_exec_line(event) else _as_notification(event)
        if "id" in event or not self._is_ours(told.params):
            return []  # a request to the client, or an event of another thread
        match told.method:
            case "thread/started" | "thread/settings/updated" | "model/rerouted":
                self._apply_settings(told.params)
            case "turn/started":
                self.turn = text_of(object_or_empty(told.params.get("turn")).get("id")) or self.turn
            case "item/started" | "item/completed":
                return list(self._item(object_or_empty(told.params.get("item")), done=told.method == "item/completed"))
            case "item/agentMessage/delta":
                return self._grown(told.params)
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                return self._thought(told.params, *REASONING_DELTAS[told.method])
            case "thread/tokenUsage/updated":
                self._add_usage(object_or_empty(told.params.get("tokenUsage")))
            case "thread/compacted":
                self.compacted = True
            case "error":
                error = object_or_empty(told.params.get("error"))
                if told.params.get("willRetry"):
                    self._remove_unfinished(self.steps[-1:])
                    self.notes.append(f"Codex tried again: {text_of(error.get('message'))}")
                else:
                    self.error = error
            case "turn/completed":
                return list(self._ended(object_or_empty(told.params.get("turn"))))
            case _:
                pass
        return []

    def _is_ours(self, params: JSONObject) -> bool:
        thread = text_of(params.get("threadId") or object_or_empty(params.get("thread")).get("id"))
        turn = text_of(params.get("turnId") or object_or_empty(params.get("turn")).get("id"))
        self.thread = self.thread or thread
        if thread not in ("", self.thread):
            return False
        return self.users or not (turn and self.turn and turn != self.turn)

    def _apply_settings(self, params: JSONObject) -> None:
        settings = object_or_empty(params.get("threadSettings")) or object_or_empty(params.get("thread"))
        self.model = text_of(params.get("toModel") or settings.get("model")) or self.model
        if params.get("toModel"):
            self.notes.append(f"Codex went on with another model: {params['toModel']}")

    def _item(self, item: JSONObject, *, done: bool) -> Iterator[ItemDelta]:
        kind = text_of(item.get("type"))
        if kind == COMPACTION:
            self.compacted, self._compacting = True, not done
        if kind == WARNING_TYPE:
            self.notes.append(f"Codex warns: {text_of(item.get('message'))}")
            return
        if not kind or (not self.users and (kind in USER_ITEMS or kind == COMPACTION)):
            return
        call, name = CALL_TYPES.get(kind), text_of(item.get("id"))
        if call is not None and call.arguments_late and not done:
            return  # its arguments are known only at the end
        step, known = self._step(name), name in self._places
        self._places[name] = step
        self._done |= {name} if done else set()
        before = step.items.get(name, {})
        step.items[name] = {**before, **item} if before.get("type") == kind else {**item}
        if call is not None:
            yield from self._called(step, name, known=known, done=done)
        elif kind in ("agentMessage", "reasoning"):
            whole = step.items[name]
            text = reasoning_text(whole) if kind == "reasoning" else text_of(whole.get("text"))
            if rest := text[self._given.get(name, 0) :]:
                self._given[name] = len(text)
                yield ItemDelta("reasoning" if kind == "reasoning" else "text", whole, rest)

    def _called(self, step: ModelStep, name: str, *, known: bool, done: bool) -> Iterator[ItemDelta]:
        item = step.items[name]
        if not known:
            yield ItemDelta("call", item)
        if done and not is_running(item):
            step.answered = True
            yield ItemDelta("result", item)

    def _step(self, name: str) -> ModelStep:
        """Return the step of an item: the one it began in, the last one, or a new one."""
        if name in self._places:
            return self._places[name]
        if not self.steps or self.steps[-1].usage is not None or self.steps[-1].answered:
            self.steps.append(ModelStep())
        return self.steps[-1]

    def _begun(self, params: JSONObject, item: JSONObject) -> JSONObject:
        """Return the item that a delta belongs to. Its start event may be missing."""
        name = text_of(params.get("itemId"))
        step = self._places.setdefault(name, self._step(name))
        return step.items.setdefault(name, {**item, "id": name})

    def _grown(self, params: JSONObject) -> list[ItemDelta]:
        item, piece = self._begun(params, {"type": "agentMessage", "text": ""}), text_of(params.get("delta"))
        append_text(item, "text", piece)
        self._given[item["id"]] = self._given.get(item["id"], 0) + len(piece)
        return [ItemDelta("text", item, piece)] if piece else []

    def _thought(self, params: JSONObject, place: str, number: str) -> list[ItemDelta]:
        item, piece = self._begun(params, {"type": "reasoning"}), text_of(params.get("delta"))
        texts = list(cast(list[str], item.get(place) or []))
        index: JSON = params.get(number)
        index = max(index, 0) if isinstance(index, int) else 0
        gap = PARAGRAPH_BREAK * max(0, index - max(len(texts) - 1, 0))
        texts += [""] * (index + 1 - len(texts))
        texts[index] += piece
        item[place] = texts
        if item.setdefault(SHOWN_TEXT_KEY, place) != place:
            return []
        self._given[item["id"]] = self._given.get(item["id"], 0) + len(gap + piece)
        return [ItemDelta("reasoning", item, gap + piece)] if gap + piece else []

    def _add_usage(self, usage: JSONObject) -> None:
        """Store the tokens of one model call. Repeated reports, and those during compaction, do not end a step."""
        last, total = object_or_empty(usage.get("last")), object_or_empty(usage.get("total")).get("totalTokens")
        if not (last.get("inputTokens") or last.get("outputTokens")) or (total is not None and total == self._total):
            return
        self._total = total
        said = f"{last.get('inputTokens')} tokens in, {last.get('outputTokens')} out"
        if self._compacting:
            self.notes.append(f"Codex asked its model to shorten the history: {said}")
        elif self.steps and self.steps[-1].usage is None:
            self.steps[-1].usage = last
        elif self.turn:
            self.notes.append(f"Codex asked its model for something that it did not show: {said}")

    def _ended(self, turn: JSONObject) -> Iterator[ItemDelta]:
        self.turn = text_of(turn.get("id")) or self.turn
        self.status = text_of(turn.get("status"))
        self.error = object_or_empty(turn.get("error")) or (None if self.status == "completed" else self.error)
        for item in cast(list[JSON], turn.get("items") or []):
            if isinstance(item, dict) and text_of(cast(JSONObject, item).get("id")) not in self._places:
                yield from self._item(cast(JSONObject, item), done=True)
        if self.status == "completed":
            self._remove_unfinished(self.steps)

    def _remove_unfinished(self, steps: Iterable[ModelStep]) -> None:
        """Remove text that started but never finished: Codex retried, and its thread does not contain it."""
        for step in steps:
            for name, item in list(step.items.items()):
                if name not in self._done and item.get("type") in ("agentMessage", "reasoning"):
                    del step.items[name], self._places[name]


def _as_notification(event: JSONObject) -> Notification:
    return Notification(text_of(event.get("method")), object_or_empty(event.get("params")))


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding of messages as the items of a Codex thread.
#
# A reply becomes several items: reasoning, messages, and calls, each with its result. So text between the calls of one
# reply is moved before them. A call of a client tool is a `dynamicToolCall`; a call of Codex's own tools is sent back
# as its original item. A reply with only calls begins with an empty reasoning item (`EMPTY_REASONING`), otherwise its
# calls would join the reply before it. A thread has no system messages between others: they become marked user text.
# The id of an item that we create is a hash of its content.


ITEM_KEY = "item"
"""Key in `extra`: the fields of an item in which our encoding would differ, such as its id."""


BARE_KEY = "bare"
"""Key in `extra`: a reply with only calls had no item before them."""


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = Encoder(provider, blobs)
    called = {call.id for message in segment for call in message.tool_calls}
    results: dict[str, ToolResult] = {}
    for result in [result for message in segment for result in message.tool_results]:
        results.setdefault(result.call_id, result)
    encoder.strays = {name: result for name, result in results.items() if name not in called}
    items: list[JSONObject] = []
    for message in segment:
        items += encoder.reply(message, results) if message.role == "assistant" else encoder.encode_message(message)
    return EncodedSegment(tuple(items), tuple(encoder.notes))


def encode_text(message: Message, provider: str) -> str:
    """Return the whole message as one text: the instructions of a thread."""
    encoder = Encoder(provider, {})
    return "\n\n".join(text for part in message.parts if (text := encoder.part_text(part)))


def encode_result(result: ToolResult) -> JSONObject:
    """Return the response to `item/tool/call`."""
    blocks = Encoder("", {}).result_blocks(result) or [{"type": "inputText", "text": ""}]
    return {"contentItems": blocks, "success": not result.is_error}


def item_id(item: JSONObject) -> str:
    """Return an id for an item without one, derived from its content."""
    said = {name: value for name, value in item.items() if name != "id"}
    return f"item_{sha256(encode_canonical(said)).hexdigest()[:24]}"


EMPTY_REASONING: JSONObject = {"type": "reasoning", "summary": [], "content": []}
EMPTY_REASONING["id"] = item_id(EMPTY_REASONING)


def merge_item_extra(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return our item with Codex's own data restored."""
    rest = cast(JSONObject, own_extra(extra, provider).get(ITEM_KEY) or {})
    return merge_extra(ours, {provider: rest}, provider) if rest else ours


class Encoder(PartEncoder):
    """Encodes messages as items, and collects notes on changes."""

    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.strays: dict[str, ToolResult] = {}
        """Results whose calls are elsewhere. Each becomes a separate item."""

    def encode_message(self, message: Message) -> list[JSONObject]:
        """Return the items of a user or system message, or of the parts of a tool message that are not results."""
        items: list[JSONObject] = []
        blocks: list[JSONObject] = []
        for part in self.mark_system_parts(message) if message.role == "system" else message.parts:
            if isinstance(part, ProviderBlock) and self.is_codex_native(part, ITEM_TYPES):
                items += self.user(message, blocks)
                items.append(cast(JSONObject, part.data))
                blocks = []
            elif isinstance(part, ToolResult):
                items += [self.output(part)] if self.strays.get(part.call_id) is part else []
            else:
                blocks += [block] if (block := self.block(part)) is not None else []
        if blocks and message.role == "tool":
            self.note("moved", "what is no result, from a tool message into a user message")
        return [*items, *self.user(message, blocks)]

    def user(self, message: Message, blocks: list[JSONObject]) -> list[JSONObject]:
        if not blocks:
            return []
        item: JSONObject = {"type": "userMessage", "content": blocks}
        return [merge_item_extra({**item, "id": item_id(item)}, message.extra, self.provider)]

    def mark_system_parts(self, message: Message) -> Iterable[AnyPart]:
        """Return the parts of a system message as user text that is marked as context."""
        text = "\n\n".join(words for part in message.parts if (words := self.part_text(part)))
        if not text:
            return ()
        self.note("changed", "a system message, into text of the user that is marked as context")
        return (Text(text if text.startswith(SYSTEM_CONTEXT) else SYSTEM_CONTEXT + text),)

    def part_text(self, part: AnyPart) -> str:
        """Return a part as text."""
        block = self.block(part) if isinstance(part, Text) else self.describe_part(part)
        return cast(str, block["text"]) if block is not None and str(block["text"]).strip() else ""

    def block(self, part: AnyPart) -> JSONObject | None:
        """Return the block of a part in a user message."""
        match part:
            case Text():
                if not part.text:
                    return None
                return merge_extra({"type": "text", "text": part.text, "text_elements": []}, part.extra, self.provider)
            case Media():
                url = to_data_url(part, self.blobs) or part.url
                if url is not None and part.kind in ("image", "audio"):
                    return merge_extra({"type": part.kind, "url": url}, part.extra, self.provider)
                if self.is_own_file(part):
                    return merge_extra({"type": "image", "fileId": part.file_id}, part.extra, self.provider)
                return self.describe_part(part)
            case ProviderBlock():
                return (
                    cast(JSONObject, part.data) if self.is_codex_native(part, USER_BLOCKS) else self.describe_part(part)
                )
            case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def describe_part(self, part: AnyPart) -> JSONObject | None:
        """Return one line of text that replaces a part that cannot be sent."""
        if not isinstance(part, Media | ProviderBlock):
            return None
        text = self.media_text(part) if isinstance(part, Media) else self.native_text(part)
        return {"type": "text", "text": text, "text_elements": []}

    def reply(self, message: Message, results: Mapping[str, ToolResult]) -> list[JSONObject]:
        """Return the items of a reply: text and reasoning first, then each call with its result."""
        said: list[JSONObject] = []
        calls: list[JSONObject] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.append(self.call(part, results.get(part.id)))
            elif (item := self.item(part)) is not None:
                if calls:
                    self.note("moved", "words that stood behind a call, before the calls of their reply")
                said.append(item)
        silent = calls and not said and not own_extra(message.extra, self.provider).get(BARE_KEY)
        return [*([EMPTY_REASONING] if silent else said), *calls]

    def item(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                return self.message(part.text, part.extra) if part.text else None
            case Media():
                return self.message(self.media_text(part), None)
            case ProviderBlock():
                if self.is_codex_native(part, ITEM_TYPES):
                    return cast(JSONObject, part.data)
                return self.message(self.native_text(part), None)
            case Reasoning():
                return self.reasoning(part)
            case ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def message(self, text: str, extra: Extra | None) -> JSONObject:
        item: JSONObject = {"type": "agentMessage", "text": text}
        return merge_item_extra({**item, "id": item_id(item)}, extra, self.provider)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.text or part.id):
            return None
        if part.data or part.signature:
            self.note("left out", "what proves the reasoning of Codex, which only its own thread holds")
        item: JSONObject = {"type": "reasoning", "summary": [part.text] if part.text else [], "content": []}
        return merge_item_extra({**item, "id": part.id or item_id(item)}, part.extra, self.provider)

    def call(self, part: ToolCall, result: ToolResult | None) -> JSONObject:
        """Return the item of a call with its result. An unchanged call of Codex keeps its original item."""
        if (own := self.original_item(part)) is not None:
            kind = CALL_TYPES[text_of(own["type"])]
            if result is None:
                return {**own, **({"status": RUNNING} if "status" in own else {})}
            return with_result(own, kind, result)
        given: JSON = part.raw if part.malformed else part.arguments
        item: JSONObject = {"type": "dynamicToolCall", "id": part.id, "tool": part.name, "arguments": given}
        extra = part.extra if "type" not in self.codex_fields(part) else None
        if result is None:
            return merge_item_extra({**item, "status": RUNNING}, extra, self.provider)
        item["status"] = FAILED if result.is_error else COMPLETED
        item |= {"contentItems": self.result_blocks(result), "success": not result.is_error}
        return merge_item_extra(item, extra, self.provider)

    def codex_fields(self, part: ToolCall) -> JSONObject:
        """Return Codex's data of a call beyond our types. For one of Codex's own tools, this is the whole item."""
        return cast(JSONObject, own_extra(part.extra, self.provider).get(ITEM_KEY) or {})

    def output(self, result: ToolResult) -> JSONObject:
        """Return the item of a result without its call."""
        self.note_error_flag(result)
        if not isinstance(result.content, str) and any(isinstance(part, Media) for part in result.content):
            self.note("left out", f"media in the result of {result.name}, whose call is not here")
        return {"type": "functionCallOutput", "id": result.call_id, "name": result.name, "output": result.text}

    def original_item(self, part: ToolCall) -> JSONObject | None:
        """Return the original item of a call of Codex's own tools.

        None if it is no such call, or its arguments have changed.
        """
        item = self.codex_fields(part)
        kind = CALL_TYPES.get(item.get("type") or "")
        if kind is None:
            return None
        given, name = kind.arguments(item), kind.name(item)
        if (
            part.name not in (name, NAMES.encode(name))
            or part.malformed
            or (given if isinstance(given, dict) else {}) != part.arguments
        ):
            return None
        return {**item, "id": part.id}

    def result_blocks(self, result: ToolResult) -> list[JSONObject]:
        """Return the content of a result as blocks that Codex accepts."""
        if isinstance(result.content, str):
            return [{"type": "inputText", "text": result.content}] if result.content else []
        blocks: list[JSONObject] = []
        for part in result.content:
            held = part
            if isinstance(part, Media) and part.blob is not None and part.blob in self.blobs:
                held = replace(part, data=self.blobs[part.blob], blob=None)
            block = result_block(held)
            if block is None:
                block = {"type": "inputText", "text": self.media_text(cast(Media, part))}
            blocks.append(merge_extra(block, part.extra, self.provider))
        return blocks

    def is_codex_native(self, part: ProviderBlock, kinds: Mapping[str, object]) -> bool:
        """Return True if this came from Codex, as an item or as a block."""
        if part.provider != self.provider or not isinstance(part.data, dict):
            return False
        return cast(JSONObject, part.data).get("type") in kinds


def is_user_item(item: JSONObject) -> bool:
    return item.get("type") in USER_ITEMS


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decoding of Codex threads into messages.
#
# Consecutive items of the agent become one assistant message, followed by a tool message with the results of its
# calls. Text after a call starts the next assistant message, because a model continues only after its results. An item
# without a matching part type becomes a `ProviderBlock`. A call keeps the rest of its item, so that it is sent back as
# the same item.


OWN_FIELDS = ("items", "developerInstructions", "dynamicTools")


class CallWithResult(NamedTuple):
    """A call, and its result where it has one."""

    call: ToolCall
    result: ToolResult | None


def decode_request(body: JSONObject, provider: str) -> Request:
    instructions: JSON = body.get("developerInstructions")
    prompt = isinstance(instructions, str) and bool(instructions.strip())
    given: list[JSONObject] = [item for item in cast(list[JSON], body.get("items") or []) if isinstance(item, dict)]
    recorded = [each for each in given if is_rollout_line(each)]
    others = [each for each in given if not is_rollout_line(each)]
    messages = [*decode_rollout(recorded, provider), *decode_items(extract_items(others), provider)]
    taken = OWN_FIELDS if prompt else ("items", "dynamicTools")
    tools = cast(list[JSONObject], body.get("dynamicTools") or [])
    return Request(
        messages=tuple(messages),
        system=Message(role="system", parts=(Text(cast(str, instructions)),)) if prompt else None,
        tools=tuple(decode_tool(tool, provider) for tool in tools),
        settings=other_fields(body, *taken),
    )


def extract_items(given: Sequence[JSONObject]) -> list[JSONObject]:
    """Return the items of a thread, extracted from any events around them."""
    if not any(is_event(each) for each in given):
        return list(given)
    return collect_items(each if is_event(each) else completed_notification(each) for each in given)


def decode_items(items: Iterable[JSONObject], provider: str) -> list[Message]:
    """Return the items as messages. Consecutive items of the agent become one message."""
    decoder = Decoder(provider)
    found: list[Message] = []
    run: list[JSONObject] = []
    for item in items:
        own = decoder.user(item)
        after_calls = run and item.get("type") not in CALL_TYPES and run[-1].get("type") in CALL_TYPES
        if own is not None or after_calls or item == EMPTY_REASONING:
            found += decoder.decode_run(run)
            run = []
        if own is None:
            run.append(item)
        else:
            found.append(own)
    return [*found, *decoder.decode_run(run)]


class Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model = provider, model

    def user(self, item: JSONObject) -> Message | None:
        """Return a user message, or None if this is an item of the agent."""
        if item.get("type") == "hookPrompt":
            return Message(role="user", parts=(ProviderBlock(provider=self.provider, data=item),))
        if item.get("type") != "userMessage":
            return None
        blocks = cast(list[JSONObject], item.get("content") or [])
        message = Message(role="user", parts=tuple(part for block in blocks if (part := self.block(block)) is not None))
        ours = Encoder(self.provider, {}).encode_message(message)
        return replace(message, extra=self.extra_fields(item, ours[0] if len(ours) == 1 else {})) if ours else message

    def decode_run(self, items: Sequence[JSONObject]) -> Iterator[Message]:
        """Return the messages of items for which the starts of the model's replies are unknown."""
        bare = bool(items) and items[0].get("type") in CALL_TYPES
        for message in self.decode_step(items):
            marked = bare and message.role == "assistant"
            yield replace(message, extra={self.provider: {BARE_KEY: True}}) if marked else message

    def decode_step(self, items: Sequence[JSONObject]) -> Iterator[Message]:
        """Return the messages of consecutive items of the agent, with the results of its tools."""
        parts: list[AnyPart] = []
        results: list[ToolResult] = []
        running: set[str] = set()
        for item in items:
            if (kind := CALL_TYPES.get(item.get("type") or "")) is not None:
                asked = self.decode_call(item, kind)
                if asked.call.id not in running or item["type"] != "functionCallOutput":
                    parts.append(asked.call)
                if asked.result is None:
                    running.add(asked.call.id)
                results += [asked.result] if asked.result is not None else []
            elif (part := self.part(item)) is not None:
                parts.append(part)
        if parts:
            yield Message(role="assistant", parts=tuple(parts))
        if results:
            yield Message(role="tool", parts=tuple(results))

    def block(self, block: JSONObject) -> AnyPart | None:
        url, held = text_of(block.get("url")), block.get("fileId")
        part: AnyPart
        match block.get("type"):
            case "text":
                if not block.get("text"):
                    return None
                part = Text(block["text"])
            case "image" | "audio" as kind if url:
                default = "image/png" if kind == "image" else "audio/wav"
                part = media_from_url(url, default)
                if part.kind != kind:
                    return ProviderBlock(provider=self.provider, data=block)
            case "image" if isinstance(held, str):
                part = Media(mime_type="image/png", file_id=held, provider=self.provider)
            case _:
                return ProviderBlock(provider=self.provider, data=block)
        ours = Encoder(self.provider, {}).block(part)
        return replace(part, extra=extra_of(block, ours or {}, self.provider))

    def part(self, item: JSONObject) -> AnyPart | None:
        """Return the part of an item other than a call, or None if it is empty."""
        match item.get("type"):
            case "agentMessage":
                return self.with_extra(Text(text_of(item.get("text"))), item) if item.get("text") else None
            case "reasoning":
                return self.reasoning(item) if item != EMPTY_REASONING else None
            case _:
                return ProviderBlock(provider=self.provider, data=item)

    def reasoning(self, item: JSONObject) -> AnyPart | None:
        text, known = reasoning_text(item), {name: value for name, value in item.items() if name != SHOWN_TEXT_KEY}
        part = Reasoning(text=text, id=item.get("id"), provider=self.provider, model=self.model)
        return self.with_extra(part, known) if text or part.id else None

    def with_extra(self, part: Text | Reasoning, item: JSONObject) -> AnyPart:
        ours = Encoder(self.provider, {}).item(part)
        return replace(part, extra=self.extra_fields(item, ours or {}))

    def decode_call(self, item: JSONObject, kind: CallType) -> CallWithResult:
        call_id = text_of(item.get("id"))
        call = tool_call(call_id, kind.name(item), _arguments(kind.arguments(item)))
        result: ToolResult | None = None
        if not is_running(item):
            result = ToolResult(call_id=call_id, name=call.name, content=kind.output(item), is_error=is_error(item))
        if kind is CALL_TYPES["dynamicToolCall"]:
            ours = Encoder(self.provider, {}).call(call, result)
            return CallWithResult(replace(call, extra=self.extra_fields(item, ours)), result)
        rest = {name: value for name, value in item.items() if name != kind.field}
        if result is not None and with_result(rest, kind, result) != item:
            rest = item
        rest = {name: value for name, value in rest.items() if name != "id" and value is not None}
        return CallWithResult(replace(call, extra={self.provider: {ITEM_KEY: rest}}), result)

    def extra_fields(self, item: JSONObject, ours: JSONObject) -> Extra | None:
        """Return the fields of an item in which our encoding would differ."""
        rest = (extra_of(item, ours, self.provider) or {}).get(self.provider, {})
        return {self.provider: {ITEM_KEY: rest}} if rest else None


def decode_tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    if tool.get("type", "function") != "function" or not isinstance(tool.get("name"), str):
        return NativeTool(provider=provider, data=tool)
    schema = object_or_empty(tool.get("inputSchema"))
    made = decode_definition({**tool, "inputSchema": schema}, "inputSchema", strict=False)
    return with_extra(made, tool, encode_tool(made), provider)


def encode_tool(tool: Tool) -> JSONObject:
    """Return a tool definition. Codex requires a description, which may be empty."""
    schema = tool.parameters or NO_PARAMETERS
    return {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": schema}


def _arguments(given: JSON) -> str | JSONObject:
    if isinstance(given, str | dict):
        return cast("str | JSONObject", given)
    return {} if given is None else encode(given).decode()


# ── history for the start of a thread ─────────────────────────────────────────────────────────────────────────────────
# Splitting a list of items into history and prompt, and conversion of the history for import.
#
# `thread/inject_items` takes items of the Responses API, not items of a thread. So items are decoded into messages and
# encoded in that format. Reasoning is left out, because only its original thread can verify it.


CONTINUE_TEXT = "Go on."
"""The prompt of a turn without user input."""
PROVIDER = "codex"


class HistoryAndPrompt(NamedTuple):
    """Items up to the agent's last one, and the `input` of `turn/start` for the items after it."""

    history: list[JSONObject]
    prompt: list[JSONObject]


def split_history_and_prompt(items: Sequence[JSONObject]) -> HistoryAndPrompt:
    """Split items into the history for a new thread, and its prompt."""
    behind = next((len(items) - back for back, item in enumerate(reversed(items)) if not is_user_item(item)), 0)
    prompt = [block for item in items[behind:] for block in _input(item)]
    return HistoryAndPrompt(list(items[:behind]), prompt or [{"type": "text", "text": CONTINUE_TEXT}])


def to_response_items(items: Sequence[JSONObject], *, provider: str = PROVIDER) -> list[JSONObject]:
    """Return the items for `thread/inject_items`: whole messages, and every call with its output."""
    history = [each for message in decode_items(extract_items(items), provider) for each in _portable_message(message)]
    return [_complete_item(item) for item in OpenAIResponsesFormatter().format(history)]


def _input(item: JSONObject) -> Iterator[JSONObject]:
    if item.get("type") == "hookPrompt":
        for fragment in cast(list[JSONObject], item.get("fragments") or []):
            yield {"type": "text", "text": text_of(fragment.get("text"))}
        return
    for block in cast(list[JSONObject], item.get("content") or []):
        if block.get("type") in USER_BLOCKS:
            yield {name: value for name, value in block.items() if value not in (None, [])}


def _portable_message(message: Message) -> Iterator[Message]:
    """Yield a message for another thread: marked texts become system messages again, which are possible here."""
    parts = [part for each in message.parts if (part := _portable_part(each)) is not None]
    if message.role != "user":
        yield replace(message, parts=tuple(parts))
        return
    said: list[AnyPart] = []
    for part in parts:
        if not isinstance(part, Text) or not part.text.startswith(SYSTEM_CONTEXT):
            said.append(part)
            continue
        if said:
            yield Message(role="user", parts=tuple(said))
            said = []
        yield Message(role="system", parts=(Text(part.text.removeprefix(SYSTEM_CONTEXT)),))
    if said:
        yield Message(role="user", parts=tuple(said))


def _portable_part(part: AnyPart) -> AnyPart | None:
    """Return a part without data that the Responses API cannot express, or None."""
    if not isinstance(part, ProviderBlock) or not isinstance(part.data, dict):
        return replace(part, extra=None)
    data = cast(JSONObject, part.data)
    if data.get("type") == "plan":
        return Text(text_of(data.get("text")))
    if data.get("type") == "hookPrompt":
        texts = [text_of(fragment.get("text")) for fragment in cast(list[JSONObject], data.get("fragments") or [])]
        return Text("\n\n".join(texts)) if any(texts) else None
    return Text(f"[{data['type']}: {data['path']}]") if data.get("type") in USER_BLOCKS and data.get("path") else None


def _complete_item(item: JSONObject) -> JSONObject:
    """Return an item as Codex expects it: with its type, and with its content in blocks."""
    if "role" not in item:
        return item
    content: JSON = item["content"]
    if isinstance(content, str):
        content = [{"type": "output_text" if item["role"] == "assistant" else "input_text", "text": content}]
    return {"type": "message", **item, "content": content}


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decoding of a Codex turn into messages: each answer of its model, the results of its tools, and the outcome.


NO_REASON = "Codex gave no reason."


def collect_turn(events: Iterable[JSONObject]) -> JSONObject:
    """Return a turn from its events, as it would be unstreamed."""
    gathered = EventCollector()
    for event in events:
        gathered.read(event)
    return as_turn(gathered)


def as_turn(gathered: EventCollector) -> JSONObject:
    return {
        "threadId": gathered.thread,
        "id": gathered.turn,
        "model": gathered.model,
        "status": gathered.status,
        "error": gathered.error,
        "steps": [{"items": list(step.items.values()), "usage": step.usage} for step in gathered.steps],
    }


def decode_turn(turn: JSONObject, provider: str) -> list[Message]:
    """Return all messages of a turn so far. At least one is the assistant's."""
    decoder = Decoder(provider, model=turn.get("model"))
    found = [message for step in _steps(turn) for message in _step(step, decoder)]
    spoken = [index for index, message in enumerate(found) if message.role == "assistant"]
    if not spoken or (turn.get("status") == "failed" and found[-1].role != "assistant"):  # its items are complete
        spoken, found = [*spoken, len(found)], [*found, Message(role="assistant")]
    for index in spoken[:-1]:
        found[index] = replace(found[index], finish="tool_calls" if found[index].tool_calls else "stop")
    rest = {name: turn[name] for name in ("threadId", "id", "model") if turn.get(name)}
    found[spoken[-1]] = _with_outcome(
        replace(found[spoken[-1]], extra={provider: {"turn": rest}} if rest else None), turn
    )
    return found


def decode_reply(turn: JSONObject, provider: str) -> Message:
    """Return the final answer of a turn. A stream reader returns all messages of it."""
    return last_reply(decode_turn(turn, provider))


def last_reply(messages: list[Message]) -> Message:
    return next(message for message in reversed(messages) if message.role == "assistant")


def usage_of(last: JSONObject) -> Usage:
    """Return the token usage of one model call."""
    return Usage(
        input=last.get("inputTokens") or 0,
        output=last.get("outputTokens") or 0,
        cache_read=last.get("cachedInputTokens") or 0,
        cache_write=last.get("cacheWriteInputTokens") or 0,
        reasoning=last.get("reasoningOutputTokens") or 0,
    )


def _steps(turn: JSONObject) -> list[JSONObject]:
    """Return the collected steps, or split the items of an unstreamed turn at its calls."""
    given: JSON = turn.get("steps")
    if isinstance(given, list):
        return cast(list[JSONObject], given)
    items = [item for item in cast(list[JSONObject], turn.get("items") or []) if isinstance(item, dict)]
    return cast(list[JSONObject], collect_turn(map(completed_notification, items))["steps"])


def _step(step: JSONObject, decoder: Decoder) -> Iterator[Message]:
    usage = object_or_empty(step.get("usage"))
    for message in decoder.decode_step(cast(list[JSONObject], step["items"])):
        spoken = message.role == "assistant" and bool(usage)
        yield replace(message, usage=usage_of(usage)) if spoken else message


def _with_outcome(message: Message, turn: JSONObject) -> Message:
    match turn.get("status"):
        case "completed":
            return replace(message, finish="stop")
        case "failed":
            said = text_of(object_or_empty(turn.get("error")).get("message"))
            return replace(message, finish="error", status="error", error=said or NO_REASON)
        case _:
            return message  # it was cut off, or is still running


# ── rollouts ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decoding of rollout files, the JSON Lines record that Codex keeps of a thread on disk.
#
# The history is in the `response_item` lines. They are items of the Responses API, and are decoded by that format.
# Codex adds texts of its own (environment, skills, interrupted turns), which are neither the user's nor ours and are
# left out. After a compaction, the replacement is the history.


HISTORY_TYPES = ("user.", "compaction.summary")
"""The content types that are part of the history. An unknown type is matched by its prefix."""
EVENT_FIELDS = {"timestamp", "type"}
"""The fields of a line that only records an event."""
HARNESS_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "<skills_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
)
"""Prefixes of Codex's own texts, in records that do not mark them."""


def is_rollout_line(line: JSONObject) -> bool:
    """Return True if this is a line of a rollout file. New versions add types."""
    return isinstance(line.get("type"), str) and (isinstance(line.get("payload"), dict) or line.keys() == EVENT_FIELDS)


def decode_rollout(lines: Iterable[JSONObject], provider: str) -> list[Message]:
    """Return the history at the end of the record."""
    form = OpenAIResponsesFormatter(provider=provider)
    items: list[JSONObject] = []
    for line in lines:
        items = apply_line(items, line)
    return list(form.decode_request({"input": items}).messages)


def apply_line(items: list[JSONObject], line: JSONObject) -> list[JSONObject]:
    """Return the history after a line of the record. Items are appended in place."""
    said = object_or_empty(line.get("payload"))
    if line["type"] == "response_item" and not object_or_empty(line.get("metadata")).get("compaction_output"):
        items += _without_harness(said)
    elif line["type"] == "compacted":
        instead: JSON = said.get("replacement_history")
        if isinstance(instead, list):
            return [item for each in cast(list[JSONObject], instead) for item in _without_harness(each)]
        return [{"type": "message", "role": "user", "content": text_of(said.get("message"))}]
    elif said.get("type") == "thread_rolled_back":
        turns: JSON = said.get("num_turns")  # each begins with a user message
        begun = [index for index, item in enumerate(items) if item.get("role") == "user"]
        count = turns if isinstance(turns, int) else 0
        return items[: begun[-min(count, len(begun))]] if count > 0 and begun else items
    return items


def _without_harness(item: JSONObject) -> Iterator[JSONObject]:
    """Yield the item without Codex's own additions, unless it is then empty."""
    name = "internal_chat_message_metadata_passthrough"
    kinds: JSON = object_or_empty(item.get(name)).get("content_item_kinds")
    plain = {key: value for key, value in item.items() if key != name and value is not None}
    content: JSON = item.get("content")
    if item.get("type") != "message" or item.get("role") == "assistant" or not isinstance(content, list):
        yield plain
        return
    blocks = cast(list[JSONObject], content)
    told = cast(list[JSON], kinds) if isinstance(kinds, list) and len(cast(list[JSON], kinds)) == len(blocks) else []
    said = [block for index, block in enumerate(blocks) if not _is_harness(block, told[index] if told else None)]
    if said:
        yield {**plain, "content": said}


def _is_harness(block: JSONObject, kind: JSON) -> bool:
    if isinstance(kind, str) and kind != "unknown":
        return not kind.startswith(HISTORY_TYPES)
    return text_of(block.get("text")).lstrip().startswith(HARNESS_PREFIXES)
