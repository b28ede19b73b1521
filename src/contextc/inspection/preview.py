"""Preview the next request of a channel without the program that will send it.

A program passes its system prompt, tools and settings with every call, and a reader of the store does not have them.
The ledger has those of the last request. They are used as defaults, so the prefix is the one that the program's next
request would have. Dynamic fragments cannot be previewed, because the program renders them again.
"""

from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from copy import deepcopy
from typing import NamedTuple, Unpack, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode
from contextc.compiler import ledger
from contextc.compiler.arguments import COMPILER_FIELDS
from contextc.compiler.compaction import load_last_usage
from contextc.compiler.compiler import MessageCompiler
from contextc.compiler.draft import Budget, CompilerOptionArguments
from contextc.compiler.head_changes import apply_changes
from contextc.compiler.head_parts import load_whole_head
from contextc.compiler.history import FETCH_TOOL
from contextc.compiler.ledger import load_messages_by_place
from contextc.compiler.manifest import ManifestLine, RequestRecord, record_from_json
from contextc.compiler.past_requests import find_request, load_channel_provider, load_records
from contextc.compiler.prompt_cache import CacheLifetime, nearest_lifetime, without_key
from contextc.compiler.step import Compiled, build_lines, list_leading_messages
from contextc.errors import (
    ContextOverflow,
    InvalidInput,
    InvalidRequest,
    InvalidSetting,
    UnknownMessage,
    UnknownRequest,
)
from contextc.formats.base import Formatter
from contextc.formats.registry import detect_tool_format
from contextc.inspection.request_details import (
    RequestDetails,
    is_new_item,
    load_request_details,
    preview_request_details,
)
from contextc.messages import Media, Message, Text, Usage, assistant, system, user
from contextc.models.billing import Bill, bill_next
from contextc.prompts import Prompt, PromptBuilder, PromptFragment, SentPrompt, hash_tools
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.ledger_schema import Channel, ChannelState, Item, RowRange, state_from_json
from contextc.store.message_log import DEFAULT_AGENT
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import NativeTool, Tool

MAX_QUOTED = 80
LENGTH_SETTING = "max_output_tokens"
NON_TOOL_FIELDS = frozenset(("role", "parts", "message", "messages", "contents", "input", "conversation"))
"""Fields that messages, requests and exported lines have, and a tool definition does not."""
CONSTRUCTORS = {"user": user, "assistant": assistant, "system": system}


class RequestHead(Struct, frozen=True, kw_only=True):
    """Everything of a request except its messages, in the form of arguments of `compile`."""

    prompt: Prompt = Prompt()
    tools: tuple[Tool | NativeTool, ...] = ()
    settings: JSONObject = {}
    output: int | None = None
    fetch: bool = True
    """True if `fetch_result` is among the tools."""
    cache: CacheLifetime = "auto"
    cache_diagnostics: bool = False


def preview_request(
    store: Store,
    provider: Provider,
    conversation: str,
    *,
    agent: str = DEFAULT_AGENT,
    directory: str | None = None,
    system_prompt: str | None = None,
    tools: Sequence[Tool | NativeTool] | None = None,
    budget: int | None = None,
    output: int | None = None,
    edit: tuple[int, str] | None = None,
    rewind: int | None = None,
    **options: Unpack[CompilerOptionArguments],
) -> Compiled:
    """Compile the next request as a dry run, optionally after an `edit` (a message's seq and its new text) or a
    `rewind`.

    Arguments that are not given are taken from the last request. The result must not be sent.
    """
    channel = MessageCompiler(store, provider).channel(conversation, name=agent, directory=directory)
    head = load_last_head(store, channel, provider) or RequestHead()
    prompt = head.prompt
    if system_prompt is not None:
        prompt = PromptBuilder([PromptFragment("system_prompt", system_prompt)]).render()
    arguments: CompilerOptionArguments = {
        "fetch": head.fetch,
        "cache": nearest_lifetime(head.cache, provider),
        "cache_diagnostics": head.cache_diagnostics,
        **options,
    }
    return MessageCompiler(store, provider, **arguments).compile(
        conversation,
        name=agent,
        directory=directory,
        fragments=prompt,
        tools=head.tools if tools is None else tools,
        settings=head.settings if output is None else _without_length(head.settings, provider),
        max_input_tokens=budget,
        max_output_tokens=head.output if output is None else output,
        dry_run=True,
        edit=None if edit is None else (edit[0], build_edited_message(store, conversation, *edit)),
        rewind=rewind,
    )


