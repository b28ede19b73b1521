"""Rules of the Vercel AI SDK, version 7, and of every provider behind it.

The rules were tested against the SDK itself, with a mock model. What the SDK accepts but no provider would, such as a
result without a call, is also a violation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.lint_engine import (
    TYPED,
    Fault,
    FieldTypes,
    JSONPath,
    PairingErrors,
    ParsedRequest,
    PartKind,
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
    tagged_error,
    unknown_field_findings,
)
from contextc.formats.message_preparation import MIN_LENGTH, decode_base64, is_protobuf_message
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ROLE_ALIASES,
    PairingChecks,
    as_arguments,
    as_role,
    as_text,
    insert_first_message,
    keep_messages,
    messages_where,
    no_messages,
    parts_where,
    remove_settings,
    set_setting,
    text_block,
    text_message,
    without_fields,
    without_wrong_types,
)
from contextc.formats.rule_library import as_text as text_of_value
from contextc.formats.vercel import ui_messages
from contextc.formats.vercel.ui_messages import is_ui_message

# ── schema ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Required fields of the parts of the AI SDK's messages, from its `modelMessageSchema` and `validateUIMessages`.
#
# JSON has neither `URL` nor bytes. Where the schemas require those, text is accepted, as the SDK itself does.


OPTIONS: FieldTypes = {"providerOptions?": dict}
CONTENT: dict[str, tuple[type, ...]] = {
    "system": (str,),
    "user": (str, list),
    "assistant": (str, list),
    "tool": (list,),
}
"""Roles, and the types of their content."""
PART_FIELDS: dict[str, FieldTypes] = {
    "text": {"text": str, **OPTIONS},
    "image": {"image": (str, dict), "mediaType?": str, **OPTIONS},
    "file": {"data": (str, dict), "mediaType": str, "filename?": str, **OPTIONS},
    "reasoning": {"text": str, **OPTIONS},
    "reasoning-file": {"data": (str, dict), "mediaType": str, **OPTIONS},
    "custom": {"kind": str, **OPTIONS},
    "tool-call": {"toolCallId": str, "toolName": str, "input": object, "providerExecuted?": bool, **OPTIONS},
    "tool-result": {"toolCallId": str, "toolName": str, "output": dict, **OPTIONS},
    "tool-approval-request": {"approvalId": str, "toolCallId": str, "reason?": str},
    "tool-approval-response": {"approvalId": str, "approved": bool, "reason?": str},
}
PART_ROLES: dict[str, tuple[str, ...]] = {
    "text": ("system", "user", "assistant"),
    "image": ("user",),
    "file": ("user", "assistant"),
    "reasoning": ("assistant",),
    "reasoning-file": ("assistant",),
    "custom": ("assistant",),
    "tool-call": ("assistant",),
    "tool-result": ("assistant", "tool"),
    "tool-approval-request": ("assistant",),
    "tool-approval-response": ("tool",),
}
"""Roles whose messages may hold a part, by part type."""
OUTPUTS: dict[str, FieldTypes] = {
    "text": {"value": str},
    "json": {"value": object},
    "execution-denied": {"reason?": str},
    "error-text": {"value": str},
    "error-json": {"value": object},
    "content": {"value": list},
}
OUTPUT_PARTS: dict[str, FieldTypes] = {
    "text": {"text": str, **OPTIONS},
    "file": {"data": (str, dict), "mediaType": str, "filename?": str, **OPTIONS},
    "media": {"data": str, "mediaType": str},
    "file-data": {"data": str, "mediaType": str, "filename?": str, **OPTIONS},
    "file-url": {"url": str, "mediaType?": str, **OPTIONS},
    "file-id": {"fileId": (str, dict), **OPTIONS},
    "file-reference": {"providerReference": dict, **OPTIONS},
    "image-data": {"data": str, "mediaType": str, **OPTIONS},
    "image-url": {"url": str, **OPTIONS},
    "image-file-id": {"fileId": (str, dict), **OPTIONS},
    "image-file-reference": {"providerReference": dict, **OPTIONS},
    "custom": OPTIONS,
}
METADATA: FieldTypes = {"providerMetadata?": dict}
UI_PARTS: dict[str, FieldTypes] = {
    "text": {"text": str, **METADATA},
    "reasoning": {"text": str, **METADATA},
    "custom": {"kind": str, **METADATA},
    "source-url": {"sourceId": str, "url": str},
    "source-document": {"sourceId": str, "mediaType": str, "title": str},
    "file": {"mediaType": str, "url": str, "filename?": str, "providerReference?": dict, **METADATA},
    "reasoning-file": {"mediaType": str, "url": str, **METADATA},
    "steering-message": {"parts": list},
    "step-start": {},
}
"""Parts of a `UIMessage`, except calls and `data-*`."""
CALL: FieldTypes = {
    "toolCallId": str,
    "state": str,
    "providerExecuted?": bool,
    "callProviderMetadata?": dict,
    "resultProviderMetadata?": dict,
    "approval?": dict,
}
STATES = (
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
)
STATE_FIELDS = {"output": "output-available", "errorText": "output-error"}
"""Fields that only a call in this state has."""
TOOL_TYPES = (None, "function", "dynamic", "provider")
REMOVED_FIELDS = ("function_call", "tool_calls", "toolInvocations")
"""Fields beside `content` in older versions, which version 7 silently removes."""
KINDS: dict[str, PartKind] = {
    "text": "text",
    "reasoning": "reasoning",
    "tool-call": "call",
    "tool-result": "result",
    "image": "media",
    "file": "media",
}


# ── coercion ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Coerce almost valid messages, parts and tools of the AI SDK: older versions, and those of OpenAI.


ALIASES = {**ROLE_ALIASES, "function": "tool"}
NEW_STATES = {"partial-call": "input-streaming", "call": "input-available", "result": "output-available"}
UNKNOWN_TOOL = "unknown"
UNKNOWN_TYPE = "application/octet-stream"


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return the value in a valid form of the same meaning; unchanged if there is none."""
    if path[0] in ("instructions", "system"):
        content: JSON = cast(JSONObject, value).get("content") if isinstance(value, dict) else value
        text = as_text(content if content is not None else value)
        return {"role": "system", "content": text} if len(path) > 1 else text
    if path[0] == "tools":
        if not isinstance(value, dict):
            return None
        tool = cast(JSONObject, value)
        if tool.get("inputSchema") is None and isinstance(tool.get("parameters"), dict):
            return {**without_fields(tool, "parameters"), "inputSchema": tool["parameters"]}
        return tool
    if path == ("messages",):
        return [] if value is None else [_message(value)]
    return _message(value) if len(path) == 2 else _part(value)


