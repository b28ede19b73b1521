"""Checks that the rules of several formats use."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from contextc.formats.lint_engine import (
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleCheck,
    RuleFinding,
    find_duplicates,
    format_dotted_path,
    make_finding,
)

NO_MESSAGES = "the request has no messages."
BLOCK_ROLES = {"call": "assistant", "reasoning": "assistant", "result": "user"}
"""The roles of the messages that blocks of these kinds belong in, where there is no role for results."""


def iter_parts(request: ParsedRequest, kind: PartKind | None = None) -> Iterator[tuple[RequestMessage, RequestPart]]:
    """Yield the parts of one kind, or all parts, each with its message."""
    for message in request.messages:
        for part in message.parts:
            if kind is None or part.kind == kind:
                yield message, part


def iter_calls(request: ParsedRequest) -> Iterator[RequestPart]:
    return (call for _, call in iter_parts(request, "call"))


def find_duplicate_ids(messages: Iterable[RequestMessage]) -> Iterator[tuple[RequestMessage, RequestPart]]:
    """Yield the calls whose id an earlier call of the same message has."""
    for message in messages:
        for call in find_duplicates(message.parts_of("call")):
            yield message, call


def find_empty_request(
    request: ParsedRequest, message: str = NO_MESSAGES, key: str = "messages"
) -> Iterator[RuleFinding]:
    """Yield a finding if a request has no messages."""
    if not request.messages and not request.malformed:
        yield make_finding((key,) if request.body else (), message)


def find_late_results(messages: Iterable[tuple[RequestMessage, Sequence[RequestPart]]]) -> Iterator[RuleFinding]:
    """Yield a finding for each message, given with its parts, whose results come after other blocks."""
    for message, parts in messages:
        results = [part for part in parts if part.kind == "result"]
        others = [index for index, part in enumerate(parts) if part.kind != "result"]
        if results and others and others[0] < len(results):
            text = f"another block comes before the result of call {results[-1].id}."
            where = format_dotted_path(message.path)
            yield make_finding(parts[others[0]].path, text, where=where, count=len(results))


def find_misplaced_blocks(
    request: ParsedRequest,
    block_type: Callable[[RequestPart], str],
    needs_user: Callable[[RequestMessage, RequestPart], bool],
) -> Iterator[RuleFinding]:
    """Yield a finding for each block in a message of the wrong role. `needs_user`: only a user may send this media."""
    for message, part in iter_parts(request):
        role = BLOCK_ROLES.get(part.kind, message.role)
        if part.kind == "media" and needs_user(message, part):
            role = "user"
        if role != message.role:
            kind = block_type(part)
            text = f"a `{kind}` block is not allowed in a message with role {message.role}."
            yield make_finding(part.path, text, kind=kind, role=role)


def repeat_in_example(item: str, count: int) -> Callable[[RuleCheck], RuleCheck]:
    """Return a decorator that completes a list in the example of a rule: "item, …" becomes `count` equal items."""

    def complete(check: RuleCheck) -> RuleCheck:
        text = re.sub(re.escape(item) + r",\s+…", ", ".join([item] * count), check.__doc__ or "")
        check.__doc__ = text
        return check

    return complete
