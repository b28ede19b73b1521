"""The content of a request as a list of items that can be compared with those of any other request.

Two requests of one format are compared as their elements in cache order. Those of different formats are compared as
contextc messages, so that the same content is equal in any format.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import blake2b
from typing import Literal, TypeAlias, cast

import msgspec

from contextc._json import JSON, JSONObject, as_object, decode_json, encode
from contextc.analysis.element_costs import call_name, has_media, read_arguments, tool_name
from contextc.analysis.request_elements import BlockType, Element
from contextc.analysis.request_view import RequestView
from contextc.compiler.options import distribute
from contextc.compiler.past_requests import load_channel_formatter, rebuild_session_view
from contextc.formats.base import Request
from contextc.linting.tolerant_decoding import coerce_request
from contextc.messages import Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.store import Store
from contextc.tools.spec import NativeTool, Tool

ItemSection: TypeAlias = Literal["tools", "system", "messages"]
"""The parts of a request, in the order in which providers cache them."""
SECTIONS: tuple[ItemSection, ...] = ("tools", "system", "messages")
_SECTION_OF: dict[str, ItemSection] = {"tool": "tools", "system": "system", "message": "messages"}
MAX_LEAF = 200
"""Characters of encoded data that are shown."""


class ComparedItem:
    """A tool, a block of the system prompt, or a block of a message.

    `key` is equal for equal content. `shape` is equal for items that can be versions of each other. `tokens` are as the
    provider counts them. `text` is what a person reads: texts with their line breaks, and JSON with indents.
    """

    __slots__ = ("__dict__", "call", "element", "key", "name", "path", "role", "section", "tokens", "type")

    def __init__(
        self,
        *,
        section: ItemSection,
        type: BlockType,
        role: str,
        name: str,
        call: str,
        key: bytes,
        path: str,
        tokens: int,
        element: Element | None = None,
        text: str | None = None,
    ) -> None:
        self.section: ItemSection = section
        self.type: BlockType = type
        self.role, self.name, self.call = role, name, call
        self.key, self.path, self.tokens, self.element = key, path, tokens, element
        if text is not None:
            self.text = text

    @cached_property
    def text(self) -> str:
        return show_element(self.element) if self.element is not None else ""

    @property
    def shape(self) -> tuple[str, ...]:
        if self.section == "tools":
            return ("tool", self.name)
        return (self.section, self.type, self.role, self.call if self.type in ("tool_call", "tool_result") else "")


def element_items(view: RequestView) -> list[ComparedItem]:
    """Return the elements of a request in cache order."""
    return [
        ComparedItem(
            section=_SECTION_OF[element.kind],
            type=element.type,
            role=element.role,
            name=tool_name(element) if element.kind == "tool" else element.name,
            call=element.call,
            key=element.key,
            path=path,
            tokens=tokens,
            element=element,
        )
        for _, element, path, tokens in view.placed()
    ]


def message_items(store: Store, view: RequestView) -> list[ComparedItem]:
    """Return the content of a request as contextc messages: tools, system prompt, and the parts of messages."""
    formatter = load_channel_formatter(store, view.channel)
    body = decode_json(rebuild_session_view(store, view.channel, formatter, view.number))
    request = formatter.decode_request(coerce_request(formatter, body).body)
    items = list(_read_request(request))
    shares = distribute(view.input, [len(each.text) + 8 for each in items])
    for item, tokens in zip(items, shares, strict=True):
        item.tokens = tokens
    return items


def _read_request(request: Request) -> Iterator[ComparedItem]:
    for index, tool in enumerate(request.tools):
        yield _tool_item(tool, f"tools[{index}]")
    leading: list[Message] = [request.system] if request.system is not None else []
    messages = list(request.messages)
    while messages and messages[0].role == "system":
        leading.append(messages.pop(0))
    numbers: dict[str, int] = {}  # ids of calls differ between formats, so calls are numbered
    for index, message in enumerate(leading):
        yield from _part_items(message, "system", f"system[{index}]", numbers)
    for index, message in enumerate(messages):
        yield from _part_items(message, "messages", f"messages[{index}]", numbers)


def _tool_item(tool: Tool | NativeTool, path: str) -> ComparedItem:
    name = tool.name if isinstance(tool, Tool) else str(tool.data.get("name") or tool.data.get("type") or "")
    fields: JSONObject = (
        {"description": tool.description, "parameters": tool.parameters} if isinstance(tool, Tool) else tool.data
    )
    text = _show_fields(name, fields)
    return ComparedItem(
        section="tools",
        type="tool",
        role="",
        name=name,
        call="",
        key=_hash("tool", text),
        path=path,
        tokens=0,
        text=text,
    )


def _part_items(message: Message, section: ItemSection, path: str, numbers: dict[str, int]) -> Iterator[ComparedItem]:
    for index, part in enumerate(message.parts):
        type, name, call, text = read_part(part)
        if call:
            call = f"call {numbers.setdefault(call, len(numbers) + 1)}"
        role = message.role if type not in ("tool_call", "tool_result") else ""
        yield ComparedItem(
            section=section,
            type=type,
            role=role,
            name=name,
            call=call,
            key=_hash(type, role, name, call, text),
            path=f"{path}.parts[{index}]",
            tokens=0,
            text=text,
        )


def read_part(part: object) -> tuple[BlockType, str, str, str]:
    """Return type, name, id of the call, and text of a part."""
    match part:
        case Text():
            return "text", "", "", part.text
        case Reasoning():
            return "reasoning", "", "", part.text
        case ToolCall():
            return "tool_call", part.name, part.id, _show_fields(part.name, part.arguments)
        case ToolResult():
            return "tool_result", part.name, part.call_id, _show_result(part.content)
        case Media():
            return "media", part.name or "", "", _show_media(part)
        case ProviderBlock():
            return "other", "", "", _show_value(part.data)
        case _:
            return "other", "", "", _show_value(msgspec.to_builtins(part))


def _show_result(content: str | Iterable[Text | Media]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join([each.text if isinstance(each, Text) else _show_media(each) for each in content])


def _show_media(part: Media) -> str:
    where = part.url or part.file_id or part.blob
    data = blake2b(part.data, digest_size=8).hexdigest() if part.data is not None and not where else where
    return f"[{part.mime_type} {(data or '')[:MAX_LEAF]}]"


def _hash(*texts: str) -> bytes:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=12).digest()


# ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_element(element: Element) -> str:
    """Return an element as a person reads it: texts with their line breaks, and JSON with indents."""
    if element.type == "tool_call":
        arguments = read_arguments(element)
        return _show_fields(call_name(element), arguments) if arguments else _show_value(element.value)
    if element.kind == "tool":
        fields = as_object(element.value)
        inside = next(
            (as_object(fields[name]) for name in ("function", "toolSpec") if as_object(fields.get(name))), fields
        )
        rest = {name: value for name, value in inside.items() if name != "name"}
        outside = {
            name: value for name, value in fields.items() if inside is not fields and as_object(value) is not inside
        }
        return _show_fields(
            tool_name(element), {**rest, **{name: value for name, value in outside.items() if name not in rest}}
        )
    if element.type in ("media", "other") or has_media(element):
        return _show_value(element.value)
    return element.text


def _show_fields(title: str, fields: JSONObject) -> str:
    lines = [title] if title else []
    for name, value in fields.items():
        shown = value if isinstance(value, str) else _show_value(value)
        lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name}: {shown}")
    return "\n".join(lines)


def _show_value(value: JSON) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(encode(_without_data(value)), indent=2).decode("utf-8", "replace")


def _without_data(value: JSON, name: str = "") -> JSON:
    """Return JSON whose encoded data is replaced by its hash and its size."""
    if isinstance(value, list):
        return [_without_data(each) for each in cast(list[JSON], value)]
    if isinstance(value, dict):
        return {key: _without_data(each, key) for key, each in cast(JSONObject, value).items()}
    if isinstance(value, str) and len(value) > MAX_LEAF and (name in ("data", "bytes") or value.startswith("data:")):
        start = value[:40] if value.startswith("data:") else ""
        digest = blake2b(value.encode(errors="replace"), digest_size=8).hexdigest()
        return f"{start}… {len(value):,} characters, hash {digest}"
    return value
