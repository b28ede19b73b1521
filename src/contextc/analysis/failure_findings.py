"""Findings about requests that failed or would fail: broken rules, retries, truncated answers, errors, and remarks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from contextc.analysis.cache_model import read_field
from contextc.analysis.conversation_loader import StoredConversation
from contextc.analysis.finding import Evidence, Finding, FindingCode, cite, conversation_finding, shorten
from contextc.analysis.request_elements import RequestView
from contextc.compiler.manifest import ObservedFacts
from contextc.compiler.step import is_intended
from contextc.errors import ContextcError
from contextc.formats.rules_docs import find_rule
from contextc.inspection.request_timeline import REASON_TEXTS, load_unanswered_requests

MAX_CHECKED = 6
"""The number of requests of a channel that are checked against the rules: refused ones, then the last of each epoch."""
MAX_EVIDENCE = 20
FIRST_ERROR_STATUS = 400
INVALID = (400, 422)
"""The HTTP status codes with which providers refuse an invalid request."""
TRUNCATED = ("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded")
STOPPED = (REASON_TEXTS["cancelled"],)
LIMIT_FIELDS = (
    *("max_tokens", "max_output_tokens", "max_completion_tokens"),
    *("generationConfig.maxOutputTokens", "inferenceConfig.maxTokens"),
)
WINDOW_SHARE = 0.95
NUMBER = re.compile(r"\d+")


class FailedRequest(NamedTuple):
    """A request that failed. `evidence` locates it; `reason` is its status and its error, and `label` a short form."""

    evidence: Evidence
    reason: str
    label: str
    tokens: int
    cost: float | None
    is_retried: bool
    is_refused: bool


# ── FAI001 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "FAI001",
    "rule_broken",
    title="A request breaks a rule of its provider",
    fix="Repair the request with `contextc fix`, or let `contextc proxy --fix` do it for each request.",
)
def broken_rules(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """The provider refuses such a request, or would refuse it. [rules.md](rules.md) describes all rules.

    Recognised: by the rules of `contextc lint`. Of each channel the refused requests and the last unanswered request of
    each epoch are checked, at most 6 in all, but none whose exact body is unknown. A request that was answered breaks
    no rule, and a rule that it contradicts is not applied to the others of its channel. If a request was not refused,
    the finding is less certain. What `contextc proxy --lint` or `--fix` found is included, also if it was repaired.
    There is one finding per rule and channel.
    """
    for requests in view.channels.values():
        found: dict[str, list[Evidence]] = {}
        breaches: dict[str, str] = {}
        refused: set[str] = set()
        checked = _requests_to_check(requests)
        contradicted = _contradicted_rules(view, requests) if checked else set[str]()
        for request in checked:
            for violation in view.violations(request):
                if violation.code in contradicted:
                    continue
                found.setdefault(violation.code, []).append(
                    cite(request, violation.path, before=shorten(violation.error), after=shorten(violation.message))
                )
                breaches[violation.code] = violation.message
                if _is_refused(request):
                    refused.add(violation.code)
        for request in requests:
            for action in request.observed.actions if request.observed is not None else ():
                for name in action.codes if action.rule != "lint" or not request.is_answered else ():
                    found.setdefault(name, []).append(
                        cite(request, after=shorten("; ".join([f"{action.rule}: {each}" for each in action.changes])))
                    )
        for name, evidence in found.items():
            title, repair = _describe_rule(name)
            breach = breaches.get(name) or title
            yield code.make(
                view.name,
                evidence[:MAX_EVIDENCE],
                title=shorten(f"{name}: {breach}") if breach else name,
                fix=f"{code.fix} Repair of {name}: {repair}" if repair else "",
                confidence=1.0 if name in refused else 0.5,
            )


def _requests_to_check(requests: Sequence[RequestView]) -> list[RequestView]:
    refused = {NUMBER.sub("#", _reason(each)): each for each in requests if _is_refused(each)}
    last = {
        each.record.epoch: each
        for each in requests
        if each.status in ("unanswered", "unrecorded") and not _is_inexact(each)
    }
    chosen = [*list(refused.values())[-MAX_CHECKED:], *reversed(list(last.values()))][:MAX_CHECKED]
    return sorted({id(each): each for each in chosen}.values(), key=lambda each: each.began)


def _contradicted_rules(view: StoredConversation, requests: Sequence[RequestView]) -> set[str]:
    """Return the rules that the last answered request breaks: the provider does not apply them."""
    answered = next((each for each in reversed(requests) if each.is_answered and not _is_inexact(each)), None)
    return {violation.code for violation in view.violations(answered)} if answered is not None else set()


def _is_inexact(request: RequestView) -> bool:
    """Return True if the stored body is not the one that was sent."""
    return request.observed is not None and request.observed.inexact


def _describe_rule(name: str) -> tuple[str, str]:
    try:
        rule = find_rule(name)
    except ContextcError:
        return "", ""
    return rule.title, rule.repair


# ── FAI002, FAI004 ────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "FAI002",
    "retried_request",
    title="The same request was sent again after an error",
    fix="Wait as long as the provider asks for before a retry, send fewer requests at once, and do not retry a request "
    "that is invalid.",
)
def retried_requests(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """A request failed and was sent again with the same content. The cost is that of the failed attempts, as far as the
    provider reported usage for them.

    Recognised: a request with an error or without a complete answer, followed on its channel by one with the same
    messages, system prompt and tools. There is one finding per error and channel.
    """
    yield from _group_failures(view, code, [each for each in _find_failed(view) if each.is_retried], "sent again after")


@conversation_finding(
    "FAI004",
    "failed_request",
    title="A request was refused or failed",
    fix="Read the error of the provider. For invalid requests see `contextc lint`; for limits send less or wait.",
)
def failed_requests(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """The provider refused a request, or its answer ended early, and the same request was not sent again.

    Recognised: by the recorded status. There is one finding per error and channel. Requests that were recorded without
    a reply, as in transcripts, are not reported: nothing shows that they failed. Turns of our own that the user stopped
    are not reported either. If another client stops a request, this looks like a broken connection, so the confidence
    is lower.
    """
    yield from _group_failures(view, code, [each for each in _find_failed(view) if not each.is_retried], "failed with")


def _group_failures(
    view: StoredConversation, code: FindingCode, failed: Iterable[FailedRequest], what: str
) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[FailedRequest]] = {}
    for each in failed:
        groups.setdefault((each.evidence.channel, NUMBER.sub("#", each.reason)), []).append(each)
    for (_, _), found in groups.items():
        costs = [each.cost for each in found if each.cost is not None]
        count = f"{len(found):,} {'request' if len(found) == 1 else 'requests'}"
        yield code.make(
            view.name,
            [each.evidence for each in found[:MAX_EVIDENCE]],
            tokens=sum([each.tokens for each in found]),
            cost=sum(costs) if costs else None,
            title=shorten(f"{count} {what}: {found[0].label}"),
            confidence=1.0 if found[0].is_refused else 0.6,
        )


def _find_failed(view: StoredConversation) -> Iterator[FailedRequest]:
    for requests in view.channels.values():
        for index, request in enumerate(requests):
            if request.observed is None or not request.observed.has_failed or _is_without_reply(request.observed):
                continue
            yield FailedRequest(
                cite(request, after=shorten(request.observed.error)),
                _reason(request),
                _reason(request, request.observed.error_type),
                request.input,
                request.cost,
                _is_sent_again(request, requests[index + 1 : index + 1 + MAX_CHECKED]),
                request.status == "error",
            )
    lost = load_unanswered_requests(view.store, view.name)
    answered = {(each.channel_id, each.record.request) for each in view.requests if lost and each.status == "ok"}
    kept = {
        (each.channel_id, each.number): (each, requests[index + 1 : index + 1 + MAX_CHECKED])
        for requests in view.channels.values()
        for index, each in enumerate(requests)
        if lost and each.status == "unanswered"
    }
    for index, each in enumerate(lost):
        if each.why in STOPPED:
            continue
        if each.number and (each.channel, each.number) in kept:
            is_retried = _is_sent_again(*kept[each.channel, each.number])
        else:
            later = {(other.channel, other.request) for other in lost[index + 1 :]}
            is_retried = (each.channel, each.request) in answered | later
        yield FailedRequest(
            Evidence(
                request=each.number or each.request,
                channel=each.channel,
                after=shorten(each.why),
                is_change=False,
                would_be=each.request,
            ),
            each.why,
            each.why,
            each.usage.input if each.usage is not None else 0,
            each.cost,
            is_retried,
            True,
        )


def _is_without_reply(facts: ObservedFacts) -> bool:
    """Return True if only the request was recorded, as in a file of requests: nothing is known to have failed."""
    if facts.status != "unanswered" or facts.error or facts.code >= FIRST_ERROR_STATUS:
        return False
    return bool(facts.code) or facts.ended <= facts.began


def _is_sent_again(request: RequestView, following: Sequence[RequestView]) -> bool:
    """Return True if one of the following requests has the same content."""
    keys = None
    for other in following:
        if other.count != request.count:
            continue
        if other.rows.sections == request.rows.sections and other.head is request.head:
            return True
        keys = keys or [each.key for each in request.elements()]
        if [each.key for each in other.elements()] == keys:
            return True
    return False


def _reason(request: RequestView, error_type: str = "") -> str:
    """Return the status of a failed request with its code and its error, or with the type of it."""
    facts = request.observed
    if facts is None:
        return request.status
    status = {"error": "", "unfinished": "the answer ended early", "unanswered": "no answer"}.get(facts.status, "")
    code = str(facts.code) if facts.code and facts.code != 200 else ""
    error = error_type or shorten(facts.error)
    return " ".join([each for each in (code, status, error) if each]) or facts.status


def _is_refused(request: RequestView) -> bool:
    facts = request.observed
    return facts is not None and facts.status == "error" and facts.code in INVALID


# ── FAI003 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "FAI003",
    "truncated_answer",
    title="An answer was cut off at the limit of its length",
    fix="Raise the limit of output tokens, or ask for less in one answer.",
)
def truncated_answers(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """The model stopped because of the limit of output tokens, or because the window was full. A cut tool call is
    invalid, and a cut text is often requested again.

    Recognised: by the finish reason. `tokens` are the output tokens, and the cost is what they cost. There is one
    finding per channel and limit.
    """
    for requests in view.channels.values():
        groups: dict[tuple[int, bool], list[RequestView]] = {}
        for request in requests:
            if view.reply(request).finish in TRUNCATED:
                groups.setdefault((_read_limit(request), _is_full(request)), []).append(request)
        for (limit, is_full), found in groups.items():
            output = sum([each.usage.output for each in found if each.usage is not None])
            costs = [
                each.usage.output * each.price.output / 1_000_000
                for each in found
                if each.usage is not None and each.price is not None
            ]
            model = found[0].model
            allowed = f" The model allows {model.output:,}." if model is not None and limit < model.output else ""
            count = f"{len(found):,} {'answer' if len(found) == 1 else 'answers'}"
            at = "the window was full" if is_full else f"limit of {limit:,} tokens" if limit else "limit of the model"
            yield code.make(
                view.name,
                [cite(each, after=f"finish reason: {view.reply(each).finish}") for each in found[:MAX_EVIDENCE]],
                tokens=output,
                cost=sum(costs) if costs else None,
                title=f"{count} cut off: {at}",
                fix="Compact the conversation earlier, so that there is room for an answer."
                if is_full
                else f"{code.fix}{allowed}",
                confidence=0.9,
            )


def _read_limit(request: RequestView) -> int:
    values = [read_field(request.settings, path) for path in LIMIT_FIELDS]
    return next((each for each in values if isinstance(each, int)), 0)


def _is_full(request: RequestView) -> bool:
    usage, window = request.usage, request.record.budget.window
    return usage is not None and bool(window) and usage.input + usage.output >= window * WINDOW_SHARE


# ── FAI005 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "FAI005",
    "compiler_remark",
    title="The compiler or the recorder remarked something about a request",
    fix="Read the remark: it names what was left out, replaced or could not be read.",
)
def compiler_remarks(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """A manifest has remarks, such as a part that the format cannot express, a result without a call, or messages that
    could not be decoded.

    Recognised: the remarks of all manifests, without those on what was asked for, such as what is left to the provider.
    There is one finding per remark and channel. What options of the proxy found or changed is FAI001.
    """
    for requests in view.channels.values():
        groups: dict[str, list[tuple[RequestView, str]]] = {}
        for request in requests:
            if not request.record.remarks:
                continue
            actions = request.observed.actions if request.observed is not None else ()
            of_options = {text for action in actions for text in action.describe()}
            for remark in request.record.remarks:
                if remark not in of_options and not is_intended(remark):
                    groups.setdefault(NUMBER.sub("#", remark), []).append((request, remark))
        for found in groups.values():
            count = f" ({len(found):,} requests)" if len(found) > 1 else ""
            yield code.make(
                view.name,
                [cite(request, after=shorten(remark)) for request, remark in found[:MAX_EVIDENCE]],
                title=shorten(found[0][1]) + count,
            )