def _message(value: JSON) -> JSON:
    if not isinstance(value, dict):
        return text_message(as_text(value))
    wire = without_wrong_types(cast(JSONObject, value), {"providerOptions": dict})
    role = as_role(wire.get("role"), CONTENT, ALIASES)
    content: JSON = wire.get("content")
    if is_ui_message(wire):
        named = {"id": wire["id"]} if isinstance(wire.get("id"), str) else {}
        return {**without_fields(wire, "id"), **named, "role": "assistant" if role == "tool" else role}
    if calls := _legacy_calls(wire):
        said = (
            cast(list[JSON], content)
            if isinstance(content, list)
            else [text_block(as_text(content))]
            if content
            else []
        )
        return {"role": "assistant", "content": [*said, *calls]}
    if "content" not in wire and wire.keys() - {"role"}:
        return cast(JSONObject, value)
    if role == "tool" and not isinstance(content, list):
        return _legacy_result(wire) or text_message(as_text(content))
    if role == "system":
        parts = cast(list[JSON], content) if isinstance(content, list) else [content or ""]
        content = "\n\n".join(
            as_text(part["text"] if is_object(part) and isinstance(part.get("text"), str) else part) for part in parts
        )
    elif not isinstance(content, str | list):
        part: JSON = content if is_object(content) else text_block(as_text(content))
        content = [] if content is None else [part]
    return {**without_fields(wire, *REMOVED_FIELDS), "role": role, "content": cast(JSON, content)}


def _legacy_calls(wire: JSONObject) -> list[JSONObject]:
    """Return the calls and results that older versions kept in fields beside the content."""
    found: list[JSONObject] = []
    if is_object(function := wire.get("function_call")):
        name = str(function.get("name") or UNKNOWN_TOOL)
        found.append(_call(str(wire.get("tool_call_id") or f"call_{name}"), name, function.get("arguments")))
    for call in list_objects(wire.get("tool_calls")):
        function = cast(JSONObject, call["function"] if is_object(call.get("function")) else call)
        name = str(function.get("name") or UNKNOWN_TOOL)
        found.append(_call(str(call.get("id") or f"call_{name}"), name, function.get("arguments")))
    for each in list_objects(wire.get("toolInvocations")):
        name = str(each.get("toolName") or UNKNOWN_TOOL)
        names = {"toolCallId": str(each.get("toolCallId") or f"call_{name}"), "toolName": name}
        found.append({"type": "tool-call", **names, "input": each.get("args", {})})
        if "result" in each:
            found.append({"type": "tool-result", **names, "output": _output(each["result"])})
    return found


