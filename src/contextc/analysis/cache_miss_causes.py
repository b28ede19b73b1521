"""The causes of cache misses: one function per cause, in the order in which they are checked."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import encode
from contextc.analysis.cache_model import MEDIA, MessageChange, read_field, reordered_tools
from contextc.analysis.changed_content import (
    DESCRIPTIONS,
    MOVED_FIX,
    TextChange,
    ToolChange,
    describe_way,
    find_tool_changes,
    is_reminder,
    name_block,
    summarize_tool_changes,
)
from contextc.analysis.finding import Evidence, FindingCode, register_code, shorten
from contextc.analysis.miss_case import MissCase, compare_elements
from contextc.analysis.request_view import RequestView
from contextc.inspection.prefix_break import MISSED_TOKENS

MAX_TOOLS = 4
"""The number of tools that are evidence of one miss."""
REMOVED_PARTS = {
    "reasoning": "Reasoning was removed from an earlier message",
    "reminder": "A reminder was removed from an earlier message",
    "media": "Media were removed from an earlier message",
    "tool_result": "A tool result was removed from an earlier message",
}
"""Titles for parts of messages that were removed."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The cause of one miss: its evidence, and a more specific title and fix than those of its code."""

    evidence: tuple[Evidence, ...]
    title: str = ""
    fix: str = ""
    confidence: float = 0.95


CauseFunction: TypeAlias = Callable[[MissCase], Diagnosis | None]
CAUSES: list[tuple[FindingCode, CauseFunction]] = []


def cause(code: str, name: str, *, title: str, fix: str) -> Callable[[CauseFunction], CauseFunction]:
    """Register a function that recognises one cause."""

    def register(function: CauseFunction) -> CauseFunction:
        CAUSES.append((register_code(code, name, title=title, fix=fix, description=function.__doc__), function))
        return function

    return register


# ── causes, in the order in which they are checked ────────────────────────────────────────────────────────────────────


@cause(
    "CAC003",
    "model_changed",
    title="Another model was used than in the request before",
    fix="Keep one model per conversation, or switch at a point where the context is short.",
)
def model_changed(case: MissCase) -> Diagnosis | None:
    """The conversation continues on another model or provider. Each model has a cache of its own, so nothing that an
    earlier model cached can be read.
    """
    previous = case.previous
    if previous is None or not case.is_other_model or case.missed_of_previous < MISSED_TOKENS:
        return None
    return Diagnosis(evidence=(case.evidence("model", *case.models, compared=previous),))


@cause(
    "CAC001",
    "first_request",
    title="First request: nothing could have been read from the cache",
    fix="Nothing to do.",
)
def first_request(case: MissCase) -> Diagnosis | None:
    """No earlier request begins like this one, so nothing could be read from the cache. It costs nothing extra."""
    return Diagnosis(evidence=(case.evidence(),), confidence=1.0) if case.is_first else None


@cause(
    "CAC002",
    "below_minimum",
    title="The prefix is shorter than the model caches",
    fix="Nothing to do while a conversation is short. With many short ones, a longer common prefix can be cheaper.",
)
def below_minimum(case: MissCase) -> Diagnosis | None:
    """The part that both requests have in common is shorter than the minimum that the model caches.

    It is reported if a cache breakpoint was set, or is not necessary, and if the requests of a channel repeat at least
    2,048 tokens in this way. A short conversation costs almost nothing.
    """
    if case.potential >= case.rules.minimum or case.read or (case.rules.explicit and not case.now.marks):
        return None
    return Diagnosis(evidence=(case.facts(f"{case.potential:,} tokens", f"minimum {case.rules.minimum:,}"),))


@cause(
    "CAC014",
    "compacted",
    title="A summary replaced earlier messages",
    fix="Compact rarely, and only when the window requires it: each time, the context is paid for again.",
)
def compacted(case: MissCase) -> Diagnosis | None:
    """The client or the compiler replaced earlier messages by a summary. What follows the system prompt is new to the
    cache. If the request was recorded as a compaction, other changes in it count as part of it, and are in `also`. The
    same is true of the request for the summary, which some clients send without tools. If another model continues with
    the summary, `also` has `model_changed`.

    If the compiler shortened results or left out messages because the request was over its budget, the manifest says
    so, and the title is “The compiler trimmed the context to fit the budget”. Its fix is about the size of the trim
    ([compiler.md](compiler.md#trimming)). The same is true of `contextc proxy --fit`.
    """
    if case.is_first:
        if not case.is_compaction_for_other_model or case.missed_of_previous < MISSED_TOKENS:
            return None
        title = "A summary replaced earlier messages, and another model continues"
        return Diagnosis(evidence=(case.evidence("model", *case.models, compared=case.previous),), title=title)
    is_after_head = case.comparison is not None and case.break_at >= case.comparison.before.head_ends[2]
    if not case.is_compaction or not (case.break_part in ("messages", "settings") or is_after_head):
        return None
    return Diagnosis(evidence=(case.element_evidence(case.break_at, is_whole=True)[0],))


