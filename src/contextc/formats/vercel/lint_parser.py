"""Parse the AI SDK's requests for the rules: required fields of parts, and their positions.

A `UIMessage` is parsed as by `convertToModelMessages`: its steps become turns of the assistant and of tools. So every
rule deals with `ModelMessage`s only. Paths in findings refer to the original request.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from contextc._json import JSON, JSONObject
from contextc.formats.coercion import without_fields
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    PairingErrors,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    make_finding,
    missing_field,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.request_parser import TYPED, RequestReader, first_field, nested_error, tagged_error
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.vercel import ui_messages
from contextc.formats.vercel.schema import (
    CALL,
    CONTENT,
    KINDS,
    OPTIONS,
    OUTPUT_PARTS,
    OUTPUTS,
    PART_FIELDS,
    REMOVED_FIELDS,
    STATE_FIELDS,
    STATES,
    TOOL_TYPES,
    UI_PARTS,
)

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
        return super().message(without_fields(wire, ("parts",)) if is_object(wire) else wire, path)

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
