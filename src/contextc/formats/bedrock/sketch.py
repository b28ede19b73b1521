"""Converse's requests as rules see them: what each block must have, and where the pieces are.

A block is an object with one member. What kinds there are, and what each must have, is the vendor's own description of
its API; values that older endpoints took otherwise (a type in place of a format) are let pass.
"""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.checking import Fields, Finding, Kind, Path, Piece, Sketch, Turn, at, misfit
from contextc.messages import tool_call

ROLES = ("user", "assistant", "system")
FOREIGN = ("tool_calls", "function_call", "tool_call_id", "parts")
"""Where other providers keep what would be lost here."""
ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
SEEN: Fields = {"format": str, "source": dict}
SHAPES: dict[str, Fields | type] = {
    "text": str,
    "image": SEEN,
    "document": {"name": str, "source": dict, "format?": str},
    "video": SEEN,
    "audio": SEEN,
    "toolUse": {"toolUseId": str, "name": str, "input": dict, "type?": str},
    "toolResult": {"toolUseId": str, "content": list, "status?": str, "type?": str},
    "guardContent": {},
    "cachePoint": {"type": str, "ttl?": str},
    "reasoningContent": {},
    "citationsContent": {"content?": list, "citations?": list},
    "searchResult": {"source": str, "title": str, "content": list},
    "toolAddition": {"tool": dict},
    "toolRemoval": {"tool": dict},
}
IN_RESULTS: dict[str, Fields | type] = {
    **{kind: SHAPES[kind] for kind in ("text", "image", "document", "video", "searchResult")},
    "json": object,
}
IN_PROMPT: dict[str, Fields | type] = {kind: SHAPES[kind] for kind in ("text", "guardContent", "cachePoint")}
IN_TOOLS: dict[str, Fields | type] = {
    "toolSpec": {"name": str, "inputSchema": dict, "description?": str, "strict?": bool},
    "systemTool": {"name": str},
    "cachePoint": SHAPES["cachePoint"],
}
KINDS: dict[str, Kind] = {
    "text": "text",
    "reasoningContent": "reasoning",
    "toolUse": "call",
    "toolResult": "result",
    "image": "media",
    "document": "media",
    "video": "media",
    "audio": "media",
}
SOURCES = ("bytes", "s3Location", "text", "content")


