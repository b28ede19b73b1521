"""Shared parts of rules: checks, fixes, and almost valid values in a valid shape."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from hashlib import blake2b
from typing import NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, as_objects, encode
from contextc.formats.lint_engine import (
    Fix,
    JSONPath,
    PairingErrors,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    ResultRange,
    RuleCheck,
    RuleFinding,
    RuleSet,
    find_duplicates,
    format_dotted_path,
    is_reasoning,
    make_finding,
)
from contextc.formats.request_settings import is_list, is_object, object_or_empty
from contextc.messages import tool_call

# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Checks that the rules of several formats use.
# A function that returns a `RuleCheck` makes one from the names of a format. What a finding says is in `rules.toml`.


BLOCK_ROLES = {"call": "assistant", "reasoning": "assistant", "result": "user"}
"""The roles of the messages that blocks of these kinds belong in, where there is no role for results."""
Condition: TypeAlias = Callable[[JSONObject], object]
"""States for the body of a request whether a rule applies."""
PartFacts: TypeAlias = Callable[[RequestMessage, RequestPart], dict[str, object]]


def always(body: JSONObject) -> bool:
    return True


def iter_parts(request: ParsedRequest, kind: PartKind | None = None) -> Iterator[tuple[RequestMessage, RequestPart]]:
    """Yield the parts of one kind, or all parts, each with its message."""
    for message in request.messages:
        for part in message.parts:
            if kind is None or part.kind == kind:
                yield message, part


def iter_calls(request: ParsedRequest) -> Iterator[RequestPart]:
    return (call for _, call in iter_parts(request, "call"))


def part_finding(message: RequestMessage, part: RequestPart, **facts: object) -> RuleFinding:
    """Return a finding about a part of a message, with what is known of it."""
    named: dict[str, object] = {"id": part.id, "ids": part.id, "name": part.name, "role": message.role}
    return RuleFinding(part.path, "", {**named, **facts})


def malformed_values(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Return the findings of the reader: values that do not have the shape of the format."""
    return request.malformed


def no_messages(key: str = "messages", unless: Sequence[str] = ()) -> RuleCheck:
    """Return the check that a request has messages, or one of the settings `unless`."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        if not request.messages and not request.malformed and not any(request.body.get(name) for name in unless):
            yield make_finding((key,) if request.body else ())

    return check


def messages_where(wrong: Callable[[RequestMessage], object], when: Condition = always) -> RuleCheck:
    """Return a check that finds the messages for which `wrong` is true."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for message in request.messages if when(request.body) else ():
            if wrong(message):
                yield make_finding(message.path, role=message.role)

    return check


def parts_where(
    wrong: Callable[[RequestPart], object], kind: PartKind | None = None, when: Condition = always
) -> RuleCheck:
    """Return a check that finds the parts, all or of one kind, for which `wrong` is true."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for message, part in iter_parts(request, kind) if when(request.body) else ():
            if wrong(part):
                yield part_finding(message, part)

    return check


def no_facts(message: RequestMessage, part: RequestPart) -> dict[str, object]:
    return {}


class PairingChecks(Struct, frozen=True):
    """The checks that every call has one result, and every result a call."""

    match: Callable[[ParsedRequest], PairingErrors]
    facts: PartFacts = no_facts

    @classmethod
    def within(cls, ends: ResultRange, facts: PartFacts = no_facts, *, merged: bool = False) -> "PairingChecks":
        """Return checks for results that come before an end, in messages as they are or in merged ones."""

        def match(request: ParsedRequest) -> PairingErrors:
            return request.match_results(ends, merged=merged)

        return cls(match, facts)

    def unanswered(self, request: ParsedRequest) -> Iterator[RuleFinding]:
        return self._findings(self.match(request).unanswered_calls)

    def orphans(self, request: ParsedRequest) -> Iterator[RuleFinding]:
        return self._findings(self.match(request).orphan_results)

    def duplicates(self, request: ParsedRequest) -> Iterator[RuleFinding]:
        return self._findings(self.match(request).duplicate_results)

    def _findings(self, found: Iterable[tuple[RequestMessage, RequestPart]]) -> Iterator[RuleFinding]:
        return (part_finding(message, part, **self.facts(message, part)) for message, part in found)


def duplicate_ids(*, merged: bool = False, facts: PartFacts = no_facts) -> RuleCheck:
    """Return a check that finds the calls whose id an earlier call of the same message has."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for message in request.merged if merged else request.messages:
            for call in find_duplicates(message.parts_of("call")):
                yield part_finding(message, call, **facts(message, call))

    return check


