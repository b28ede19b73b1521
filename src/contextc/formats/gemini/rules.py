"""The lint rules of Google's generateContent."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import groupby
from typing import TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT, text_of
from contextc.formats.gemini.codec import PLACEHOLDER_SIGNATURE
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
    RequestReader,
    RuleFinding,
    RuleSet,
    field_names,
    format_path,
    make_finding,
    missing_field,
    nested_error,
    remove_fields,
    results_in_next_message,
    schema_error,
    side_of,
    unknown_field_findings,
)
from contextc.formats.message_preparation import (
    MIN_LENGTH,
    IdentifierCodec,
    OpenCalls,
    decode_base64,
    is_intact_google_signature,
)
from contextc.formats.request_settings import is_list, is_object, object_or_empty
from contextc.formats.rule_library import (
    PairingChecks,
    as_arguments,
    as_role,
    as_text,
    duplicate_tools,
    insert_first_message,
    invalid_tool_names,
    iter_parts,
    messages_where,
    no_messages,
    part_finding,
    parts_where,
    without_fields,
    without_nulls,
)

UNKNOWN_NAME_TEXT = "Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
WRONG_TYPE_TEXT = "Invalid value at '{where}': {what}"
MISSING_TEXT = "* GenerateContentRequest.{where}: this field is required."
NO_DATA_TEXT = "* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field"
SECOND_FIELD_TEXT = "Invalid value at '{where}' (oneof), oneof field 'data' is already set. Cannot set '{second}'"
INVALID_ROLE_TEXT = "Please use a valid role: user, model."
RESULT_PLACE_TEXT = "Please ensure that function response turn comes immediately after a function call turn."
RESULT_COUNT_TEXT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)

# ── reading a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# The parser of Google's requests for lint rules: the required fields of each part, and its path.
#
# The API parses its JSON into protocol buffers. So names have two spellings, a list of one may be written as its
# element, null equals absence, and unknown names are refused.
#
# Google's calls may have no id. Here each call gets an id, and a result gets that of the call it answers in the
# content before: by id if both have one, else by name and order. Google merges neighbouring contents of one role.


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
BODY_FIELDS = frozenset(
    (
        *("model", "contents", "systemInstruction", "generationConfig", "tools", "toolConfig", "safetySettings"),
        *("cachedContent", "serviceTier", "store", "continuationToken", "labels", "modelArmorConfig", "outputConfig"),
    )
)
"""Fields of a request: google.genai.models, of the Gemini API and of Vertex. Their names may have underscores."""
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


def find_unknown_settings(request: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of a request that Google does not have."""
    names = [name for name in request.body if to_camel_case(name) in BODY_FIELDS]
    yield from unknown_field_findings(request.body, names, ())


def without_unknown_settings(body: JSONObject) -> JSONObject:
    return remove_fields(body, find_unknown_settings(parse_request(body)))


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
            self.misshapen.append(make_finding(path, message, what=INVALID_ROLE_TEXT, role=role))
            role = ROLE_ALIASES.get(role.lower(), "user")
        yield RequestMessage(role=role, path=path, wire=wire, parts=tuple(self.content(wire, path, DATA_TYPES)))

    def is_content(self, wire: JSON, path: JSONPath) -> bool:
        """Return True if this is a content. Record its faults other than those of its role and parts."""
        if wrong := schema_error(wire, CONTENT):
            self.refuse(path, wrong)
            return False
        for name in without_nulls(without_fields(wire, "role", "parts")):
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
            what = SECOND_FIELD_TEXT.format(where=format_google_path(path), second=data[1])
            message = f"expected one data field in {format_path(path)}, got {len(data)}: {', '.join(data)}."
            self.misshapen.append(make_finding(content, message, what=what, second=data[1]))
        if strangers := [name for name in given if name not in among and name not in COMMON_PART_NAMES]:
            self.unknown(path, strangers[0])
            return
        if not fields and "audioTranscription" not in given:
            self.refuse(path, Fault("", "this part has no data field.", detail=NO_DATA_TEXT))
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
        what = UNKNOWN_NAME_TEXT.format(name=name, where=format_google_path(path))
        facts = {"what": what, "field": name, UNKNOWN_NAME: True}
        self.misshapen.append(make_finding(path, f"`{name}` is not a known field.", **facts))

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        is_missing = fault.problem is Problem.MISSING
        template: str = fault.detail or (MISSING_TEXT if is_missing else WRONG_TYPE_TEXT)
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
    given = without_nulls(without_fields(wire, "role"))
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
            name: _as_data(to_camel_case(name), each) for name, each in without_fields(wire, *IGNORED_FIELDS).items()
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


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Fixes that decoding and encoding a request do not make: signatures, media, settings, functions.


