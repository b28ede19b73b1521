"""The parser of Google's requests for lint rules: the required fields of each part, and its path.

The API parses its JSON into protocol buffers. So names have two spellings, a list of one may be written as its element,
null equals absence, and unknown names are refused.

Google's calls may have no id. Here each call gets an id, and a result gets that of the call it answers in the content
before: by id if both have one, else by name and order. Google merges neighbouring contents of one role.
"""

import re
from collections.abc import Hashable, Iterable, Iterator

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.coercion import as_arguments, as_role, as_text, without_fields, without_nulls
from contextc.formats.gemini import error_texts
from contextc.formats.lint_engine import (
    UNKNOWN_NAME,
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    format_path,
    make_finding,
    missing_field,
    schema_error,
    side_of,
)
from contextc.formats.open_calls import OpenCalls
from contextc.formats.request_parser import RequestReader, nested_error
from contextc.formats.request_settings import is_list, is_object, object_or_empty

ROLES = ("user", "model", "function", "tool")  # the last two are for results: formerly, and in Google's examples
ROLE_ALIASES = {"assistant": "model", "ai": "model"}
DATA_TYPES: dict[str, FieldTypes] = {
    "text": {"text": str},
    "inlineData": {"mimeType": str, "data": str, "displayName?": object},
    "fileData": {"fileUri": str, "mimeType?": str, "displayName?": object},
    "functionCall": {"name": str, "args?": dict, "id?": str, "partialArgs?": object, "willContinue?": object},
    "functionResponse": {
        "name": str,
        "response?": dict,
        "id?": str,
        "parts?": (list, dict),
        "scheduling?": object,
        "willContinue?": object,
    },
    "executableCode": {"code?": str, "id?": object, "language?": object},
    "codeExecutionResult": {"output?": str, "id?": object, "outcome?": object},
    "toolCall": {"args?": dict, "id?": str, "toolType?": object},
    "toolResponse": {"response?": dict, "id?": str, "toolType?": object},
}
COMMON_PART_FIELDS: FieldTypes = {
    "thought?": bool,
    "thoughtSignature?": str,
    "videoMetadata?": dict,
    "mediaResolution?": (dict, str, int),
    "partMetadata?": dict,
    "audioTranscription?": dict,
    "mediaProcessing?": (dict, str, int),
    "speechMetadata?": dict,
}
COMMON_PART_NAMES = field_names(COMMON_PART_FIELDS)
CONTENT: FieldTypes = {"role?": str, "parts?": (list, dict)}
DATA_FIELDS = {name: field_names(fields) for name, fields in DATA_TYPES.items() if name != "text"}
IGNORED_FIELDS = ("type", "cache_control")  # fields of other providers' parts, without meaning here
RESULT_DATA, SYSTEM_DATA = ("inlineData", "fileData"), ("text", "inlineData", "fileData")
SYSTEM_NAMES, TOOLS_NAMES = (
    ("systemInstruction", "system_instruction"),
    ("functionDeclarations", "function_declarations"),
)
PART_KINDS: dict[str, PartKind] = {
    "text": "text",
    "functionCall": "call",
    "functionResponse": "result",
    "inlineData": "media",
    "fileData": "media",
}


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields inside the data of parts that Google does not have."""
    for piece in [piece for turn in sketch.messages for piece in turn.parts]:
        for name, value in piece.wire.items():
            fields = DATA_FIELDS.get(to_camel_case(name))
            for each in object_or_empty(value) if fields is not None else ():
                if to_camel_case(each) not in (fields or ()):
                    yield make_finding((*piece.path, name, each), f"`{each}` is not a known field.", name=each)


class _Reader(RequestReader):
    messages_key, messages_error = "contents", "contents must be a list."

    def messages(self, given: JSON, base: JSONPath) -> Iterable[RequestMessage]:
        if given is not None and not isinstance(given, list | dict):
            self.refuse(base, Fault("", self.messages_error, Problem.TYPE, (list,), given))
            return ()
        return _with_ids([turn for path, wire in iter_list(given, base) for turn in self.message(wire, path)])

    def message(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if not self.is_content(wire, path):
            return
        role = wire.get("role") or "user"
        if role not in ROLES:
            message = f'invalid role {role!r}: expected "user" or "model".'
            self.misshapen.append(make_finding(path, message, what=error_texts.INVALID_ROLE, role=role))
            role = ROLE_ALIASES.get(role.lower(), "user")
        yield RequestMessage(role=role, path=path, wire=wire, parts=tuple(self.content(wire, path, DATA_TYPES)))

    def is_content(self, wire: JSON, path: JSONPath) -> bool:
        """Return True if this is a content. Record its faults other than those of its role and parts."""
        if wrong := schema_error(wire, CONTENT):
            self.refuse(path, wrong)
            return False
        for name in without_nulls(without_fields(wire, ("role", "parts"))):
            self.unknown(path, name)
        return True

    def content(self, content: JSONObject, path: JSONPath, among: Iterable[str]) -> list[RequestPart]:
        """Return the parts of a content. Findings on the whole content come before those on its parts."""
        before = len(self.misshapen)
        parts = iter_list(content.get("parts"), (*path, "parts"))
        pieces = [piece for here, part in parts for piece in self.pieces(part, here, path, among)]
        self.misshapen[before:] = sorted(self.misshapen[before:], key=lambda finding: len(finding.path))
        return pieces

    def pieces(self, part: JSON, path: JSONPath, content: JSONPath, among: Iterable[str]) -> Iterator[RequestPart]:
        """Yield the parsed part, or none if it is misshapen."""
        if wrong := schema_error(part, {}):
            self.refuse(path, wrong)
            return
        given = with_camel_case(part)
        fields = [name for name in given if name in among]
        if len(data := [name for name in part if to_camel_case(name) in among and part[name] is not None]) > 1:
            what = error_texts.SECOND_FIELD.format(where=format_google_path(path), second=data[1])
            message = f"expected one data field in {format_path(path)}, got {len(data)}: {', '.join(data)}."
            self.misshapen.append(make_finding(content, message, what=what, second=data[1]))
        if strangers := [name for name in given if name not in among and name not in COMMON_PART_NAMES]:
            self.unknown(path, strangers[0])
            return
        if not fields and "audioTranscription" not in given:
            self.refuse(path, Fault("", "this part has no data field.", detail=error_texts.NO_DATA))
            return
        faults = (_data_error(name, given) for name in fields)
        wrong = schema_error(given, COMMON_PART_FIELDS) or next(filter(None, faults), None)
        if wrong:
            self.refuse(path, wrong)
        for name in fields or ["audioTranscription"]:
            if not wrong or PART_KINDS.get(name) in ("call", "result"):
                yield from _piece(name, given, part, path)

    def system(self) -> Iterable[RequestPart]:
        for name in SYSTEM_NAMES:
            content: JSON = self.body.get(name)
            if content is not None and self.is_content(content, (name,)):
                self.content(content, (name,), SYSTEM_DATA)
        return ()

    def tools(self, given: JSON) -> Iterator[RequestPart]:
        """Yield the declared functions."""
        for path, tool in iter_list(given, ("tools",)):
            if wrong := schema_error(tool, {f"{name}?": (list, dict) for name in TOOLS_NAMES}):
                self.refuse(path, wrong)
                continue
            for name in TOOLS_NAMES:
                for here, function in iter_list(tool.get(name), (*path, name)):
                    if wrong := schema_error(function, {"name": str, "description?": str}):
                        self.refuse(here, wrong)
                    else:
                        yield RequestPart(kind="other", path=here, wire=function, id=function["name"])

    def unknown(self, path: JSONPath, name: str) -> None:
        what = error_texts.UNKNOWN_NAME.format(name=name, where=format_google_path(path))
        facts = {"what": what, "field": name, UNKNOWN_NAME: True}
        self.misshapen.append(make_finding(path, f"`{name}` is not a known field.", **facts))

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        is_missing = fault.problem is Problem.MISSING
        template: str = fault.detail or (error_texts.MISSING if is_missing else error_texts.WRONG_TYPE)
        where = format_google_path((*path, fault.field) if fault.field else path)
        return template.format(where=where, what=fault.message)


parse_request = _Reader.parse


def _data_error(name: str, part: JSONObject) -> Fault | None:
    """Return the field and message of a fault in a data field, or None."""
    if name == "text":
        return schema_error(part, DATA_TYPES[name])
    if wrong := schema_error(part, {name: dict}):
        return wrong
    inside = with_camel_case(part[name])
    if wrong := nested_error(name, inside, DATA_TYPES[name]):
        return wrong
    if inside.get("name") == "":
        return missing_field(f"{name}.name", "name")
    media = iter_list(inside.get("parts"), ()) if name == "functionResponse" else ()
    wrong = next(filter(None, (_media_error(each) for _, each in media)), None)
    return wrong.inside(name) if wrong else None


def _media_error(part: JSON) -> Fault | None:
    if wrong := schema_error(part, {}):
        return wrong._replace(field="parts")
    given = with_camel_case(part)
    fields = [name for name in given if name in RESULT_DATA]
    if len(fields) != 1:
        return Fault("parts", "`parts` of a result must be media, each `inlineData` or `fileData`.")
    return _data_error(fields[0], given)


def _piece(name: str, given: JSONObject, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
    kind = PART_KINDS.get(name, "other")
    if kind == "text":
        yield RequestPart(
            kind="reasoning" if given.get("thought") else "text", path=path, wire=wire, text=given["text"]
        )
    elif kind in ("call", "result"):
        inside = with_camel_case(given[name])
        call_id, tool = text_of(inside.get("id")), text_of(inside.get("name"))
        if tool:
            yield RequestPart(kind=kind, path=path, wire=wire, id=call_id, name=tool)
    else:
        yield RequestPart(kind=kind, path=path, wire=wire)


def _with_ids(turns: Iterable[RequestMessage]) -> Iterator[RequestMessage]:
    """Yield the turns with an id on each call, and on each result that of its call, or "" without a call."""
    before, first = OpenCalls[str](), dict[Hashable, str]()  # call ids of the previous side, by key
    calls, keyed = OpenCalls[str](), dict[Hashable, str]()
    speaks = ""
    for turn in turns:
        if side_of(turn) != speaks:
            before, first = calls, keyed
            calls, keyed = OpenCalls[str](), dict[Hashable, str]()
            speaks = side_of(turn)
        pieces: list[RequestPart] = []
        for piece in turn.parts:
            if piece.kind == "call":
                given = f"{piece.id or piece.name}#{len(calls)}"
                keys = [("name", piece.name), ("id", piece.id) if piece.id else ("unnamed", piece.name)]
                calls.add(given, *keys)
                for key in keys:
                    keyed.setdefault(key, given)
                piece = replace(piece, id=given)
            elif piece.kind == "result":
                alike = ("unnamed" if piece.id else "name", piece.name)
                chosen = before.pop(("id", piece.id)) or before.pop(alike)
                chosen = chosen or first.get(("id", piece.id)) or first.get(alike, "")
                piece = replace(piece, id=chosen)
            pieces.append(piece)
        yield replace(turn, parts=tuple(pieces))


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid content, part or system prompt in a valid shape, such as a bare text or a foreign role."""
    if path[0] in SYSTEM_NAMES:
        return _as_system(value) if len(path) == 1 else _as_part(value, SYSTEM_DATA)
    if path[0] != "contents":
        return value
    if len(path) == 1 and not is_object(value):
        return [_as_content(value)]
    return _as_part(value) if "parts" in path else _as_content(value)


