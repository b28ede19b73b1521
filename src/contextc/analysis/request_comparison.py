"""Comparison of any two requests: of one channel, or of different models, branches, conversations or formats.

Both are aligned in cache order: tools, system prompt, messages. Cache breakpoints do not count. The first difference
in that order is the one that breaks the prefix, so it comes with its cause and with what it costs.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import zip_longest
from operator import attrgetter
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, decode_json, encode
from contextc._sequence_comparison import align, count_common_prefix, split_at_runs
from contextc.analysis.cache_miss_causes import MissCase, compare_elements
from contextc.analysis.cache_misses import compute_cost, describe_trim
from contextc.analysis.cache_model import (
    CacheModel,
    CacheRules,
    Comparison,
    compare_requests,
    count_equal,
    find_cache_rules,
    read_field,
)
from contextc.analysis.cache_neighbours import compare_with_overlapping, is_answered_during
from contextc.analysis.changed_content import (
    DESCRIPTIONS,
    MOVED_FIX,
    MOVED_NAMES,
    describe_way,
    find_move,
    is_reminder,
    number_by_name,
    recognise,
)
from contextc.analysis.conversation_findings import CauseSummary, find_all, group_by_cause
from contextc.analysis.conversation_loader import StoredConversation, load_two_conversations
from contextc.analysis.cost_by_content import ConversationCosts, CostLine, compute_costs
from contextc.analysis.element_costs import call_name, has_media, read_arguments, tool_name
from contextc.analysis.finding import Finding, get_code
from contextc.analysis.request_elements import BlockType, Element, RequestView
from contextc.compiler.draft import distribute
from contextc.compiler.past_requests import MARK_FIELDS, load_channel_formatter, rebuild_session_view
from contextc.formats.base import Request
from contextc.inspection.diff import Segment, diff_texts, show_text
from contextc.inspection.line_details import compute_item_costs
from contextc.inspection.request_timeline import load_totals
from contextc.linting.request_reading import coerce_request
from contextc.messages import Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.store import Store
from contextc.tools.definitions import NativeTool, Tool

# ── items ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The content of a request as a list of items that can be compared with those of any other request.
#
# Two requests of one format are compared as their elements in cache order. Those of different formats are compared as
# contextc messages, so that the same content is equal in any format.


ItemSection: TypeAlias = Literal["tools", "system", "messages"]
"""The parts of a request, in the order in which providers cache them."""
SECTIONS: tuple[ItemSection, ...] = ("tools", "system", "messages")
_SECTION_OF: dict[str, ItemSection] = {"tool": "tools", "system": "system", "message": "messages"}
MAX_LEAF = 200
"""Characters of encoded data that are shown."""


class ComparedItem(Struct, kw_only=True, eq=False, dict=True):
    """A tool, a block of the system prompt, or a block of a message.

    `key` is equal for equal content. `shape` is equal for items that can be versions of each other. `tokens` are as the
    provider counts them, and `cost` is their share in the price of the input, if that is known. `text` is what a person
    reads: texts with their line breaks, and JSON with indents.
    """

    section: ItemSection
    type: BlockType
    role: str = ""
    name: str = ""
    call: str = ""
    key: bytes
    path: str
    tokens: int = 0
    cost: float | None = None
    element: Element | None = None
    shown: str = ""

    @cached_property
    def text(self) -> str:
        return show_element(self.element) if self.element is not None else self.shown

    @property
    def shape(self) -> tuple[str, ...]:
        if self.section == "tools":
            return ("tool", self.name)
        return (self.section, self.type, self.role, self.call if self.is_paired else "")

    @property
    def is_paired(self) -> bool:
        return self.type in ("tool_call", "tool_result")

    def differs_in_id(self, other: "ComparedItem") -> bool:
        """Return True if this and another call, or result, are the same but for the id of the call."""
        if not self.is_paired or (self.type, self.name, self.role) != (other.type, other.name, other.role):
            return False
        if self.call == other.call:
            return False
        if self.element is None or other.element is None:
            return self.text == other.text
        return _without_call_ids(self.element.value) == _without_call_ids(other.element.value)


CALL_IDS = ("id", "call_id", "tool_use_id", "tool_call_id", "toolUseId")


def _without_call_ids(value: JSON, depth: int = 0) -> JSON:
    """Return a call or a result without the id of the call, which stands beside its other fields or one level below."""
    fields = as_object(value)
    if not fields or depth > 1:
        return value
    return {name: _without_call_ids(each, depth + 1) for name, each in fields.items() if name not in CALL_IDS}


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
    return ComparedItem(section="tools", type="tool", name=name, key=_hash("tool", text), path=path, shown=text)


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
            shown=text,
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
    return msgspec.json.format(encode(without_data(value)), indent=2).decode("utf-8", "replace")


def without_data(value: JSON, name: str = "") -> JSON:
    """Return JSON whose encoded data is replaced by its hash and its size."""
    if isinstance(value, list):
        return [without_data(each) for each in cast(list[JSON], value)]
    if isinstance(value, dict):
        return {key: without_data(each, key) for key, each in cast(JSONObject, value).items()}
    if isinstance(value, str) and len(value) > MAX_LEAF and (name in ("data", "bytes") or value.startswith("data:")):
        start = value[:40] if value.startswith("data:") else ""
        digest = blake2b(value.encode(errors="replace"), digest_size=8).hexdigest()
        return f"{start}… {len(value):,} characters, hash {digest}"
    return value


# ── differences ───────────────────────────────────────────────────────────────────────────────────────────────────────


DifferenceKind: TypeAlias = Literal["changed", "removed", "added", "reordered", "moved"]
DifferenceSection: TypeAlias = Literal["settings", "tools", "system", "messages"]
MAX_DIFFERENCES = 400
MAX_CHARACTERS = 600_000
"""Characters of all differences; those after it have no text."""
MAX_RECOGNISED = 100_000
"""Characters up to which the cause of a change is looked for."""
TIER_TEXTS = {
    "all": "invalidates the whole prefix",
    "system": "invalidates the system prompt and the messages",
    "messages": "invalidates the messages",
}


class Difference(Struct, frozen=True, kw_only=True):
    """One difference. `before` and `after` are its paths in both requests; "" where only one has it.

    `tokens` are those of the later version, or of the earlier one if it was removed. `cost` is what the later version
    cost in this request, in dollars; None if that is unknown, or if it was removed. `unchanged` is the number of equal
    items between the previous difference and this one, and `unchanged_tokens` their tokens. `note` is what changed in
    a few words, such as "it contains the time". `is_break` is True if the prefix breaks here. A block is `moved` if it
    left its place, where the prefix breaks, for a later one; its `note` says which. The `type` of a reminder that moved
    is "reminder".
    """

    kind: DifferenceKind
    section: DifferenceSection
    type: str
    role: str
    name: str
    before: str
    after: str
    tokens: int
    unchanged: int
    unchanged_tokens: int
    note: str
    is_break: bool
    segments: tuple[Segment, ...]
    cost: float | None = None


class ComparedRequest(Struct, frozen=True, kw_only=True):
    """One of the two requests. `channel` is the id of its channel, and `input` are its input tokens."""

    conversation: str
    channel: str
    request: int
    model: str
    format: str
    time: int
    input: int


class RequestComparison(Struct, frozen=True, kw_only=True):
    """The comparison of a request (`after`) with another one (`before`; None if there is none).

    `differences` are in cache order: tools, system prompt, messages. Cache breakpoints do not count. `break_index` is
    the index of the first that breaks the prefix; None if `after` extends `before`, or begins like it. `reason` says
    what it is, `fix` how to avoid it. `readable` are the tokens that `after` could read from the cache that `before`
    left, by the rules of the provider. `lost` are tokens that both have and that were not read, by the provider's own
    figures if it reported any. `cost` is what they cost more than a read from the cache, in dollars; None if that is
    unknown. With `cost_is_lower_bound` a factor of all prices is unknown. Requests to different models share no cache:
    then `shares_cache` is False, and these three are None. So they are if `before` was sent later than `after`, if the
    rules of the cache are not known, and for an observed request that continues an earlier response by its id: it
    contains only what is new, and the provider has the rest.

    `as_messages` is True if the formats differ, so that contextc messages are compared. `unchanged` and
    `unchanged_tokens` count equal items. `omitted` is the number of differences that are left out, and `cut` is True if
    texts are.
    """

    before: ComparedRequest | None
    after: ComparedRequest
    differences: tuple[Difference, ...]
    break_index: int | None
    reason: str
    fix: str
    shares_cache: bool
    as_messages: bool
    readable: int | None
    lost: int | None
    cost: float | None
    unchanged: int
    unchanged_tokens: int
    omitted: int
    cut: bool
    cost_is_lower_bound: bool = False


class _Change(Struct, frozen=True, eq=False):
    """A difference before its texts are compared."""

    kind: DifferenceKind
    section: ItemSection
    old: ComparedItem | None
    new: ComparedItem | None
    unchanged: int = 0
    unchanged_tokens: int = 0
    names: tuple[str, str] = ("", "")
    """The names of all tools before and after, if their order changed."""


class _Aligned(Struct, frozen=True):
    changes: list[_Change]
    unchanged: int
    tokens: int


def name_request(view: RequestView) -> ComparedRequest:
    """Return the facts by which a compared request is named."""
    return ComparedRequest(
        conversation=view.channel.conversation,
        channel=view.channel_id,
        request=view.number,
        model=f"{view.channel.provider}:{view.channel.model}",
        format=view.format,
        time=view.stated_began,
        input=view.input,
    )


def compare_two_requests(store: Store, before: RequestView | None, now: RequestView) -> RequestComparison:
    """Return the comparison of a request with another one, which counts as the earlier."""
    if before is None:
        return RequestComparison(
            before=None, after=name_request(now), differences=(), break_index=None, reason="", fix="",
            shares_cache=False, as_messages=False, readable=None, lost=None, cost=None,
            unchanged=0, unchanged_tokens=0, omitted=0, cut=False,
        )  # fmt: skip
    as_messages = before.format != now.format
    old, new = load_compared_items(store, before, now)
    if now.usage is not None:
        tokens = [each.tokens for each in new]
        prices = compute_item_costs(now.model, tokens, now.input - sum(tokens), now.usage)
        for item, cost in zip(new, prices, strict=True):
            item.cost = cost
    continues_response = now.observed is not None and bool(now.record.session) and before.channel == now.channel
    if continues_response:  # it has only what is new: the provider has the messages before it
        old = [each for each in old if each.section != "messages"]
    shares_cache = not as_messages and before.scope == now.scope
    known_rules = find_cache_rules(now)
    rules = known_rules or CacheRules(name="")
    compared = compare_requests(rules, before, now) if shares_cache else None
    aligned, moved = _align_with_move(old, new, compared)
    settings = list(_compare_settings(rules, before, now))
    limiting = _find_limiting_setting(compared)
    broken = (moved or _find_break(aligned.changes, old, new, compared)) if limiting is None else None
    shown = _Texts()
    differences: list[Difference] = []
    if limiting is not None:
        settings.sort(key=lambda each: each.name != limiting)
        settings[:1] = [replace(each, is_break=True) for each in settings[:1] if each.name == limiting] or settings[:1]
    for change in aligned.changes:
        differences.append(shown.make(change, is_break=change is broken))
    ordered = [*settings, *differences] if limiting is not None else [*differences, *settings]
    index = next((at for at, each in enumerate(ordered) if each.is_break), None)
    kept = ordered[:MAX_DIFFERENCES]
    if index is not None and index >= MAX_DIFFERENCES:
        kept[-1], index = ordered[index], MAX_DIFFERENCES - 1
    reason, fix = (_describe_difference(kept[index]), _fix_of(kept[index])) if index is not None else ("", "")
    if broken is not None and index is not None and kept[index].section == "messages":
        changed = broken.new.text if broken.new is not None else ""
        is_own = now.observed is None and before.channel == now.channel and before.number == now.number - 1
        trim = describe_trim(now, changed, is_removed=broken.new is None) if is_own else None
        reason, fix = (f"{trim.title}.", trim.fix) if trim is not None else (reason, fix)
    costs = [each.cost for each in kept]
    figures = _CacheFigures()
    if compared is not None and known_rules is not None and not continues_response and not _is_sent_after(before, now):
        figures = _count_cached(known_rules, before, now)
    return RequestComparison(
        before=name_request(before),
        after=name_request(now),
        differences=tuple(kept),
        break_index=index,
        reason=reason,
        fix=fix,
        shares_cache=shares_cache,
        as_messages=as_messages,
        readable=figures.readable,
        lost=figures.lost,
        cost=figures.cost,
        cost_is_lower_bound=now.cost_is_lower_bound and any([each is not None for each in (figures.cost, *costs)]),
        unchanged=aligned.unchanged,
        unchanged_tokens=aligned.tokens,
        omitted=len(ordered) - len(kept),
        cut=shown.is_cut,
    )


def load_compared_items(
    store: Store, before: RequestView, now: RequestView
) -> tuple[list[ComparedItem], list[ComparedItem]]:
    """Return the content of two requests: as elements, or as messages if their formats differ."""
    if before.format == now.format:
        return element_items(before), element_items(now)
    return message_items(store, before), message_items(store, now)


# ── alignment ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def align_items(old: Sequence[ComparedItem], new: Sequence[ComparedItem]) -> _Aligned:
    """Return the differences of two lists of items in cache order. The time is linear in their lengths."""
    found: list[_Change] = []
    count = tokens = total = total_tokens = 0
    for section in SECTIONS:
        before, now = ([each for each in side if each.section == section] for side in (old, new))
        pairs = _pair_tools(before, now) if section == "tools" else _pair_blocks(before, now)
        for one, other in pairs:
            if one is not None and other is not None and one.key == other.key:
                count, tokens = count + 1, tokens + other.tokens
                total, total_tokens = total + 1, total_tokens + other.tokens
                continue
            kind: DifferenceKind = "added" if one is None else "removed" if other is None else "changed"
            found.append(_Change(kind, section, one, other, count, tokens))
            count = tokens = 0
        if section == "tools" and (names := _reordered_names(before, now)) is not None:
            found.append(_Change("reordered", section, before[0], now[0], count, tokens, names))
            count = tokens = 0
    return _Aligned(found, total, total_tokens)


def _align_with_move(
    old: Sequence[ComparedItem], new: Sequence[ComparedItem], compared: Comparison | None
) -> tuple[_Aligned, _Change | None]:
    """Return the differences, and the first of them if it is a block that moved to a later place."""
    at = compared.equal if compared is not None else len(old)
    elements = ([each.element for each in side[at:] if each.element is not None] for side in (old, new))
    move = find_move(*elements)
    if move is None:
        return align_items(old, new), None
    one, other = old[at], new[at + move.offset]
    rest = align_items([each for each in old if each is not one], [each for each in new if each is not other])
    tokens = sum([each.tokens for each in new[:at]])
    moved = _Change("moved", one.section, one, other, at, tokens)
    after = [
        replace(each, unchanged=each.unchanged - at, unchanged_tokens=each.unchanged_tokens - tokens)
        for each in rest.changes[:1]
    ]
    return replace(rest, changes=[moved, *after, *rest.changes[1:]]), moved


_Pair: TypeAlias = tuple[ComparedItem | None, ComparedItem | None]


def _pair_tools(old: Sequence[ComparedItem], new: Sequence[ComparedItem]) -> Iterator[_Pair]:
    """Pair tools of one name. Removed ones come before the tool that follows them."""
    before, now = (number_by_name(side, attrgetter("name")) for side in (old, new))
    gone = iter([(name, tool) for name, tool in before.items() if name not in now])
    place = {name: index for index, name in enumerate(before)}
    next_gone = next(gone, None)
    for name, tool in now.items():
        while next_gone is not None and name in place and place[next_gone[0]] < place[name]:
            yield next_gone[1], None
            next_gone = next(gone, None)
        yield before.get(name), tool
    while next_gone is not None:
        yield next_gone[1], None
        next_gone = next(gone, None)


def _reordered_names(old: Sequence[ComparedItem], new: Sequence[ComparedItem]) -> tuple[str, str] | None:
    """Return the names of the tools that both have, if their order differs."""
    before, now = (number_by_name(side, attrgetter("name")) for side in (old, new))
    one = [name for name in before if name in now]
    other = [name for name in now if name in before]
    return ("\n".join([name for name, _ in one]), "\n".join([name for name, _ in other])) if one != other else None


def _pair_blocks(old: Sequence[ComparedItem], new: Sequence[ComparedItem]) -> Iterator[_Pair]:
    runs = align([each.key for each in old], [each.key for each in new])
    for gone, come, *same in split_at_runs(old, new, runs):
        yield from _pair_by_shape(gone, come)
        yield from zip(*same, strict=True)


def _pair_by_shape(old: Sequence[ComparedItem], new: Sequence[ComparedItem]) -> Iterator[_Pair]:
    """Pair items that can be versions of each other, in order. The others were removed or added.

    Calls and results have the id of the call in common. If both ids are on one side only, they are paired by the tool.
    """
    left = Counter([each.shape for each in old])
    right = Counter([each.shape for each in new])
    one = other = 0
    while one < len(old) or other < len(new):
        before = old[one] if one < len(old) else None
        now = new[other] if other < len(new) else None
        if (before is not None and now is not None and before.shape == now.shape) or (
            before is not None
            and now is not None
            and before.is_paired
            and (before.type, before.role, before.name) == (now.type, now.role, now.name)
            and not (right[before.shape] or left[now.shape])
        ):
            yield before, now
        elif before is not None and (now is None or not right[before.shape] or left[now.shape]):
            yield before, None
            now = None
        else:
            yield None, now
            before = None
        if before is not None:
            left[before.shape] -= 1
            one += 1
        if now is not None:
            right[now.shape] -= 1
            other += 1


# ── the break ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _find_limiting_setting(compared: Comparison | None) -> str | None:
    """Return the changed setting that breaks the prefix before the content does; None if none does."""
    if compared is None or not compared.settings or compared.shared >= compared.equal:
        return None
    order = ("all", "system", "messages")
    return min(compared.settings, key=lambda each: order.index(each[1]))[0]


def _find_break(
    changes: Sequence[_Change], old: Sequence[ComparedItem], new: Sequence[ComparedItem], compared: Comparison | None
) -> _Change | None:
    """Return the first difference in cache order; None if one request begins with the whole other one."""
    at = compared.equal if compared is not None else count_equal_items(old, new)
    if at >= len(old) or at >= len(new):
        return None
    one, other = old[at], new[at]
    for change in changes:
        if change.kind != "reordered" and (change.old is one or change.new is other):
            return change
    section = "tools" if "tools" in (one.section, other.section) else other.section
    return next((each for each in changes if each.section == section), changes[0] if changes else None)


def count_equal_items(old: Sequence[ComparedItem], new: Sequence[ComparedItem]) -> int:
    """Return the number of items at the beginning that two requests have in common."""
    return count_common_prefix([each.key for each in old], [each.key for each in new])


def _is_sent_after(one: RequestView, other: RequestView) -> bool:
    """Return True if a request was sent after another one, so that it left nothing in the cache for it."""
    if one.channel == other.channel and one.began == other.began:
        return one.number > other.number
    return one.began > other.began


class _CacheFigures(Struct, frozen=True):
    readable: int | None = None
    lost: int | None = None
    cost: float | None = None


def _count_cached(rules: CacheRules, before: RequestView, now: RequestView) -> _CacheFigures:
    """Return what a request could read, and what it lost, in the same way as for a finding about it."""
    if is_parallel := before.channel != now.channel and is_answered_during(before, now):
        outlook = compare_with_overlapping(rules, now, [before])
    else:
        model = CacheModel()
        model.add(rules, before, model.expect(rules, before))
        outlook = model.expect_from(rules, before, now) or model.expect(rules, now)
    usages = [each.usage for each in (before, now) if each.usage is not None]
    reports = rules.reports or any([usage.cache_read or usage.cache_write for usage in usages])
    case = MissCase(now, rules, outlook, before, reports=reports, is_first=is_parallel)
    compared = outlook.comparison
    if compared is None:
        compared = compare_requests(rules, before, now)
    is_small = compared.is_extension and case.missed < case.threshold
    lost = 0 if is_small else case.missed
    return _CacheFigures(outlook.tokens, lost, compute_cost(case, lost))


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Texts:
    """Compares the texts of differences, up to a number of characters."""

    def __init__(self) -> None:
        self.left = MAX_CHARACTERS
        self.made = 0
        self.is_cut = False

    def make(self, change: _Change, *, is_break: bool) -> Difference:
        self.made += 1
        has_room = is_break or (self.left > 0 and self.made <= MAX_DIFFERENCES)
        segments, note = _compare_texts(change) if has_room else ([], "")
        self.left -= sum([len(each.text) for each in segments])
        self.is_cut = self.is_cut or not has_room or any([each.kind == "cut" for each in segments])
        item = change.new or change.old
        assert item is not None
        is_order, is_moved = change.kind == "reordered", change.kind == "moved"
        return Difference(
            kind=change.kind,
            section=change.section,
            type="reminder" if is_moved and item.element is not None and is_reminder(item.element) else item.type,
            role=item.role,
            name="" if is_order else item.name,
            before="" if change.old is None else "tools" if is_order else change.old.path,
            after="" if change.new is None else "tools" if is_order else change.new.path,
            tokens=0 if is_order else item.tokens,
            unchanged=change.unchanged,
            unchanged_tokens=change.unchanged_tokens,
            note=note,
            is_break=is_break,
            segments=tuple(segments),
            cost=None if change.new is None or is_order else change.new.cost,
        )


def _compare_texts(change: _Change) -> tuple[list[Segment], str]:
    old, new = change.old, change.new
    if change.kind == "reordered":
        return diff_texts(*change.names), ""
    if old is None or new is None:
        return (show_text("added", new.text) if new is not None else show_text("removed", old.text if old else "")), ""
    if change.kind == "moved":
        is_same = old.key == new.key
        segments = show_text("same", new.text) if is_same else diff_texts(old.text, new.text)
        return segments, describe_way(old.path, new.path, is_same=is_same)
    if old.differs_in_id(new):
        return diff_texts(old.call, new.call), ONLY_ID
    segments = diff_texts(old.text, new.text)
    if len(old.text) + len(new.text) > MAX_RECOGNISED:
        return segments, ""
    if old.element is not None and new.element is not None:
        found, _ = compare_elements(old.element, new.element)
    else:
        found = recognise(old.text, new.text)
    return segments, DESCRIPTIONS[found.kind][0] if found.kind in DESCRIPTIONS else ""


def _compare_settings(rules: CacheRules, before: RequestView, now: RequestView) -> Iterator[Difference]:
    """Return the settings that differ. Cache breakpoints are none."""
    old, new = ({**each.settings, "model": each.channel.model} for each in (before, now))
    paths = dict.fromkeys([*rules.settings, *new, *old])
    inner = {path.partition(".")[0] for path in rules.settings if "." in path and path not in new and path not in old}
    for path in paths:
        one, other = read_field(old, path), read_field(new, path)
        if one == other or path in MARK_FIELDS or (path in inner and not _differs_outside(rules, path, old, new)):
            continue
        tier = rules.settings.get(path)
        texts = [
            "" if each is None else each if isinstance(each, str) else encode(each).decode() for each in (one, other)
        ]
        yield Difference(
            kind="added" if one is None else "removed" if other is None else "changed",
            section="settings",
            type="setting",
            role="",
            name=path,
            before=path if one is not None else "",
            after=path if other is not None else "",
            tokens=0,
            unchanged=0,
            unchanged_tokens=0,
            note=TIER_TEXTS[tier] if tier else "does not affect the cache",
            is_break=False,
            segments=tuple(diff_texts(*texts)),
        )


def _differs_outside(rules: CacheRules, name: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> bool:
    """Return True if a field differs apart from its inner fields that have a rule of their own."""
    inner = [path.partition(".")[2] for path in rules.settings if path.startswith(f"{name}.")]
    if not as_object(old.get(name)) or not as_object(new.get(name)):
        return any(
            [read_field(dict(old), f"{name}.{each}") == read_field(dict(new), f"{name}.{each}") for each in inner]
        )
    one, other = (
        {key: each for key, each in as_object(side.get(name)).items() if key not in inner} for side in (old, new)
    )
    return one != other


ONLY_ID = "only the id of the call differs"
ONLY_ID_FIX = "Send calls and results again with the ids that they had."
_PLACES = {"tools": "tool", "system": "system prompt", "messages": "message", "settings": "setting"}
_TYPES = {
    "tool_call": "tool call", "tool_result": "tool result", "reasoning": "reasoning", "media": "media",
    "compaction": "summary",
}  # fmt: skip


def _describe_difference(difference: Difference) -> str:
    """Return a sentence that says what breaks the prefix."""
    if difference.kind == "reordered":
        return "The tools have another order."
    if difference.kind == "moved":
        return f"{MOVED_NAMES.get(difference.type, 'A block')} moved {difference.note}."
    what = _PLACES[difference.section]
    if difference.section == "messages":
        what = _TYPES.get(difference.type) or f"{difference.role} message".strip()
    name = f" {difference.name}" if difference.name and difference.section != "system" else ""
    added = "was added" if difference.section == "tools" else "was inserted"
    verb = {"changed": "changed", "removed": "was removed", "added": added}[difference.kind]
    note = f": {difference.note}" if difference.note and difference.kind == "changed" else ""
    return f"The {what}{name} {verb}{note}."


def _fix_of(difference: Difference) -> str:
    if difference.kind == "reordered":
        return "Send the tools in a fixed order."
    if difference.kind == "moved":
        return MOVED_FIX
    if difference.section == "settings":
        return "Keep this setting the same within a conversation."
    if difference.section == "tools" and difference.kind != "changed":
        return "Send the same tools in every request of a conversation."
    if difference.kind == "changed":
        if difference.note == ONLY_ID:
            return ONLY_ID_FIX
        found = next((fix for text, fix in DESCRIPTIONS.values() if text == difference.note), "")
        return found or DESCRIPTIONS["text"][1]
    return DESCRIPTIONS["text"][1]


# ── two conversations ─────────────────────────────────────────────────────────────────────────────────────────────────
# Comparison of two conversations as a whole: their figures side by side, and the first request that differs.


KEYS_OF_CONVERSATIONS = ("prompt_cache_key", "safety_identifier", "user")
WORD = re.compile(r"\w+")
MAX_COMPARED = 10_000
"""Characters of the first messages that are compared."""
ALIKE_SHARE = 0.5


class RunFigures(Struct, frozen=True, kw_only=True):
    """The figures of one conversation. Shares, costs and factors are None if they are unknown. Times are in Unix
    milliseconds. `estimated` is the estimated input of requests for which the provider reported no tokens.
    """

    conversation: str
    models: tuple[str, ...]
    requests: int
    failed: int
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_share: float | None
    cost: float | None
    cost_is_lower_bound: bool = False
    rewrite_factor: float | None
    began: int
    ended: int
    estimated: int = 0


class CauseSums(Struct, frozen=True, kw_only=True):
    """The findings of one cause in one conversation."""

    count: int = 0
    tokens: int = 0
    cost: float | None = None
    cost_is_lower_bound: bool = False


class ComparedCause(Struct, frozen=True, kw_only=True):
    """The findings of one cause in both conversations."""

    code: str
    title: str
    a: CauseSums
    b: CauseSums


class ComparedCost(Struct, frozen=True, kw_only=True):
    """The tokens and the cost of one purpose in both conversations, such as the results of one tool."""

    kind: str
    name: str
    tokens_a: int
    tokens_b: int
    cost_a: float | None
    cost_b: float | None


class FirstDifference(Struct, frozen=True, kw_only=True):
    """The first requests that differ: `position` is their common position, from 1 on. One of them is None if its
    conversation has fewer requests. `reason` says what differs first; "" if only one of them exists. `related` is
    False if the conversations are about different things: no request is the same, and the first messages have few words
    in common. `equal` is the number of parts before the first difference, and `equal_tokens` their tokens.
    """

    position: int
    a: ComparedRequest | None
    b: ComparedRequest | None
    reason: str
    related: bool = True
    equal: int = 0
    equal_tokens: int = 0


class CostliestDifference(Struct, frozen=True, kw_only=True):
    """The cause of findings whose cost differs most between two conversations. `title` is that of its most expensive
    finding. A cost is 0 without such findings.
    """

    code: str
    title: str
    cost_a: float
    cost_b: float
    cost_is_lower_bound: bool = False


class ConversationComparison(Struct, frozen=True, kw_only=True):
    """Two conversations side by side. `first` is None if all their requests are the same. Requests that differ only in
    ids of calls, which are new in each run, are named if no other differs. `costliest` is None if no finding has a
    known cost, or if all causes cost the same.
    """

    a: RunFigures
    b: RunFigures
    causes: tuple[ComparedCause, ...]
    costs: tuple[ComparedCost, ...]
    first: FirstDifference | None
    costliest: CostliestDifference | None = None


def compare_conversations(store: Store, one: str, other: str) -> ConversationComparison:
    """Return the comparison of two conversations. Raises `UnknownConversation`."""
    first, second = load_two_conversations(store, one, other)
    costs, causes = (
        (compute_costs(first), compute_costs(second)),
        [_by_code(find_all(each)) for each in (first, second)],
    )
    return ConversationComparison(
        a=_figures(first, costs[0]),
        b=_figures(second, costs[1]),
        causes=tuple(_compare_causes(*causes)),
        costs=tuple(_compare_costs(costs[0].lines, costs[1].lines)),
        first=_find_first(store, first.requests, second.requests),
        costliest=_find_costliest(*causes),
    )


def _figures(view: StoredConversation, costs: ConversationCosts) -> RunFigures:
    totals = load_totals(view.store, view.name)
    timed = [each for each in view.requests if each.stated_began]
    return RunFigures(
        conversation=view.name,
        models=tuple(dict.fromkeys([f"{each.channel.provider}:{each.channel.model}" for each in view.requests])),
        requests=totals.requests,
        failed=totals.failed,
        input=totals.input,
        output=totals.output,
        reasoning=totals.reasoning,
        cache_read=totals.cache_read,
        cache_share=costs.cache_share,
        cost=totals.cost,
        cost_is_lower_bound=totals.cost_is_lower_bound,
        rewrite_factor=costs.rewrite_factor,
        began=min([each.began for each in timed], default=0),
        ended=max([each.ended for each in timed], default=0),
        estimated=totals.estimated,
    )


def _compare_causes(one: Mapping[str, CauseSummary], other: Mapping[str, CauseSummary]) -> list[ComparedCause]:
    found = [
        ComparedCause(code=code, title=get_code(code).title, a=_sums(one.get(code)), b=_sums(other.get(code)))
        for code in dict.fromkeys([*one, *other])
    ]
    return sorted(found, key=lambda each: (-max(each.a.cost or 0.0, each.b.cost or 0.0), each.code))


def _find_costliest(one: Mapping[str, CauseSummary], other: Mapping[str, CauseSummary]) -> CostliestDifference | None:
    found: list[CostliestDifference] = []
    for code in dict.fromkeys([*one, *other]):
        sides = one.get(code), other.get(code)
        costs = [(each.cost or 0.0) if each is not None else 0.0 for each in sides]
        dearer = sides[0] if costs[0] >= costs[1] else sides[1]
        if dearer is not None and costs[0] != costs[1]:
            is_lower_bound = any([each.cost_is_lower_bound for each in sides if each is not None])
            found.append(
                CostliestDifference(
                    code=code,
                    title=dearer.examples[0].title,
                    cost_a=costs[0],
                    cost_b=costs[1],
                    cost_is_lower_bound=is_lower_bound,
                )
            )
    return max(found, key=lambda each: abs(each.cost_a - each.cost_b), default=None)


def _by_code(found: Iterable[Finding]) -> dict[str, CauseSummary]:
    return {each.code: each for each in group_by_cause(found)}


def _sums(cause: CauseSummary | None) -> CauseSums:
    if cause is None:
        return CauseSums()
    return CauseSums(
        count=cause.count, tokens=cause.tokens, cost=cause.cost, cost_is_lower_bound=cause.cost_is_lower_bound
    )


def _compare_costs(one: Iterable[CostLine], other: Iterable[CostLine]) -> list[ComparedCost]:
    sides = [{(each.kind, each.name): each for each in lines} for lines in (one, other)]
    found: list[ComparedCost] = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        a, b = (side.get(key) for side in sides)
        found.append(
            ComparedCost(
                kind=key[0],
                name=key[1],
                tokens_a=round(a.tokens) if a is not None else 0,
                tokens_b=round(b.tokens) if b is not None else 0,
                cost_a=a.cost if a is not None else None,
                cost_b=b.cost if b is not None else None,
            )
        )
    return sorted(
        found,
        key=lambda each: (-max(each.cost_a or 0.0, each.cost_b or 0.0), -max(each.tokens_a, each.tokens_b)),
    )


def _find_first(store: Store, one: Sequence[RequestView], other: Sequence[RequestView]) -> FirstDifference | None:
    only_ids: FirstDifference | None = None
    for position, (a, b) in enumerate(zip_longest(one, other), 1):
        if a is None or b is None:
            one_side, other_side = (name_request(each) if each is not None else None for each in (a, b))
            return FirstDifference(position=position, a=one_side, b=other_side, reason="")
        if not _is_equal(store, a, b):
            items = load_compared_items(store, a, b)
            equal = count_equal_items(*items)
            differs_in_ids = _differs_in_ids(*items)
            if differs_in_ids and only_ids is not None:
                continue
            found = compare_two_requests(store, a, b)
            first = FirstDifference(
                position=position,
                a=found.before,
                b=found.after,
                reason=_first_reason(found),
                related=position > 1 or _begin_alike(*items),
                equal=equal,
                equal_tokens=sum([each.tokens for each in items[1][:equal]]),
            )
            if not differs_in_ids:
                return first
            only_ids = first
    return only_ids


def _first_reason(found: RequestComparison) -> str:
    """Return what differs first between requests of two conversations, apart from keys and ids that always differ."""
    broken = found.differences[found.break_index] if found.break_index is not None else None
    if broken is None or not _is_own(broken):
        return found.reason
    content = next((each for each in found.differences if each.section != "settings" and not _is_own(each)), None)
    other = next((each for each in found.differences if each.section != "settings"), broken)
    return _describe_difference(content or other)


def _is_own(difference: Difference) -> bool:
    """Return True if each conversation has a value of its own for it."""
    return difference.name in KEYS_OF_CONVERSATIONS or difference.note == ONLY_ID


def _differs_in_ids(one: Sequence[ComparedItem], other: Sequence[ComparedItem]) -> bool:
    """Return True if two requests are the same but for the ids of calls."""
    if len(one) != len(other):
        return False
    return all([a.key == b.key or a.differs_in_id(b) for a, b in zip(one, other, strict=True)])


def _begin_alike(one: Sequence[ComparedItem], other: Sequence[ComparedItem]) -> bool:
    """Return True if the first messages of two requests are the same, or have many words in common."""
    first, second = (next((each for each in side if each.section == "messages"), None) for side in (one, other))
    if first is None or second is None or first.key == second.key:
        return True
    words, others = ({*WORD.findall(each.text[:MAX_COMPARED].lower())} for each in (first, second))
    return len(words & others) >= ALIKE_SHARE * max(1, len(words | others))


def _is_equal(store: Store, a: RequestView, b: RequestView) -> bool:
    if a.format == b.format:  # sections are shared, so this is faster than to compare all elements
        return a.count == b.count and count_equal(a, b) == a.count
    old, new = load_compared_items(store, a, b)
    return [each.key for each in old] == [each.key for each in new]