def bill_lost_cache(store: Store, compiled: Compiled) -> Bill | None:
    """Return the cost of writing to the cache again what a request loses, at the tier, speed and region of the last
    request of its channel; None if it is unknown.
    """
    lost = compiled.cost.cached_tokens_lost
    last = store.read(lambda tx: load_last_usage(tx, compiled.channel))
    return bill_next(compiled.provider.model, Usage(input=lost, cache_write=lost), last) if lost else Bill(0.0)


def find_channels(
    store: Store, conversation: str, *, agent: str | None = None, directory: str | None = None
) -> list[Channel]:
    """Return the channels of a conversation that have an answered request; if none has, all of its channels."""
    store.conversation(conversation)  # raises UnknownConversation
    found = [
        (channel, state.requests > 0)
        for _, channel, state, _ in store.read(lambda tx: ledger.load_channels(tx, conversation))
        if agent in (None, channel.agent) and directory in (None, channel.directory)
    ]
    return [channel for channel, asked in found if asked] or [channel for channel, _ in found]


def load_last_budget(store: Store, channel: Channel) -> Budget | None:
    """Return the budget of the channel's last request, including its window; None if there is none."""

    def work(tx: Transaction) -> bytes | None:
        found = ledger.find_channel(tx, channel)
        return next(iter(ledger.load_manifests(tx, found.number, limit=1)), None) if found else None

    stored = store.read(work)
    return record_from_json(stored).budget if stored else None


def load_last_request(store: Store, conversation: str) -> tuple[Channel, RequestRecord] | None:
    """Return the newest request of a conversation on any channel; None if there is none."""

    def work(tx: Transaction) -> list[tuple[Channel, bytes]]:
        found = [(number, channel) for number, channel, *_ in ledger.load_channels(tx, conversation)]
        return [(channel, body) for number, channel in found for body in ledger.load_manifests(tx, number, limit=1)]

    newest = [(channel, record_from_json(body)) for channel, body in store.read(work)]
    return max(newest, key=lambda each: each[1].time, default=None)


class _StoredHead(NamedTuple):
    """The head of the last request as it is stored, and what else of it is needed to pass the same arguments."""

    state: ChannelState
    body: bytes
    lead: str
    """The texts of system messages that were joined with the system prompt."""
    changes: list[Item]
    """The changes of tools and effort after the head."""
    ttl: str


def load_last_head(store: Store, channel: Channel, provider: Provider) -> RequestHead | None:
    """Return system prompt, tools and settings of the last request; None if there is none."""

    def work(tx: Transaction) -> _StoredHead | None:
        found = ledger.find_channel(tx, channel)
        last = [record_from_json(body) for body in ledger.load_manifests(tx, found.number, limit=1)] if found else []
        if found is None or not last:
            return None
        state = state_from_json(found.state)
        stored = load_whole_head(tx, found.number, last[0])
        lead = load_messages_by_place(tx, state.lead or ())
        rows = ledger.load_rows(tx, state.layout) if state.changes else []
        changes = [item for each in rows for item in each.row.items if item.kind == "change"]
        text = "\n\n".join([message.text for message in lead.values()])
        return _StoredHead(state, stored, lead=text, changes=changes, ttl=last[0].ttl) if stored else None

    stored = store.read(work)
    if stored is None:
        return None
    state, lead, formatter = stored.state, stored.lead, provider.formatter
    body: JSONObject = decode(stored.body)
    if formatter.messages_key not in body:  # an observed body that could not be split
        return None
    leading = list_leading_messages(body, formatter.messages_key)
    request = formatter.decode_request({**body, formatter.messages_key: leading})
    system = (request.system.text if request.system else "").removeprefix(lead).removeprefix("\n\n" if lead else "")
    effort = state.changes.effort or formatter.read_effort(request.settings)
    static = PromptBuilder([PromptFragment("as in the last request", system)]).render().static
    return RequestHead(
        prompt=SentPrompt(static, sent_hash=state.head.static, sent_hashes=state.static_hashes),
        tools=apply_changes(formatter, _as_passed(request.tools, state.head.tools), stored.changes),
        settings={
            name: value
            for name, value in without_key(formatter.with_effort(request.settings, effort), state.cache_key).items()
            if name not in (provider.session_field, *COMPILER_FIELDS)
        },
        output=formatter.settings.read(request.settings).settings.max_output_tokens,
        fetch=any(isinstance(tool, Tool) and tool.name == FETCH_TOOL.name for tool in request.tools),
        cache=cast(CacheLifetime, stored.ttl) if stored.ttl in get_args(CacheLifetime) else "auto",
        cache_diagnostics=bool(state.reply_id),
    )