def read(body: JSON) -> Sketch:
    """Any JSON as a request, or as the messages of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: Path = ("messages",) if isinstance(body, dict) else ()
    turns = [turn for index, wire in reader.listed(messages, base) for turn in reader.turn(wire, (*base, index))]
    system, config = whole.get("system"), whole.get("toolConfig")
    prompt = reader.pieces(system, ("system",), IN_PROMPT) if system is not None else []
    tools: list[Piece] = []
    if config is not None and (wrong := misfit(config, {"tools": list, "toolChoice?": dict})):
        reader.refuse(("toolConfig",), *wrong)
    elif config is not None:
        tools = list(reader.tools(cast(JSONObject, config)))
    if (wrong := misfit(whole, {"inferenceConfig?": dict})) is not None:
        reader.refuse((wrong[0],), "", wrong[1])
    return Sketch(
        turns=tuple(turns), body=whole, prompt=tuple(prompt), tools=tuple(tools), misshapen=tuple(reader.misshapen)
    )


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[Finding] = []

    def listed(self, value: JSON, path: Path) -> list[tuple[int, JSON]]:
        if isinstance(value, list):
            return list(enumerate(cast(list[JSON], value)))
        self.refuse(path, "", "this must be a list.")
        return []

    def turn(self, wire: JSON, path: Path) -> Iterator[Turn]:
        if wrong := misfit(wire, {"role": str, "content": list}):
            self.refuse(path, *wrong)
            return
        given = cast(JSONObject, wire)
        if given["role"] not in ROLES:
            self.refuse(path, "role", f"nobody here is called {given['role']!r}: `role` is user or assistant.")
        elif foreign := next((name for name in FOREIGN if given.get(name)), None):
            self.refuse(path, foreign, f"`{foreign}` is not a field of a message here.")
        else:
            pieces = self.pieces(given["content"], (*path, "content"), SHAPES)
            yield Turn(role=given["role"], path=path, wire=given, pieces=tuple(pieces))

    def pieces(self, content: JSON, path: Path, shapes: dict[str, Fields | type]) -> list[Piece]:
        found: list[Piece] = []
        for index, block in self.listed(content, path):
            here = (*path, index)
            if wrong := _misfit(block, shapes):
                self.refuse(here, *wrong)
                continue
            found.append(_piece(cast(JSONObject, block), here))
            if "toolResult" in block:
                self.pieces(block["toolResult"]["content"], (*here, "toolResult", "content"), IN_RESULTS)
        return found

    def tools(self, config: JSONObject) -> Iterator[Piece]:
        for index, tool in self.listed(config["tools"], ("toolConfig", "tools")):
            path: Path = ("toolConfig", "tools", index)
            if wrong := _misfit(tool, IN_TOOLS):
                self.refuse(path, *wrong)
            elif "cachePoint" not in tool:
                name = cast(JSONObject, next(iter(tool.values())))["name"]
                yield Piece(kind="other", path=path, wire=tool, id=name)

    def refuse(self, path: Path, field: str, message: str) -> None:
        self.misshapen.append(at(path, message, what=f"{field}: {message}" if field else message))


def _misfit(block: JSON, shapes: dict[str, Fields | type]) -> tuple[str, str] | None:
    """What is wrong with a block: it must have one member, of a kind that is known here."""
    if wrong := misfit(block, {}):
        return wrong
    names = [name for name, value in cast(JSONObject, block).items() if value is not None]
    if len(names) != 1 or len(names) != len(block):
        return "", f"a block has one member, and not {len(block)}."
    if (kind := names[0]) not in shapes:
        return kind, f"there is no block `{kind}` here."
    inside, shape = block[kind], shapes[kind]
    if isinstance(shape, type):
        return misfit(block, {kind: shape}) if shape is str else None
    if wrong := misfit(inside, shape):
        return f"{kind}.{wrong[0]}".removesuffix("."), wrong[1]
    return _misfit_inside(kind, cast(JSONObject, inside))


def _misfit_inside(kind: str, inside: JSONObject) -> tuple[str, str] | None:
    match kind:
        case "image" | "document" | "video" | "audio":
            source = cast(JSONObject, inside["source"])
            if len(source) != 1 or next(iter(source)) not in SOURCES:
                return f"{kind}.source", "`source` has one of bytes, s3Location, text and content."
            kinds: dict[str, type] = {"s3Location": dict, "content": list}
            wrong = misfit(source, {name: kinds.get(name, str) for name in source})
            return (f"{kind}.source.{wrong[0]}", wrong[1]) if wrong else None
        case "reasoningContent":
            if isinstance(inside.get("redactedContent"), str) and len(inside) == 1:
                return None
            wrong = misfit(inside, {"reasoningText": dict}) or misfit(
                inside["reasoningText"], {"text": str, "signature?": str}
            )
            return (f"{kind}.{wrong[0]}", wrong[1]) if wrong else None
        case "guardContent":
            if isinstance(inside.get("image"), dict) and len(inside) == 1:
                return None
            wrong = misfit(inside, {"text": dict}) or misfit(inside["text"], {"text": str})
            return (f"{kind}.{wrong[0]}", wrong[1]) if wrong else None
        case "citationsContent":
            content = cast(list[object], inside.get("content") or [])
            wrong = next((wrong for each in content if (wrong := misfit(each, {"text": str}))), None)
            return (f"{kind}.content", wrong[1]) if wrong else None
        case "toolSpec":
            wrong = misfit(inside["inputSchema"], {"json": dict})
            return (f"{kind}.inputSchema", wrong[1]) if wrong else None
        case _:
            return None


def _piece(block: JSONObject, path: Path) -> Piece:
    name = next(iter(block))
    inside: JSON = block[name]
    kind = KINDS.get(name, "other")
    if kind in ("call", "result") and not is_ours(inside):
        kind = "other"
    if kind in ("call", "result"):
        return Piece(kind=kind, path=path, wire=block, id=inside["toolUseId"], name=inside.get("name") or "")
    return Piece(kind=kind, path=path, wire=block, text=inside if kind == "text" else "")


def is_ours(use: JSONObject) -> bool:
    """Whether a call, or a result, is of a tool that we run; Bedrock runs some by itself."""
    return use.get("type") in (None, "tool_use", "tool_result")


def reshape(value: JSON, path: Path) -> JSON:
    """What is nearly a message or a block: arguments as text, words alone, a role or a tool of another provider."""
    if path == ("system",):
        return [block(value if isinstance(value, str) else encode(value).decode())] if value else []
    if isinstance(value, str):
        return block(value) if "content" in path or path[0] == "system" else message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    if path[0] == "toolConfig":
        return _config(wire) if len(path) == 1 else _tool(wire)
    if isinstance(wire.get("role"), str) and "content" not in path:
        return _message(wire)
    for kind, change in (("toolUse", _use), ("toolResult", _result)):
        if isinstance(wire.get(kind), dict):
            return {kind: change(cast(JSONObject, wire[kind]))}
    if isinstance(wire.get("text"), str) and wire.get("type") in (None, "text"):
        return block(wire["text"])
    return wire


def _message(wire: JSONObject) -> JSONObject:
    role, content = cast(str, wire["role"]), cast(object, wire.get("content"))
    known = role if role in ROLES else ALIASES.get(role.lower(), "user")
    if isinstance(content, list):
        return {**wire, "role": known}
    return {**wire, "role": known, "content": [block(content)] if isinstance(content, str) else []}


def _use(use: JSONObject) -> JSONObject:
    given: object = use.get("input")
    if isinstance(given, dict):
        return use
    call = tool_call("-", "-", given if isinstance(given, str) else "")
    return {**use, "input": {"malformed_arguments": call.raw} if call.malformed else call.arguments}


def _result(result: JSONObject) -> JSONObject:
    said: object = result.get("content")
    if isinstance(said, list):
        return result
    return {**result, "content": [block(said if isinstance(said, str) else encode(said).decode())]}


def _config(wire: JSONObject) -> JSONObject:
    """A configuration of tools with what of it can be used."""
    tools = wire.get("tools")
    choice = {"toolChoice": wire["toolChoice"]} if isinstance(wire.get("toolChoice"), dict) else {}
    return {"tools": tools if isinstance(tools, list) else [], **choice}


def _tool(wire: JSONObject) -> JSONObject:
    """A tool that lacks its schema, or has another provider's shape."""
    inner = next((wire[name] for name in ("toolSpec", "function") if isinstance(wire.get(name), dict)), wire)
    given = cast(JSONObject, inner)
    if not isinstance(given.get("name"), str):
        return wire
    made: JSONObject = {"name": given["name"], "inputSchema": {"json": {"type": "object"}}}
    for name in ("input_schema", "parameters", "inputSchema"):
        if isinstance(schema := given.get(name), dict):
            plain = cast(JSONObject, schema)
            made["inputSchema"] = {"json": plain["json"] if isinstance(plain.get("json"), dict) else plain}
    described = given.get("description")
    return {"toolSpec": {**made, "description": described} if isinstance(described, str) and described else made}


def message(text: str) -> JSONObject:
    return {"role": "user", "content": [block(text)]}


def block(text: str) -> JSONObject:
    return {"text": text}