def duplicate_tools(request: ParsedRequest) -> Iterator[RuleFinding]:
    """Find the tools whose name an earlier tool has."""
    return (make_finding(tool.path, name=tool.id) for tool in find_duplicates(request.tools))


def invalid_tool_names(pattern: re.Pattern[str], *, in_calls: bool = True) -> RuleCheck:
    """Return a check that finds the tools, and the calls, whose name does not match a pattern."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        named = [(tool.path, tool.id) for tool in request.tools]
        named += [(call.path, call.name) for call in iter_calls(request)] if in_calls else []
        return (make_finding(path, name=name) for path, name in named if not pattern.fullmatch(name))

    return check


def settings_among(names: Iterable[str]) -> RuleCheck:
    """Return a check that finds these settings."""
    return lambda request: [make_finding((name,), setting=name) for name in names if name in request.body]


def sampling_settings(effort: Condition) -> RuleCheck:
    """Return the check that a model that reasons gets no sampling settings. `effort` finds the effort in the body."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for name in SAMPLING_SETTINGS:
            value: JSON = request.body.get(name)
            if value not in (None, 1) and is_reasoning(request.facts, effort(request.body)):
                yield make_finding((name,), setting=name, value=value)

    return check


def late_results(parts: Callable[[RequestMessage], Sequence[RequestPart]], *, merged: bool = False) -> RuleCheck:
    """Return a check that finds the messages whose results come after other ones of `parts`."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for message in request.merged if merged else request.messages:
            results = [part for part in parts(message) if part.kind == "result"]
            others = [(index, part) for index, part in enumerate(parts(message)) if part.kind != "result"]
            if results and others and others[0][0] < len(results):
                where = format_dotted_path(message.path)
                yield make_finding(others[0][1].path, id=results[-1].id, where=where, count=len(results))

    return check


def misplaced_blocks(
    block_type: Callable[[RequestPart], str], needs_user: Callable[[RequestMessage, RequestPart], bool]
) -> RuleCheck:
    """Return a check for blocks in a message of the wrong role. `needs_user`: only a user may send this media."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for message, part in iter_parts(request):
            role = BLOCK_ROLES.get(part.kind, message.role)
            if part.kind == "media" and needs_user(message, part):
                role = "user"
            if role != message.role:
                yield make_finding(part.path, kind=block_type(part), role=role, given=message.role)

    return check


class ToolChange(NamedTuple):
    """A change of one tool, from a block on: the name that the block defines, or the one that it refers to."""

    defined: str = ""
    named: str = ""
    is_listed: bool = False
    """True if it is part of a summary, which says what it stands for."""


def find_invalid_tool_changes(
    request: ParsedRequest, read: Callable[[JSONObject], Iterable[ToolChange]], declared: Iterable[str]
) -> Iterator[RuleFinding]:
    """Yield blocks that change tools outside of system messages, or that name one which the request does not have.

    `declared` are the names of the tools beside the messages. They are unknown for a bare list of messages.
    """
    known = set(declared)
    for message, part in iter_parts(request):
        for change in read(part.wire):
            known.update([change.defined] if change.defined else [])
            if message.role != "system" and not change.is_listed:
                problem = "only a system message may add or remove tools"
            elif change.named and change.named not in known and request.body:
                problem = f"tool '{change.named}' is not defined"
            else:
                continue
            yield make_finding(part.path, f"{problem}.", problem=problem)


def without_blocks(body: JSONObject, findings: Iterable[RuleFinding]) -> JSONObject:
    """Return the body without the blocks of messages that these findings are about, and without messages that had no
    others.
    """
    gone = {finding.path[-3:] for finding in findings}
    messages: list[JSONObject] = []
    for index, message in enumerate(messages_of(body)):
        content: JSON = message["content"]
        blocks = cast(list[JSONObject], content) if isinstance(content, list) else []
        left = [block for place, block in enumerate(blocks) if (index, "content", place) not in gone]
        if len(left) == len(blocks):
            messages.append(message)
        elif left or "output_config" in message:
            messages.append({**message, "content": left})
    return {**body, "messages": messages}


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Fixes that several formats use. A function that returns a `Fix` makes one from the names of a format.


