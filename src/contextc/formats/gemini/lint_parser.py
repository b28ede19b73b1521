"""The parser of Google's requests for lint rules: the required fields of each part, and its path.

The API parses its JSON into protocol buffers. So names have two spellings, a list of one may be written as its element,
null equals absence, and unknown names are refused.

Google's calls may have no id. Here each call gets an id, and a result gets that of the call it answers in the content
before: by id if both have one, else by name and order. Google merges neighbouring contents of one role.
"""

import re
from collections.abc import Hashable, Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.formats.gemini import error_texts
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    format_path,
    make_finding,
    schema_error,
    side_of,
)
from contextc.formats.open_calls import OpenCalls
from contextc.messages import tool_call

ROLES = ("user", "model", "function", "tool")  # the last two are for results: formerly, and in Google's examples
ROLE_ALIASES = {"assistant": "model", "ai": "model"}
DATA_TYPES: dict[str, FieldTypes] = {
    "text": {"text": str},
    "inlineData": {"mimeType": str, "data": str},
    "fileData": {"fileUri": str, "mimeType?": str},
    "functionCall": {"name": str, "args?": dict, "id?": str},
    "functionResponse": {"name": str, "response?": dict, "id?": str, "parts?": (list, dict)},
    "executableCode": {"code?": str},
    "codeExecutionResult": {"output?": str},
    "toolCall": {"args?": dict, "id?": str},
    "toolResponse": {"response?": dict, "id?": str},
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
COMMON_PART_NAMES = {name.removesuffix("?") for name in COMMON_PART_FIELDS}
OPTIONAL_DATA_FIELDS = {
    name: field_names(DATA_TYPES[name], *more)
    for name, more in {
        "inlineData": ("displayName",),
        "fileData": ("displayName",),
        "functionCall": ("partialArgs", "willContinue"),
        "functionResponse": ("scheduling", "willContinue"),
        "executableCode": ("id", "language"),
        "codeExecutionResult": ("id", "outcome"),
        "toolCall": ("toolType",),
        "toolResponse": ("toolType",),
    }.items()
}
"""Optional fields in the data of a part. Fields of parts and contents are checked as their shape."""
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


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON as a request, or as the contents of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    contents: JSON = whole.get("contents") if isinstance(body, dict) else body
    base: JSONPath = ("contents",) if isinstance(body, dict) else ()
    turns: list[RequestMessage] = []
    if contents is not None and not isinstance(contents, list | dict):
        reader.wrong(base, "", "contents must be a list.")
    else:
        turns = [turn for path, wire in iter_list(contents, base) for turn in reader.turn(wire, path)]
    for name in SYSTEM_NAMES:
        reader.system(whole.get(name), (name,))
    return ParsedRequest(
        messages=tuple(_with_ids(turns)),
        body=whole,
        tools=tuple(reader.functions(whole.get("tools"))),
        malformed=tuple(reader.misshapen),
    )


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields inside the data of parts that Google does not have."""
    for piece in [piece for turn in sketch.messages for piece in turn.parts]:
        for name, value in piece.wire.items():
            fields = OPTIONAL_DATA_FIELDS.get(to_camel_case(name))
            inside = cast(JSONObject, value) if fields is not None and isinstance(value, dict) else {}
            for each in inside:
                if to_camel_case(each) not in (fields or ()):
                    yield make_finding((*piece.path, name, each), f"`{each}` is not a known field.", name=each)


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[RuleFinding] = []

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"role?": str, "parts?": (list, dict)}):
            self.wrong(path, *wrong)
            return
        given = cast(JSONObject, wire)
        for name in given:
            if name not in ("role", "parts") and given[name] is not None:
                self.unknown(path, name)
        role = cast(str, given.get("role") or "user")
        if role not in ROLES:
            message = f'invalid role {role!r}: expected "user" or "model".'
            self.misshapen.append(make_finding(path, message, what=error_texts.INVALID_ROLE, role=role))
            role = ROLE_ALIASES.get(role.lower(), "user")
        yield RequestMessage(role=role, path=path, wire=given, parts=tuple(self.parts(given, path, DATA_TYPES)))

    def parts(self, content: JSONObject, path: JSONPath, among: Iterable[str]) -> list[RequestPart]:
        """Return the parts of a content. Findings on the whole content come before those on its parts."""
        before = len(self.misshapen)
        parts = iter_list(content.get("parts"), (*path, "parts"))
        pieces = [piece for here, part in parts for piece in self.pieces(part, here, path, among)]
        self.misshapen[before:] = sorted(self.misshapen[before:], key=lambda finding: len(finding.path))
        return pieces

    def pieces(self, part: JSON, path: JSONPath, content: JSONPath, among: Iterable[str]) -> Iterator[RequestPart]:
        """Yield the parsed part, or none if it is misshapen."""
        if wrong := schema_error(part, {}):
            self.wrong(path, *wrong)
            return
        wire = cast(JSONObject, part)
        given: JSONObject = {to_camel_case(name): value for name, value in wire.items() if value is not None}
        fields = [name for name in given if name in among]
        if len(data := [name for name in wire if to_camel_case(name) in among and wire[name] is not None]) > 1:
            what = error_texts.SECOND_FIELD.format(where=format_google_path(path), second=data[1])
            message = f"expected one data field in {format_path(path)}, got {len(data)}: {', '.join(data)}."
            self.misshapen.append(make_finding(content, message, what=what, second=data[1]))
        if strangers := [name for name in given if name not in among and name not in COMMON_PART_NAMES]:
            self.unknown(path, strangers[0])
            return
        if not fields and "audioTranscription" not in given:
            self.misshapen.append(
                make_finding(
                    path,
                    "this part has no data field.",
                    what=error_texts.NO_DATA.format(where=format_google_path(path)),
                )
            )
            return
        wrong = schema_error(given, COMMON_PART_FIELDS) or next(
            (wrong for name in fields if (wrong := _schema_error(name, given))), None
        )
        if wrong:
            self.wrong(path, *wrong)
        for name in fields or ["audioTranscription"]:
            if not wrong or PART_KINDS.get(name) in ("call", "result"):
                yield from _piece(name, given, wire, path)

    def system(self, content: JSON, path: JSONPath) -> None:
        if content is None:
            return
        if wrong := schema_error(content, {"role?": str, "parts?": (list, dict)}):
            self.wrong(path, *wrong)
            return
        for name in cast(JSONObject, content):
            if name not in ("role", "parts") and content[name] is not None:
                self.unknown(path, name)
        self.parts(content, path, SYSTEM_DATA)

    def functions(self, tools: JSON) -> Iterator[RequestPart]:
        """Yield the declared functions."""
        for path, tool in iter_list(tools, ("tools",)):
            if wrong := schema_error(tool, {f"{name}?": (list, dict) for name in TOOLS_NAMES}):
                self.wrong(path, *wrong)
                continue
            for name in TOOLS_NAMES:
                for here, function in iter_list(tool.get(name), (*path, name)):
                    if wrong := schema_error(function, {"name": str, "description?": str}):
                        self.wrong(here, *wrong)
                    else:
                        yield RequestPart(kind="other", path=here, wire=function, id=function["name"])

    def wrong(self, path: JSONPath, field: str, message: str) -> None:
        where = format_google_path((*path, field) if field else path)
        template = error_texts.MISSING if message.endswith("missing.") else error_texts.WRONG_TYPE
        self.misshapen.append(make_finding(path, message, what=template.format(where=where, what=message)))

    def unknown(self, path: JSONPath, name: str) -> None:
        what = error_texts.UNKNOWN_NAME.format(name=name, where=format_google_path(path))
        self.misshapen.append(make_finding(path, f"`{name}` is not a known field.", what=what))


def _schema_error(name: str, part: JSONObject) -> tuple[str, str] | None:
    """Return the field and message of a fault in a data field, or None."""
    if name == "text":
        return schema_error(part, DATA_TYPES[name])
    if wrong := schema_error(part, {name: dict}):
        return wrong
    inside = with_camel_case(part[name])
    wrong = schema_error(inside, DATA_TYPES[name])
    if not wrong and inside.get("name") == "":
        wrong = "name", "`name` is missing."
    if not wrong and name == "functionResponse":
        for _, each in iter_list(inside.get("parts"), ()):
            wrong = wrong or _media_error(each)
    return (f"{name}.{wrong[0]}", wrong[1]) if wrong else None


def _media_error(part: JSON) -> tuple[str, str] | None:
    if wrong := schema_error(part, {}):
        return "parts", wrong[1]
    given = with_camel_case(part)
    fields = [name for name in given if name in RESULT_DATA]
    if len(fields) != 1:
        return "parts", "`parts` of a result must be media, each `inlineData` or `fileData`."
    return _schema_error(fields[0], given)


def _piece(name: str, given: JSONObject, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
    kind = PART_KINDS.get(name, "other")
    if kind == "text":
        yield RequestPart(
            kind="reasoning" if given.get("thought") else "text", path=path, wire=wire, text=given["text"]
        )
    elif kind in ("call", "result"):
        inside = with_camel_case(given[name]) if isinstance(given[name], dict) else {}
        names = [each if isinstance(each := cast(object, inside.get(key)), str) else "" for key in ("id", "name")]
        if names[1]:
            yield RequestPart(kind=kind, path=path, wire=wire, id=names[0], name=names[1])
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
    if len(path) == 1 and not isinstance(value, dict):
        return [_as_content(value)]
    return _as_part(value) if "parts" in path else _as_content(value)


def _as_content(value: JSON) -> JSON:
    if value is None:
        return None
    if not isinstance(value, dict | list):
        return text_message(_text_in(value))
    wire: JSONObject = cast(JSONObject, value) if isinstance(value, dict) else {"parts": value}
    role = wire["role"].lower() if isinstance(wire.get("role"), str) else "user"
    given: JSONObject = {name: each for name, each in wire.items() if name != "role" and each is not None}
    parts = [split for _, part in iter_list(given.pop("parts", None), ()) for split in _split(part)]
    parts += [part for _, part in iter_list(given.pop("content", None), ())]
    parts += [*_split(given)] if given else []
    sound = [each for part in parts if (each := _as_part(part)) is not None]
    return {"role": role if role in ROLES else ROLE_ALIASES.get(role, "user"), "parts": sound}


def _as_system(value: JSON) -> JSON:
    if not value:
        return None
    content: JSONObject = _as_content(value)
    return {**content, "parts": [_as_part(part, SYSTEM_DATA) for part in content["parts"]]}


def _split(part: JSON) -> Iterator[JSON]:
    """Yield one part for each data field of a part that has several."""
    wire = cast(JSONObject, part) if isinstance(part, dict) else {}
    data = [name for name in wire if to_camel_case(name) in DATA_TYPES and wire[name] is not None]
    if len(data) < 2:
        yield part
        return
    for name in data:
        yield {each: value for each, value in wire.items() if each == name or each not in data}


def _as_part(value: JSON, among: Iterable[str] = DATA_TYPES) -> JSON:
    """Return an equivalent part with a valid shape, possibly as text, or None if it is empty."""
    part: JSON = value
    if isinstance(value, dict):
        wire: JSONObject = {name: each for name, each in cast(JSONObject, value).items() if each is not None}
        if not {to_camel_case(name) for name in wire} - COMMON_PART_NAMES:
            return None
        plain: JSONObject = {name: each for name, each in wire.items() if name not in IGNORED_FIELDS}
        part = {name: _as_data(to_camel_case(name), each) for name, each in plain.items()}
        if among is DATA_TYPES and len(list(_split(part))) > 1:
            return part  # its content is reshaped later
    reader = _Reader()
    for _ in reader.pieces(part, (), (), among):
        pass
    return (text_block(_text_in(value)) if value is not None else None) if reader.misshapen else part


def _as_data(name: str, value: JSON) -> JSON:
    """Return a data field with an object as its value, if it must be one."""
    if name not in ("functionCall", "functionResponse") or not isinstance(value, dict):
        return value
    inside = cast(JSONObject, value)
    if name == "functionCall":
        given: JSON = inside.get("args")
        if given is None or isinstance(given, dict):
            return inside
        call = tool_call("-", "-", _text_in(given))
        return {**inside, "args": {"malformed_arguments": call.raw} if call.malformed else call.arguments}
    given = inside.get("response")
    response = cast(JSONObject, given or {}) if isinstance(given, dict | None) else {"output": given}
    media = [part for _, part in iter_list(inside.get("parts"), ())]
    sound = [part for part in media if not _media_error(part)]
    if len(sound) == len(media):
        return {**inside, "response": response}
    others = [part for part in media if _media_error(part)]
    return {**inside, "response": {**response, "parts": others}, "parts": sound}


def iter_list(value: JSON, path: JSONPath) -> Iterator[tuple[JSONPath, JSON]]:
    """Yield the items of a value with their paths. A value that is not a list is its only item."""
    if isinstance(value, list):
        yield from (((*path, index), each) for index, each in enumerate(cast(list[JSON], value)))
    elif value is not None:
        yield path, value


def to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def with_camel_case(value: JSON) -> JSONObject:
    """Return an object with canonical field names and without nulls, or an empty one for any other value."""
    wire = cast(JSONObject, value) if isinstance(value, dict) else {}
    return {to_camel_case(name): each for name, each in wire.items() if each is not None}


def format_google_path(path: JSONPath) -> str:
    """Return a path as Google writes it, such as `contents[1].parts[0].function_call`."""
    whole = path if path and isinstance(path[0], str) else ("contents", *path)
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", format_path(whole))


def text_message(text: str) -> JSONObject:
    return {"role": "user", "parts": [text_block(text)]}


def text_block(text: str) -> JSONObject:
    return {"text": text}


def _text_in(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()
