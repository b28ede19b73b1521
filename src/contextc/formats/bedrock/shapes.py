"""The schema of Converse requests, from the vendor's API description.

Checking a value finds three kinds of faults, each reported by its own rule: an invalid *shape*, an invalid *value*, and
an unknown *name*. Ids, names, ranges and blank prompts have separate rules and are not checked here. A media type in
place of a format (`video/mp4`), which older endpoints accepted, is allowed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject
from contextc.formats.checking import NAMES, Path
from contextc.formats.media import unpacked

Fault: TypeAlias = Literal["shape", "value", "name"]
BUCKET = r"s3://[a-z0-9][\.\-a-z0-9]{1,61}[a-z0-9](/.*)?"
META = r"[a-zA-Z0-9\s:_@$#=/+,-.]"
GUARDRAIL = r"(|([a-z0-9]+)|(arn:aws(-[^:]+)?:bedrock:[a-z0-9-]{1,20}:[0-9]{12}:guardrail/[a-z0-9]+))"


class Problem(NamedTuple):
    """A fault at a path, with our message and the constraint for the vendor's error text."""

    fault: Fault
    path: Path
    message: str
    what: str = ""


class Shape(Struct, frozen=True, kw_only=True):
    """The schema of a value. `kind` None allows any value. An object has `members`; a list or a map has `each`.

    `one`: exactly one member is present. `open`: members of any name are allowed. `least` and `most` limit the value of
    a number, and the length of other values.
    """

    kind: type | None = None
    members: Mapping[str, "Shape"] = {}
    needs: tuple[str, ...] = ()
    one: bool = False
    open: bool = False
    each: "Shape | None" = None
    key: "Shape | None" = None
    words: tuple[str, ...] = ()
    pattern: str = ""
    least: int | None = None
    most: int | None = None
    base64: bool = False


def having(*needs: str, **members: Shape) -> Shape:
    return Shape(kind=dict, members=members, needs=needs)


def one_of(**members: Shape) -> Shape:
    return Shape(kind=dict, members=members, one=True)


def listed(each: Shape, least: int | None = None, most: int | None = None) -> Shape:
    return Shape(kind=list, each=each, least=least, most=most)


def word(*words: str) -> Shape:
    return Shape(kind=str, words=words)


def text(least: int | None = None, most: int | None = None, pattern: str = "") -> Shape:
    return Shape(kind=str, least=least, most=most, pattern=pattern)