@cause(
    "CAC010",
    "settings_changed",
    title="A setting changed that is part of the cached prefix",
    fix="Keep settings such as tool choice, reasoning effort, thinking and output format constant in a conversation.",
)
def settings_changed(case: MissCase) -> Diagnosis | None:
    """A setting of the request changed, and the provider does not use what it cached with another value."""
    comparison = case.comparison
    if case.break_part != "settings" or comparison is None:
        return None
    values = [
        (name, *(_show_setting(each, name) for each in (comparison.before, case.now)))
        for name, _ in comparison.settings
    ]
    names = ", ".join([name for name, *_ in values])
    evidence = tuple([case.evidence(name, before, after) for name, before, after in values])
    return Diagnosis(evidence=evidence, title=f"A setting changed that is part of the cached prefix: {names}")


@cause(
    "CAC005",
    "tools_reordered",
    title="The tools have another order than in the request before",
    fix="Send the tools in a fixed order, for example sorted by name.",
)
def tools_reordered(case: MissCase) -> Diagnosis | None:
    """The request has the same tools as the one before, in another order. Tools come first in the prefix, so nothing
    after them can be read. On Gemini, the system prompt comes before the tools, and can still be read.
    """
    if case.break_part != "tools" or case.comparison is None:
        return None
    if not reordered_tools(case.comparison.before, case.now):
        return None
    names = [shorten(", ".join([tool.name for tool in view.tools.elements]))
             for view in (case.comparison.before, case.now)]  # fmt: skip
    return Diagnosis(evidence=(case.evidence(case.element_evidence(case.break_at)[0].path, *names),))


@cause(
    "CAC004",
    "tools_changed",
    title="The tools changed",
    fix="Declare all tools from the start of the conversation, and keep their descriptions constant.",
)
def tools_changed(case: MissCase) -> Diagnosis | None:
    """A tool was added, removed or described differently. The evidence names up to four of them, each with its
    definition or with what changed in it. Tools come first in the prefix, so nothing after the first different tool can
    be read. On Gemini, the system prompt comes before the tools, and can still be read.
    """
    if case.break_part != "tools" or case.comparison is None:
        return None
    changes = find_tool_changes(case.comparison.before, case.now)
    if not changes:  # a list of tools among the messages
        return _describe(*case.element_evidence(case.break_at), "A tool changed")
    if len(changes) == 1 and changes[0].kind == "changed":
        evidence, change = _tool_evidence(case, changes[0])
        return _describe(evidence, change, f"The definition of the tool {shorten(changes[0].name, 80)} changed")
    evidences = tuple([_tool_evidence(case, each)[0] for each in changes[:MAX_TOOLS]])
    return Diagnosis(evidence=evidences, title=f"The tools changed ({summarize_tool_changes(changes)})")


def _tool_evidence(case: MissCase, change: ToolChange) -> tuple[Evidence, TextChange]:
    """Return evidence for a tool: its definition if it was added or removed, else the words that changed in it."""
    found, path = compare_elements(change.before, change.after)
    return replace(case.evidence(change.path + path, found.before, found.after), name=change.name), found


@cause(
    "CAC006",
    "system_changed",
    title="The system prompt changed",
    fix="Keep the system prompt constant. Put what changes at the end of the conversation.",
)
def system_changed(case: MissCase) -> Diagnosis | None:
    """The system prompt differs from that of the request before. Nothing after the difference can be read."""
    if case.break_part != "system":
        return None
    return _describe(*case.element_evidence(case.break_at), "The system prompt changed")


@cause(
    "CAC008",
    "message_removed",
    title="Earlier messages were removed",
    fix="Remove old messages rarely and many at a time, so that most requests extend the one before.",
)
def message_removed(case: MissCase) -> Diagnosis | None:
    """Whole messages that the request before contained are missing, and messages that followed them are still there."""
    return _message_case(case, "removed")


