"""Parse requests of the older AI SDK for the rules: required fields of messages, and positions of calls and results."""

from collections.abc import Hashable, Iterator, Sequence
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    PairingErrors,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    make_finding,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.open_calls import OpenCalls
from contextc.formats.request_settings import object_or_empty
from contextc.formats.vercel_legacy.decode import written_function
from contextc.formats.vercel_legacy.encode import ATTACHMENTS

ROLES = ("system", "user", "assistant", "function", "tool", "data")
RESULT_ROLES = ("function", "tool")
ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
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
CALL: FieldTypes = {"id": str, "function": dict}
FUNCTION: FieldTypes = {"name": str}
INVOCATION: FieldTypes = {"toolCallId": str, "toolName": str, "state": str, "step?": int}
ATTACHMENT: FieldTypes = {"url": str, "contentType?": str, "name?": str}
FUNCTION_DEFINITION: FieldTypes = {"name": str, "description?": str, "parameters?": dict}
STATES = ("partial-call", "call", "result")
CONTENT_SUBSTITUTES = ("function_call", "tool_calls", "toolInvocations", "parts", ATTACHMENTS, "reasoning")
"""Fields that a message may have in place of content."""


FIELDS = field_names(MESSAGE, "role", "createdAt", "revisionId", "data", "annotations", "ui")
INVOCATION_FIELDS = field_names(INVOCATION, "args", "result")


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON value as a request, or as the messages of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    turns: list[RequestMessage] = []
    misshapen: list[RuleFinding] = []
    if isinstance(messages, list):
        for number, wire in enumerate(cast(list[JSON], messages)):
            path = (*base, number)
            if wrong := schema_error(wire, {"role": str}) or _message_error(cast(JSONObject, wire)):
                misshapen.append(_refused(path, *wrong))
            else:
                pieces = tuple(_pieces(cast(JSONObject, wire), path))
                turns.append(RequestMessage(role=wire["role"], path=path, wire=wire, parts=pieces))
    else:
        misshapen.append(_refused(base, "", "the messages must be a list."))
    functions: JSON = whole.get("functions")
    tools: list[RequestPart] = []
    if functions is not None and not isinstance(functions, list):
        misshapen.append(_refused(("functions",), "", "the functions must be a list."))
    for number, wire in enumerate(cast(list[JSON], functions) if isinstance(functions, list) else []):
        path = ("functions", number)
        if wrong := schema_error(wire, FUNCTION_DEFINITION):
            misshapen.append(_refused(path, *wrong))
        else:
            tools.append(RequestPart(kind="other", path=path, wire=wire, id=wire["name"]))
    return ParsedRequest(messages=tuple(turns), body=whole, tools=tuple(tools), malformed=tuple(misshapen))


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and calls that the older SDK does not define."""
    for turn in sketch.messages:
        yield from unknown_field_findings(turn.wire, FIELDS, turn.path)
        yield from unknown_field_findings(
            turn.wire.get("function_call"), field_names(FUNCTION, "arguments"), (*turn.path, "function_call")
        )
        calls: JSON = turn.wire.get("tool_calls")
        for index, call in enumerate(cast(list[JSON], calls) if isinstance(calls, list) else []):
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
    if not isinstance(value, dict) or path[0] != "messages":
        return cast(JSON, value)
    wire = cast(JSONObject, value)
    role = str(wire.get("role")).lower()
    role = role if role in ROLES else ALIASES.get(role, "user")
    if role in RESULT_ROLES and any(wire.get(name) for name in CONTENT_SUBSTITUTES[:3]):
        role = "assistant"
    content: JSON = wire.get("content")
    if content is None and role != "assistant" and not wire.keys() - {"role", "content"}:
        content = ""
    if not isinstance(content, str | list) and isinstance(wire.get("parts"), list):
        content = cast(JSON, [part for part in wire["parts"] if object_or_empty(part).get("type") == "text"]) or content
    if isinstance(content, list):
        content = "\n\n".join(_words(part) for part in cast(list[JSON], content))
    elif content is not None and not isinstance(content, str):
        content = _words(content)
    elif content is None and role in RESULT_ROLES:
        content = ""
    rest = {name: each for name, each in wire.items() if f"{name}?" not in ID_FIELDS or isinstance(each, str)}
    return {**rest, "role": role, "content": cast(JSON, content)}


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def tool_invocations(wire: JSONObject) -> list[JSON]:
    """Return the calls of version 4, which include their results."""
    if isinstance(wire.get("toolInvocations"), list):
        return cast(list[JSON], wire["toolInvocations"])
    parts = cast(list[JSON], wire["parts"] if isinstance(wire.get("parts"), list) else [])
    return [
        object_or_empty(part).get("toolInvocation")
        for part in parts
        if object_or_empty(part).get("type") == "tool-invocation"
    ]


def _refused(path: JSONPath, field: str, message: str) -> RuleFinding:
    return make_finding(path, message, what=f"'{field}' is not valid." if field else message)


def _message_error(wire: JSONObject) -> tuple[str, str] | None:
    role = wire["role"]
    if role not in ROLES:
        return "role", f"invalid role {role!r}: expected system, user, assistant or function."
    if role == "data":
        return schema_error(wire, ID_FIELDS)
    if wrong := schema_error(wire, {**MESSAGE, **({"content": str} if role in RESULT_ROLES else {})}):
        return wrong
    if wire.get("content") is None and not any(wire.get(name) for name in CONTENT_SUBSTITUTES):
        return "content", "`content` is missing."
    if role in RESULT_ROLES and any(wire.get(name) for name in CONTENT_SUBSTITUTES[:3]):
        return "role", f"a message of role {role} cannot contain calls."
    if isinstance(wire.get("function_call"), dict) and (wrong := schema_error(wire["function_call"], FUNCTION)):
        return f"function_call.{wrong[0]}", wrong[1]
    return _nested_error(wire)


def _nested_error(wire: JSONObject) -> tuple[str, str] | None:
    """Return the first error in the lists of a message; None if there is none."""
    for call in cast(list[JSON], wire["tool_calls"]) if isinstance(wire.get("tool_calls"), list) else []:
        if wrong := schema_error(call, CALL) or schema_error(call["function"], {**FUNCTION, "arguments?": (str, dict)}):
            return f"tool_calls.{wrong[0]}", wrong[1]
    for part in cast(list[JSON], wire.get("parts") or []):
        if wrong := schema_error(part, {"type": str}):
            return f"parts.{wrong[0]}", wrong[1]
    for each in tool_invocations(wire):
        if wrong := schema_error(each, INVOCATION):
            return f"toolInvocations.{wrong[0]}", wrong[1]
        if each["state"] not in STATES:
            return "toolInvocations.state", f"unknown state {each['state']!r} of a tool call."
    for each in cast(list[JSON], wire.get(ATTACHMENTS) or []):
        if wrong := schema_error(each, ATTACHMENT):
            return f"{ATTACHMENTS}.{wrong[0]}", wrong[1]
    return None


def _pieces(wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
    call_id, name = wire.get("tool_call_id") or "", wire.get("name") or ""
    if wire["role"] in RESULT_ROLES:
        yield RequestPart(kind="result", path=path, wire=wire, id=call_id, name=name, text=wire["content"])
        return
    if wire["role"] == "data":
        return
    if given := wire.get("function_call"):
        function = written_function(given) if isinstance(given, str) else object_or_empty(given)
        yield RequestPart(kind="call", path=path, wire=function, id=call_id, name=str(function.get("name") or ""))
    for call in cast(list[JSONObject], wire["tool_calls"]) if isinstance(wire.get("tool_calls"), list) else []:
        yield RequestPart(kind="call", path=path, wire=call["function"], id=call["id"], name=call["function"]["name"])


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
    given: JSON = object_or_empty(part).get("text", part)
    return given if isinstance(given, str) else encode(given).decode()
