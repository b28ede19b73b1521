"""A request or a run as one HTML file that needs no server and makes no network request.

The content is JSON in a block that is not executed, with `<` escaped. The file has one script and one style sheet. Its
Content-Security-Policy names their hashes and allows nothing else, so nothing in the content can run or load.
"""

import re
import secrets
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, decode_json, encode
from contextc._plugins import data_files
from contextc._sequence_comparison import count_common_prefix
from contextc.analysis.conversation_findings import find_all, is_loss
from contextc.analysis.conversation_loader import StoredConversation, load_conversation_view
from contextc.analysis.cost_by_content import INPUT_KINDS, CauseSplitter, RequestCosts, compute_costs, count_input
from contextc.analysis.element_costs import find_file, tool_name
from contextc.analysis.finding import Finding, get_code, sort_by_cost
from contextc.analysis.request_comparison import read_part, show_element, without_data
from contextc.analysis.request_elements import Element, RequestView
from contextc.compiler.ledger import load_messages_by_place
from contextc.errors import InvalidInput
from contextc.inspection.request_timeline import load_totals, sum_requests
from contextc.messages import Message, remove_client_context
from contextc.observation.exchange_redaction import BUILTIN_PATTERNS, Redactor, compile_patterns
from contextc.store import Store
from contextc.store.conversation_list import TITLE_MESSAGES, shorten_title
from contextc.store.message_log import load_window

# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Redaction of a shared file: texts, tool results, names of files, and patterns. The stored content does not change.


TEXTS, RESULTS, FILES = "texts", "results", "files"
SHARE_REDACTIONS = (TEXTS, RESULTS, FILES, *BUILTIN_PATTERNS)
"""Names of what can be removed. Regular expressions can be given, too."""
ShareRedactions: TypeAlias = Sequence[str | re.Pattern[str]]
"""Names of `SHARE_REDACTIONS`, and regular expressions."""
PATHS = (
    r"(?:[A-Za-z]:[\\/]|\\\\|~/|\.{1,2}/|(?<![\w.:/<])/(?=[\w.~-]))[^\s\"'`<>|*?(),;\[\]{}]+",  # absolute, home, ./
    r"(?<![\w/.@+-])[\w.@+-]+(?:/[\w.@+-]+)*/[\w@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}\b",  # relative, with an extension
    r"(?<![\w/.@+-])[\w.@+-]+(?:/[\w.@+-]+){2,}",  # relative, of three parts or more
    r"(?<![\w/.@-])[\w-]+\.(?:py|pyi|ipynb|js|jsx|ts|tsx|mjs|json|jsonl|ya?ml|toml|md|rst|txt|csv|tsv|xlsx?|docx?|pptx?|pdf"
    r"|html?|css|scss|sql|sh|bash|ps1|bat|go|rs|c|h|cc|cpp|hpp|java|kt|swift|rb|php|pl|lua|r|ini|cfg|conf|env|lock|log|xml"
    r"|png|jpe?g|gif|svg|webp|zip|tar|gz|db|sqlite|pem|key|crt)\b",
)  # fmt: skip
MIN_NAME = 3


class ShareRedaction:
    """Removes what must not be in a shared file. Files of one name have the same placeholder, with and without a
    path.

    `kinds` are names of `SHARE_REDACTIONS`. `files` are names of files that calls mention: they are found even if they
    do not look like a path.
    """

    def __init__(self, redact: ShareRedactions = (), files: Iterable[str] = ()) -> None:
        given = list(redact)
        self.kinds = frozenset([each for each in given if isinstance(each, str) and each in (TEXTS, RESULTS, FILES)])
        patterns = [each for each in given if not isinstance(each, str) or each not in self.kinds]
        for each in patterns:
            _check_redaction(each)
        self._redactor = Redactor(compile_patterns(patterns), secrets.token_bytes(32))
        self._names: dict[str, str] = {}
        self._paths = _compile_files(files) if FILES in self.kinds else None
        self.labels = [each for each in SHARE_REDACTIONS if each in given]
        if len(given) > len(self.labels):
            self.labels.append("patterns")

    @property
    def removes_quotes(self) -> bool:
        """True if nothing that may quote a message or a result is kept, such as the evidence of a finding."""
        return TEXTS in self.kinds or RESULTS in self.kinds

    def is_removed(self, *, is_result: bool) -> bool:
        """Return True if a whole text is removed: that of a result, or any other."""
        return (RESULTS if is_result else TEXTS) in self.kinds

    def clean(self, text: str) -> str:
        """Return a text without names of files and without the matches of patterns."""
        text = self._redactor.redact_text(text)
        return self._paths.sub(self._name_file, text) if self._paths is not None else text

    def _name_file(self, match: re.Match[str]) -> str:
        name = re.split(r"[\\/]", match[0].rstrip("\\/"))[-1]
        return self._names.setdefault(name, f"[file {len(self._names) + 1}]")