@cause(
    "CAC009",
    "message_inserted",
    title="A message was inserted before earlier ones",
    fix="Add new messages at the end only.",
)
def message_inserted(case: MissCase) -> Diagnosis | None:
    """A message is new, but not at the end: messages that the request before contained follow it."""
    return _message_case(case, "inserted")


@cause(
    "CAC007",
    "message_changed",
    title="An earlier message changed",
    fix="Send earlier messages again exactly as they were sent first.",
)
def message_changed(case: MissCase) -> Diagnosis | None:
    """The content of an earlier message changed: a result was shortened, reasoning or a reminder was removed, text was
    encoded differently.

    A block that left its place for a later one is a change of this kind, also if it is a whole message: for example a
    reminder that is at the end of each request. The title says from which message to which it moved.

    A client without ids that changes its first message begins a new conversation in the store. Its first request is
    compared with the conversation that it continues, and the title names that: both have the same system prompt, tools
    and settings, the last message is the same, and so are at least half of the others, each at its place. If more
    changed, nothing shows that both belong together, and the request counts as a first one.
    """
    if case.break_part != "messages":
        return None
    if (moved := _describe_moved(case)) is not None:
        return moved
    if case.message_change not in ("changed", "replaced"):
        return None
    gone = case.removed_element
    if gone is not None:
        kind = "reminder" if is_reminder(gone) else gone.type
        evidence, _ = case.element_evidence(case.break_at, is_whole=True)
        return Diagnosis(
            evidence=(evidence,), title=REMOVED_PARTS.get(kind, "A part of an earlier message was removed")
        )
    return _describe(*case.element_evidence(case.break_at), "An earlier message changed")


def _describe_moved(case: MissCase) -> Diagnosis | None:
    """Return a diagnosis for a block that moved to a later place; None if none did."""
    move, comparison = case.move, case.comparison
    if move is None or comparison is None:
        return None
    old, new = comparison.before.at(case.break_at), case.now.at(case.break_at + move.offset)
    words = f"left {old.path}: {shorten(old.element.text)}", f"now at {new.path}"
    title = f"{name_block(old.element)} moved {describe_way(old.path, new.path, is_same=move.is_same)}"
    return Diagnosis(evidence=(case.facts(*words, path=new.path),), title=title, fix=MOVED_FIX)


def _message_case(case: MissCase, kind: MessageChange) -> Diagnosis | None:
    if case.break_part != "messages" or case.message_change != kind or case.move is not None:
        return None
    return Diagnosis(evidence=(case.element_evidence(case.break_at, is_whole=True)[0],))


def _describe(evidence: Evidence, change: TextChange, subject: str) -> Diagnosis:
    """Return a diagnosis that names what changed."""
    words, fix = DESCRIPTIONS[change.kind]
    title = f"{subject}: {words}" if change.kind != "text" else subject
    return Diagnosis(evidence=(evidence,), title=title, fix=fix if change.kind != "text" else "")


@cause(
    "CAC011",
    "cache_expired",
    title="The cache had expired",
    fix="Continue sooner, set a longer ttl where pauses are common, or accept the cost after a long pause.",
)
def cache_expired(case: MissCase) -> Diagnosis | None:
    """More time passed since the last request with this prefix than the provider keeps it."""
    prefix, branch = case.outlook.prefix, case.outlook.branch
    if branch is None or case.tokens_at(prefix.unexpired) - case.tokens_at(prefix.fresh) <= case.threshold:
        return None
    entry = max(branch.entries, key=lambda each: each.position)
    idle = case.now.began - max([each.used for each in branch.entries])
    is_sure = entry.is_surely_expired(case.now.began)
    words = f"{idle / 60_000:,.1f} minutes without a request", f"kept for {entry.life / 60_000:,.0f} minutes"
    return Diagnosis(evidence=(case.facts(*words),), confidence=0.95 if is_sure else 0.7)


