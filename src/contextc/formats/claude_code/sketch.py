"""The parser of Claude Code's lines for lint rules. Anthropic's parser reads the messages in them."""

from collections.abc import Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import sketch as anthropic
from contextc.formats.checking import Finding, Path, Piece, Sketch, Turn, at, misfit, strangers
from contextc.formats.claude_code.chain import followed
from contextc.formats.claude_code.lines import SAID, is_answer, is_aside, is_said, line
from contextc.formats.reading import NOTE

block = anthropic.block
FIELDS = frozenset(("role", "content", "type"))
REPLY = FIELDS | {"id", "model", "usage", "stop_reason", "stop_details", "container"}
"""The fields of a line's message, and the additional ones of a reply with usage."""


def read(body: JSON) -> Sketch:
    """Parse any JSON as a request, or as the lines of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    given: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: Path = ("messages",) if isinstance(body, dict) else ()
    misshapen: list[Finding] = [*_head(whole)]
    turns: list[Turn] = []
    if isinstance(given, list):
        lines = cast(list[JSON], given)
        misshapen += [
            at((*base, index), wrong[1], what=wrong[1]) for index, each in enumerate(lines) if (wrong := _misfit(each))
        ]
        turns = list(_turns(lines, base, misshapen)) or list(_answers(lines, base))
    else:
        misshapen.append(at(base, "messages must be a list.", what="messages must be a list."))
    return Sketch(turns=tuple(turns), body=whole, tools=tuple(_tools(whole, misshapen)), misshapen=tuple(misshapen))


def unknown(sketch: Sketch) -> Iterator[Finding]:
    """Yield the fields of messages and blocks that Claude Code ignores."""
    for turn in sketch.turns:
        replied = turn.role == "assistant" and isinstance(turn.wire.get("usage"), dict)
        yield from strangers(turn.wire, REPLY if replied else FIELDS, (*turn.path, "message"))
        for piece in turn.pieces:
            yield from anthropic.unknown_in_block(piece.wire, piece.path)


def _misfit(given: JSON) -> tuple[str, str] | None:
    """Return the field and message of a fault in a line, without its message, or None."""
    if wrong := misfit(given, {"type": str}):
        return wrong
    each = cast(JSONObject, given)
    if is_aside(each):
        return None
    if each["type"] not in SAID:
        return "type", f"unknown line type {each['type']!r}."
    return misfit(each, {"message": dict})


def _turns(lines: list[JSON], base: Path, misshapen: list[Finding]) -> Iterator[Turn]:
    """Yield the messages in conversation order. Append a finding for each without a valid shape."""
    sound = [cast(JSONObject, each if not _misfit(each) else {"type": NOTE}) for each in lines]
    places = [index for index in followed(sound) if is_said(sound[index])]
    bare: JSON = [{**sound[index]["message"], "role": sound[index]["type"]} for index in places]
    found = anthropic.read(bare)

    def lifted(path: Path) -> Path:
        index, *rest = path
        here: Path = (*base, places[cast(int, index)])
        return (*here, "message", *rest) if rest else here

    for each in found.misshapen:
        misshapen.append(Finding(lifted(each.path), each.message, each.facts))
    for turn in found.turns:
        pieces = tuple([replace(piece, path=lifted(piece.path)) for piece in turn.pieces])
        wire = sound[places[cast(int, turn.path[0])]]["message"]
        yield Turn(role=turn.role, path=lifted(turn.path), wire=wire, pieces=pieces)


def _answers(lines: list[JSON], base: Path) -> Iterator[Turn]:
    """Yield the ends of runs in which only the program wrote anything. They failed, and their output is valid."""
    for index, each in enumerate(lines):
        if not _misfit(each) and is_answer(cast(JSONObject, each)):
            yield Turn(role="record", path=(*base, index), wire=cast(JSONObject, each))


def _head(body: JSONObject) -> Iterator[Finding]:
    given: JSON = body.get("system_prompt")
    if given is not None and not isinstance(given, str | dict):
        yield at(
            ("system_prompt",),
            "system_prompt must be a string or an object.",
            what="system_prompt must be a string or an object.",
        )


def _tools(body: JSONObject, misshapen: list[Finding]) -> Iterator[Piece]:
    given: JSON = body.get("tools")
    if given is not None and not isinstance(given, list):
        misshapen.append(at(("tools",), "tools must be a list.", what="tools must be a list."))
        return
    for index, tool in enumerate(cast(list[JSON], given or [])):
        path: Path = ("tools", index)
        native = isinstance(tool, dict) and cast(JSONObject, tool).get("type") not in (None, "custom")
        if wrong := misfit(
            cast(object, tool), {"type": str} if native else {"name": str, "inputSchema": dict, "description?": str}
        ):
            misshapen.append(at(path, wrong[1], what=wrong[1]))
        elif not native:
            yield Piece(kind="other", path=path, wire=cast(JSONObject, tool), id=cast(JSONObject, tool)["name"])


def reshape(value: JSON, path: Path) -> JSON:
    """Return an almost valid line in a valid shape: an API message, a line of unknown type, a tool in another shape."""
    if path[0] == "tools":
        return _tool(value)
    if len(path) != 2:
        return anthropic.reshape(value, path)
    if isinstance(value, str):
        return message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    inner: JSON = wire["message"] if isinstance(wire.get("message"), dict | str) else wire
    if isinstance(inner, str):
        return message(inner) if wire.get("type") != "assistant" else line({"role": "assistant", "content": inner})
    given = cast(JSONObject, inner)
    role = wire["type"] if wire.get("type") in SAID else given.get("role")
    made = cast(JSONObject, anthropic.reshape({"role": role, **given}, path))
    return line(made) if made.get("role") in SAID and isinstance(made.get("content"), str | list) else wire


def _tool(value: JSON) -> JSON:
    made: JSON = anthropic.reshape(value, ("tools", 0))
    wire = cast(JSONObject, made) if isinstance(made, dict) else {}
    if not isinstance(wire.get("input_schema"), dict):
        return value
    rest = {name: each for name, each in wire.items() if name != "input_schema"}
    return {**rest, "inputSchema": wire["input_schema"]}


def message(text: str) -> JSONObject:
    return line(anthropic.message(text))