PartChange: TypeAlias = Callable[[JSONObject], JSONObject]

RUN_BY_GOOGLE = ("toolCall", "toolResponse", "executableCode", "codeExecutionResult")
PLACEHOLDER_SIGNATURES = (PLACEHOLDER_SIGNATURE, "context_engineering_is_the_way_to_go")
CONFIG_NAMES, CHOICE_NAMES = ("toolConfig", "tool_config"), ("functionCallingConfig", "function_calling_config")
ALLOWED_NAMES = ("allowedFunctionNames", "allowed_function_names")
NAMES = IdentifierCodec("a-zA-Z0-9_.:-", 128, first_characters="a-zA-Z_")
CACHED_SETTINGS = ("systemInstruction", "tools", "toolConfig")
SETTINGS_NAMES, THINKING_NAMES, LEVEL_NAMES = (
    ("generationConfig", "generation_config"),
    ("thinkingConfig", "thinking_config"),
    ("thinkingLevel", "thinking_level"),
)


def with_opening(body: JSONObject) -> JSONObject:
    contents = [content for _, content in iter_list(body["contents"], ())]
    return {**body, "contents": [{"role": "user", "parts": [{"text": OPENING_TEXT}]}, *contents]}


def with_valid_signatures(body: JSONObject) -> JSONObject:
    def mend(part: JSONObject) -> JSONObject:
        if has_valid_signature(part):
            return part
        rest: JSONObject = {name: value for name, value in part.items() if to_camel_case(name) != "thoughtSignature"}
        return with_placeholder_signature(rest) if "functionCall" in with_camel_case(part) else rest

    return _with_parts(body, mend)


def has_thinking_level(body: JSONObject) -> bool:
    """Return True if a thinking level is set, which only Gemini 3 and later accept."""
    found: list[JSON] = [body]
    for names in (SETTINGS_NAMES, THINKING_NAMES, LEVEL_NAMES):
        found = [cast(JSONObject, each).get(name) for each in found if isinstance(each, dict) for name in names]
    return any(found)


def find_cached_settings(body: JSONObject) -> list[str]:
    """Return the names of fields that a request with cached content has, and only the content may have."""
    if not with_camel_case(body).get("cachedContent"):
        return []
    return [name for name, value in body.items() if to_camel_case(name) in CACHED_SETTINGS and value]


def without_cached_settings(body: JSONObject) -> JSONObject:
    return without_fields(body, *find_cached_settings(body))


def with_signatures(body: JSONObject) -> JSONObject:
    """Return the body with the placeholder signature on the first call of each unsigned step in the last turn."""
    contents = [content for _, content in iter_list(body["contents"], ())]
    spoke = max((index for index, content in enumerate(contents) if _is_from_user(content)), default=0)
    found = contents[:spoke]
    for is_model, group in groupby(contents[spoke:], lambda content: content.get("role") == "model"):
        step = list(group)
        found += _with_signature(step) if is_model else step
    return {**body, "contents": found}


def _is_from_user(content: JSONObject) -> bool:
    parts = [with_camel_case(part) for _, part in iter_list(content.get("parts"), ())]
    return content.get("role") != "model" and any("functionResponse" not in part for part in parts)


def _with_signature(step: list[JSONObject]) -> list[JSONObject]:
    """Return neighbouring contents of the model. If they contain calls, one of them is signed."""
    parts = [[part for _, part in iter_list(content.get("parts"), ())] for content in step]
    calls = [(at, index) for at, each in enumerate(parts) for index, part in enumerate(each) if _is_call(part)]
    if not calls or any(signature_of(part) for each in parts for part in each):
        return step
    at, index = calls[0]
    parts[at][index] = with_placeholder_signature(parts[at][index])
    step[at] = {**step[at], "parts": parts[at]}
    return step


def _is_call(part: JSONObject) -> bool:
    return "functionCall" in with_camel_case(part)


def with_valid_media(body: JSONObject) -> JSONObject:
    """Return the body with valid media: a data URL loses its prefix, and a line replaces data that is not base64."""

    def mend(part: JSONObject) -> JSONObject:
        given = with_camel_case(part)
        if isinstance(given.get("functionResponse"), dict):
            name = next(name for name in part if to_camel_case(name) == "functionResponse")
            answer = cast(JSONObject, part[name])
            mended = [mend(each) for _, each in iter_list(answer.get("parts"), ())]
            media = {"parts": [each for each in mended if "text" not in each]} if mended else {}
            return {**part, name: {**answer, **media}}
        if not isinstance(given.get("inlineData"), dict) or has_valid_media(part):
            return part
        blob = with_camel_case(given["inlineData"])
        head, _, data = cast(str, blob["data"]).partition(",")
        bare: JSONObject = {"inlineData": {**blob, "data": data}}
        if head.startswith("data:") and has_valid_media(bare):
            return bare
        is_text = cast(str, blob["mimeType"]).startswith("text/")
        return {"text": blob["data"] if is_text else f"[{blob['mimeType']}, which cannot be read; not shown]"}

    return _with_parts(body, mend)