def _legacy_result(wire: JSONObject) -> JSONObject | None:
    name = str(wire.get("name") or UNKNOWN_TOOL)
    call_id = wire.get("tool_call_id") or (f"call_{name}" if wire.get("name") else None)
    if call_id is None:
        return None
    names = {"toolCallId": str(call_id), "toolName": name}
    output = {"type": "text", "value": as_text(wire.get("content") or "")}
    return {"role": "tool", "content": [{"type": "tool-result", **names, "output": output}]}


def _call(call_id: str, name: str, arguments: JSON) -> JSONObject:
    given = arguments if is_object(arguments) else as_arguments(as_text(arguments or ""))
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}


def _part(value: JSON) -> JSON:
    if isinstance(value, str):
        return text_block(value)
    if not isinstance(value, dict):
        return value
    part = without_wrong_types(cast(JSONObject, value), {"providerOptions": dict, "providerMetadata": dict})
    kind = str(part.get("type"))
    if kind == "tool-invocation" and is_object(old := part.get("toolInvocation")):
        output = {"output": old["result"]} if "result" in old else {}
        return {
            "type": f"tool-{old.get('toolName') or UNKNOWN_TOOL}",
            "toolCallId": str(old.get("toolCallId")),
            "state": NEW_STATES.get(str(old.get("state")), "input-available"),
            "input": old.get("args", {}),
            **output,
        }
    if kind == "tool-result":
        rest = without_fields(part, "result")
        given: JSON = part.get("output", part.get("result"))
        return {"toolName": UNKNOWN_TOOL, **rest, "output": _output(given)}
    if kind == "tool-call" or "state" in part:
        rest = without_fields(part, "args")
        known = [state for name, state in STATE_FIELDS.items() if "state" in part and part.get(name) is not None]
        return {**rest, **({"state": known[0]} if known else {}), "input": part.get("input", part.get("args", {}))}
    return _file(part) if kind in ("file", "image", "reasoning-file") else part


def _file(part: JSONObject) -> JSONObject:
    data: JSON = part.get("data", part.get("image", part.get("url")))
    inline: JSON = cast(JSONObject, data).get("data") if isinstance(data, dict) else None
    if isinstance(inline, str) and inline.startswith("data:"):
        return {**part, "image" if "image" in part else "data": inline}
    if data is None or part["type"] == "image":
        return part
    head = data.partition(";")[0].removeprefix("data:") if isinstance(data, str) and data.startswith("data:") else ""
    mime_type = part.get("mediaType") or part.get("mimeType") or head or UNKNOWN_TYPE
    place = "url" if "url" in part else "data"
    rest = without_fields(part, "mimeType")
    return {**rest, place: data, "mediaType": mime_type} if isinstance(mime_type, str) else part


def _output(value: JSON) -> JSONObject:
    if isinstance(value, str):
        return {"type": "text", "value": value}
    return {"type": "json", "value": value}


def list_objects(value: JSON) -> list[JSONObject]:
    """Return the objects in a list; none if the value is not a list."""
    return [each for each in cast(list[JSON], value) if is_object(each)] if isinstance(value, list) else []


# ── reading a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# Parse the AI SDK's requests for the rules: required fields of parts, and their positions.
#
# A `UIMessage` is parsed as by `convertToModelMessages`: its steps become turns of the assistant and of tools. So
# every rule deals with `ModelMessage`s only. Paths in findings refer to the original request.


MESSAGE_FIELDS = frozenset(("role", "content", "id", "providerOptions", "providerMetadata"))
UI_MESSAGE_FIELDS = frozenset(("role", "parts", "id", "metadata", "content", "createdAt"))
CALL_FIELDS = field_names(
    CALL,
    *("type", "toolName", "input", "rawInput", "output", "errorText", "title", "preliminary"),
    *("providerMetadata", "toolMetadata"),
)
URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s]+")


