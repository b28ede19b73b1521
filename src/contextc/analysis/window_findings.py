"""Findings about what fills the window: unused tools, large results, repeated content, media, and stale reminders;
about prices that a tier multiplied; and about what compactions lost.

The cost of such a finding is what its tokens cost in all requests that contain them, as far as they could have been
left out: for results and media, in the requests after the first.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from contextc.analysis.conversation_loader import StoredConversation
from contextc.analysis.element_costs import (
    ChannelRun,
    Occurrence,
    RequestPrices,
    ToolUse,
    has_media,
    is_appended_tool,
    tool_name,
    tool_names,
)
from contextc.analysis.finding import Finding, FindingCode, cite, conversation_finding, shorten
from contextc.analysis.request_elements import Element, RequestView, Section, weigh
from contextc.compiler.compaction import load_compactions
from contextc.compiler.facts_in_texts import MIN_SCORE, describe_kept_facts
from contextc.models.billing import Surcharge, find_surcharge

MIN_REQUESTS = 4
"""The number of answered requests from which on it means something that a tool was not called."""
SURE_REQUESTS = 20
UNUSED_TOKENS = 1_000
RESULT_TOKENS, RESULT_SHARE = 2_000, 0.05
REPEATED_TOKENS = 300
SAME_LINES = 0.8
MEDIA_REQUESTS = 3
"""The number of requests after the first for which media may be needed."""
COSTLY_FACTOR = 1.5
SMALLER_REQUESTS = "which makes requests smaller, at the same number of tokens."
MEDIA_FIXES = {
    "anthropic": (f"A file that is uploaded once can be sent by its `file_id`, or as a URL, {SMALLER_REQUESTS}",),
    "openai_chat": (
        'Images with `"detail": "low"` have fewer tokens.',
        f"An image can be sent as a URL, {SMALLER_REQUESTS}",
    ),
    "openai_responses": (
        'Images with `"detail": "low"` have fewer tokens.',
        f"A file that is uploaded once can be sent by its `file_id`, {SMALLER_REQUESTS}",
    ),
    "gemini": (
        "A lower `mediaResolution` gives media fewer tokens.",
        f"A file that is uploaded once can be sent by its `fileUri`, {SMALLER_REQUESTS}",
    ),
    "bedrock": (f"Models that accept it can read a file from S3 by its `s3Location`, {SMALLER_REQUESTS}",),
    "mistral": (f"A file that is uploaded once can be sent by its `file_id`, {SMALLER_REQUESTS}",),
}
"""Fixes for repeated media by format: alternatives to sending the same bytes again."""
REMINDER_TOKENS, REMINDER_SHARE = 500, 0.01
REMINDER_TAGS = (
    *("system-reminder", "system_reminder", "dynamic-context", "environment_context", "environment_details"),
    *("system-warning", "system_warning", "user_info", "additional_data"),
)
REMINDER = re.compile(rf"<({'|'.join(REMINDER_TAGS)})\b[^<>]*+>")
REMINDER_START = tuple([f"<{tag}" for tag in REMINDER_TAGS])
REMINDER_BYTES = re.compile("|".join(REMINDER_START).encode())
MAX_EVIDENCE = 20
KIND_WORDS = 6


# ── WIN001 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "WIN001",
    "unused_tools",
    title="Tools were sent in every request and never called",
    fix="Do not offer these tools in this kind of conversation, or let the model search for tools. Decide it at the "
    "start of a conversation: a change of the tools in between loses the cached prefix, unless provider and model "
    "accept it as a message.",
)
def unused_tools(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """Definitions of tools are part of every request. The finding names the tools of a channel that no reply called,
    and what their definitions cost in all requests at the prices that were paid: cache read, cache write, or input.

    Recognised: a channel with at least 4 answered requests; tools that are in its last request and were called in none;
    at least 1,000 tokens in all. Tools whose loading is deferred are not counted. Tools that were added in a message
    are, after 4 further requests.
    """
    for run in view.runs:
        unused = find_unused_tools(view, run)
        tokens = sum([placed.tokens for placed, _ in unused])
        if tokens < UNUSED_TOKENS:
            continue
        answered = [each for each in run.requests if each.usage is not None]
        last = answered[-1]
        names = {name for _, name in unused}
        added = list(run.occurrences(1, is_appended_tool))
        appended = [each for each in added if tool_name(each.element) in names]
        offered = [count for count in _count_offered(run, names, appended) if count]
        total = len(last.tools.elements) + len([each for each in added if _is_in_last(run, each)])
        most = "up to " if min(offered) < len(names) else ""
        count = f"{len(offered):,} requests" if len(offered) > 1 else "1 request"
        where = f"{tokens:,} tokens{_in_request(last)}, sent in {most}{count}"
        listed = ", ".join([name for _, name in unused])
        yield code.make(
            view.name,
            [cite(last, placed.path, after=f"{name}: {placed.tokens:,} tokens") for placed, name in unused],
            tokens=tokens,
            cost=run.known(
                run.keep(_ToolCosts).cost(frozenset(names))
                + sum([run.cost(each, each.first, each.last) for each in appended])
            ),
            title=shorten(f"{len(unused)} of {total} tools were never called: {where} ({listed})"),
            confidence=0.8 if len(offered) >= SURE_REQUESTS else 0.6,
        )


def _in_request(request: RequestView) -> str:
    """Return the request that a figure is of. Others have almost the same: only the total is the provider's."""
    return f" in request {request.record.request:,}"


