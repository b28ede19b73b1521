"""Rules of the AI SDK's older format, with `function_call` and role `function`: the reader, the fixes, and the rules.

No current version checks it. So these are the rules on calls and results of the API it was made for. For messages with
`toolInvocations` they are those of version 4 of the SDK.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from contextc._json import JSON, JSONObject, encode
from contextc.formats.lint_engine import (
    TYPED,
    Fault,
    FieldTypes,
    JSONPath,
    PairingErrors,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    field_names,
    first_field,
    make_finding,
    missing_field,
    nested_error,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.message_preparation import OpenCalls
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ROLE_ALIASES,
    PairingChecks,
    as_role,
    as_text,
    change_messages,
    insert_first_message,
    iter_calls,
    keep_messages,
    malformed_values,
    messages_where,
    no_messages,
    remove_settings,
    text_message,
)
from contextc.formats.vercel_legacy.codec import ATTACHMENTS, written_function

ROLES = ("system", "user", "assistant", "function", "tool", "data")
RESULT_ROLES = ("function", "tool")
NO_CALL_ROLES = (*RESULT_ROLES, "data")
ID_FIELDS: FieldTypes = {"id?": str, "name?": str, "tool_call_id?": str}
MESSAGE: FieldTypes = {
    **ID_FIELDS,
    "content?": str,
    "reasoning?": str,
    "function_call?": (str, dict),
    "tool_calls?": (str, list),
    "toolInvocations?": list,
    "parts?": list,
    f"{ATTACHMENTS}?": list,
}
RESULT_MESSAGE: FieldTypes = {**MESSAGE, "content": str}
CALL: FieldTypes = {"id": str, "function": dict}
FUNCTION: FieldTypes = {"name": str}
CALLED: FieldTypes = {**FUNCTION, "arguments?": (str, dict)}
INVOCATION: FieldTypes = {"toolCallId": str, "toolName": str, "state": str, "step?": int}
ATTACHMENT: FieldTypes = {"url": str, "contentType?": str, "name?": str}
FUNCTION_DEFINITION: FieldTypes = {"name": str, "description?": str, "parameters?": dict}
STATES = ("partial-call", "call", "result")
CONTENT_SUBSTITUTES = ("function_call", "tool_calls", "toolInvocations", "parts", ATTACHMENTS, "reasoning")
"""Fields that a message may have in place of content."""


FIELDS = field_names(MESSAGE, "role", "createdAt", "revisionId", "data", "annotations", "ui")
INVOCATION_FIELDS = field_names(INVOCATION, "args", "result")


class _Reader(RequestReader):
    tools_key, tools_error = "functions", "the functions must be a list."

    def message_error(self, wire: JSON) -> Fault | None:
        return schema_error(wire, {"role": str}) or _message_error(wire)

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        call_id, name = wire.get("tool_call_id") or "", wire.get("name") or ""
        if wire["role"] in RESULT_ROLES:
            yield RequestPart(kind="result", path=path, wire=wire, id=call_id, name=name, text=wire["content"])
        if wire["role"] in NO_CALL_ROLES:
            return
        if given := wire.get("function_call"):
            function = written_function(given) if isinstance(given, str) else object_or_empty(given)
            yield RequestPart(kind="call", path=path, wire=function, id=call_id, name=str(function.get("name") or ""))
        for call in list_or_empty(wire.get("tool_calls")):
            function = call["function"]
            yield RequestPart(kind="call", path=path, wire=function, id=call["id"], name=function["name"])

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(tool, FUNCTION_DEFINITION)

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        return f"'{fault.field}' is not valid." if fault.field else fault.message


parse_request = _Reader.parse


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and calls that the older SDK does not define."""
    for turn in sketch.messages:
        yield from unknown_field_findings(turn.wire, FIELDS, turn.path)
        yield from unknown_field_findings(
            turn.wire.get("function_call"), field_names(FUNCTION, "arguments"), (*turn.path, "function_call")
        )
        for index, call in enumerate(list_or_empty(turn.wire.get("tool_calls"))):
            path = (*turn.path, "tool_calls", index)
            yield from unknown_field_findings(call, field_names(CALL, "type"), path)
            yield from unknown_field_findings(
                object_or_empty(call).get("function"), field_names(FUNCTION, "arguments"), (*path, "function")
            )
        for call in tool_invocations(turn.wire):
            yield from unknown_field_findings(call, INVOCATION_FIELDS, turn.path)