def _as_passed(tools: tuple[Tool | NativeTool, ...], name: str) -> tuple[Tool | NativeTool, ...]:
    """Return the tools as they were before encoding: without cache breakpoints and strictness that the format added."""
    bare = tuple([replace(tool, extra=None) if isinstance(tool, Tool) else tool for tool in tools])
    loose = tuple([replace(tool, strict=None) if isinstance(tool, Tool) else tool for tool in bare])
    return next((each for each in (tools, bare, loose) if hash_tools(each) == name), tools)


def _without_length(settings: JSONObject, provider: Provider) -> JSONObject:
    """Return the settings without the maximum output length, wherever the format keeps it."""
    table = provider.formatter.settings
    places = [place for place, field in table.aliases.items() if field == LENGTH_SETTING] + [
        table.paths.get(LENGTH_SETTING, LENGTH_SETTING)
    ]
    kept = deepcopy(settings)
    for place in places:
        *outer, last = place.split(".")
        inside = kept
        for name in outer:
            inside = inside.get(name, {})
        inside.pop(last, None)
    return kept


def parse_tools(content: Iterable[object], own: Formatter) -> tuple[Tool | NativeTool, ...]:
    """Parse tool definitions, ours or a provider's: a single one, a list, or a request that contains some."""
    found: list[Tool | NativeTool] = []
    for each in content:
        value = cast(JSONObject, each).get("tools", each) if isinstance(each, dict) else each
        for definition in cast(list[object], value) if isinstance(value, list) else [value]:
            found += _parse_tool(definition, own)
    return tuple(found)


def _parse_tool(definition: object, own: Formatter) -> tuple[Tool | NativeTool, ...]:
    if not isinstance(definition, dict):
        raise InvalidInput(_not_a_tool(definition))
    tool = cast(JSONObject, definition)
    if not tool or NON_TOOL_FIELDS & tool.keys():
        raise InvalidInput(_not_a_tool(tool))
    with suppress(msgspec.ValidationError):
        return (msgspec.convert(tool, Tool),)
    try:
        return detect_tool_format(tool, own).decode_tools([tool])
    except (InvalidRequest, KeyError, TypeError, AttributeError) as error:  # decoders do not validate
        raise InvalidInput(_not_a_tool(tool)) from error


def _not_a_tool(definition: object) -> str:
    text = encode(definition).decode(errors="replace")
    text = text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…"
    return f"expected a tool definition, got {text}. Write objects with a name, a description and parameters."


def build_edited_message(store: Store, conversation: str, seq: int, text: str) -> Message:
    """Return a copy of a message with another text in the same role. Its media are kept."""
    found = (
        store.load(conversation, after=seq - 1, until=seq)
        if 1 <= seq <= store.conversation(conversation).length
        else []
    )
    if not found:
        raise UnknownMessage(conversation, seq)
    (message,) = found
    if message.role not in CONSTRUCTORS:
        raise InvalidInput(
            f"Message {seq} is a tool result and cannot be edited", fix="Edit a user, assistant or system message."
        )
    media = [part for part in message.parts if isinstance(part, Media)]
    return replace(
        CONSTRUCTORS[message.role]([Text(text), *media]), author=message.author, recipients=message.recipients
    )


