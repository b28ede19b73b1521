"""The content of a shared file: the requests of a conversation, their findings and their composition.

Requests of a conversation begin alike, and most of their texts are the same. So each text is stored once, and a request
has only the rows that the previous one does not begin with.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import cast

from msgspec import Struct

from contextc._common_prefix import count_common_prefix
from contextc._json import JSON, JSONObject, as_object
from contextc.analysis.conversation_findings import find_all, is_loss
from contextc.analysis.conversation_loader import StoredConversation, load_stored_conversation
from contextc.analysis.cost_by_cause import RequestCosts, compute_costs
from contextc.analysis.element_costs import find_file, tool_name
from contextc.analysis.finding import Finding, get_code, sort_by_cost
from contextc.analysis.request_comparison import read_part, show_element
from contextc.analysis.request_elements import Element
from contextc.analysis.request_view import RequestView
from contextc.compiler.ledger.channel_loader import load_messages_at
from contextc.errors import InvalidInput
from contextc.messages import Message
from contextc.messages.client_context import remove_client_context
from contextc.sharing.share_redaction import ShareRedaction, ShareRedactions
from contextc.store import Store
from contextc.store.append_and_load import load_window
from contextc.store.conversation_list import TITLE_MESSAGES, shorten_title

MAX_TEXT = 2_000_000
"""Characters of one text that are included."""
MAX_FINDINGS = 500


class SharedItem(Struct, frozen=True, array_like=True):
    """A tool, a block of the system prompt or of a message. `text` is the index of its text, -1 if that was removed.

    `size` is the number of its characters.
    """

    kind: str
    type: str
    role: str
    name: str
    text: int
    size: int


class SharedRow(Struct, frozen=True, array_like=True):
    """An item of a request: its index, its path, and its tokens by our own count."""

    item: int
    path: str
    tokens: int


class SharedCost(Struct, frozen=True, array_like=True):
    """The tokens of one purpose in a request, and their cost."""

    kind: str
    name: str
    tokens: int
    cost: float | None


class SharedRequest(Struct, frozen=True, kw_only=True):
    """A request. It begins with the first `same` rows of the previous request in the file; `rows` follow.

    Tokens of rows are to be multiplied by `scale`. `overhead` are tokens that the provider counted and no row has.
    `reply` are items. Unknown values are None.
    """

    number: int
    channel: str
    model: str
    status: str
    error: str
    began: int
    latency: int | None
    input: int
    output: int | None
    reasoning: int | None
    cache_read: int | None
    cost: float | None
    window: int
    scale: float
    overhead: int
    same: int
    rows: list[SharedRow]
    reply: list[int]
    costs: list[SharedCost]
    settings: JSONObject


class SharedFinding(Struct, frozen=True, kw_only=True):
    """A finding with its first evidence. `request` is the index of the request in the file; None if it is about all.

    `before` and `after` are the words that changed, or facts if nothing changed (`is_change` is False).
    """

    code: str
    title: str
    fix: str
    tokens: int
    cost: float | None
    request: int | None
    path: str
    before: str
    after: str
    is_change: bool


class SharedData(Struct, frozen=True, kw_only=True):
    """The content of a shared file. All figures are about the requests in it.

    `findings` are those that are a loss, at most `MAX_FINDINGS` of `findings_count`. `unavoidable` is the number of
    cache misses that are none. `title` is "" if there is none, or if texts were removed.
    """

    version: str
    conversation: str
    title: str
    source: str
    redacted: list[str]
    is_run: bool
    requests: list[SharedRequest]
    findings: list[SharedFinding]
    findings_count: int
    unavoidable: int
    items: list[SharedItem]
    texts: list[str]
    cost: float | None
    cache_share: float | None
    rewrite_factor: float | None


def collect_shared_data(
    store: Store, conversation: str, *, request: int | None = None, channel: str = "", redact: ShareRedactions = ()
) -> SharedData:
    """Return the content of a shared file: of a whole conversation, or of one of its requests.

    Raises `UnknownConversation`, and `InvalidInput` for an unknown request.
    """
    view = load_stored_conversation(store, conversation)
    chosen = _choose(view, request, channel)
    files = _find_files(chosen) if "files" in redact else set[str]()
    return _Collector(store, view, ShareRedaction(redact, files)).collect(chosen, is_run=request is None)


def _choose(view: StoredConversation, number: int | None, channel: str) -> list[RequestView]:
    in_channel = [each for each in view.requests if channel in ("", each.channel_id)]
    found = [each for each in in_channel if number in (None, each.number)]
    if not found:
        what = "it has no request" if number is None else f"it has no request {number}"
        where = f" of channel {channel}" if channel else ""
        raise InvalidInput(f"Conversation {view.name!r} cannot be shared: {what}{where}.")
    if number is not None and len(found) > 1:
        channels = ", ".join([f"{each.channel_id} ({each.channel.provider}:{each.channel.model})" for each in found])
        raise InvalidInput(f"Request {number} exists in several channels", fix=f"Choose one of them: {channels}.")
    return found


def _find_files(requests: Sequence[RequestView]) -> set[str]:
    seen: dict[int, Element] = {id(each): each for request in requests for each in request.elements()}
    return {name for each in seen.values() if each.type == "tool_call" and (name := find_file(each))}


class _Collector:
    def __init__(self, store: Store, view: StoredConversation, redaction: ShareRedaction) -> None:
        self._store, self._view, self._redaction = store, view, redaction
        self._items: list[SharedItem] = []
        self._texts: list[str] = []
        self._text_of: dict[str, int] = {}
        self._item_of: dict[int, int] = {}
        self._names = {call: use.name for run in view.runs for call, use in run.uses.items()}

    def collect(self, chosen: Sequence[RequestView], *, is_run: bool) -> SharedData:
        clean = self._redaction.clean
        costs = compute_costs(self._view)
        by_request = {(each.channel, each.request): each for each in costs.requests}
        places = [where for each in chosen for where in each.record.produced]
        replies = self._store.read(lambda tx: load_messages_at(tx, places))
        requests: list[SharedRequest] = []
        before: list[SharedRow] = []
        for each in chosen:
            rows = self._rows(each)
            same = count_common_prefix(before, rows)
            found = [replies[where] for where in each.record.produced if where in replies]
            spent = by_request[each.channel_id, each.number]
            requests.append(self._request(each, rows[same:], same, found, spent))
            before = rows
        index = {(each.channel, each.number): at for at, each in enumerate(requests)}
        is_whole = len(chosen) == len(self._view.requests)
        found = [
            each
            for each in sort_by_cost(find_all(self._view))
            if is_whole or any([(one.channel, one.request) in index for one in each.evidence])
        ]
        losses = [each for each in found if is_loss(each)]
        source = self._view.source
        read = sum([each.cache_read or 0 for each in requests])
        tokens_in = sum([each.input for each in requests])
        known_costs = [each.cost for each in requests if each.cost is not None]
        return SharedData(
            version=version("contextc"),
            conversation=clean(self._view.name),
            title=self._title(),
            source=clean(source.client) if source is not None else "",
            redacted=self._redaction.labels,
            is_run=is_run,
            requests=requests,
            findings=[self._finding(each, index.get((each.channel, each.request))) for each in losses[:MAX_FINDINGS]],
            findings_count=len(losses),
            unavoidable=len(found) - len(losses),
            items=self._items,
            texts=self._texts,
            cost=costs.cost if is_whole else sum(known_costs) if known_costs else None,
            cache_share=costs.cache_share if is_whole else read / tokens_in if tokens_in else None,
            rewrite_factor=costs.rewrite_factor if is_whole else None,
        )

    def _title(self) -> str:
        """Return the title; "" if texts are removed. It may be the start of a message, which is redacted as a whole."""
        name, clean = self._view.name, self._redaction.clean
        title = self._store.overview(name).title
        if self._redaction.is_removed(is_result=False):
            return ""
        first = self._store.read(lambda tx: load_window(tx, name, limit=TITLE_MESSAGES, branch=None)).messages
        texts = [text for each in first for text in (remove_client_context(each.text), each.text)]
        text = next((each for each in texts if shorten_title(each) == title), title)
        return shorten_title(clean(text)) if text is not title else clean(title)

    def _rows(self, request: RequestView) -> list[SharedRow]:
        tokens = request.tokens()
        return [SharedRow(self._item(each.element), each.path, tokens[each.position]) for each in request.placed()]

    def _item(self, element: Element) -> int:
        if (found := self._item_of.get(id(element))) is None:
            is_result = element.type == "tool_result"
            name = tool_name(element) if element.kind == "tool" else element.name
            if is_result and not name:
                name = self._names.get(element.call, "")
            found = self._add(
                element.kind, element.type, element.role, name, show_element(element), is_result=is_result
            )
            self._item_of[id(element)] = found
        return found

    def _add(self, kind: str, type: str, role: str, name: str, text: str, *, is_result: bool) -> int:
        clean = self._redaction.clean
        index = -1
        if not self._redaction.is_removed(is_result=is_result):
            shown = clean(text)
            shown = f"{shown[:MAX_TEXT]}… {len(shown) - MAX_TEXT:,} more characters" if len(shown) > MAX_TEXT else shown
            index = self._text_of.setdefault(shown, len(self._texts))
            if index == len(self._texts):
                self._texts.append(shown)
        self._items.append(SharedItem(kind, type, clean(role), clean(name), index, len(text)))
        return len(self._items) - 1

    def _reply(self, messages: Sequence[Message]) -> list[int]:
        found: list[int] = []
        for message in messages:
            for part in message.parts if not message.redacted else ():
                type, name, _, text = read_part(part)
                found.append(self._add("reply", type, message.role, name, text, is_result=type == "tool_result"))
        return found

    def _request(
        self, request: RequestView, rows: list[SharedRow], same: int, messages: Sequence[Message], costs: RequestCosts
    ) -> SharedRequest:
        usage, facts, clean = request.usage, request.observed, self._redaction.clean
        error = facts.error if facts is not None and not self._redaction.removes_quotes else ""
        return SharedRequest(
            number=request.number,
            channel=request.channel_id,
            model=clean(f"{request.channel.provider}:{request.channel.model}"),
            status=request.status,
            error=clean(error),
            began=request.began,
            latency=facts.latency if facts is not None else None,
            input=request.input,
            output=usage.output if usage is not None else None,
            reasoning=usage.reasoning if usage is not None else None,
            cache_read=usage.cache_read if usage is not None else None,
            cost=request.cost,
            window=request.record.budget.window,
            scale=round(request.scale, 4),
            overhead=request.overhead,
            same=same,
            rows=rows,
            reply=self._reply(messages),
            costs=[
                SharedCost(each.kind, clean(each.name), round(each.tokens), each.cost)
                for each in sorted(costs.lines, key=lambda each: -each.tokens)
            ],
            settings=as_object(
                self._clean_json({name: each for name, each in request.settings.items() if name != "model"})
            ),
        )

    def _clean_json(self, value: JSON) -> JSON:
        """Return settings without what must not be shared. Texts in them may be about the user."""
        if isinstance(value, str):
            is_removed = self._redaction.is_removed(is_result=False)
            return f"[redacted: {len(value):,} characters]" if is_removed else self._redaction.clean(value)
        if isinstance(value, list):
            return [self._clean_json(each) for each in cast(list[JSON], value)]
        if isinstance(value, dict):
            return {
                self._redaction.clean(name): self._clean_json(each) for name, each in cast(JSONObject, value).items()
            }
        return value

    def _finding(self, finding: Finding, request: int | None) -> SharedFinding:
        clean, code = self._redaction.clean, get_code(finding.code)
        quotes = not self._redaction.removes_quotes
        first = finding.evidence[0] if finding.evidence else None
        return SharedFinding(
            code=finding.code,
            title=clean(finding.title) if quotes else code.title,
            fix=clean(finding.fix) if quotes else code.fix,
            tokens=finding.tokens,
            cost=finding.cost,
            request=request,
            path=first.path if first is not None else "",
            before=clean(first.before) if first is not None and quotes else "",
            after=clean(first.after) if first is not None and quotes else "",
            is_change=first is not None and first.is_change,
        )
