"""Shared parts of rules: checks, fixes, and almost valid values in a valid shape."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.lint_engine import (
    Fix,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleCheck,
    RuleFinding,
    RuleSet,
    find_duplicates,
    format_dotted_path,
    make_finding,
)
from contextc.formats.request_settings import is_list, is_object, object_or_empty
from contextc.messages import tool_call

# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Checks that the rules of several formats use.


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


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Fixes that several formats use. A function that returns a `Fix` makes one from the names of a format.


EMPTY_CONVERSATION = "(Nothing has been said yet.)"


def insert_first_message(rules: RuleSet) -> Fix:
    """Return a fix for a request without messages: insert one which states that nothing has been said yet."""
    return lambda body: {**body, rules.messages_key: [rules.message(EMPTY_CONVERSATION)]}


def remove_settings(*names: str) -> Fix:
    return lambda body: without_fields(body, *names)


def set_setting(name: str, value: JSON) -> Fix:
    return lambda body: {**body, name: value}


def limit_list(name: str, max_length: int) -> Fix:
    """Return a fix that keeps the first entries of a list."""
    return lambda body: {**body, name: body[name][:max_length]}


def without_fields(wire: JSONObject, *names: str) -> JSONObject:
    return {name: value for name, value in wire.items() if name not in names}


def change_messages(body: JSONObject, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """Return the body with each of its `messages` changed."""
    return {**body, "messages": [change(message) for message in messages_of(body)]}


def keep_messages(body: JSONObject, keep: Callable[[JSONObject], bool]) -> JSONObject:
    """Return the body with only the `messages` for which `keep` is true."""
    return {**body, "messages": [message for message in messages_of(body) if keep(message)]}


def messages_of(body: JSONObject) -> list[JSONObject]:
    return cast(list[JSONObject], body["messages"])


# ── coercion ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Coercion of almost valid values: what several formats share.


ROLE_ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
"""Roles of other providers."""
ARGUMENT_NAMES = ("arguments", "input", "args")
"""Names under which providers send the arguments of a call."""


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def text_block(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def coerce_messages(value: JSON, path: JSONPath) -> JSON:
    """Return a body with messages, for the path `()`, or a list of them."""
    if is_object(value):
        return [value] if path else {**value, "messages": []}
    return [text_message(value)] if path and isinstance(value, str) else value


def as_text(value: JSON) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def as_list(value: JSON) -> list[JSON]:
    """Return a list unchanged, and any other value but null as its only item."""
    return value if is_list(value) else [] if value is None else [value]


def as_arguments(value: JSON) -> JSONObject:
    """Return the arguments of a call, which may be given as text."""
    if is_object(value):
        return value
    call = tool_call("-", "-", value if isinstance(value, str) else "")
    return {"malformed_arguments": call.raw} if call.malformed else call.arguments


def as_role(role: JSON, roles: Collection[str], aliases: Mapping[str, str] = ROLE_ALIASES) -> str:
    """Return a role that the format has, "user" for an unknown one."""
    lower = str(role).lower()
    return lower if lower in roles else aliases.get(lower, "user")


def first_given(wire: JSONObject, names: Iterable[str], default: JSON) -> JSON:
    """Return the value of the first of these fields that is not null."""
    return next((wire[name] for name in names if wire.get(name) is not None), default)


def without_nulls(wire: JSONObject) -> JSONObject:
    return {name: value for name, value in wire.items() if value is not None}


def without_wrong_types(wire: JSONObject, types: Mapping[str, type]) -> JSONObject:
    """Return an object without the fields that have another type than the one stated."""
    return {name: value for name, value in wire.items() if name not in types or isinstance(value, types[name])}


def inner_tool(tool: JSONObject, holders: Iterable[str] = ("function",)) -> JSONObject | None:
    """Return the object that has the name of a tool: one in a field of `holders`, or the tool; None without a name."""
    inner: JSONObject = next((tool[name] for name in holders if is_object(tool.get(name))), tool)
    return inner if isinstance(inner.get("name"), str) else None


def tool_schema(tool: JSONObject, default: JSONObject) -> JSONObject:
    """Return the schema of a tool's parameters, under the name that any provider gives it."""
    for name in ("inputSchema", "parameters", "input_schema"):
        if is_object(tool.get(name)):
            return tool[name]
    return default


def as_function_tool(tool: JSONObject) -> JSONObject:
    """Return a tool of the Responses API or of Anthropic as one of Chat Completions."""
    schema: JSON = tool.get("parameters") or tool.get("input_schema")
    described = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    function = {"name": tool["name"], **described, "parameters": object_or_empty(schema)}
    return {"type": "function", "function": function}