class _Reader(RequestReader):
    """The detail of a fault is the broken rule ("" for malformed values), and the SDK's error, if it has one."""

    answered = False
    """True if a user message follows, so that open approval requests are void."""

    def refuse(self, path: JSONPath, fault: Fault) -> None:
        rule, says = fault.detail or ("", "")
        what = says or "Invalid input"
        self.misshapen.append(
            make_finding(path, fault.message, what=what, rule=rule, role=fault.got, field=fault.field)
        )

    def messages(self, given: JSON, base: JSONPath) -> Iterator[RequestMessage]:
        if not is_list(given) and (given is not None or self.body.get("prompt") is None):
            self.refuse(base, Fault("", self.messages_error))
        messages = list_or_empty(given)
        users = [number for number, each in enumerate(messages) if object_or_empty(each).get("role") == "user"]
        last = max(users, default=0)
        for number, wire in enumerate(messages):
            self.answered = number < last
            yield from self.message(wire, (*base, number))

    def message(self, wire: JSON, path: JSONPath) -> Iterable[RequestMessage]:
        if is_object(wire) and ui_messages.is_ui_message(wire):
            return self.shown(wire, path)
        return super().message(without_fields(wire, "parts") if is_object(wire) else wire, path)

    def message_error(self, wire: JSON) -> Fault | None:
        if wrong := schema_error(wire, {"role": str}):
            return wrong
        if (role := wire["role"]) not in CONTENT:
            message = f"invalid role {role!r}: expected system, user, assistant or tool."
            return Fault("role", message, got=role, detail=("role", ""))
        if name := first_field(wire, REMOVED_FIELDS):
            return Fault(name, f"the SDK removes `{name}`: calls must be parts of `content`.", detail=("stripped", ""))
        return schema_error(wire, {"content": CONTENT[role], **OPTIONS})

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterable[RequestPart]:
        if isinstance(wire["content"], str):
            return (RequestPart(kind="text", path=(*path, "content"), wire={"type": "text"}, text=wire["content"]),)
        return super().parts(wire, path)

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        return _part_error(block, PART_FIELDS if shapes is None else shapes)

    def part(self, block: JSONObject, path: JSONPath) -> RequestPart:
        if block["type"] == "tool-result" and block["output"]["type"] == "content":
            here = (*path, "output", "value")
            for place, each in enumerate(block["output"]["value"]):
                if wrong := _part_error(each, OUTPUT_PARTS):
                    self.refuse((*here, place), wrong)
        return _piece(block, path)

    def shown(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestMessage]:
        """Parse a `UIMessage` as turns."""
        wrong = schema_error(wire, {"role": str, "id?": str})
        if wrong is None and wire["role"] not in ("system", "user", "assistant"):
            wrong = Fault("role", f"invalid role {wire['role']!r}: expected system, user or assistant.")
        if wrong:
            self.refuse(path, wrong)
            return
        said: list[RequestPart] = []
        answers: list[RequestPart] = []
        for number, part in enumerate(wire["parts"]):
            here = (*path, "parts", number)
            if wrong := _ui_part_error(part):
                self.refuse(here, wrong)
                said.append(RequestPart(kind="other", path=here, wire={"type": ""}))
            elif part["type"] in ("step-start", "steering-message") and wire["role"] == "assistant":
                yield from _step(wire, path, said, answers)
                said, answers = [], []
                if part["type"] == "steering-message":
                    yield from self.shown({"role": "user", "parts": part["parts"]}, here)
            elif _is_call(part):
                if part["state"] == "input-streaming" or (part["state"] == "approval-requested" and self.answered):
                    continue  # the SDK drops it
                asked, told = _called(part, here)
                said, answers = said + asked, answers + told
            elif not part["type"].startswith("source-"):
                said.append(_piece(ui_messages.to_model_part(part), here))
        yield from _step(wire, path, said, answers)

    def system(self) -> Iterable[RequestPart]:
        for name in ("instructions", "system"):
            given: JSON = self.body.get(name)
            listed = is_list(given)
            for number, each in enumerate(given if listed else [given] if given is not None else []):
                if (listed or not isinstance(each, str)) and (wrong := schema_error(each, {"content": str, **OPTIONS})):
                    message = "a system prompt must be a string, or a system message with one."
                    self.refuse((name, number) if listed else (name,), Fault(wrong.field, message))
        return ()

    def tools(self, given: JSON) -> Iterator[RequestPart]:
        if given is not None and not is_object(given) and not is_list(given):
            self.refuse(("tools",), Fault("", "the tools must be an object, keyed by tool name."))
        listed = is_list(given)
        fields: FieldTypes = {"name" if listed else "name?": str, "description?": str, "inputSchema?": dict}
        for name, tool in enumerate(list_or_empty(given)) if listed else object_or_empty(given).items():
            wrong = schema_error(tool, fields)
            if wrong is None and tool.get("type") not in TOOL_TYPES:
                wrong = Fault("type", f"unknown tool type {tool['type']!r}.")
            if wrong is None and "parameters" in tool and tool.get("inputSchema") is None:
                wrong = Fault("inputSchema", "`inputSchema` is missing: `parameters` is its name in older versions.")
            if wrong:
                self.refuse(("tools", name), wrong)
            else:
                yield RequestPart(
                    kind="other", path=("tools", name), wire=tool, id=tool["name"] if listed else str(name)
                )