SAMPLING_SETTINGS = ("temperature", "top_p")
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


class StrictSchema(NamedTuple):
    """A JSON schema that a request declares as strict: what holds it, its path in the request, and its owner's name."""

    path: JSONPath
    owner: str
    schema: JSON


def open_strict_schemas(declared: Callable[[JSONObject], Iterable[StrictSchema]]) -> RuleCheck:
    """Return the check that strict schemas are closed: every property is required, and no other is allowed."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        for each in declared(request.body):
            if (found := _find_open_object(each.schema, ())) is not None:
                context, fault = found
                yield make_finding(each.path, owner=each.owner, context=str(context), fault=fault)

    return check


def with_lenient_schemas(body: JSONObject, declared: Callable[[JSONObject], Iterable[StrictSchema]]) -> JSONObject:
    """Return the request with strict schemas that are not closed declared as not strict."""
    body = deepcopy(body)
    for each in declared(body):
        if _find_open_object(each.schema, ()) is not None:
            holder: JSON = body
            for step in each.path[:-1]:
                holder = holder[step]
            holder["strict"] = False
    return body


def _find_open_object(schema: JSON, context: tuple[str, ...]) -> tuple[tuple[str, ...], str] | None:
    """Return the first object in a schema that is not closed: where it is, and what OpenAI says about it."""
    if not isinstance(schema, dict):
        return None
    wire = cast(JSONObject, schema)
    properties = cast(JSONObject, wire["properties"]) if isinstance(wire.get("properties"), dict) else {}
    if properties or wire.get("type") == "object":
        if wire.get("additionalProperties") is not False:
            return context, "'additionalProperties' is required to be supplied and to be false."
        required: JSON = wire.get("required")
        for name in properties:
            if not isinstance(required, list) or name not in required:
                text = "'required' is required to be supplied and to be an array including every key in properties."
                return context, f"{text} Missing '{name}'."
    inner: list[tuple[tuple[str, ...], JSON]] = [(("properties", name), each) for name, each in properties.items()]
    inner.append((("items",), wire.get("items")))
    for key in ("anyOf", "allOf"):
        inner += [((key, str(index)), each) for index, each in enumerate(as_objects(wire.get(key)))]
    for key in ("$defs", "definitions"):
        inner += [((key, name), each) for name, each in object_or_empty(wire.get(key)).items()]
    found = (_find_open_object(each, (*context, *where)) for where, each in inner)
    return next(filter(None, found), None)


MAX_CACHE_KEY = 64
CACHE_MODES = ("implicit", "explicit")


def long_cache_keys(request: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield a finding if `prompt_cache_key` is longer than OpenAI accepts."""
    key: JSON = request.body.get("prompt_cache_key")
    if isinstance(key, str) and len(key) > MAX_CACHE_KEY:
        yield make_finding(("prompt_cache_key",), length=len(key))


def with_short_cache_key(body: JSONObject) -> JSONObject:
    """Return the body with a hash in place of a cache key that is too long."""
    return {**body, "prompt_cache_key": blake2b(body["prompt_cache_key"].encode(), digest_size=16).hexdigest()}


def unknown_cache_options(lifetimes: Sequence[str]) -> Callable[[ParsedRequest], Iterator[RuleFinding]]:
    """Return the check of `prompt_cache_options` in an API that has these lifetimes."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        options = object_or_empty(request.body.get("prompt_cache_options"))
        for name, known in (("ttl", lifetimes), ("mode", CACHE_MODES)):
            value: JSON = options.get(name)
            if value is not None and value not in known:
                supported = " and ".join([f"'{each}'" for each in known])
                yield make_finding(("prompt_cache_options", name), name=name, value=value, supported=supported)

    return check


def without_unknown_cache_options(lifetimes: Sequence[str]) -> Fix:
    """Return a fix that removes the options which `unknown_cache_options` finds."""

    def fix(body: JSONObject) -> JSONObject:
        known = {"ttl": lifetimes, "mode": CACHE_MODES}
        options: JSONObject = body["prompt_cache_options"]
        kept = {name: each for name, each in options.items() if name not in known or each in (None, *known[name])}
        return {**body, "prompt_cache_options": kept}

    return fix


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