# ── what a provider has already ───────────────────────────────────────────────────────────────────────────────────────
# The content of a conversation that a channel's provider has already, and the content that is new to it.
#
# Known is what was sent and answered: the rows of the epoch, and the model's last reply, which a session holds without
# being sent it. News is what the next request would add. News may have been sent before, on another branch.


class ChannelEpoch(Struct, frozen=True):
    """A period in which the ledger only grew: its first request, the reason it began, and its number of rows."""

    epoch: int
    request: int
    why: str
    rows: int
    time: int


class ChannelKnowledge(NamedTuple):
    """`acknowledged`: what is known is still held by the session, or is sent with every request if there is no session.
    `sent_on_other_branch` are the places of news that an earlier request sent on another branch. `last` is the last
    request. The first known items are its items.
    """

    session: str
    lost: str
    unanswered: bool
    acknowledged: bool
    known: tuple[Item, ...]
    news: tuple[Item, ...]
    sent_on_other_branch: frozenset[int]
    last: RequestDetails


def load_epochs(store: Store, channel: Channel) -> list[ChannelEpoch]:
    """Return the epochs of a channel, oldest first."""
    found: list[ChannelEpoch] = []
    for record in load_records(store, channel):
        if record.why or not found:
            rows = sum(last - first + 1 for _, first, last in record.layout or ())
            found.append(ChannelEpoch(record.epoch, record.request, record.why, rows, record.time))
        else:
            found[-1] = replace(found[-1], rows=found[-1].rows + record.added)
    return found


def load_knowledge(store: Store, channel: Channel) -> ChannelKnowledge:
    """Return what is known on a channel, and what is news. Raises `UnknownRequest` if the channel has no request."""

    def work(tx: Transaction) -> tuple[ChannelState, bool]:
        found = ledger.find_channel(tx, channel)
        if found is None:  # its conversation was deleted between the two reads
            raise UnknownRequest(channel.conversation, channel, None, last=0)
        return ledger.decode_state(channel.conversation, found.state), found.attempt is not None

    shown = load_request_details(store, channel)
    state, unanswered = store.read(work)
    produced, lost = state.produced, state.lost
    session = state.session.id if state.session else ""
    ahead = _preview_next(store, channel)
    places = {item.place for item in produced}
    news: tuple[Item, ...] = ()
    if ahead is not None:
        fresh = [item for index, item in enumerate(ahead.items) if is_new_item(ahead, index, item)]
        news = tuple([item for item in fresh if item.place not in places])
    keeps = load_channel_provider(store, channel).session_resumption or bool(lost)
    known = (*shown.items, *produced)
    before = (
        _find_sent_before(store, channel, {item.place for item in news if item.place}) if news else frozenset[int]()
    )
    return ChannelKnowledge(session, lost, unanswered, bool(session) or not keeps, known, news, before, shown)


def _find_sent_before(store: Store, channel: Channel, places: Set[int]) -> frozenset[int]:
    """Return those places that any earlier request of this channel sent, or received as its answer."""

    def work(tx: Transaction) -> frozenset[int]:
        number, record = find_request(tx, channel, None)
        rows = ledger.load_row_items(tx, [RowRange(number, 1, record.rows)])
        found = {item.place for _, row, _ in rows for item in row.items} & places
        answers = (where for body in ledger.load_manifests(tx, number) for where in record_from_json(body).produced)
        return frozenset(found | (places & {*answers}))

    return store.read(work)


def _preview_next(store: Store, channel: Channel) -> RequestDetails | None:
    """Return the next request; None if it cannot be previewed."""
    last = load_last_budget(store, channel)
    with suppress(ContextOverflow, InvalidSetting):
        compiled = preview_request(
            store,
            load_channel_provider(store, channel),
            channel.conversation,
            agent=channel.agent,
            directory=channel.directory or None,
            budget=last.limit if last else None,
        )
        return preview_request_details(store, compiled)
    return None


def build_item_lines(store: Store, items: Sequence[Item]) -> list[ManifestLine]:
    """Return the manifest lines of these items."""
    places = [item.place for item in items if item.place]
    return build_lines(items, {}, lambda _: store.read(lambda tx: load_messages_by_place(tx, places)))