def with_unique_functions(body: JSONObject) -> JSONObject:
    seen: set[str] = set()

    def is_new(function: JSONObject) -> bool:
        name = cast(str, function.get("name"))
        return name not in seen and not seen.add(name)

    tools: list[JSONObject] = []
    for _, tool in iter_list(body["tools"], ()):
        kept: JSONObject = {
            name: [each for _, each in iter_list(value, ()) if is_new(each)] if name in TOOLS_NAMES else value
            for name, value in cast(JSONObject, tool).items()
        }
        kept = {name: value for name, value in kept.items() if name not in TOOLS_NAMES or value}
        tools += [kept] if kept else []
    return {**body, "tools": tools}


def with_declared_choice(body: JSONObject) -> JSONObject:
    """Return the body without unknown functions in the allowed names. Renamed functions get their new names."""
    names = [cast(str, function["name"]) for function in declared_functions(body)]
    known = {**{NAMES.decode(name): name for name in names}, **{name: name for name in names}}
    for outer, inner, key in dict.fromkeys(cast(tuple[str, str, str], path[:3]) for path, _ in allowed_functions(body)):
        choice = cast(JSONObject, body[outer][inner])
        left = [known[name] for _, name in iter_list(choice[key], ()) if isinstance(name, str) and name in known]
        rest: JSONObject = {name: value for name, value in choice.items() if name != key}
        body = {**body, outer: {**body[outer], inner: {**rest, key: left} if left else rest}}
    return body


def declared_functions(body: JSONObject) -> Iterator[JSONObject]:
    """Yield the functions that a request declares."""
    for _, tool in iter_list(body.get("tools"), ()):
        for name in TOOLS_NAMES:
            found = cast(JSONObject, tool).get(name) if isinstance(tool, dict) else None
            yield from (cast(JSONObject, each) for _, each in iter_list(found, ()) if isinstance(each, dict))


def allowed_functions(body: JSONObject) -> Iterator[tuple[JSONPath, JSON]]:
    """Yield the names of the functions that the model may call, with their paths."""
    for outer in CONFIG_NAMES:
        config = cast(object, body.get(outer))
        for inner in CHOICE_NAMES if isinstance(config, dict) else ():
            choice = cast(object, cast(JSONObject, config).get(inner))
            for key in ALLOWED_NAMES if isinstance(choice, dict) else ():
                yield from iter_list(cast(JSONObject, choice).get(key), (outer, inner, key))


def signature_of(part: JSONObject) -> JSON:
    return with_camel_case(part).get("thoughtSignature")


def with_placeholder_signature(part: JSONObject) -> JSONObject:
    return {**part, "thoughtSignature": PLACEHOLDER_SIGNATURE}


def has_valid_signature(part: JSONObject) -> bool:
    """Return True if a part may have this signature. Parts of Google's own tools are signed in other ways."""
    return is_valid_signature(signature_of(part), ran=not with_camel_case(part).keys().isdisjoint(RUN_BY_GOOGLE))


def is_valid_signature(text: JSON, *, ran: bool = False) -> bool:
    """Return True if this may be a signature of Google, or is empty.

    `ran`: the part is of a tool that Google ran, where any base64 is valid.
    """
    if not text or text in PLACEHOLDER_SIGNATURES:
        return True
    data = decode_base64(text, urlsafe=True) if isinstance(text, str) else None
    if data is None:
        return False
    return (
        ran
        or len(text) < MIN_LENGTH
        or is_intact_google_signature(text)
        or (data.isascii() and data.decode().isprintable())
    )


def has_valid_media(part: JSONObject) -> bool:
    """Return True if the data of a part is base64, or absent."""
    blob = with_camel_case(part).get("inlineData")
    data = cast(object, cast(JSONObject, blob).get("data")) if isinstance(blob, dict) else None
    return not isinstance(data, str) or decode_base64("".join(data.split()), urlsafe=True) is not None


def _with_parts(body: JSONObject, change: PartChange) -> JSONObject:
    contents: list[JSONObject] = []
    for _, content in iter_list(body["contents"], ()):
        contents.append({**content, "parts": [change(part) for _, part in iter_list(content.get("parts"), ())]})
    return {**body, "contents": contents}


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")

RULES = RuleSet(
    "GEM",
    "gemini",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    messages_key="contents",
    format_path=format_google_path,
    unknown_fields=find_unknown_fields,
)
rule = RULES.register