def count_tokens(request: RequestView, found: Occurrence) -> int:
    """Return the tokens of an element in a request that has it, as the inspector lists them."""
    if found.stay.row < 0:
        return request.head_tokens[request.head_start("system") + found.index]
    return request.tokens_in_budget(found.start, found.tokens)


def find_unused_tools(view: StoredConversation, run: ChannelRun) -> list[tuple["PlacedTool", str]]:
    """Return the tools of the last request that were never called, the largest first; none for a short run. A tool that
    was added in a message counts after some requests.
    """
    answered = [each for each in run.requests if each.usage is not None]
    if len(answered) < MIN_REQUESTS:
        return []
    called, last = _called_tools(view, run), answered[-1]
    sent = [
        PlacedTool(element, element.suffix, tokens)
        for element, tokens in zip(last.tools.elements, last.tool_tokens, strict=True)
        if weigh(element)  # its loading is not deferred
    ]
    sent += [
        PlacedTool(each.element, run.path(each), count_tokens(last, each))
        for each in run.occurrences(1, is_appended_tool)
        if _is_in_last(run, each) and each.last - each.first >= MIN_REQUESTS
    ]
    unused = [
        (placed, name)
        for placed in sent
        if (name := tool_name(placed.element))
        and not any([_is_called(each, called) for each in tool_names(placed.element)])
    ]
    return sorted(unused, key=lambda each: -each[0].tokens)


def _is_in_last(run: ChannelRun, found: Occurrence) -> bool:
    """Return True if an element is in the last answered request."""
    last = max([index for index, each in enumerate(run.requests) if each.usage is not None])
    return found.first <= last <= found.last


def _count_offered(run: ChannelRun, names: set[str], appended: Sequence[Occurrence]) -> Iterator[int]:
    """Return the number of some tools that each answered request has. `appended` are those among the messages."""
    known: dict[int, set[str]] = {}
    for index, request in enumerate(run.requests):
        if request.usage is None:
            continue
        if (found := known.get(id(request.tools))) is None:
            found = known[id(request.tools)] = names & {tool_name(tool) for tool in request.tools.elements}
        more = [tool_name(each.element) for each in appended if each.first <= index <= each.last]
        yield len(found.union(more)) if more else len(found)


class PlacedTool(NamedTuple):
    """The definition of a tool in a request, with its path and its tokens as the provider counts them."""

    element: Element
    path: str
    tokens: int


def _called_tools(view: StoredConversation, run: ChannelRun) -> set[str]:
    return run.called | {name for each in run.requests for name in view.reply(each).calls}


def _is_called(name: str, called: set[str]) -> bool:
    """Return True if a tool was called. The types of providers' own tools have dates and other endings."""
    return name in called or any([each and name.startswith(f"{each}_") for each in called])