ANY, TEXT, FLAG, COUNT = Shape(), Shape(kind=str), Shape(kind=bool), Shape(kind=int, least=0)
OBJECT, LIST = Shape(kind=dict, open=True), Shape(kind=list)
TEXTS = listed(one_of(text=TEXT))
BYTES = Shape(kind=str, base64=True, least=1)
IN_S3 = having("uri", uri=text(1, 1024, BUCKET), bucketOwner=text(pattern="[0-9]{12}"))
SOURCE = one_of(bytes=BYTES, s3Location=IN_S3)
FAILED = having(message=TEXT)
ENABLED = having("enabled", enabled=FLAG)
IMAGE = having("format", "source", format=word("png", "jpeg", "gif", "webp"), source=SOURCE, error=FAILED)
VIDEO = having(
    "format",
    "source",
    format=word("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
    source=SOURCE,
)
SOUNDS = "mp3 opus wav aac flac mp4 ogg mkv mka x-aac m4a mpeg mpga pcm webm"
AUDIO = having("format", "source", format=word(*SOUNDS.split()), source=SOURCE, error=FAILED)
DOCUMENT = having(
    "name",
    "source",
    name=TEXT,
    source=one_of(**SOURCE.members, text=TEXT, content=TEXTS),
    format=word("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
    context=TEXT,
    citations=ENABLED,
)
FOUND = having(
    "source", "title", "content", source=TEXT, title=TEXT, content=listed(having("text", text=TEXT)), citations=ENABLED
)
GUARDED = one_of(
    text=having("text", text=TEXT, qualifiers=listed(word("grounding_source", "query", "guard_content"))),
    image=having("format", "source", format=word("png", "jpeg"), source=one_of(bytes=BYTES)),
)
MARK = having("type", type=word("default"), ttl=word("5m", "1h"))
PLACE = having(documentIndex=COUNT, start=COUNT, end=COUNT)
CITED = having(
    title=TEXT,
    source=TEXT,
    sourceContent=TEXTS,
    location=one_of(
        web=having(url=TEXT, domain=TEXT),
        documentChar=PLACE,
        documentPage=PLACE,
        documentChunk=PLACE,
        searchResultLocation=having(searchResultIndex=COUNT, start=COUNT, end=COUNT),
    ),
)
NAMED_TOOL = having("tool", tool=having(type=text(1, 64), name=text(1, 128), serverName=text(1, 128)))
BLOCK = one_of(
    text=TEXT,
    image=IMAGE,
    document=DOCUMENT,
    video=VIDEO,
    audio=AUDIO,
    toolUse=having("toolUseId", "name", "input", toolUseId=TEXT, name=TEXT, input=OBJECT, type=word("server_tool_use")),
    toolResult=having("toolUseId", "content", toolUseId=TEXT, content=LIST, status=word("success", "error"), type=TEXT),
    guardContent=GUARDED,
    cachePoint=MARK,
    reasoningContent=one_of(reasoningText=having("text", text=TEXT, signature=TEXT), redactedContent=TEXT),
    citationsContent=having(content=TEXTS, citations=listed(CITED)),
    searchResult=FOUND,
    toolAddition=NAMED_TOOL,
    toolRemoval=NAMED_TOOL,
)
IN_RESULTS = one_of(json=ANY, text=TEXT, image=IMAGE, document=DOCUMENT, video=VIDEO, searchResult=FOUND)
IN_PROMPT = one_of(text=TEXT, guardContent=GUARDED, cachePoint=MARK)
IN_TOOLS = one_of(
    toolSpec=having(
        "name",
        "inputSchema",
        name=TEXT,
        inputSchema=having("json", json=OBJECT),
        description=text(1),
        strict=FLAG,
    ),
    systemTool=having("name", name=TEXT),
    cachePoint=MARK,
)
CHOICE = one_of(auto=having(), any=having(), tool=having("name", name=TEXT))
MESSAGE = having("role", "content", role=TEXT, content=LIST)
BODY = having(
    modelId=TEXT,
    messages=ANY,
    system=ANY,
    toolConfig=having(tools=Shape(least=1), toolChoice=CHOICE),
    inferenceConfig=having(maxTokens=ANY, temperature=ANY, topP=ANY, stopSequences=listed(text(1), 0, 2500)),
    guardrailConfig=having(
        guardrailIdentifier=text(0, 2048, GUARDRAIL),
        guardrailVersion=text(pattern="(|([1-9][0-9]{0,7})|(DRAFT))"),
        trace=word("enabled", "disabled", "enabled_full"),
        streamProcessingMode=word("sync", "async"),
    ),
    additionalModelRequestFields=ANY,
    additionalModelResponseFieldPaths=listed(text(1, 256), 0, 10),
    promptVariables=Shape(kind=dict, each=one_of(text=TEXT)),
    requestMetadata=Shape(kind=dict, key=text(1, 256, META + "*"), each=text(0, 256, META + "*"), least=1, most=16),
    performanceConfig=having(latency=word("standard", "optimized")),
    serviceTier=having("type", type=word("priority", "default", "flex", "reserved")),
    outputConfig=having(
        textFormat=having(
            "type",
            "structure",
            type=word("json_schema"),
            structure=one_of(jsonSchema=having("schema", schema=TEXT, name=TEXT, description=TEXT)),
        ),
        effort=text(0, 16),
    ),
)
"""A request. Messages, system prompt and tools are checked block by block."""


def problems(value: JSON, shape: Shape, path: Path = ()) -> Iterator[Problem]:
    """Yield all faults of a value. The content of an invalid shape is not checked."""
    if shape.kind is not None and not _is(value, shape.kind):
        name = str(path[-1]) if path and isinstance(path[-1], str) else "this"
        yield Problem("shape", path, f"`{name}` must be {NAMES[shape.kind]}.")
        return
    if shape.kind is dict:
        yield from _inside(cast(JSONObject, value), shape, path)
    elif shape.each is not None:
        for index, each in enumerate(cast(list[JSON], value)):
            yield from problems(each, shape.each, (*path, index))
    if what := _unmet(value, shape):
        yield Problem("value", path, f"invalid value {_shown(value)}.", what)


def _inside(value: JSONObject, shape: Shape, path: Path) -> Iterator[Problem]:
    if shape.one and (len(value) != 1 or next(iter(value)) not in shape.members):
        yield Problem("shape", path, f"expected exactly one of {', '.join(shape.members)}.")
        return
    for name in shape.needs:
        if name not in value:
            yield Problem("shape", path, f"`{name}` is missing.")
    for name, each in value.items():
        if shape.each is not None:
            if shape.key is not None and (what := _unmet(name, shape.key)):
                yield Problem("value", (*path, name), f"invalid name {_shown(name)}.", what)
            yield from problems(each, shape.each, (*path, name))
        elif (inner := shape.members.get(name)) is not None:
            yield from problems(each, inner, (*path, name))
        elif not shape.open:
            yield Problem("name", (*path, name), f"`{name}` is not a known field.", ", ".join(shape.members))


def _unmet(value: JSON, shape: Shape) -> str:
    """Return the constraint that a value does not satisfy, or ""."""
    if shape.words and str(value).rpartition("/")[2] not in shape.words:
        return f"Member must satisfy enum value set: [{', '.join(shape.words)}]"
    if shape.pattern and not re.fullmatch(shape.pattern, cast(str, value)):
        return f"Member must satisfy regular expression pattern: {shape.pattern}"
    size = (
        value
        if isinstance(value, int | float)
        else len(cast(str, value))
        if isinstance(value, str | list | dict)
        else 0
    )
    measured = "value" if isinstance(value, int | float) else "length"
    if shape.least is not None and size < shape.least:
        return f"Member must have {measured} greater than or equal to {shape.least}"
    if shape.most is not None and size > shape.most:
        return f"Member must have {measured} less than or equal to {shape.most}"
    return "Member must be base64" if shape.base64 and not unpacked(cast(str, value)) else ""


def _is(value: JSON, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _shown(value: JSON) -> str:
    said = repr(value)
    return said if len(said) < 60 else f"{said[:50]}…"