def _describe(turn: RequestMessage, piece: RequestPart) -> dict[str, object]:
    """Return the description of a call or a result for messages."""
    given = with_camel_case(piece.wire)["functionCall" if piece.kind == "call" else "functionResponse"].get("id")
    return {"what_it_is": f"the {piece.kind} {given} of {piece.name}" if given else f"the {piece.kind} of {piece.name}"}


PAIRING = PairingChecks.within(results_in_next_message, _describe, merged=True)


@rule(1)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    return [finding for finding in request.malformed if not finding.facts.keys() & {"second", "role"}]


rule(2, fix=insert_first_message(RULES))(no_messages("contents"))
rule(3)(messages_where(lambda turn: not turn.wire.get("parts") and turn.wire.get("parts") != {}))


@rule(4)
def check_single_data_field(request: ParsedRequest) -> Iterable[RuleFinding]:
    return [finding for finding in request.malformed if "second" in finding.facts]


@rule(5)
def check_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    return [finding for finding in request.malformed if "role" in finding.facts]


@rule(6)
def check_part_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn, piece in iter_parts(request):
        if piece.kind == "call" and turn.role != "model":
            facts: dict[str, object] = {"given": turn.role, "kind": "functionCall", "role": "model"}
        elif piece.kind == "result" and turn.role == "model":
            facts = {"given": "model", "kind": "functionResponse", "role": "user"}
        else:
            continue
        yield RuleFinding(piece.path, "", {**_describe(turn, piece), **facts})


@rule(7, fix=with_opening)
def check_call_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.merged[:1]:
        for call in turn.parts_of("call")[:1] if turn.role == "model" else ():
            yield RuleFinding(turn.path, "", _describe(turn, call))


rule(8)(PAIRING.unanswered)


@rule(9)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    turns = request.merged
    earlier = dict(zip((turn.path for turn in turns[1:]), turns, strict=False))
    for turn, result in PAIRING.match(request).orphan_results:
        before = earlier.get(turn.path)
        what = RESULT_COUNT_TEXT if before and before.parts_of("call") else RESULT_PLACE_TEXT
        yield part_finding(turn, result, **_describe(turn, result), what=what)


rule(10)(PAIRING.duplicates)
rule(11, fix=with_valid_signatures)(parts_where(lambda piece: not has_valid_signature(piece.wire)))


@rule(12, fix=with_signatures)
def check_call_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    if not has_thinking_level(request.body):
        return
    turns = request.merged
    spoke = max((index for index, turn in enumerate(turns) if _has_user_content(turn)), default=0)
    for index, turn in enumerate(turns[spoke:], spoke):
        if any(signature_of(piece.wire) for piece in turn.parts):
            continue
        for call in turn.parts_of("call")[:1]:
            yield part_finding(turn, call, **_describe(turn, call), position=index + 1)


@rule(13, fix=with_valid_media)
def check_media_base64(request: ParsedRequest) -> Iterable[RuleFinding]:
    for _, piece in iter_parts(request):
        for path, part in _inline(piece):
            if not has_valid_media(part):
                data = str(with_camel_case(with_camel_case(part)["inlineData"])["data"])[:24]
                yield make_finding(
                    piece.path, "the data of this part is not base64.", where=format_google_path(path), data=data
                )


rule(14)(invalid_tool_names(FUNCTION_NAME, in_calls=False))
rule(15, fix=with_unique_functions)(duplicate_tools)


@rule(16, fix=with_declared_choice)
def check_allowed_functions(request: ParsedRequest) -> Iterable[RuleFinding]:
    known = {str(function.get("name")) for function in declared_functions(request.body)}
    if request.body.get("cachedContent") or request.body.get("cached_content"):
        return  # the functions are in the cached content
    for path, name in allowed_functions(request.body):
        if str(name) not in known:
            yield make_finding(path, name=name)


@rule(17, fix=without_cached_settings)
def check_cached_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    for name in find_cached_settings(request.body):
        yield make_finding((name,), f"`{name}` cannot be combined with `cachedContent`.", name=name)


@rule(18, fix=without_unknown_settings, is_open=True)
def check_known_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    yield from find_unknown_settings(request)


def _has_user_content(turn: RequestMessage) -> bool:
    """Return True if the user sends something other than results here."""
    return turn.role != "model" and any(piece.kind != "result" for piece in turn.parts)


def _inline(piece: RequestPart) -> Iterator[tuple[JSONPath, JSONObject]]:
    """Yield the media parts of this part: itself, or those in a result."""
    if piece.kind == "result":
        for name, value in piece.wire.items():
            yield from iter_list(with_camel_case(value).get("parts"), (*piece.path, name, "parts"))
    else:
        yield piece.path, piece.wire