def match_pairs(turns: Sequence[RequestMessage]) -> PairingErrors:
    """Match calls and results, by id if both have one, else by name.

    A call is open until the next message. Messages with further calls, and `data` messages, do not count.
    """
    found = PairingErrors([], [], [])
    waiting = OpenCalls[tuple[RequestMessage, RequestPart]]()
    answered: set[Hashable] = set()
    for turn in turns:
        calls, results = turn.parts_of("call"), turn.parts_of("result")
        if turn.role in ("system", "user") or (turn.role == "assistant" and not calls):
            found.unanswered_calls.extend(waiting.remaining())
            waiting, answered = OpenCalls[tuple[RequestMessage, RequestPart]](), set[Hashable]()
        for call in calls:
            waiting.add((turn, call), *_keys(call))
        for result in results:
            likeliest, others = _matching_keys(result)
            if (mine := waiting.pop(*likeliest) or waiting.pop(*others)) is not None:
                answered.update(_keys(mine[1]))
            else:
                twice = not answered.isdisjoint((*likeliest, *others))
                (found.duplicate_results if twice else found.orphan_results).append((turn, result))
    found.unanswered_calls.extend(waiting.remaining())
    return found


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message: content in parts, roles of other providers, a call in place of a result."""
    if path == ("messages",):
        return [] if value is None else [value]
    if isinstance(value, str) and path[0] == "messages":
        return text_message(value)
    if not is_object(value) or path[0] != "messages":
        return value
    role = as_role(value.get("role"), ROLES, ROLE_ALIASES)
    if role in RESULT_ROLES and first_field(value, CONTENT_SUBSTITUTES[:3]):
        role = "assistant"
    content: JSON = value.get("content")
    if content is None and role != "assistant" and not value.keys() - {"role", "content"}:
        content = ""
    if not isinstance(content, str | list):
        parts = list_or_empty(value.get("parts"))
        content = [part for part in parts if object_or_empty(part).get("type") == "text"] or content
    if is_list(content):
        content = "\n\n".join(_words(part) for part in content)
    elif content is not None and not isinstance(content, str):
        content = _words(content)
    elif content is None and role in RESULT_ROLES:
        content = ""
    rest = {name: each for name, each in value.items() if f"{name}?" not in ID_FIELDS or isinstance(each, str)}
    return {**rest, "role": role, "content": content}


def tool_invocations(wire: JSONObject) -> list[JSON]:
    """Return the calls of version 4, which include their results."""
    if is_list(wire.get("toolInvocations")):
        return wire["toolInvocations"]
    parts = map(object_or_empty, list_or_empty(wire.get("parts")))
    return [part.get("toolInvocation") for part in parts if part.get("type") == "tool-invocation"]


def _message_error(wire: JSONObject) -> Fault | None:
    role = wire["role"]
    if role not in ROLES:
        return Fault("role", f"invalid role {role!r}: expected system, user, assistant or function.")
    if role == "data":
        return schema_error(wire, ID_FIELDS)
    if wrong := schema_error(wire, RESULT_MESSAGE if role in RESULT_ROLES else MESSAGE):
        return wrong
    if wire.get("content") is None and not first_field(wire, CONTENT_SUBSTITUTES):
        return missing_field("content")
    if role in RESULT_ROLES and first_field(wire, CONTENT_SUBSTITUTES[:3]):
        return Fault("role", f"a message of role {role} cannot contain calls.")
    function: JSON = wire.get("function_call")
    if is_object(function) and (wrong := nested_error("function_call", function, FUNCTION)):
        return wrong
    return _nested_error(wire)


def _nested_error(wire: JSONObject) -> Fault | None:
    """Return the first error in the lists of a message; None if there is none."""
    for call in list_or_empty(wire.get("tool_calls")):
        if wrong := nested_error("tool_calls", call, CALL) or nested_error("tool_calls", call["function"], CALLED):
            return wrong
    for part in list_or_empty(wire.get("parts")):
        if wrong := nested_error("parts", part, TYPED):
            return wrong
    for each in tool_invocations(wire):
        if wrong := nested_error("toolInvocations", each, INVOCATION):
            return wrong
        if each["state"] not in STATES:
            return Fault("toolInvocations.state", f"unknown state {each['state']!r} of a tool call.")
    errors = (nested_error(ATTACHMENTS, each, ATTACHMENT) for each in list_or_empty(wire.get(ATTACHMENTS)))
    return next(filter(None, errors), None)


def _keys(call: RequestPart) -> list[Hashable]:
    """Return the keys by which a result may refer to a call."""
    named = bool(call.id)
    keys: list[Hashable] = [("any", named), ("name", named, call.name)]
    return [*keys, ("id", call.id)] if named else keys


def _matching_keys(result: RequestPart) -> tuple[list[Hashable], list[Hashable]]:
    """Return the keys of the calls that a result may answer, the most likely first.

    If both have an id, the ids must be equal. If one of them has no id, the names must match; a call without a name
    always matches.
    """

    def alike(named: bool) -> list[Hashable]:
        return [("name", named, result.name), ("name", named, "")] if result.name else [("any", named)]

    return ([("id", result.id)], alike(False)) if result.id else (alike(False), alike(True))


def _words(part: JSON) -> str:
    return as_text(object_or_empty(part).get("text", part))


def without_empty(body: JSONObject) -> JSONObject:
    return keep_messages(body, lambda message: not is_empty(message))


def with_assistant_calls(body: JSONObject) -> JSONObject:
    return change_messages(
        body, lambda message: {**message, "role": "assistant"} if message.get("function_call") else message
    )


def is_empty(wire: JSONObject) -> bool:
    """Return True if a message is empty. A tool result may be empty."""
    speaks = wire["role"] in ("system", "user", "assistant")
    return speaks and not wire.get("content") and not any(wire.get(name) for name in CONTENT_SUBSTITUTES)


RULES = RuleSet(
    "VEL",
    "vercel_legacy",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_message,
    unknown_fields=find_unknown_fields,
)
rule = RULES.register
PAIRING = PairingChecks(
    lambda request: match_pairs(request.messages), lambda message, part: {"name": part.name or part.id}
)


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages())
rule(3, fix=without_empty)(messages_where(lambda turn: is_empty(turn.wire)))


@rule(4)
def check_arguments_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    for call in iter_calls(request):
        given: JSON = call.wire.get("arguments")
        if call.wire and not isinstance(given, str):
            kind = type(given).__name__
            yield make_finding(call.path, f"the arguments of {call.name} must be a string.", kind=kind)


rule(5, fix=with_assistant_calls)(
    messages_where(
        lambda turn: (
            turn.role != "assistant"
            and (turn.parts_of("call") or (turn.role != "data" and tool_invocations(turn.wire)))
        )
    )
)


rule(6)(PAIRING.unanswered)


@rule(7)
def check_invocation_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        for each in tool_invocations(turn.wire) if turn.role != "data" else ():
            if each["state"] != "result":
                text = encode(each).decode()
                yield make_finding(turn.path, f"tool call {each['toolCallId']} has no result.", invocation=text)


rule(8)(PAIRING.orphans)
rule(9)(PAIRING.duplicates)
rule(10)(messages_where(lambda turn: turn.role == "function" and not turn.wire.get("name")))


@rule(11, fix=remove_settings("function_call"))
def check_function_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    name: JSON = object_or_empty(request.body.get("function_call")).get("name")
    if isinstance(name, str) and request.tools and name not in [tool.id for tool in request.tools]:
        yield make_finding(("function_call",), f"function {name!r} is not among the functions.", name=name)