parse_request = _Reader.parse


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and parts that the SDK does not define and would remove."""
    seen: set[JSONPath] = set()
    for turn in sketch.messages:
        if is_list(turn.wire.get("parts")):  # a `UIMessage`, which may have several turns
            if turn.path not in seen:
                yield from _unknown_ui_fields(turn.wire, turn.path)
            seen.add(turn.path)
            continue
        yield from unknown_field_findings(turn.wire, MESSAGE_FIELDS, turn.path)
        for piece in turn.parts:
            fields = PART_FIELDS.get(str(piece.wire.get("type")), {})
            yield from unknown_field_findings(piece.wire, field_names(fields, "type", *COMMON_UI_FIELDS), piece.path)


COMMON_UI_FIELDS = ("text", "providerMetadata", "isAutomatic", "inputSchemaInput", "signature", "title")


def _unknown_ui_fields(wire: JSONObject, path: JSONPath) -> Iterator[RuleFinding]:
    yield from unknown_field_findings(wire, UI_MESSAGE_FIELDS, path)
    for number, part in enumerate(wire["parts"]):
        kind = str(part.get("type"))
        if kind in UI_PARTS:
            yield from unknown_field_findings(
                part, field_names(UI_PARTS[kind], "type", "state", "title"), (*path, "parts", number)
            )
        elif not kind.startswith("data-"):
            yield from unknown_field_findings(part, CALL_FIELDS, (*path, "parts", number))


def match_pairs(turns: Sequence[RequestMessage]) -> PairingErrors:
    """Match calls and results as the SDK does: a result may come until the next user message.

    Provider-executed calls need no result, nor does a call that the last message approves: the SDK runs it before it
    sends anything.
    """
    found = PairingErrors([], [], [])
    ran = provider_executed_calls(turns)
    waiting: dict[str, list[tuple[RequestMessage, RequestPart]]] = {}
    covered: dict[str, int] = {}  # by id, further calls after one was answered: the SDK accepts that
    answered: set[str] = set()
    for turn in turns:
        if turn.role in ("user", "system") and not turn.parts_of("result"):
            found.unanswered_calls.extend(each for calls in waiting.values() for each in calls)
            waiting, covered = {}, {}
        for piece in turn.parts:
            if piece.kind == "call" and piece.id not in ran:
                waiting.setdefault(piece.id, []).append((turn, piece))
            elif piece.kind == "result" and piece.id not in ran:
                if calls := waiting.pop(piece.id, []):
                    covered[piece.id] = len(calls) - 1
                    answered.add(piece.id)
                elif covered.get(piece.id):
                    covered[piece.id] -= 1
                else:
                    (found.duplicate_results if piece.id in answered else found.orphan_results).append((turn, piece))
    approved = {call_id for _, call_id in find_approval_responses(turns)}
    found.unanswered_calls.extend(each for calls in waiting.values() for each in calls if each[1].id not in approved)
    return found


def provider_executed_calls(turns: Sequence[RequestMessage]) -> set[str]:
    """Return the ids of provider-executed calls."""
    return {call.id for turn in turns for call in turn.parts_of("call") if call.wire.get("providerExecuted") is True}


def find_approval_responses(turns: Sequence[RequestMessage]) -> Iterator[tuple[RequestPart, str | None]]:
    """Yield the approval responses that the SDK acts on, those in the last message, with the id of each one's call.

    The id is None if there was no such request, or the call is missing.
    """
    pieces = [piece for turn in turns for piece in turn.parts]
    calls = {piece.id for piece in pieces if piece.kind == "call"}
    asked = {
        piece.wire["approvalId"]: piece.wire["toolCallId"]
        for piece in pieces
        if piece.wire.get("type") == "tool-approval-request" and piece.wire["toolCallId"] in calls
    }
    for piece in turns[-1].parts if turns and turns[-1].role == "tool" else ():
        if piece.wire.get("type") == "tool-approval-response":
            yield piece, asked.get(piece.wire["approvalId"])


def _step(
    wire: JSONObject, path: JSONPath, said: list[RequestPart], answers: list[RequestPart]
) -> Iterator[RequestMessage]:
    """Yield the turns of one step: its parts and their results. An empty reply is dropped, an empty user message is
    not.
    """
    for role, pieces in ((wire["role"], said), ("tool", answers)):
        if pieces or role in ("system", "user"):
            content = [piece.wire for piece in pieces]
            yield RequestMessage(
                role=role, path=path, wire={**wire, "role": role, "content": content}, parts=tuple(pieces)
            )


def _called(part: JSONObject, path: JSONPath) -> tuple[list[RequestPart], list[RequestPart]]:
    """Return what a tool part of a `UIMessage` adds to the reply, and what to the tool message after it."""
    call_id, name = part["toolCallId"], part.get("toolName") or part["type"].removeprefix("tool-")
    ran = part.get("providerExecuted") is True
    names = {"toolCallId": call_id, "toolName": name}
    output = ui_messages.tool_output(part)
    asked: list[JSONObject] = [{"type": "tool-call", **names, "input": part.get("input"), "providerExecuted": ran}]
    asked += [request] if (request := ui_messages.approval_request(part)) else []
    told: list[JSONObject] = [answer] if (answer := ui_messages.approval_response(part)) else []
    if output is not None:
        (asked if ran else told).append({"type": "tool-result", **names, "output": output})
    return [_piece(each, path) for each in asked], [_piece(each, path) for each in told]


def _piece(part: JSONObject, path: JSONPath) -> RequestPart:
    kind = KINDS.get(part["type"], "other")
    call_id = part["toolCallId"] if kind in ("call", "result") else ""
    text = part["text"] if kind == "text" else ""
    return RequestPart(kind=kind, path=path, wire=part, id=call_id, name=part.get("toolName") or "", text=text)


def _is_call(part: JSON) -> bool:
    return part["type"] == "dynamic-tool" or part["type"].startswith("tool-")


def _part_error(part: JSON, shapes: Mapping[str, FieldTypes]) -> Fault | None:
    if wrong := tagged_error(part, shapes, "part"):
        return wrong._replace(detail=("input", "")) if wrong.field == "input" else wrong
    if part["type"] == "tool-result":
        output: JSON = part["output"]
        if (form := str(output.get("type"))) not in OUTPUTS:
            return Fault("output", f"unknown output type {form!r}.")
        return nested_error("output", output, OUTPUTS[form])
    return _file_data_error(part.get("data", part.get("image", part.get("url"))), located="url" in part)


def _ui_part_error(part: JSON) -> Fault | None:
    if wrong := schema_error(part, TYPED):
        return wrong
    kind = part["type"]
    if kind.startswith("data-"):
        return None
    if not _is_call(part):
        located = kind in ("file", "reasoning-file") and part.get("providerReference") is None
        wrong = tagged_error(part, UI_PARTS, "part")
        return wrong or (_file_data_error(part["url"], located=True) if located else None)
    wrong = schema_error(part, {**CALL, **({"toolName": str} if kind == "dynamic-tool" else {})})
    if wrong is None and part["state"] not in STATES:
        wrong = Fault("state", f"unknown state {part['state']!r} of a tool call.")
    if wrong is None and part.get("approval"):
        wrong = schema_error(part["approval"], {"id": str, "approved?": bool, "reason?": str})
    if wrong is None and part["state"] == "output-error":
        wrong = schema_error(part, {"errorText": str})
    for name, state in STATE_FIELDS.items():
        if wrong is None and part["state"] != state and part.get(name) is not None:
            wrong = Fault(name, f"a tool call in the state {part['state']} cannot have `{name}`.")
    if wrong:
        return wrong
    given = "input" in part or (part["state"] == "output-error" and "rawInput" in part)
    missing = missing_field("input")._replace(detail=("input", ""))
    return None if given or part["state"] == "input-streaming" else missing


def _file_data_error(data: JSON, *, located: bool) -> Fault | None:
    """Return the error in the data or URL of a file; None if it is valid."""
    holder = object_or_empty(data)
    inline: JSON = holder.get("data") if holder.get("type") == "data" else None
    if isinstance(inline, str) and inline.startswith("data:"):
        says = 'Data URLs are not valid inline data. Pass them as { type: "url", url } instead.'
        return Fault("data", "expected base64, got a data URL.", detail=("data", says))
    if not isinstance(data, str):
        return None
    if data.startswith("data:") and "," not in data:
        says = f"Invalid data URL format in content {data[:40]}"
        return Fault("data", "this data URL contains no data.", detail=("data", says))
    if located and not URL.fullmatch(data):
        return Fault("url", f"{data[:40]!r} is not a URL.", detail=("data", "Invalid URL"))
    return None


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Repairs that decoding and encoding does not make: settings, empty messages and misplaced parts.


NON_EMPTY_ROLES = ("user", "assistant")


def without_empty(body: JSONObject) -> JSONObject:
    return keep_messages(body, lambda message: message["role"] not in NON_EMPTY_ROLES or not is_empty(message))


def with_one_system_prompt(body: JSONObject) -> JSONObject:
    one, other = body["instructions"], body["system"]
    if isinstance(one, str) and isinstance(other, str):
        joined: JSON = one if one == other else f"{one}\n\n{other}"
    else:
        listed = [cast(list[JSON], each) if isinstance(each, list) else [each] for each in (one, other)]
        joined = [
            {"role": "system", "content": each} if isinstance(each, str) else each for given in listed for each in given
        ]
    return {**without_fields(body, "system"), "instructions": joined}


def with_prompt_among_messages(body: JSONObject) -> JSONObject:
    given: JSON = body["prompt"]
    asked = cast(list[JSON], given) if isinstance(given, list) else [text_message(text_of_value(given))]
    return {**without_fields(body, "prompt"), "messages": [*cast(list[JSON], body["messages"]), *asked]}


def with_orphans_as_text(body: JSONObject) -> JSONObject:
    return _with_text(body, [piece for _, piece in match_pairs(parse_request(body).messages).orphan_results])


def with_misplaced_as_text(body: JSONObject) -> JSONObject:
    turns = parse_request(body).messages
    ran = provider_executed_calls(turns)
    return _with_text(body, [piece for turn in turns for piece in misplaced_parts(turn, ran)])


def without_unknown_approvals(body: JSONObject) -> JSONObject:
    unasked = [piece for piece, call_id in find_approval_responses(parse_request(body).messages) if call_id is None]
    return _with_text(body, unasked)


def without_invalid_signatures(body: JSONObject) -> JSONObject:
    """Remove the invalid proof of reasoning, and the reasoning itself if it has no other content."""
    copy = deepcopy(body)
    for given in cast(list[JSONObject], copy["messages"]):
        broken = [part for part in list_objects(given["content"]) if not has_valid_signature(part)]
        for part in broken:
            del part["providerOptions"]["anthropic"]
        if broken:
            empty = {id(part) for part in broken if not part["text"]}
            given["content"] = [part for part in given["content"] if id(part) not in empty]
    return copy


def is_empty(wire: JSONObject) -> bool:
    """Return True if a message is empty after the SDK has removed its empty parts."""
    content: JSON = wire["content"]
    if isinstance(content, str):
        return not content
    return all(object_or_empty(part).get("text") == "" and not _stays(part, wire) for part in cast(list[JSON], content))


def misplaced_parts(turn: RequestMessage, ran: set[str]) -> list[RequestPart]:
    """Return the parts of a message that its role cannot have. `ran`: ids of provider-executed calls."""
    found: list[RequestPart] = []
    for piece in turn.parts:
        kind = cast(str, piece.wire.get("type"))
        home = turn.role in PART_ROLES.get(kind, (turn.role,))
        if not home or (turn.role == "assistant" and piece.kind == "result" and piece.id not in ran):
            found.append(piece)
    return found


def has_valid_signature(part: JSONObject) -> bool:
    """Return True if reasoning signed by Anthropic may still have its original signature."""
    options: JSON = part.get("providerOptions")
    given = object_or_empty(object_or_empty(options).get("anthropic"))
    for name in ("signature", "redactedData") if part.get("type") == "reasoning" else ():
        proof: JSON = given.get(name)
        if (
            isinstance(proof, str)
            and len(proof) >= MIN_LENGTH
            and not is_protobuf_message(decode_base64(proof) or b"\0")
        ):
            return False
    return True


def _stays(part: JSONObject, wire: JSONObject) -> bool:
    return part.get("type") != "text" or (wire["role"] == "assistant" and part.get("providerOptions") is not None)


def _with_text(body: JSONObject, strays: list[RequestPart]) -> JSONObject:
    """Return the request with text in place of misplaced parts. Text cannot be in a tool message, so it follows it."""
    places = {piece.path for piece in strays}
    holders = {path[:3] for path in places}
    messages: list[JSONObject] = []
    for number, wire in enumerate(cast(list[JSONObject], body["messages"])):
        own: JSONPath = ("messages", number, "content")
        if own not in holders:
            messages.append(wire)
            continue
        parts = list(enumerate(cast(list[JSONObject], wire["content"])))
        said = [told for place, part in parts if (*own, place) in places for told in _as_text(part)]
        if wire["role"] == "tool":
            left = [part for place, part in parts if (*own, place) not in places]
            messages += [{**wire, "content": left}] if left else []
            messages += [{"role": "user", "content": said}] if said else []
            continue
        kept = [each for place, part in parts for each in (_as_text(part) if (*own, place) in places else [part])]
        messages += [{**wire, "content": kept}] if kept else []
    return {**body, "messages": messages}


def _as_text(part: JSONObject) -> list[JSONObject]:
    match part.get("type"):
        case "text" | "file":
            return [part]
        case "image":
            return [{"mediaType": "image", **without_fields(part, "image"), "type": "file", "data": part["image"]}]
        case "tool-result":
            output = cast(JSONObject, part["output"])
            value = text_of_value(output.get("value", output.get("reason") or ""))
            return [
                text_block(f"[a result of {part['toolName']}, whose call is not here:]"),
                *([text_block(value)] if value else []),
            ]
        case "tool-approval-response":
            return [text_block(part["reason"])] if part.get("reason") else []
        case _:
            return [text_block(text_of_value(part))]


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


RULES = RuleSet(
    "VER",
    "vercel",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    unknown_fields=find_unknown_fields,
)
rule = RULES.register
PAIRING = PairingChecks(lambda request: match_pairs(request.messages))


def _misshapen(request: ParsedRequest, rule: str) -> Iterable[RuleFinding]:
    return [finding for finding in request.malformed if finding.facts["rule"] == rule]


@rule(1)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    return _misshapen(request, "")


@rule(2)
def check_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    return _misshapen(request, "role")


@rule(3)
def check_calls_in_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    return _misshapen(request, "stripped")


@rule(4)
def check_call_input(request: ParsedRequest) -> Iterable[RuleFinding]:
    return _misshapen(request, "input")


@rule(5)
def check_file_data(request: ParsedRequest) -> Iterable[RuleFinding]:
    return _misshapen(request, "data")


@rule(6, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    prompted = request.body.get("prompt") is not None and request.body.get("messages") is None
    return () if prompted else no_messages()(request)


rule(7, fix=without_empty)(messages_where(lambda turn: turn.role in NON_EMPTY_ROLES and is_empty(turn.wire)))


@rule(8, fix=set_setting("allowSystemInMessages", True))
def check_system_allowed(request: ParsedRequest) -> Iterable[RuleFinding]:
    if len(request.body) < 2 or request.body.get("allowSystemInMessages"):
        return
    for turn in request.messages:
        if turn.role == "system":
            yield make_finding(
                turn.path, "a system message is among the messages, but `allowSystemInMessages` is not set."
            )
            return


@rule(9, fix=with_one_system_prompt)
def check_single_system_prompt(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.body.get("instructions") and request.body.get("system"):
        yield make_finding(("system",), "`instructions` is set too, so `system` would not be sent.")


@rule(10, fix=with_prompt_among_messages)
def check_prompt_or_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.body.get("prompt") is not None and request.body.get("messages"):
        yield make_finding(("prompt",), "`messages` is set too, and would not be sent.")


rule(11)(PAIRING.unanswered)
rule(12, fix=with_orphans_as_text)(PAIRING.orphans)
rule(13)(PAIRING.duplicates)


@rule(14, fix=with_misplaced_as_text)
def check_part_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    orphans = {piece.path for _, piece in match_pairs(request.messages).orphan_results}
    ran = provider_executed_calls(request.messages)
    for turn in request.messages:
        for piece in misplaced_parts(turn, ran):
            if piece.path not in orphans:
                yield make_finding(
                    piece.path, f"a message of role {turn.role} cannot contain a `{piece.wire['type']}` part."
                )


@rule(15, fix=without_unknown_approvals)
def check_approval_requests(request: ParsedRequest) -> Iterable[RuleFinding]:
    for piece, call_id in find_approval_responses(request.messages):
        if call_id is None:
            asked = piece.wire["approvalId"]
            yield make_finding(
                piece.path, f"no approval request {asked} was found, or its tool call is missing.", id=asked
            )


rule(16, fix=without_invalid_signatures)(parts_where(lambda piece: not has_valid_signature(piece.wire), "reasoning"))


@rule(17, fix=remove_settings("toolChoice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    name: JSON = object_or_empty(request.body.get("toolChoice")).get("toolName")
    tools = request.body.get("tools")
    known = cast(JSONObject, tools) if isinstance(tools, dict) else [tool.id for tool in request.tools]
    if isinstance(name, str) and tools and name not in known:
        yield make_finding(("toolChoice",), f"tool {name!r} is not among the tools.", name=name)


@rule(18)
def check_message_kind(request: ParsedRequest) -> Iterable[RuleFinding]:
    shown = [isinstance(turn.wire.get("parts"), list) for turn in request.messages]
    if any(shown) and not all(shown):
        odd = request.messages[shown.index(not shown[0])]
        yield make_finding(
            odd.path, "`ModelMessage` and `UIMessage` are mixed: this message differs from the previous one."
        )