@cause(
    "CAC015",
    "parallel_request",
    title="A request with the same prefix was still being answered",
    fix="Send one request first, wait for the first token of its reply, and then send the others with its prefix.",
)
def parallel_request(case: MissCase) -> Diagnosis | None:
    """The request began before the reply to the one that writes its prefix. A cache can be read only after that. The
    evidence names that request.

    Sub-agents and other conversations that begin at once with the same tools and system prompt are compared with each
    other: each of them pays for the prefix that they share. The first one has to write it, and has no finding. Those
    that read the prefix, because an earlier request wrote it, have none either. This needs the times at which replies
    ended: logs without them show no such findings.
    """
    prefix, branch = case.outlook.prefix, case.outlook.branch
    if branch is None or case.tokens_at(prefix.ready) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    tip, now = branch.tip, case.now
    name = f"request {tip.number}"
    if tip.channel.conversation != now.channel.conversation:
        name += f" of {tip.channel.conversation}"
    elif tip.channel.agent != now.channel.agent:
        name += f" of {tip.channel.agent}"
    left = max(0, tip.ended - now.began) / 1_000
    evidence = case.facts(f"{name} was still being answered", f"began {left:,.1f} s before its reply ended")
    if not case.is_first:
        return Diagnosis(evidence=(evidence,), confidence=0.85)
    return Diagnosis(
        evidence=(evidence,),
        title="Another conversation with the same prefix began at the same time",
        fix="Send the first of these requests alone, wait for the first token of its reply, and then send the others: "
        "they read the prefix that they share from the cache.",
        confidence=0.85,
    )


@cause(
    "CAC012",
    "breakpoint_missing",
    title="No cache breakpoint covers the earlier messages",
    fix="Set a cache breakpoint at the last message of every request. In a program of others, "
    "only its makers can do that: report it to them.",
)
def breakpoint_missing(case: MissCase) -> Diagnosis | None:
    """The provider caches only up to breakpoints. The request, or the one before, has none near its end."""
    prefix, comparison = case.outlook.prefix, case.comparison
    if not case.rules.explicit or comparison is None:
        return None
    if case.tokens_at(prefix.written) < case.estimated_potential - case.threshold:
        marks = comparison.before.marks
        last = comparison.before.at(max(marks)).path if marks else "none"
        return Diagnosis(evidence=(case.facts(f"last breakpoint of the request before: {last}"),))
    if case.tokens_at(prefix.found) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    if case.now.marks and max(case.now.marks) + 1 >= prefix.found:
        return None
    last = case.now.at(max(case.now.marks)).path if case.now.marks else "none"
    return Diagnosis(evidence=(case.facts(f"last breakpoint of this request: {last}"),))


@cause(
    "CAC013",
    "lookback_exceeded",
    title="The last cached block is too far before the breakpoints",
    fix="Set a further breakpoint where the request before ended, or at least every 15 blocks.",
)
def lookback_exceeded(case: MissCase) -> Diagnosis | None:
    """A breakpoint finds only what was cached a limited number of blocks before it. More blocks than that were added
    since the request before.
    """
    prefix = case.outlook.prefix
    if case.tokens_at(prefix.found) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    path = case.now.at(prefix.found - 1).path
    return Diagnosis(evidence=(case.facts(f"{case.rules.lookback} positions are searched", path=path),))


@cause(
    "CAC016",
    "provider_missed",
    title="The provider did not use its cache",
    fix="Nothing in the request explains it. Send a stable cache key or session id, so that requests reach one server.",
)
def provider_missed(case: MissCase) -> Diagnosis | None:
    """The prefix is the same, it was written in time, and the provider reports that it was not read. Caches are not
    guaranteed: another server may have answered, or the entry was evicted.
    """
    words = f"expected {case.outlook.tokens:,} tokens", f"read {case.read:,}"
    if case.other_settings and case.is_reported:
        return None
    return Diagnosis(evidence=(case.facts(*words),), confidence=0.5) if case.is_reported else None


def unknown_setting_changed(case: MissCase) -> Diagnosis | None:
    """Return a diagnosis for a setting that is not known to be part of the prefix, if nothing else explains a miss."""
    if not case.other_settings or case.comparison is None or not case.is_reported:
        return None
    views = case.comparison.before, case.now
    evidence = [case.evidence(name, *(_show_setting(each, name) for each in views)) for name in case.other_settings]
    return Diagnosis(
        evidence=tuple(evidence),
        title=f"A setting changed that may be part of the cached prefix: {', '.join(case.other_settings)}",
        confidence=0.4,
    )


def _show_setting(request: RequestView, name: str) -> str:
    if name == MEDIA:
        return "no media" if request.rows.media is None else "media"
    value = read_field(request.settings, name)
    return "not set" if value is None else shorten(value if isinstance(value, str) else encode(value).decode())


def all_causes() -> Iterable[str]:
    """Return the names of all causes."""
    return [code.cause for code, _ in CAUSES]
