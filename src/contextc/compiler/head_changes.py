"""Tools, effort and instructions that change in the middle of an epoch.

They are part of the head of a request, so a change there ends the shared prefix, and all signed reasoning with it. Some
providers accept the change as a message instead: from there on the model has another tool, another effort, or other
instructions. Then the head of the request stays as it was when the epoch began, and the change is one more item of the
ledger. The next epoch has everything in its head again, and no such items.

A format says how a change of tools or effort is written (`Formatter.encode_change`), a provider and a model whether
they accept it (`Provider.features`). Changed instructions are a system message (`Provider.has_system_between`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, encode
from contextc.compiler.draft import Draft, DraftEntry
from contextc.formats.base import Formatter, HeadChange
from contextc.messages import Message, Text
from contextc.models.tokens import TokenCounter
from contextc.prompts import SEPARATOR, Prompt
from contextc.store.ledger_schema import REMOVED, ChannelState, EpochReason, Item
from contextc.tools.definitions import AnyTool, Tool, get_tool_name

NO_CHANGE = HeadChange()
FROM_HERE_ON = "From here on: "
MAX_UPDATES_SHARE = 0.25
"""Share of the messages of an epoch that updates of the instructions may take. Above it, a new epoch costs less."""
PROMPT_CHANGED_TEXT = "The instructions you were given at the start have changed. From now on these hold:\n\n"
PROMPT_ENDED_TEXT = "The instructions you were given at the start no longer hold."
FRAGMENTS_CHANGED_TEXT = "Parts of your instructions have changed. From now on these hold:\n\n"
UPDATED_TEXT = "(updated: this replaces all earlier versions)"


class ToolPlan(NamedTuple):
    """Changes of tools that a request states. `tools` are those of the item, with their hashes."""

    change: HeadChange = NO_CHANGE
    tools: Mapping[str, str] = {}
    kept: tuple[str, ...] = ()
    """Tools that are no longer offered, and stay declared."""


class PreparedPrompt(NamedTuple):
    """The instructions of a request: as the caller passed them, and as they are in its head."""

    current: Prompt
    head: Prompt
    update: DraftEntry | None = None
    """The message that states the difference, if the conversation does not have it yet."""
    is_frozen: bool = False
    """True if the head is that of the epoch, although the instructions are others."""
    is_broken: bool = False
    """True if earlier updates cannot be followed by this one."""


class EffortPlan(NamedTuple):
    """The effort of a request: that of its settings, as when the epoch began, and the one that a message sets."""

    settings: JSONObject
    effort: str = ""
    changed: str = ""
    is_broken: bool = False
    """True if an earlier change cannot be followed by this one."""


def hash_definition(definitions: Sequence[JSONObject]) -> str:
    """Return the hash of a tool as it is sent; "" if it is not sent."""
    return blake2b(encode(definitions), digest_size=8).hexdigest() if definitions else ""


def hash_definitions(formatter: Formatter, tools: Sequence[AnyTool]) -> tuple[str, ...]:
    return tuple([hash_definition(_encode_tool(formatter, tool)) for tool in tools])


def _encode_tool(formatter: Formatter, tool: AnyTool) -> list[JSONObject]:
    """Return a tool as it is sent in a message. A breakpoint there would be one too many in a later request."""
    return formatter.without_tool_breakpoints(formatter.encode_tools([tool]))


def list_available(state: ChannelState) -> dict[str, str]:
    """Return the tools that the model has after the last request, with the hashes of their definitions."""
    found = {name: value for name, value in zip(state.tools, state.tool_hashes, strict=False) if value}
    for name, value in state.changes.tools.items():
        if value.startswith(REMOVED):
            found.pop(name, None)
        else:
            found[name] = value
    return found


def can_continue(state: ChannelState, features: Collection[str]) -> bool:
    """Return True if these features of the provider suffice for the changes that stand in the conversation."""
    return {*state.changes.features} <= {*features}


def are_functions(
    formatter: Formatter, declared: Sequence[AnyTool], items: Iterable[Item], names: Iterable[str]
) -> bool:
    """Return True if the caller answers the calls of these tools. Others are run by the provider.

    `declared` are the tools of the head. They are decoded, because those from the store have no names of their own.
    """
    decoded = formatter.decode_tools(formatter.encode_tools(declared))
    found = _by_name(formatter, apply_changes(formatter, decoded, items))
    return all([isinstance(found.get(formatter.name_codec.encode_name(name)), Tool) for name in names])


def are_named(formatter: Formatter, declared: Sequence[AnyTool], items: Iterable[Item], change: HeadChange) -> bool:
    """Return True if the tools that a change only names have a name. Some of those that a provider runs have none."""
    wire = [*formatter.encode_tools(declared), *[each for item in items for each in item.definitions]]
    known = [tool for tool in formatter.decode_tools(wire) if isinstance(tool, Tool) or tool.data.get("name")]
    return {*change.removed, *change.returned} <= _by_name(formatter, known).keys()


def plan_tools(
    formatter: Formatter,
    state: ChannelState,
    tools: Sequence[AnyTool],
    features: Collection[str],
    *,
    keeps_removed: bool,
) -> ToolPlan | None:
    """Return what to state so that the model has these tools; None if they need another head.

    `keeps_removed`: a tool stays declared if the provider has no way to remove it.
    """
    before = list_available(state)
    encoded = {get_tool_name(tool): _encode_tool(formatter, tool) for tool in tools}
    if len(encoded) < len(tools) or len({*state.tools}) < len(state.tools):  # several tools without a name
        return None
    now = {name: hash_definition(wire) for name, wire in encoded.items() if wire}
    removed = [name for name in before if name not in now]
    changed = [name for name, value in now.items() if before.get(name) != value]
    returned = [name for name in changed if state.changes.tools.get(name) == REMOVED + now[name]]
    change = HeadChange(
        added=_definitions(encoded, [name for name in changed if name not in before and name not in returned]),
        replaced=_definitions(encoded, [name for name in changed if name in before]),
        returned=tuple(map(formatter.name_codec.encode_name, returned)),
        removed=tuple(map(formatter.name_codec.encode_name, removed)),
        has_tools=any(state.tool_hashes),
    )
    items = {name: now[name] for name in changed}
    if not (removed or changed):
        return ToolPlan()
    if formatter.encode_change(change, features) is not None:
        return ToolPlan(change, {**{name: REMOVED + before[name] for name in removed}, **items})
    change = replace(change, removed=())
    if not (keeps_removed and removed) or (changed and formatter.encode_change(change, features) is None):
        return None
    return ToolPlan(change if changed else NO_CHANGE, items, tuple(removed))


def _definitions(encoded: Mapping[str, Sequence[JSONObject]], names: Sequence[str]) -> tuple[JSONObject, ...]:
    return tuple([each for name in names for each in encoded[name]])


def _by_name(formatter: Formatter, tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """Return tools by their names as this format spells them."""
    return {formatter.name_codec.encode_name(get_tool_name(tool)): tool for tool in tools}


def write_update(prompt: Prompt, before: Mapping[str, str]) -> str:
    """Return the text that states changed instructions. `before` are the hashes of those that held, by their ids.

    Fragments that were changed or added are stated under their headings. If one is gone, all others are stated, because
    the head does not name its fragments.
    """
    if not prompt.static:
        return PROMPT_ENDED_TEXT
    changed = [each for each in prompt.static if before.get(each.id) != each.hash]
    if len(changed) in (0, len(prompt.static)) or before.keys() - prompt.static_hashes.keys():
        return PROMPT_CHANGED_TEXT + prompt.static_text
    headings = [f"## {each.heading} {UPDATED_TEXT}" if each.id in before else f"## {each.heading}" for each in changed]
    texts = [f"{heading}\n{each.text}" for heading, each in zip(headings, changed, strict=True)]
    return FRAGMENTS_CHANGED_TEXT + SEPARATOR.join(texts)


def build_update(counter: TokenCounter, prompt: Prompt, state: ChannelState) -> DraftEntry:
    """Return the item that states changed instructions, with its message."""
    text = write_update(prompt, state.static_hashes)
    message = Message(role="system", parts=(Text(text),))
    tokens, hashes = counter.count_message(message), prompt.static_hashes
    return DraftEntry(Item(kind="update", role="system", text=text, tokens=tokens, instructions=hashes), message)


def has_room_for_update(update: DraftEntry, state: ChannelState, items: Iterable[Item]) -> bool:
    """Return True if an update costs less than a new epoch. `items` are those of the epoch."""
    tokens = update.item.tokens + sum([item.tokens for item in items if item.kind == "update"])
    return tokens <= state.tokens * MAX_UPDATES_SHARE


def plan_effort(
    formatter: Formatter, state: ChannelState, settings: JSONObject, hashed: str, features: Collection[str]
) -> EffortPlan:
    """Return how a request gets the effort of its settings. `hashed` is the hash of these settings."""
    wanted = formatter.read_effort(settings)
    if not can_continue(state, features):
        return EffortPlan(settings, wanted, is_broken=True)
    now = state.changes.effort or state.effort
    if not state.changes.effort and hashed == state.head.settings:
        return EffortPlan(settings, wanted)
    unchanged = formatter.with_effort(settings, state.effort)
    if wanted == now:
        return EffortPlan(unchanged, state.effort)
    is_possible = (
        wanted
        and formatter.can_change_effort(settings)
        and formatter.encode_change(HeadChange(effort=wanted), features) is not None
    )
    if is_possible:
        return EffortPlan(unchanged, state.effort, wanted)
    return EffortPlan(settings, wanted, is_broken=bool(state.changes.effort))


def build_change(
    formatter: Formatter,
    counter: TokenCounter,
    declared: Sequence[AnyTool],
    plan: ToolPlan,
    effort: str,
    features: Collection[str],
) -> DraftEntry | None:
    """Return the item of a change, with its message; None if nothing changes."""
    change = replace(plan.change, effort=effort)
    if not (plan.tools or effort) or (encoded := formatter.encode_change(change, features)) is None:
        return None
    text = describe_change(plan.tools, effort)
    definitions = (*change.added, *change.replaced)
    tokens = counter.count_system(text)
    if definitions:
        sent = formatter.encode_tools(declared)
        tokens = counter.count_tools([*sent, *definitions]) - (counter.count_tools(sent) if sent else 0)
    item = Item(
        kind="change",
        role="system",
        text=text,
        tokens=tokens,
        tools={**plan.tools},
        definitions=definitions,
        effort=effort,
        features=encoded.features,
    )
    return DraftEntry(item, encoded.message)


def describe_change(tools: Mapping[str, str], effort: str) -> str:
    """Return a change as a line of text, for people."""
    removed = [name for name, value in tools.items() if value.startswith(REMOVED)]
    added = [name for name in tools if name not in removed]
    parts = [
        f"tools added: {', '.join(added)}" if added else "",
        f"tools removed: {', '.join(removed)}" if removed else "",
        f"effort: {effort}" if effort else "",
    ]
    return FROM_HERE_ON + "; ".join([part for part in parts if part])


def append_changes(draft: Draft) -> Draft:
    """Append changes of instructions, tools or effort to the tail, after everything else.

    A provider accepts them after input only, and before the reply to it. Without input, nothing is appended.
    """
    if not draft.changes or not draft.tail or draft.tail[-1].item.role == "assistant":
        return draft
    return replace(draft, tail=(*draft.tail, *draft.changes))


def apply_changes(formatter: Formatter, tools: Sequence[AnyTool], items: Iterable[Item]) -> tuple[AnyTool, ...]:
    """Return the tools that the model has after the changes among these items. `tools` are those of the head."""
    found = _by_name(formatter, tools)
    defined = dict(found)
    for item in items:
        defined |= _by_name(formatter, formatter.decode_tools([*item.definitions]))
        for name, value in item.tools.items():
            spelled = formatter.name_codec.encode_name(name)
            found.pop(spelled, None)
            if not value.startswith(REMOVED) and spelled in defined:
                found[spelled] = defined[spelled]
    return tuple(found.values())


def has_changes(draft: Draft) -> bool:
    """Return True if the draft states the changes it was given, or was given none."""
    return not draft.changes or any(entry is draft.changes[-1] for entry in draft.tail)


def reason_for(changes: Iterable[DraftEntry]) -> EpochReason:
    """Return the reason of an epoch that begins because these changes cannot be appended."""
    items = [entry.item for entry in changes]
    if any([item.kind == "update" for item in items]):
        return EpochReason.SYSTEM_PROMPT_CHANGED
    has_tools = any([item.tools for item in items])
    return EpochReason.TOOLS_CHANGED if has_tools else EpochReason.SETTINGS_CHANGED


def name_change(item: Item) -> str:
    """Return what changed, for a remark."""
    return "instructions" if item.kind == "update" else item.text.removeprefix(FROM_HERE_ON)
