"""The head of a request as parts: its system prompt and each tool definition, in the order of the provider's cache.

If the head changed, the parts before the first change are a prefix that the previous request had too. The manifest
keeps how long it is (`SharedHead`), so that all figures and all lines of a request follow from one comparison.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc._sequence_comparison import count_common_prefix
from contextc.compiler import ledger
from contextc.compiler.manifest import RequestRecord, SharedHead
from contextc.compiler.past_requests import find_epoch_start, without_marks
from contextc.compiler.step import list_leading_messages
from contextc.errors import ContextcError
from contextc.formats.base import DECODE_ERRORS, Formatter
from contextc.models.tokens import iter_loaded_tools
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import AnyTool, Tool, get_tool_name

PartState: TypeAlias = Literal["unchanged", "new", "again"]
PART_SIZE = 8
"""Bytes that are added to the size of each part: a part of a few bytes has tokens of its own."""


class HeadPart(NamedTuple):
    """The system prompt, or one tool definition. `name` is the name of the tool, `definition` its JSON as sent.

    `state` is "again" if the previous request had the same part, but not in a prefix that a cache could keep.
    `is_changed` is True if the previous request had another version of it.
    """

    kind: Literal["system", "tool"]
    text: str
    name: str = ""
    definition: JSONObject | None = None
    state: PartState = "new"
    is_changed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the part, to distribute tokens by. Compositions distribute them in the same way."""
        return len(self.text) if self.definition is None else weigh_definition(encode(_unwrap(self.definition)))

    @property
    def content(self) -> tuple[object, ...]:
        """The content that is compared, without cache breakpoints."""
        return (self.kind, self.text, self.name, without_marks(self.definition))

    @property
    def searched(self) -> str:
        """The text with the whole definition, for a search."""
        return self.text if self.definition is None else f"{self.text}\n{encode(self.definition).decode()}"


def weigh_definition(raw: bytes) -> int:
    """Return the bytes of a tool definition that a model reads: nothing of a tool whose loading is deferred."""
    if b'"defer_loading"' not in raw:
        return len(raw) + PART_SIZE
    loaded = [len(encode(each)) for each in iter_loaded_tools([as_object(decode(raw))])]
    return sum(loaded) + PART_SIZE if loaded else 0


def _unwrap(definition: JSONObject) -> JSON:
    """Return a tool definition without cache breakpoints, and without the list that Gemini has around it."""
    inside = definition.get("functionDeclarations")
    declared = cast(list[JSON], inside) if isinstance(inside, list) else list[JSON]()
    return without_marks(declared[0] if len(declared) == 1 else definition)


def load_whole_head(tx: Transaction, channel: int, record: RequestRecord) -> bytes | None:
    """Return the head of a request; for a resumed session the head that it began with."""
    whole = record if record.mode != "resume" else find_epoch_start(tx, channel, record)
    return ledger.load_head(tx, channel, bytes.fromhex(whole.head))


def split_head(formatter: Formatter, head: bytes | JSONObject | None) -> tuple[HeadPart, ...]:
    """Return the parts of a head in cache order. Nothing is returned if it is missing or not in this format."""
    if head is None:
        return ()
    try:
        body = cast(JSONObject, decode(head)) if isinstance(head, bytes) else head
        leading = list_leading_messages(body, formatter.messages_key)
        request = formatter.decode_request({**body, formatter.messages_key: leading})
        prompts = [request.system.text] if request.system is not None else []
        prompts += [each.text for each in request.messages if each.role == "system"]
        tools = build_tool_definition_parts(formatter, request.tools)
    except (ContextcError, ValueError, msgspec.DecodeError, *DECODE_ERRORS):  # other software may send anything
        return ()
    system = [HeadPart("system", text) for text in prompts if text]
    return (*system, *tools) if formatter.caches_system_first else (*tools, *system)


def build_tool_definition_parts(formatter: Formatter | None, tools: Sequence[AnyTool]) -> tuple[HeadPart, ...]:
    """Return the tool definitions as parts. Without a formatter, they have the form of contextc."""
    found: list[HeadPart] = []
    for tool in tools:
        name = get_tool_name(tool)
        sent = formatter.encode_tools([tool]) if formatter is not None else []
        definition = sent[0] if sent else cast(JSONObject, decode(encode(tool)))
        description = tool.description if isinstance(tool, Tool) else ""
        found.append(HeadPart("tool", f"{name}: {description}" if description else name, name, definition))
    return tuple(found)


def find_shared_head(
    formatter: Formatter, now: bytes | JSONObject | None, before: bytes | JSONObject | None
) -> SharedHead | None:
    """Return the parts of a changed head before its first change; None if the first part has changed, or if a setting
    has, and no part.
    """
    parts, known = split_head(formatter, now), split_head(formatter, before)
    same = count_common_prefix([each.content for each in parts], [each.content for each in known])
    if not same or same == len(parts) == len(known):
        return None
    sizes = {
        kind: [sum([each.size for each in some if each.kind == kind]) for some in (parts[:same], parts)]
        for kind in ("system", "tool")
    }
    return SharedHead(same, *sizes["system"], *sizes["tool"])


def compare_heads(
    now: Sequence[HeadPart], before: Sequence[HeadPart] | None, record: RequestRecord
) -> tuple[HeadPart, ...]:
    """Return the parts with their states: those that are in the prefix by the record of the request are unchanged."""
    kept: PartState = "unchanged" if record.shares_head else "again"
    first = record.shared_head.parts if record.shared_head is not None else 0
    if before is None:
        known, names, first = [], set[tuple[str, str]](), len(now) if record.shares_head else first
    else:
        known, names = [each.content for each in before], {(each.kind, each.name) for each in before}
    return tuple([
        each._replace(state="unchanged") if at < first
        else each._replace(state=kept) if each.content in known
        else each._replace(state="new", is_changed=(each.kind, each.name) in names)
        for at, each in enumerate(now)
    ])  # fmt: skip