def _as_content(value: JSON) -> JSON:
    if value is None:
        return None
    if not isinstance(value, dict | list):
        return text_message(as_text(value))
    wire: JSONObject = value if is_object(value) else {"parts": value}
    role = as_role(wire["role"], ROLES, ROLE_ALIASES) if isinstance(wire.get("role"), str) else "user"
    given = without_nulls(without_fields(wire, ("role",)))
    parts = [split for _, part in iter_list(given.pop("parts", None), ()) for split in _split(part)]
    parts += [part for _, part in iter_list(given.pop("content", None), ())]
    parts += [*_split(given)] if given else []
    return {"role": role, "parts": [each for part in parts if (each := _as_part(part)) is not None]}


def _as_system(value: JSON) -> JSON:
    if not value:
        return None
    content: JSONObject = _as_content(value)
    return {**content, "parts": [_as_part(part, SYSTEM_DATA) for part in content["parts"]]}


def _split(part: JSON) -> Iterator[JSON]:
    """Yield one part for each data field of a part that has several."""
    wire = object_or_empty(part)
    data = [name for name in wire if to_camel_case(name) in DATA_TYPES and wire[name] is not None]
    if len(data) < 2:
        yield part
        return
    for name in data:
        yield {each: value for each, value in wire.items() if each == name or each not in data}