class _ToolCosts:
    """The cost of the definitions of some tools in all requests of a run. Requests that were added are added to it."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self._names: frozenset[str] = frozenset()
        self._clear()

    def _clear(self) -> None:
        self._count, self._cost = 0, 0.0
        self._places: dict[int, list[tuple[int, int]]] = {}

    def cost(self, names: frozenset[str]) -> float:
        if names != self._names:
            self._names = names
            self._clear()
        for index in range(self._count, len(self._run.requests)):
            self._cost += self._cost_in(self._run.requests[index], self._run.prices[index])
        self._count = len(self._run.requests)
        return self._cost

    def _cost_in(self, request: RequestView, prices: RequestPrices) -> float:
        tools = request.tools
        first = request.head_tokens_before("tools")
        if (found := self._places.get(id(tools))) is None:
            found = self._places[id(tools)] = list(_positions(tools, self._names))
        paid = prices.split_at(first, tools.total)
        if found and 0 < max(paid) == paid.total:  # all tools at one price
            return prices.dollars(paid) * sum([tokens for _, tokens in found]) / tools.total
        return sum([prices.cost(first + start, tokens) for start, tokens in found])


def _positions(tools: Section, names: frozenset[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for element, tokens in zip(tools.elements, tools.tokens, strict=True):
        if tool_name(element) in names:
            yield start, tokens
        start += tokens


# ── WIN002 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "WIN002",
    "large_result",
    title="A large tool result stays in all following requests",
    fix="Let the tool return less: a page, a filter, or a short text with a way to read the rest. Run searches that "
    "need much output in a sub-agent.",
)
def large_results(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """A tool result is sent again with every following request. The finding names a result that takes a large share of
    the input, and what it cost by staying, without the first request that needed it.

    Recognised: a result of at least 2,000 tokens and 5 % of the input of the last request that has it, in at least two
    requests. Results with media are no such finding.
    """
    for run in view.runs:
        for found in run.occurrences(RESULT_TOKENS // 2, _is_result):
            if found.last == found.first:
                continue
            first, last = run.requests[found.first], run.requests[found.last]
            tokens = count_tokens(last, found)
            if tokens < max(RESULT_TOKENS, last.input * RESULT_SHARE):
                continue
            use = run.tool_of(found.element)
            name = f"{use.name or 'a tool'}{f' ({use.file})' if use.file else ''}"
            again = found.last - found.first
            yield code.make(
                view.name,
                [cite(first, run.path(found), after=shorten(found.element.text))],
                tokens=tokens,
                cost=run.known(run.cost(found, found.first + 1, found.last)),
                title=shorten(
                    f"A result of {name} has {tokens:,} tokens{_in_request(last)}, "
                    f"{tokens / max(1, last.input):.0%} of its input; sent {again:,} more "
                    f"{'time' if again == 1 else 'times'}"
                ),
                confidence=0.8,
            )


def _is_result(element: Element) -> bool:
    return element.type == "tool_result" and not has_media(element)


# ── WIN003 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Repeated(NamedTuple):
    """Content that is in a request again. `share` is the share of it that is the same."""

    original: Occurrence
    copy: Occurrence
    share: float


@conversation_finding(
    "WIN003",
    "repeated_content",
    title="The same content is in the window more than once",
    fix="Do not read or send again what the window has: let the tool answer “unchanged since it was read”, and send a "
    "file or an instruction in one place only.",
)
def repeated_content(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """The same text is in one request more than once: a file that was read twice, or a text in two messages. The cost
    is that of all copies but one, in all requests that have both.

    Recognised: texts and tool results of at least 300 tokens that are equal, and two results for the same file of which
    80 % of the lines are equal. Reminders of a client are counted by WIN005.
    """
    for run in view.runs:
        groups: dict[object, list[_Repeated]] = {}
        for each in run.keep(_RepeatedContent).find():
            groups.setdefault((id(each.original), each.share == 1.0), []).append(each)
        for copies in groups.values():
            original = copies[0].original
            cost = sum([run.cost(each.copy, each.copy.first, _shared_end(each), each.share) for each in copies])
            last = run.requests[_shared_end(copies[-1])]
            tokens = round(sum([count_tokens(last, each.copy) * each.share for each in copies]))
            use = run.tool_of(original.element) if original.element.type == "tool_result" else None
            name = f"{use.name or 'a tool'} ({use.file})" if use and use.file else use.name if use else "a text"
            is_same = copies[0].share == 1.0
            yield code.make(
                view.name,
                [
                    cite(run.requests[each.first], run.path(each), after=shorten(each.element.text))
                    for each in (copies[-1].copy, original, *[each.copy for each in copies[:-1]])[:MAX_EVIDENCE]
                ],
                tokens=tokens,
                cost=run.known(cost),
                title=shorten(
                    f"{'The same' if is_same else 'Almost the same'} content {len(copies) + 1} times: "
                    f"{name or 'a tool'}, {tokens:,} tokens too many{_in_request(last)}"
                ),
                confidence=0.9 if is_same else 0.7,
            )


class _RepeatedContent:
    """The content of a run that is in a request again. What is known of stays that have ended is kept."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self._systems: dict[bytes, list[Occurrence]] = {}
        self._rows: dict[bytes, list[Occurrence]] = {}
        self._files: dict[ToolUse, Occurrence] = {}
        self._of_systems: list[_Repeated] = []
        self._of_ended_rows: list[_Repeated] = []
        self._counts = 0, 0

    def find(self) -> Iterator[_Repeated]:
        """Return repeated content: of system prompts, then of rows, both in the order in which their stays end."""
        found = self._run.find_occurrences(REPEATED_TOKENS // 2, _is_repeatable)
        for each in self._long(found.systems[self._counts[0] :]):
            self._of_systems += self._find_equal(each, self._systems, {})
        for each in self._long(found.ended[self._counts[1] :]):
            self._of_ended_rows += self._find_in_row(each, self._rows, self._files)
        self._counts = len(found.systems), len(found.ended)
        rows, files = dict(self._rows), dict(self._files)  # of rows that are still open, only until the next request
        yield from self._of_systems
        yield from self._of_ended_rows
        for each in self._long(found.open):
            key = self._key(each)
            if rows.get(key) is self._rows.get(key):
                rows[key] = [*rows.get(key, ())]
            yield from self._find_in_row(each, rows, files)

    def _long(self, found: Iterable[Occurrence]) -> Iterator[Occurrence]:
        requests = self._run.requests
        return (each for each in found if each.tokens * requests[each.first].scale >= REPEATED_TOKENS)

    def _key(self, found: Occurrence) -> bytes:
        return self._run.once(_text_key, found.element)

    def _find_equal(
        self, found: Occurrence, own: dict[bytes, list[Occurrence]], others: Mapping[bytes, list[Occurrence]]
    ) -> list[_Repeated]:
        """Return what has the same text as an occurrence, which is added to `own`."""
        key = self._key(found)
        earlier = own.setdefault(key, [])
        original = _find_together(others.get(key, ()), found) or _find_together(earlier, found)
        earlier.append(found)
        return [_Repeated(original, found, 1.0)] if original else []

    def _find_in_row(
        self, found: Occurrence, rows: dict[bytes, list[Occurrence]], files: dict[ToolUse, Occurrence]
    ) -> list[_Repeated]:
        """Return what has the same text as an occurrence in a row, or belongs to the same file."""
        repeated = self._find_equal(found, rows, self._systems)
        use = self._run.tool_of(found.element) if found.element.type == "tool_result" else None
        if use is not None and use.file:
            if not repeated and use in files:
                repeated += _find_similar(self._run, files[use], found)
            files[use] = found
        return repeated


def _is_repeatable(element: Element) -> bool:
    if element.type not in ("text", "tool_result") or has_media(element):
        return False
    return not element.text.lstrip().startswith(REMINDER_START)


def _text_key(element: Element) -> bytes:
    return blake2b(element.text.strip().encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _find_together(earlier: Sequence[Occurrence], found: Occurrence) -> Occurrence | None:
    """Return the first of some occurrences, in the order of their ends, that is in a request together with another."""
    at = bisect_left(earlier, found.first, key=lambda each: each.last)
    return earlier[at] if at < len(earlier) and earlier[at].first <= found.last else None


def _find_similar(run: ChannelRun, earlier: Occurrence, found: Occurrence) -> Iterator[_Repeated]:
    """Return what the last earlier read of the same file has in common with this one."""
    if _find_together([earlier], found) is None:
        return
    lines, others = (run.once(_lines_of, each.element) for each in (found, earlier))
    share = len(lines & others) / max(1, min(len(lines), len(others)))
    if share >= SAME_LINES:
        sizes = [len(each.element.text) for each in (found, earlier)]
        yield _Repeated(earlier, found, min(0.99, share * min(sizes) / max(1, sizes[0])))


def _lines_of(element: Element) -> frozenset[str]:
    return frozenset(element.text.splitlines())


def _shared_end(each: _Repeated) -> int:
    return min(each.original.last, each.copy.last)


# ── WIN004 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "WIN004",
    "media_kept",
    title="Images or documents stay in the window",
    fix="Send smaller images, and only the pages that are needed. Leave them out of later requests: replace them by a "
    "line of text, best at the next compaction, because removing them before loses the cached prefix.",
)
def kept_media(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """Images, audio and documents are sent again with every following request, and most of them are needed only for a
    few. The cost is what they cost from the fourth request on.

    Recognised: media, or tool results with media, that are in more than 4 requests of a channel. There is one finding
    per channel. Its fix also names what the provider offers: a lower resolution, or an id or URL in place of the bytes.
    An id or URL makes requests smaller, but the tokens are the same.
    """
    for run in view.runs:
        kept = [found for found in run.occurrences(1, has_media) if found.last - found.first > MEDIA_REQUESTS]
        if not kept:
            continue
        last = run.requests[max([each.last for each in kept])]
        sizes = {id(each): count_tokens(run.requests[each.last], each) for each in kept}
        tokens = sum([sizes[id(each)] for each in kept if run.requests[each.last] is last])
        cost = sum([run.cost(each, each.first + MEDIA_REQUESTS, each.last) for each in kept])
        kept.sort(key=lambda each: -each.tokens * (each.last - each.first))
        yield code.make(
            view.name,
            [
                cite(
                    run.requests[each.first],
                    run.path(each),
                    after=f"{sizes[id(each)]:,} tokens{_in_request(run.requests[each.last])}, in "
                    f"{each.last - each.first + 1:,} requests",
                )
                for each in kept[:MAX_EVIDENCE]
            ],
            tokens=tokens,
            cost=run.known(cost),
            title=f"{len(kept):,} {'image or document stays' if len(kept) == 1 else 'images or documents stay'} in the "
            f"window: {tokens:,} tokens{_in_request(last)}, {tokens / max(1, last.input):.0%} of its input",
            fix=" ".join([code.fix, *MEDIA_FIXES.get(last.format, ())]),
            confidence=0.7,
        )


# ── WIN005 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Reminder(NamedTuple):
    """A reminder within an element. `share` is its share of the element, `kind` is what later ones have in common."""

    found: Occurrence
    kind: str
    text: str
    share: float


@conversation_finding(
    "WIN005",
    "stale_reminders",
    title="Reminders of earlier turns are still sent",
    fix="Send a reminder only if its content changed, and keep it short. What is outdated with the next request "
    "belongs to the end of a request, and not into the stored history.",
)
def stale_reminders(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """Clients add reminders to messages, such as `<system-reminder>`, with the time, open files or a todo list. A newer
    one of the same kind makes the earlier ones outdated, but they stay in the history. Removing them later would lose
    the cached prefix, so they should not be added so often.

    Recognised: texts in tags that clients use for reminders, with a later one in the same request that begins with the
    same words; at least 500 tokens and 1 % of the input. There is one finding per channel.
    """
    for run in view.runs:
        newest: dict[str, _Reminder] = {}
        stale: list[tuple[_Reminder, int]] = []
        for each in _find_reminders(run):
            earlier = newest.get(each.kind)
            if earlier is not None and earlier.found.last >= each.found.first:
                stale.append((earlier, each.found.first))
            newest[each.kind] = each
        if not stale:
            continue
        last = run.requests[max([each.found.last for each, _ in stale])]
        kept = [each for each, _ in stale if run.requests[each.found.last] is last]
        tokens = round(sum([count_tokens(last, each.found) * each.share for each in kept]))
        if tokens < max(REMINDER_TOKENS, last.input * REMINDER_SHARE):
            continue
        cost = sum([run.cost(each.found, since, each.found.last, each.share) for each, since in stale])
        yield code.make(
            view.name,
            [
                cite(run.requests[each.found.first], run.path(each.found), after=shorten(each.text))
                for each, _ in reversed(stale[-MAX_EVIDENCE:])
            ],
            tokens=tokens,
            cost=run.known(cost),
            title=f"{len(stale):,} outdated reminders are still sent: {tokens:,} tokens{_in_request(last)}, "
            f"{tokens / max(1, last.input):.0%} of its input",
            confidence=0.7,
        )


def _find_reminders(run: ChannelRun) -> Iterator[_Reminder]:
    for found in sorted(run.occurrences(1, _has_reminder), key=lambda each: (each.first, each.stay.row, each.index)):
        element = found.element
        text = element.text
        for tag, start, inside, end in _elements(text):
            whole = text[start : end + len(f"</{tag}>")]
            yield _Reminder(found, f"{tag} {_kind_of(text[inside:end])}", whole, len(whole) / max(1, len(text)))


def _elements(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the tag of each reminder, and where it, its content and its end tag start, without those inside another."""
    ended, unclosed = 0, set[str]()
    for match in REMINDER.finditer(text):
        tag = match[1]
        if match.start() < ended or tag in unclosed:
            continue
        if (end := text.find(f"</{tag}>", match.end())) < 0:
            unclosed.add(tag)
            continue
        yield tag, match.start(), match.end(), end
        ended = end + len(f"</{tag}>")


def _has_reminder(element: Element) -> bool:
    return element.type in ("text", "tool_result") and REMINDER_BYTES.search(element.raw) is not None


def _kind_of(text: str) -> str:
    words = re.sub(r"[\d.,:/-]+", "", text[:400]).split()
    return " ".join(words[:KIND_WORDS])


# ── WIN006 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "WIN006",
    "costly_tier",
    title="A tier, a speed or a region multiplied the price",
    fix="Ask for the standard tier and speed for answers that may come later, and for a region only where the data "
    "must stay there. A tier can also be the default of a project or a workspace.",
)
def costly_tiers(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """Providers bill all tokens of a request at a multiple of the list price: for a faster tier or speed, or for a
    region. The cost is what the requests cost beyond list prices.

    Recognised: by the tier, speed and region that replies report, and by the factors in `models/billing.toml`, from a
    factor of 1.5 on. There is one finding per channel and factor. Tiers of unknown price are no such finding.
    """
    for run in view.runs:
        groups: dict[tuple[str, float], list[tuple[RequestView, Surcharge]]] = {}
        for request in run.requests:
            usage, model = request.usage, request.model
            found = find_surcharge(model, usage) if model is not None and usage is not None else None
            if found is not None and found.factor >= COSTLY_FACTOR:
                groups.setdefault((found.words, found.factor), []).append((request, found))
        for (words, factor), some in groups.items():
            count = f"{len(some):,} {'request was' if len(some) == 1 else 'requests were'}"
            yield code.make(
                view.name,
                [cite(each, after=f"{words}: ${found.dollars:.4f} more") for each, found in some[:MAX_EVIDENCE]],
                tokens=sum([each.usage.input + each.usage.output for each, _ in some if each.usage is not None]),
                cost=sum([found.dollars for _, found in some]),
                title=f"{count} billed at {factor:.3g} times the list price: {words}",
            )


# ── CMP001 ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Findings about compactions: what the requests after them no longer have.


@conversation_finding(
    "CMP001",
    "lossy_compaction",
    title="A compaction lost facts",
    fix="Say what summaries should keep (`summary_instructions`), give them more room (`summary_share`), pin the "
    "messages that must stay, or take the summary back with `contextc compact --undo`.",
)
def lossy_compactions(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """A summary replaced messages, and the requests after it lack much of what was in them. The finding names what was
    lost. All of it is still stored.

    Recognised: by the receipt that is stored with a summary. It is made without a model, and counts the names, figures
    and error texts in texts and calls, open todos, and sentences of people. Less than 80 % of them are in the summary,
    in the messages that stay, and in what the compiler keeps besides.
    """
    for agent in dict.fromkeys([each.channel.author for each in view.requests]):
        requests = [each for each in view.requests if each.channel.author == agent]
        for found in reversed(load_compactions(view.store, view.name, agent)):
            receipt = found.receipt
            if receipt is None or receipt.score >= MIN_SCORE:
                continue
            # The first request that was sent with the summary.
            later = (each for each in requests if each.record.why and each.record.tip >= found.upto)
            first = next((each for each in later if each.record.time >= found.time), None)
            if first is None:
                continue
            yield code.make(
                view.name,
                [cite(first, after=text) for text in receipt.lost[:MAX_EVIDENCE]],
                title=shorten(f"The summary up to message {found.upto:,} {describe_kept_facts(receipt)}"),
                confidence=0.7,
            )