def _check_redaction(given: str | re.Pattern[str]) -> None:
    if isinstance(given, str) and given not in BUILTIN_PATTERNS and re.fullmatch(r"[A-Za-z_]*", given):
        raise InvalidInput(
            "redact: unknown name",
            got=given,
            fix=f"Use {', '.join(SHARE_REDACTIONS)}, or a regular expression such as ({given or 'word'}).",
        )


def _compile_files(files: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of the given names, their last parts, and everything that looks like a path."""
    names: set[str] = set()
    for each in files:
        names |= {part for part in (each, *re.split(r"[\\/]", each)[-1:]) if len(part) >= MIN_NAME}
    known: Sequence[str] = sorted(names, key=len, reverse=True)
    return re.compile("|".join([*[rf"(?<!\w){re.escape(each)}(?!\w)" for each in known], *PATHS]))


# ── content ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The content of a shared file: the requests of a conversation, their findings and their composition.
#
# Requests of a conversation begin alike, and most of their texts are the same. So each text is stored once, and a
# request has only the rows that the previous one does not begin with.


MAX_TEXT = 2_000_000
"""Characters of one text that are included."""
MAX_FINDINGS = 500
TEXT_KEY, MIN_SHARED_TEXT = "\0", 64
"""The key that stands for a text in JSON, and the characters from which on a text is stored once."""


class SharedItem(Struct, frozen=True, array_like=True):
    """A tool, a block of the system prompt or of a message. `text` is the index of its text, -1 if that was removed.

    `size` is the number of its characters. `call` is the id of the call. `raw` is the block as JSON, in which an object
    with `TEXT_KEY` alone stands for a text by its index; None for replies, and if the text was removed.
    """

    kind: str
    type: str
    role: str
    name: str
    text: int
    size: int
    call: str = ""
    raw: JSON = None


class SharedRow(Struct, frozen=True, array_like=True):
    """An item of a request: its index, its path, and the weight by which it has tokens of its part of the budget."""

    item: int
    path: str
    weight: int


class SharedCost(Struct, frozen=True, array_like=True):
    """The tokens of one purpose in a request, and their cost."""

    kind: str
    name: str
    tokens: int
    cost: float | None


class SharedRequest(Struct, frozen=True, kw_only=True):
    """A request. `number` is the one that people know it by, also if it has no answer. It begins with the first `same`
    rows of the previous request in the file; `rows` follow. Those with an index in `again` were in it, too, behind
    something that differs.

    `size` are its tokens: by our own count if the provider reported none, and then `input` is None. `parts` are the
    parts of its budget in the order of rows: how many rows each has, and the tokens that are theirs by weight.
    `overhead` are tokens that the provider counted and no row has. `reply` are items. Unknown values are None.
    """

    number: int
    channel: str
    model: str
    status: str
    error: str
    began: int
    latency: int | None
    size: int
    input: int | None
    output: int | None
    reasoning: int | None
    cache_read: int | None
    cost: float | None
    cost_is_lower_bound: bool
    window: int
    parts: list[tuple[int, int]]
    overhead: int
    same: int
    again: list[int]
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
    cost_is_lower_bound: bool
    request: int | None
    path: str
    before: str
    after: str
    is_change: bool


class SharedNote(Struct, frozen=True, kw_only=True):
    """A note that a person wrote. `request` is the request it is about, as CHANNEL/NUMBER, or ""."""

    text: str
    time: int
    who: str
    request: str


class SharedData(Struct, frozen=True, kw_only=True):
    """The content of a shared file. All figures are about the requests in it. Tokens are those that a provider
    reported; `estimated` is the estimated input of requests for which it reported none.

    `findings` are those that are a loss, at most `MAX_FINDINGS` of `findings_count`. `unavoidable` is the number of
    cache misses that are none. If texts were removed, `title` is "", as without one, and `tags` and `notes` are empty.
    `redacted` names what was asked to be removed, also if the content had none of it.
    """

    version: str
    conversation: str
    title: str
    tags: list[str]
    notes: list[SharedNote]
    source: str
    redacted: list[str]
    is_run: bool
    requests: list[SharedRequest]
    findings: list[SharedFinding]
    findings_count: int
    unavoidable: int
    items: list[SharedItem]
    texts: list[str]
    requests_count: int
    failed: int
    input: int
    estimated: int
    output: int
    cost: float | None
    cost_is_lower_bound: bool
    cache_share: float | None
    rewrite_factor: float | None


def collect_shared_data(
    store: Store,
    conversation: str,
    *,
    request: int | None = None,
    channel: str = "",
    redact: ShareRedactions = (),
    tags: bool = True,
    notes: bool = False,
) -> SharedData:
    """Return the content of a shared file: of a whole conversation, or of one of its requests; with its tags, and with
    its notes if that is wanted.

    Raises `UnknownConversation`, and `InvalidInput` for an unknown request.
    """
    view = load_conversation_view(store, conversation)
    chosen = _choose_requests(view, request, channel)
    files = _find_files(chosen) if "files" in redact else set[str]()
    data = _Collector(store, view, ShareRedaction(redact, files)).collect(chosen, is_run=request is None)
    return replace(data, tags=data.tags if tags else [], notes=data.notes if notes else [])


def _choose_requests(view: StoredConversation, number: int | None, channel: str) -> list[RequestView]:
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


def _find_repeated(before: Iterable[bytes], now: Iterable[bytes]) -> list[int]:
    """Return the indexes of what was there before, each as often as it was."""
    left = Counter(before)
    found: list[int] = []
    for index, key in enumerate(now):
        if left[key]:
            left[key] -= 1
            found.append(index)
    return found


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
        splitters = {run.requests[0].channel_id: run.keep(CauseSplitter) for run in self._view.runs}
        places = [where for each in chosen for where in each.record.produced]
        replies = self._store.read(lambda tx: load_messages_by_place(tx, places))
        requests: list[SharedRequest] = []
        before: list[SharedRow] = []
        before_keys: list[bytes] = []
        for each in chosen:
            rows, keys = self._rows(each), [element.key for element in each.elements()]
            same = count_common_prefix(before, rows)
            again = _find_repeated(before_keys[same:], keys[same:])
            found = [replies[where] for where in each.record.produced if where in replies]
            spent = self._costs(by_request[each.channel_id, each.number], count_input(each, splitters[each.channel_id]))
            requests.append(self._request(each, rows[same:], same, again, found, spent))
            before, before_keys = rows, keys
        index = {(each.channel, each.number): at for at, each in enumerate(requests)}
        is_whole = len(chosen) == len(self._view.requests)
        found = [
            each
            for each in sort_by_cost(find_all(self._view))
            if is_whole or any([(one.channel, one.request) in index for one in each.evidence])
        ]
        losses = [each for each in found if is_loss(each)]
        source = self._view.source
        totals = load_totals(self._store, self._view.name) if is_whole else sum_requests(chosen, (), ())
        return SharedData(
            version=version("contextc"),
            conversation=clean(self._view.name),
            title=self._title(),
            tags=self._tags(),
            notes=self._notes(chosen, is_run=is_run),
            source=clean(source.client) if source is not None else "",
            redacted=self._redaction.labels,
            is_run=is_run,
            requests=requests,
            findings=[self._finding(each, index.get((each.channel, each.request))) for each in losses[:MAX_FINDINGS]],
            findings_count=len(losses),
            unavoidable=len(found) - len(losses),
            items=self._items,
            texts=self._texts,
            requests_count=totals.requests,
            failed=totals.failed,
            input=totals.input,
            estimated=totals.estimated,
            output=totals.output,
            cost=totals.cost,
            cost_is_lower_bound=totals.cost_is_lower_bound,
            cache_share=totals.cache_read / totals.input if totals.input else None,
            rewrite_factor=costs.rewrite_factor if is_whole else None,
        )

    def _tags(self) -> list[str]:
        is_removed = self._redaction.is_removed(is_result=False)
        return [] if is_removed else [self._redaction.clean(each) for each in self._store.tags(self._view.name)]

    def _notes(self, chosen: Sequence[RequestView], *, is_run: bool) -> list[SharedNote]:
        """Return the notes, of one request only those about it; none if texts are removed."""
        if self._redaction.is_removed(is_result=False):
            return []
        clean, names = self._redaction.clean, {f"{each.channel_id}/{each.number}" for each in chosen}
        return [
            SharedNote(text=clean(each.text), time=each.time, who=clean(each.who), request=each.request)
            for each in self._store.notes(self._view.name)
            if each.request in names or (is_run and not each.request)
        ]

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
        weights = [weight for share in request.budget_shares for weight in share.weights]
        return [
            SharedRow(self._item(each.element), each.path, weight)
            for each, weight in zip(request.placed(), weights, strict=True)
        ]

    def _item(self, element: Element) -> int:
        if (found := self._item_of.get(id(element))) is None:
            is_result = element.type == "tool_result"
            name = tool_name(element) if element.kind == "tool" else element.name
            if is_result and not name:
                name = self._names.get(element.call, "")
            found = self._add(
                element.kind, element.type, element.role, name, show_element(element), is_result=is_result
            )
            if self._items[found].text >= 0:
                raw = self._raw(without_data(element.value))
                self._items[found] = replace(self._items[found], call=self._redaction.clean(element.call), raw=raw)
            self._item_of[id(element)] = found
        return found

    def _add(self, kind: str, type: str, role: str, name: str, text: str, *, is_result: bool) -> int:
        clean = self._redaction.clean
        index = -1 if self._redaction.is_removed(is_result=is_result) else self._text(clean(text))
        self._items.append(SharedItem(kind, type, clean(role), clean(name), index, len(text)))
        return len(self._items) - 1

    def _text(self, text: str) -> int:
        """Return the index of a text, which is stored once."""
        shown = f"{text[:MAX_TEXT]}… {len(text) - MAX_TEXT:,} more characters" if len(text) > MAX_TEXT else text
        index = self._text_of.setdefault(shown, len(self._texts))
        if index == len(self._texts):
            self._texts.append(shown)
        return index

    def _raw(self, value: JSON) -> JSON:
        """Return a block as JSON without what must not be shared, its long texts by their index."""
        if isinstance(value, str):
            text = self._redaction.clean(self._respelt(value))
            return text if len(text) < MIN_SHARED_TEXT else {TEXT_KEY: self._text(text)}
        if isinstance(value, list):
            return [self._raw(each) for each in cast(list[JSON], value)]
        if isinstance(value, dict):
            return {self._redaction.clean(name): self._raw(each) for name, each in cast(JSONObject, value).items()}
        return value

    def _respelt(self, text: str) -> str:
        """Return JSON in a text without escapes, which what must not be shared could hide behind."""
        if not self._redaction.labels or "\\" not in text or text[:1] not in ("{", "["):
            return text
        try:
            return encode(decode_json(text.encode("utf-8", "replace"))).decode()
        except (ValueError, RecursionError):
            return text

    def _reply(self, messages: Sequence[Message]) -> list[int]:
        found: list[int] = []
        for message in messages:
            for part in message.parts if not message.redacted else ():
                type, name, _, text = read_part(part)
                found.append(self._add("reply", type, message.role, name, text, is_result=type == "tool_result"))
        return found

    def _request(
        self,
        request: RequestView,
        rows: list[SharedRow],
        same: int,
        again: list[int],
        messages: Sequence[Message],
        costs: list[SharedCost],
    ) -> SharedRequest:
        usage, facts, clean = request.usage, request.observed, self._redaction.clean
        shares = request.budget_shares
        error = facts.error if facts is not None and not self._redaction.removes_quotes else ""
        return SharedRequest(
            number=request.record.request,
            channel=request.channel_id,
            model=clean(f"{request.channel.provider}:{request.channel.model}"),
            status=request.status,
            error=clean(error),
            began=request.stated_began,
            latency=facts.latency if facts is not None else None,
            size=request.input,
            input=usage.input if usage is not None else None,
            output=usage.output if usage is not None else None,
            reasoning=usage.reasoning if usage is not None else None,
            cache_read=usage.cache_read if usage is not None else None,
            cost=request.cost,
            cost_is_lower_bound=request.cost_is_lower_bound,
            window=request.record.budget.window,
            parts=[(len(each.weights), each.tokens) for each in shares],
            overhead=request.input - sum([each.tokens for each in shares]),
            same=same,
            again=again,
            rows=rows,
            reply=self._reply(messages),
            costs=costs,
            settings=as_object(
                self._clean_json({name: each for name, each in request.settings.items() if name != "model"})
            ),
        )

    def _costs(self, costs: RequestCosts, tokens: Mapping[tuple[str, str], int]) -> list[SharedCost]:
        """Return what a request is made of. `tokens` are those of its input; `costs` has its answer, too."""
        found, spent = dict(tokens), dict[tuple[str, str], float]()
        for line in costs.lines:
            cause = line.kind, line.name
            found.setdefault(cause, 0 if line.kind in INPUT_KINDS else round(line.tokens))
            if line.cost is not None:
                spent[cause] = spent.get(cause, 0.0) + line.cost
        return [
            SharedCost(cause[0], self._redaction.clean(cause[1]), size, spent.get(cause))
            for cause, size in sorted(found.items(), key=lambda each: -each[1])
        ]

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
            cost_is_lower_bound=finding.cost_is_lower_bound,
            request=request,
            path=first.path if first is not None else "",
            before=clean(first.before) if first is not None and quotes else "",
            after=clean(first.after) if first is not None and quotes else "",
            is_change=first is not None and first.is_change,
        )


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>contextc</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<noscript>This file needs JavaScript. It makes no network requests.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)


def build_shared_file(
    store: Store,
    conversation: str,
    *,
    request: int | None = None,
    channel: str = "",
    redact: ShareRedactions = (),
    tags: bool = True,
    notes: bool = False,
) -> bytes:
    """Return an HTML file of a conversation, or of one of its requests.

    `redact` are names of `SHARE_REDACTIONS` and regular expressions: what they match is not in the file. `channel` is
    the id of a channel, if a request of this number exists in several. The file has the `tags` of the conversation. Its
    `notes` are left out unless they are wanted, because people write them for themselves. Raises `UnknownConversation`
    and `InvalidInput`.
    """
    data = collect_shared_data(
        store, conversation, request=request, channel=channel, redact=redact, tags=tags, notes=notes
    )
    return render_page(data)


def render_page(data: SharedData) -> bytes:
    """Return the page of some content."""
    script, style = _load_files()
    policy = POLICY.format(script=_hash_source(script), style=_hash_source(style))
    return PAGE.format(policy=policy, style=style, script=script, data=_encode_data(data)).encode("utf-8", "replace")


def _encode_data(data: SharedData) -> str:
    """Return JSON that cannot end its block: it has no `<`. Line separators are escaped for older parsers."""
    text = msgspec.json.encode(data).decode("utf-8", "replace")
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _load_files() -> tuple[str, str]:
    script = data_files("contextc.sharing", ".js")["shared_page.js"]
    style = data_files("contextc.sharing", ".css")["shared_page.css"]
    assert "</" not in script and "</" not in style, "script and style must not contain an end tag"  # noqa: PT018
    return script, style


def _hash_source(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