def _as_part(value: JSON, among: Iterable[str] = DATA_TYPES) -> JSON:
    """Return an equivalent part with a valid shape, possibly as text, or None if it is empty."""
    part: JSON = value
    if is_object(value):
        wire = without_nulls(value)
        if not {to_camel_case(name) for name in wire} - COMMON_PART_NAMES:
            return None
        part = {
            name: _as_data(to_camel_case(name), each) for name, each in without_fields(wire, IGNORED_FIELDS).items()
        }
        if among is DATA_TYPES and len(list(_split(part))) > 1:
            return part  # its content is reshaped later
    reader = _Reader({})
    list(reader.pieces(part, (), (), among))
    return (text_block(as_text(value)) if value is not None else None) if reader.misshapen else part


def _as_data(name: str, value: JSON) -> JSON:
    """Return a data field with an object as its value, if it must be one."""
    if name not in ("functionCall", "functionResponse") or not is_object(value):
        return value
    inside = object_or_empty(value)
    if name == "functionCall":
        given: JSON = inside.get("args")
        return inside if given is None or is_object(given) else {**inside, "args": as_arguments(as_text(given))}
    given = inside.get("response")
    response = object_or_empty(given) if given is None or is_object(given) else {"output": given}
    media = [part for _, part in iter_list(inside.get("parts"), ())]
    if not (others := [part for part in media if _media_error(part)]):
        return {**inside, "response": response}
    sound = [part for part in media if not _media_error(part)]
    return {**inside, "response": {**response, "parts": others}, "parts": sound}


def iter_list(value: JSON, path: JSONPath) -> Iterator[tuple[JSONPath, JSON]]:
    """Yield the items of a value with their paths. A value that is not a list is its only item."""
    if is_list(value):
        yield from (((*path, index), each) for index, each in enumerate(value))
    elif value is not None:
        yield path, value


def to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def with_camel_case(value: JSON) -> JSONObject:
    """Return an object with canonical field names and without nulls, or an empty one for any other value."""
    return {to_camel_case(name): each for name, each in object_or_empty(value).items() if each is not None}


def format_google_path(path: JSONPath) -> str:
    """Return a path as Google writes it, such as `contents[1].parts[0].function_call`."""
    whole = path if path and isinstance(path[0], str) else ("contents", *path)
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", format_path(whole))


def text_message(text: str) -> JSONObject:
    return {"role": "user", "parts": [text_block(text)]}


def text_block(text: str) -> JSONObject:
    return {"text": text}
