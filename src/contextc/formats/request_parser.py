"""The reader of requests for lint rules: what all formats share.

A format derives its reader from `RequestReader`. The derived class states when a message, a block or a tool is
malformed, and which parts a message has. A malformed value is recorded with the provider's error text, and other rules
ignore it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from contextc._json import JSON, JSONObject, json_type_name
from contextc.formats.lint_engine import (
    UNKNOWN_NAME,
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestMessage,
    RequestPart,
    RuleFinding,
    make_finding,
    missing_field,
    schema_error,
)
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty

TYPED: FieldTypes = {"type": str}
ROLES = ("user", "assistant", "system")
"""Roles of messages that consist of blocks, whatever the provider."""
FOREIGN_FIELDS = ("tool_calls", "function_call", "tool_call_id", "parts", "toolCalls", "toolCallId")
"""Fields of messages in which other providers send content that would be lost."""


class RequestReader:
    """The reader of one request. `body` has its settings; it is empty if only messages were given."""

    messages_key: ClassVar[str] = "messages"
    messages_error: ClassVar[str] = "the messages must be a list."
    messages_required: ClassVar[bool] = False
    """True if a body without messages is reported as such."""
    tools_key: ClassVar[str] = "tools"
    tools_error: ClassVar[str] = "the tools must be a list."
    """May state `{given}`, the type of the value."""
    part_kinds: ClassVar[Mapping[str, PartKind]] = {}
    """The kinds of blocks, by their type."""
    default_kind: ClassVar[PartKind] = "other"

    def __init__(self, body: JSONObject) -> None:
        self.body = body
        self.misshapen: list[RuleFinding] = []

    @classmethod
    def parse(cls, body: JSON) -> ParsedRequest:
        """Parse any JSON value as a request, or as the messages of one."""
        whole = object_or_empty(body)
        reader = cls(whole)
        base: JSONPath = (cls.messages_key,) if is_object(body) else ()
        return ParsedRequest(  # read in this order: it is the order of the findings
            messages=tuple(reader.messages(whole.get(cls.messages_key) if base else body, base)),
            body=whole,
            system=tuple(reader.system()),
            tools=tuple(reader.tools(whole.get(cls.tools_key))),
            malformed=tuple(reader.misshapen),
        )

    def messages(self, given: JSON, base: JSONPath) -> Iterable[RequestMessage]:
        if is_list(given):
            for index, wire in enumerate(given):
                yield from self.message(wire, (*base, index))
        elif self.messages_required and base and self.messages_key not in self.body:
            self.refuse((), missing_field(self.messages_key))
        else:
            self.refuse(base, Fault("", self.messages_error, Problem.TYPE, (list,), given))

    def message(self, wire: JSON, path: JSONPath) -> Iterable[RequestMessage]:
        if wrong := self.message_error(wire):
            self.refuse(path, wrong)
        else:
            yield RequestMessage(role=self.role(wire), path=path, wire=wire, parts=tuple(self.parts(wire, path)))

    def role(self, wire: JSONObject) -> str:
        return wire["role"]

    def message_error(self, wire: JSON) -> Fault | None:
        """Return the first fault of a message, without those inside its blocks and calls."""
        return schema_error(wire, {"role": str})

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterable[RequestPart]:
        return self.blocks(wire.get("content"), (*path, "content"))

    def blocks(
        self, content: JSON, path: JSONPath, shapes: Mapping[str, FieldTypes] | None = None
    ) -> Iterator[RequestPart]:
        """Yield the parts of a text or of a list of blocks. `shapes` are the allowed types, if not all are."""
        if isinstance(content, str):
            yield RequestPart(kind="text", path=path, wire={}, text=content)
        elif is_list(content):
            for index, block in enumerate(content):
                if wrong := self.block_error(block, shapes):
                    self.refuse_typed(block, (*path, index), wrong)
                else:
                    yield self.part(block, (*path, index))

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        return tagged_error(block, shapes or {})

    def part(self, block: JSONObject, path: JSONPath) -> RequestPart:
        kind = self.part_kinds.get(block["type"], self.default_kind)
        return RequestPart(kind=kind, path=path, wire=block, text=block["text"] if kind == "text" else "")

    def system(self) -> Iterable[RequestPart]:
        return ()

    def tools(self, given: JSON) -> Iterable[RequestPart]:
        if given is not None and not is_list(given):
            message = self.tools_error.format(given=json_type_name(given))
            self.refuse((self.tools_key,), Fault("", message, Problem.TYPE, (list,), given))
        return self.listed_tools(list_or_empty(given), (self.tools_key,))

    def listed_tools(self, tools: list[JSON], base: JSONPath) -> Iterator[RequestPart]:
        for index, tool in enumerate(tools):
            path = (*base, index)
            if wrong := self.tool_error(tool):
                self.refuse_typed(tool, path, wrong)
            elif (name := self.tool_name(tool)) is not None:
                yield RequestPart(kind="other", path=path, wire=tool, id=name)

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(tool, {"name": str})

    def tool_name(self, tool: JSONObject) -> str | None:
        """Return the name of a tool with a valid shape; None if its provider runs it."""
        return tool["name"]

    def refuse(self, path: JSONPath, fault: Fault) -> None:
        """Record a malformed value."""
        self.misshapen.append(
            make_finding(path, fault.message, what=self.provider_text(path, fault), field=fault.field)
        )

    def refuse_typed(self, value: JSON, path: JSONPath, fault: Fault) -> None:
        """Record a malformed value that states its type. If only the type is unknown, the finding says so."""
        before = len(self.misshapen)
        self.refuse(path, fault)
        if fault.field.rpartition(".")[2] == "type" and isinstance(object_or_empty(value).get("type"), str):
            for finding in self.misshapen[before:]:
                finding.facts[UNKNOWN_NAME] = True

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        """Return the provider's error text for a malformed value."""
        return fault.message


def tagged_error(value: JSON, shapes: Mapping[str, FieldTypes], noun: str = "block") -> Fault | None:
    """Return the first fault of an object whose `type` states its fields; None if there is none."""
    if wrong := schema_error(value, TYPED):
        return wrong
    if (fields := shapes.get(value["type"])) is None:
        return Fault("type", f"unknown {noun} type {value['type']!r}.")
    return schema_error(value, fields)


def nested_error(name: str, value: object, fields: FieldTypes) -> Fault | None:
    """Return the first fault of an object in the field `name`; None if there is none."""
    wrong = schema_error(value, fields)
    return wrong.inside(name) if wrong else None


def block_message_error(wire: JSON, content: type | tuple[type, ...]) -> Fault | None:
    """Return the first fault of a message that consists of blocks and has content of this type; None without one."""
    if wrong := schema_error(wire, {"role": str, "content": content}):
        return wrong
    if wire["role"] not in ROLES:
        return Fault("role", f'invalid role {wire["role"]!r}: expected "user" or "assistant".')
    foreign = first_field(wire, FOREIGN_FIELDS)
    return Fault(foreign, f"`{foreign}` is not a known field of a message.") if foreign else None


def first_field(wire: JSONObject, names: Iterable[str]) -> str | None:
    """Return the first of these fields that an object has and that is not empty."""
    return next((name for name in names if wire.get(name)), None)
