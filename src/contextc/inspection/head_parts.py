"""The head of a request as parts: its system prompt and each tool definition, compared with the previous request."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

from contextc._json import JSON, JSONObject, decode, encode
from contextc.compiler.body_splitting import without_marks
from contextc.compiler.ledger import repository
from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import find_epoch_start
from contextc.errors import ContextcError
from contextc.formats.base import Formatter
from contextc.store.backend_interface import Transaction
from contextc.tools.spec import AnyTool, Tool, get_tool_name

PartState: TypeAlias = Literal["unchanged", "new", "again"]
SYSTEM_FIRST_FORMATS = ("gemini",)
"""Formats whose providers cache the system prompt before the tools. All others cache the tools first."""


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
        return len(self.text) if self.definition is None else len(encode(_unwrap(self.definition))) + PART_SIZE

    @property
    def content(self) -> tuple[object, ...]:
        """The content that is compared, without cache breakpoints."""
        return (self.kind, self.text, self.name, without_marks(self.definition))

    @property
    def searched(self) -> str:
        """The text with the whole definition, for a search."""
        return self.text if self.definition is None else f"{self.text}\n{encode(self.definition).decode()}"


def _unwrap(definition: JSONObject) -> JSON:
    """Return a tool definition without cache breakpoints, and without the list that Gemini has around it."""
    inside = definition.get("functionDeclarations")
    declared = cast(list[JSON], inside) if isinstance(inside, list) else list[JSON]()
    return without_marks(declared[0] if len(declared) == 1 else definition)


def load_whole_head(tx: Transaction, channel: int, record: RequestRecord) -> bytes | None:
    """Return the head of a request; for a resumed session the head that it began with."""
    whole = record if record.mode != "resume" else find_epoch_start(tx, channel, record)
    return repository.load_head(tx, channel, bytes.fromhex(whole.head))


def split_head(formatter: Formatter, head: bytes | JSONObject | None) -> tuple[HeadPart, ...]:
    """Return the parts of a head in cache order. Nothing is returned if it is missing or not in this format."""
    if head is None:
        return ()
    body = cast(JSONObject, decode(head)) if isinstance(head, bytes) else head
    messages = body.get(formatter.messages_key)
    leading = cast(list[JSON], messages)[:-1] if isinstance(messages, list) else list[JSON]()
    try:
        request = formatter.decode_request({**body, formatter.messages_key: leading})
        prompts = [request.system.text] if request.system is not None else []
        prompts += [each.text for each in request.messages if each.role == "system"]
        tools = tool_parts(formatter, request.tools)
    except ContextcError:
        return ()
    system = [HeadPart("system", text) for text in prompts if text]
    return (*system, *tools) if is_system_first(formatter) else (*tools, *system)


def is_system_first(formatter: Formatter) -> bool:
    """Return True if the provider caches the system prompt before the tools."""
    return formatter.name in SYSTEM_FIRST_FORMATS


def tool_parts(formatter: Formatter | None, tools: Sequence[AnyTool]) -> tuple[HeadPart, ...]:
    """Return the tool definitions as parts. Without a formatter, they have the form of contextc."""
    return tuple([_tool_part(formatter, each) for each in tools])


def _tool_part(formatter: Formatter | None, tool: AnyTool) -> HeadPart:
    name = get_tool_name(tool)
    sent = formatter.encode_tools([tool]) if formatter is not None else []
    definition = sent[0] if sent else cast(JSONObject, decode(encode(tool)))
    description = tool.description if isinstance(tool, Tool) else ""
    return HeadPart("tool", f"{name}: {description}" if description else name, name, definition)


def compare_heads(now: Sequence[HeadPart], before: Sequence[HeadPart] | None, is_shared: bool) -> tuple[HeadPart, ...]:
    """Return the parts with their states. `is_shared`: the request begins with a prefix of the previous one.

    Parts before the first that differs are unchanged in any case.
    """
    kept: PartState = "unchanged" if is_shared else "again"
    if before is None:
        return tuple([each._replace(state="unchanged" if is_shared else "new") for each in now])
    known = [each.content for each in before]
    names = {(each.kind, each.name) for each in before}
    same = next((at for at, each in enumerate(now) if at >= len(known) or each.content != known[at]), len(now))
    first = 0 if same == len(now) == len(known) else same
    return tuple([
        each._replace(state="unchanged") if at < first
        else each._replace(state=kept) if each.content in known
        else each._replace(state="new", is_changed=(each.kind, each.name) in names)
        for at, each in enumerate(now)
    ])  # fmt: skip
