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
from contextc.formats.checking import Fields, Finding, Kind, Path, Piece, Sketch, Turn, at, known, misfit, side, spelled
from contextc.formats.gemini import errors
from contextc.formats.open_calls import OpenCalls
from contextc.messages import tool_call

ROLES = ("user", "model", "function", "tool")  # the last two are for results: formerly, and in Google's examples
ALIASES = {"assistant": "model", "ai": "model"}
DATA: dict[str, Fields] = {
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
BESIDE: Fields = {
    "thought?": bool,
    "thoughtSignature?": str,
    "videoMetadata?": dict,
    "mediaResolution?": (dict, str, int),
    "partMetadata?": dict,
    "audioTranscription?": dict,
    "mediaProcessing?": (dict, str, int),
    "speechMetadata?": dict,
}
BESIDE_DATA = {name.removesuffix("?") for name in BESIDE}
INSIDE = {
    name: known(DATA[name], *more)
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
ELSEWHERE = ("type", "cache_control")  # fields of other providers' parts, without meaning here
IN_RESULTS, IN_SYSTEM = ("inlineData", "fileData"), ("text", "inlineData", "fileData")
SYSTEM, TOOLS = ("systemInstruction", "system_instruction"), ("functionDeclarations", "function_declarations")
KINDS: dict[str, Kind] = {
    "text": "text",
    "functionCall": "call",
    "functionResponse": "result",
    "inlineData": "media",
    "fileData": "media",
}


def read(body: JSON) -> Sketch:
    """Parse any JSON as a request, or as the contents of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    contents: JSON = whole.get("contents") if isinstance(body, dict) else body
    base: Path = ("contents",) if isinstance(body, dict) else ()
    turns: list[Turn] = []
    if contents is not None and not isinstance(contents, list | dict):
        reader.wrong(base, "", "contents must be a list.")
    else:
        turns = [turn for path, wire in listed(contents, base) for turn in reader.turn(wire, path)]
    for name in SYSTEM:
        reader.system(whole.get(name), (name,))
    return Sketch(
        turns=tuple(_with_ids(turns)),
        body=whole,
        tools=tuple(reader.functions(whole.get("tools"))),
        misshapen=tuple(reader.misshapen),
    )


def unknown(sketch: Sketch) -> Iterator[Finding]:
    """Yield the fields inside the data of parts that Google does not have."""
    for piece in [piece for turn in sketch.turns for piece in turn.pieces]:
        for name, value in piece.wire.items():
            fields = INSIDE.get(camel(name))
            inside = cast(JSONObject, value) if fields is not None and isinstance(value, dict) else {}
            for each in inside:
                if camel(each) not in (fields or ()):
                    yield at((*piece.path, name, each), f"`{each}` is not a known field.", name=each)


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[Finding] = []

    def turn(self, wire: JSON, path: Path) -> Iterator[Turn]:
        if wrong := misfit(wire, {"role?": str, "parts?": (list, dict)}):
            self.wrong(path, *wrong)
            return
        given = cast(JSONObject, wire)
        for name in given:
            if name not in ("role", "parts") and given[name] is not None:
                self.unknown(path, name)
        role = cast(str, given.get("role") or "user")
        if role not in ROLES:
            message = f'invalid role {role!r}: expected "user" or "model".'
            self.misshapen.append(at(path, message, what=errors.ROLE, role=role))
            role = ALIASES.get(role.lower(), "user")
        yield Turn(role=role, path=path, wire=given, pieces=tuple(self.parts(given, path, DATA)))

    def parts(self, content: JSONObject, path: Path, among: Iterable[str]) -> list[Piece]:
        """Return the parts of a content. Findings on the whole content come before those on its parts."""
        before = len(self.misshapen)
        parts = listed(content.get("parts"), (*path, "parts"))
        pieces = [piece for here, part in parts for piece in self.pieces(part, here, path, among)]
        self.misshapen[before:] = sorted(self.misshapen[before:], key=lambda finding: len(finding.path))
        return pieces

    def pieces(self, part: JSON, path: Path, content: Path, among: Iterable[str]) -> Iterator[Piece]:
        """Yield the parsed part, or none if it is misshapen."""
        if wrong := misfit(part, {}):
            self.wrong(path, *wrong)
            return
        wire = cast(JSONObject, part)
        given: JSONObject = {camel(name): value for name, value in wire.items() if value is not None}
        fields = [name for name in given if name in among]
        if len(data := [name for name in wire if camel(name) in among and wire[name] is not None]) > 1:
            what = errors.SECOND_FIELD.format(where=place(path), second=data[1])
            message = f"expected one data field in {spelled(path)}, got {len(data)}: {', '.join(data)}."
            self.misshapen.append(at(content, message, what=what, second=data[1]))
        if strangers := [name for name in given if name not in among and name not in BESIDE_DATA]:
            self.unknown(path, strangers[0])
            return
        if not fields and "audioTranscription" not in given:
            self.misshapen.append(
                at(path, "this part has no data field.", what=errors.NO_DATA.format(where=place(path)))
            )
            return
        wrong = misfit(given, BESIDE) or next((wrong for name in fields if (wrong := _misfit(name, given))), None)
        if wrong:
            self.wrong(path, *wrong)
        for name in fields or ["audioTranscription"]:
            if not wrong or KINDS.get(name) in ("call", "result"):
                yield from _piece(name, given, wire, path)

    def system(self, content: JSON, path: Path) -> None:
        if content is None:
            return
        if wrong := misfit(content, {"role?": str, "parts?": (list, dict)}):
            self.wrong(path, *wrong)
            return
        for name in cast(JSONObject, content):
            if name not in ("role", "parts") and content[name] is not None:
                self.unknown(path, name)
        self.parts(content, path, IN_SYSTEM)

    def functions(self, tools: JSON) -> Iterator[Piece]:
        """Yield the declared functions."""
        for path, tool in listed(tools, ("tools",)):
            if wrong := misfit(tool, {f"{name}?": (list, dict) for name in TOOLS}):
                self.wrong(path, *wrong)
                continue
            for name in TOOLS:
                for here, function in listed(tool.get(name), (*path, name)):
                    if wrong := misfit(function, {"name": str, "description?": str}):
                        self.wrong(here, *wrong)
                    else:
                        yield Piece(kind="other", path=here, wire=function, id=function["name"])

    def wrong(self, path: Path, field: str, message: str) -> None:
        where = place((*path, field) if field else path)
        template = errors.MISSING if message.endswith("missing.") else errors.WRONG_TYPE
        self.misshapen.append(at(path, message, what=template.format(where=where, what=message)))

    def unknown(self, path: Path, name: str) -> None:
        what = errors.UNKNOWN_NAME.format(name=name, where=place(path))
        self.misshapen.append(at(path, f"`{name}` is not a known field.", what=what))


def _misfit(name: str, part: JSONObject) -> tuple[str, str] | None:
    """Return the field and message of a fault in a data field, or None."""
    if name == "text":
        return misfit(part, DATA[name])
    if wrong := misfit(part, {name: dict}):
        return wrong
    inside = camels(part[name])
    wrong = misfit(inside, DATA[name])
    if not wrong and inside.get("name") == "":
        wrong = "name", "`name` is missing."
    if not wrong and name == "functionResponse":
        for _, each in listed(inside.get("parts"), ()):
            wrong = wrong or _misfit_of_media(each)
    return (f"{name}.{wrong[0]}", wrong[1]) if wrong else None


def _misfit_of_media(part: JSON) -> tuple[str, str] | None:
    if wrong := misfit(part, {}):
        return "parts", wrong[1]
    given = camels(part)
    fields = [name for name in given if name in IN_RESULTS]
    if len(fields) != 1:
        return "parts", "`parts` of a result must be media, each `inlineData` or `fileData`."
    return _misfit(fields[0], given)


def _piece(name: str, given: JSONObject, wire: JSONObject, path: Path) -> Iterator[Piece]:
    kind = KINDS.get(name, "other")
    if kind == "text":
        yield Piece(kind="reasoning" if given.get("thought") else "text", path=path, wire=wire, text=given["text"])
    elif kind in ("call", "result"):
        inside = camels(given[name]) if isinstance(given[name], dict) else {}
        names = [each if isinstance(each := cast(object, inside.get(key)), str) else "" for key in ("id", "name")]
        if names[1]:
            yield Piece(kind=kind, path=path, wire=wire, id=names[0], name=names[1])
    else:
        yield Piece(kind=kind, path=path, wire=wire)


def _with_ids(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Yield the turns with an id on each call, and on each result that of its call, or "" without a call."""
    before, first = OpenCalls[str](), dict[Hashable, str]()  # call ids of the previous side, by key
    calls, keyed = OpenCalls[str](), dict[Hashable, str]()
    speaks = ""
    for turn in turns:
        if side(turn) != speaks:
            before, first = calls, keyed
            calls, keyed = OpenCalls[str](), dict[Hashable, str]()
            speaks = side(turn)
        pieces: list[Piece] = []
        for piece in turn.pieces:
            if piece.kind == "call":
                given = f"{piece.id or piece.name}#{len(calls)}"
                keys = [("name", piece.name), ("id", piece.id) if piece.id else ("unnamed", piece.name)]
                calls.add(given, *keys)
                for key in keys:
                    keyed.setdefault(key, given)
                piece = replace(piece, id=given)
            elif piece.kind == "result":
                alike = ("unnamed" if piece.id else "name", piece.name)
                chosen = before.take(("id", piece.id)) or before.take(alike)
                chosen = chosen or first.get(("id", piece.id)) or first.get(alike, "")
                piece = replace(piece, id=chosen)
            pieces.append(piece)
        yield replace(turn, pieces=tuple(pieces))


def reshape(value: JSON, path: Path) -> JSON:
    """Return an almost valid content, part or system prompt in a valid shape, such as a bare text or a foreign role."""
    if path[0] in SYSTEM:
        return _as_system(value) if len(path) == 1 else _as_part(value, IN_SYSTEM)
    if path[0] != "contents":
        return value
    if len(path) == 1 and not isinstance(value, dict):
        return [_as_content(value)]
    return _as_part(value) if "parts" in path else _as_content(value)


def _as_content(value: JSON) -> JSON:
    if value is None:
        return None
    if not isinstance(value, dict | list):
        return message(_words(value))
    wire: JSONObject = cast(JSONObject, value) if isinstance(value, dict) else {"parts": value}
    role = wire["role"].lower() if isinstance(wire.get("role"), str) else "user"
    given: JSONObject = {name: each for name, each in wire.items() if name != "role" and each is not None}
    parts = [split for _, part in listed(given.pop("parts", None), ()) for split in _split(part)]
    parts += [part for _, part in listed(given.pop("content", None), ())]
    parts += [*_split(given)] if given else []
    sound = [each for part in parts if (each := _as_part(part)) is not None]
    return {"role": role if role in ROLES else ALIASES.get(role, "user"), "parts": sound}


def _as_system(value: JSON) -> JSON:
    if not value:
        return None
    content: JSONObject = _as_content(value)
    return {**content, "parts": [_as_part(part, IN_SYSTEM) for part in content["parts"]]}


def _split(part: JSON) -> Iterator[JSON]:
    """Yield one part for each data field of a part that has several."""
    wire = cast(JSONObject, part) if isinstance(part, dict) else {}
    data = [name for name in wire if camel(name) in DATA and wire[name] is not None]
    if len(data) < 2:
        yield part
        return
    for name in data:
        yield {each: value for each, value in wire.items() if each == name or each not in data}


def _as_part(value: JSON, among: Iterable[str] = DATA) -> JSON:
    """Return an equivalent part with a valid shape, possibly as text, or None if it is empty."""
    part: JSON = value
    if isinstance(value, dict):
        wire: JSONObject = {name: each for name, each in cast(JSONObject, value).items() if each is not None}
        if not {camel(name) for name in wire} - BESIDE_DATA:
            return None
        plain: JSONObject = {name: each for name, each in wire.items() if name not in ELSEWHERE}
        part = {name: _as_data(camel(name), each) for name, each in plain.items()}
        if among is DATA and len(list(_split(part))) > 1:
            return part  # its content is reshaped later
    reader = _Reader()
    for _ in reader.pieces(part, (), (), among):
        pass
    return (block(_words(value)) if value is not None else None) if reader.misshapen else part


def _as_data(name: str, value: JSON) -> JSON:
    """Return a data field with an object as its value, if it must be one."""
    if name not in ("functionCall", "functionResponse") or not isinstance(value, dict):
        return value
    inside = cast(JSONObject, value)
    if name == "functionCall":
        given: JSON = inside.get("args")
        if given is None or isinstance(given, dict):
            return inside
        call = tool_call("-", "-", _words(given))
        return {**inside, "args": {"malformed_arguments": call.raw} if call.malformed else call.arguments}
    given = inside.get("response")
    response = cast(JSONObject, given or {}) if isinstance(given, dict | None) else {"output": given}
    media = [part for _, part in listed(inside.get("parts"), ())]
    sound = [part for part in media if not _misfit_of_media(part)]
    if len(sound) == len(media):
        return {**inside, "response": response}
    others = [part for part in media if _misfit_of_media(part)]
    return {**inside, "response": {**response, "parts": others}, "parts": sound}


def listed(value: JSON, path: Path) -> Iterator[tuple[Path, JSON]]:
    """Yield the items of a value with their paths. A value that is not a list is its only item."""
    if isinstance(value, list):
        yield from (((*path, index), each) for index, each in enumerate(cast(list[JSON], value)))
    elif value is not None:
        yield path, value


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def camels(value: JSON) -> JSONObject:
    """Return an object with canonical field names and without nulls, or an empty one for any other value."""
    wire = cast(JSONObject, value) if isinstance(value, dict) else {}
    return {camel(name): each for name, each in wire.items() if each is not None}


def place(path: Path) -> str:
    """Return a path as Google writes it, such as `contents[1].parts[0].function_call`."""
    whole = path if path and isinstance(path[0], str) else ("contents", *path)
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", spelled(whole))


def message(text: str) -> JSONObject:
    return {"role": "user", "parts": [block(text)]}


def block(text: str) -> JSONObject:
    return {"text": text}


def _words(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()
