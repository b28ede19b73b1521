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
from contextc.formats.lint_engine import TYPE_NAMES, JSONPath
from contextc.formats.message_preparation import decode_base64

FaultKind: TypeAlias = Literal["shape", "value", "name"]
S3_URI = r"s3://[a-z0-9][\.\-a-z0-9]{1,61}[a-z0-9](/.*)?"
METADATA_CHARACTERS = r"[a-zA-Z0-9\s:_@$#=/+,-.]"
GUARDRAIL = r"(|([a-z0-9]+)|(arn:aws(-[^:]+)?:bedrock:[a-z0-9-]{1,20}:[0-9]{12}:guardrail/[a-z0-9]+))"


class SchemaFault(NamedTuple):
    """A fault at a path, with our message and the constraint for the vendor's error text."""

    fault: FaultKind
    path: JSONPath
    message: str
    what: str = ""


class Schema(Struct, frozen=True, kw_only=True):
    """The schema of a value. `kind` None allows any value. An object has `members`; a list or a map has `items`.

    `exactly_one`: exactly one member is present. `allow_unknown`: members of any name are allowed. `minimum` and
    `maximum` limit the value of a number, and the length of other values.
    """

    kind: type | None = None
    members: Mapping[str, "Schema"] = {}
    required: tuple[str, ...] = ()
    exactly_one: bool = False
    allow_unknown: bool = False
    items: "Schema | None" = None
    key: "Schema | None" = None
    enum: tuple[str, ...] = ()
    pattern: str = ""
    minimum: int | None = None
    maximum: int | None = None
    base64: bool = False


def object_schema(*needs: str, **members: Schema) -> Schema:
    return Schema(kind=dict, members=members, required=needs)


def union_schema(**members: Schema) -> Schema:
    return Schema(kind=dict, members=members, exactly_one=True)


def list_schema(each: Schema, least: int | None = None, most: int | None = None) -> Schema:
    return Schema(kind=list, items=each, minimum=least, maximum=most)


def enum_schema(*words: str) -> Schema:
    return Schema(kind=str, enum=words)


def text_schema(least: int | None = None, most: int | None = None, pattern: str = "") -> Schema:
    return Schema(kind=str, minimum=least, maximum=most, pattern=pattern)


ANY, TEXT, BOOLEAN, NON_NEGATIVE = Schema(), Schema(kind=str), Schema(kind=bool), Schema(kind=int, minimum=0)
OBJECT, LIST = Schema(kind=dict, allow_unknown=True), Schema(kind=list)
TEXT_LIST = list_schema(union_schema(text=TEXT))
BYTES = Schema(kind=str, base64=True, minimum=1)
S3_LOCATION = object_schema("uri", uri=text_schema(1, 1024, S3_URI), bucketOwner=text_schema(pattern="[0-9]{12}"))
SOURCE = union_schema(bytes=BYTES, s3Location=S3_LOCATION)
MEDIA_ERROR = object_schema(message=TEXT)
ENABLED = object_schema("enabled", enabled=BOOLEAN)
IMAGE = object_schema(
    "format", "source", format=enum_schema("png", "jpeg", "gif", "webp"), source=SOURCE, error=MEDIA_ERROR
)
VIDEO = object_schema(
    "format",
    "source",
    format=enum_schema("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
    source=SOURCE,
)
AUDIO_FORMATS = "mp3 opus wav aac flac mp4 ogg mkv mka x-aac m4a mpeg mpga pcm webm"
AUDIO = object_schema("format", "source", format=enum_schema(*AUDIO_FORMATS.split()), source=SOURCE, error=MEDIA_ERROR)
DOCUMENT = object_schema(
    "name",
    "source",
    name=TEXT,
    source=union_schema(**SOURCE.members, text=TEXT, content=TEXT_LIST),
    format=enum_schema("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
    context=TEXT,
    citations=ENABLED,
)
SEARCH_RESULT = object_schema(
    "source",
    "title",
    "content",
    source=TEXT,
    title=TEXT,
    content=list_schema(object_schema("text", text=TEXT)),
    citations=ENABLED,
)
GUARD_CONTENT = union_schema(
    text=object_schema(
        "text", text=TEXT, qualifiers=list_schema(enum_schema("grounding_source", "query", "guard_content"))
    ),
    image=object_schema("format", "source", format=enum_schema("png", "jpeg"), source=union_schema(bytes=BYTES)),
)
CACHE_POINT = object_schema("type", type=enum_schema("default"), ttl=enum_schema("5m", "1h"))
CITATION_LOCATION = object_schema(documentIndex=NON_NEGATIVE, start=NON_NEGATIVE, end=NON_NEGATIVE)
CITATIONS = object_schema(
    title=TEXT,
    source=TEXT,
    sourceContent=TEXT_LIST,
    location=union_schema(
        web=object_schema(url=TEXT, domain=TEXT),
        documentChar=CITATION_LOCATION,
        documentPage=CITATION_LOCATION,
        documentChunk=CITATION_LOCATION,
        searchResultLocation=object_schema(searchResultIndex=NON_NEGATIVE, start=NON_NEGATIVE, end=NON_NEGATIVE),
    ),
)
TOOL_REFERENCE = object_schema(
    "tool", tool=object_schema(type=text_schema(1, 64), name=text_schema(1, 128), serverName=text_schema(1, 128))
)
BLOCK = union_schema(
    text=TEXT,
    image=IMAGE,
    document=DOCUMENT,
    video=VIDEO,
    audio=AUDIO,
    toolUse=object_schema(
        "toolUseId", "name", "input", toolUseId=TEXT, name=TEXT, input=OBJECT, type=enum_schema("server_tool_use")
    ),
    toolResult=object_schema(
        "toolUseId", "content", toolUseId=TEXT, content=LIST, status=enum_schema("success", "error"), type=TEXT
    ),
    guardContent=GUARD_CONTENT,
    cachePoint=CACHE_POINT,
    reasoningContent=union_schema(reasoningText=object_schema("text", text=TEXT, signature=TEXT), redactedContent=TEXT),
    citationsContent=object_schema(content=TEXT_LIST, citations=list_schema(CITATIONS)),
    searchResult=SEARCH_RESULT,
    toolAddition=TOOL_REFERENCE,
    toolRemoval=TOOL_REFERENCE,
)
RESULT_CONTENT = union_schema(
    json=ANY, text=TEXT, image=IMAGE, document=DOCUMENT, video=VIDEO, searchResult=SEARCH_RESULT
)
SYSTEM_CONTENT = union_schema(text=TEXT, guardContent=GUARD_CONTENT, cachePoint=CACHE_POINT)
TOOL = union_schema(
    toolSpec=object_schema(
        "name",
        "inputSchema",
        name=TEXT,
        inputSchema=object_schema("json", json=OBJECT),
        description=text_schema(1),
        strict=BOOLEAN,
    ),
    systemTool=object_schema("name", name=TEXT),
    cachePoint=CACHE_POINT,
)
TOOL_CHOICE = union_schema(auto=object_schema(), any=object_schema(), tool=object_schema("name", name=TEXT))
MESSAGE = object_schema("role", "content", role=TEXT, content=LIST)
BODY = object_schema(
    modelId=TEXT,
    messages=ANY,
    system=ANY,
    toolConfig=object_schema(tools=Schema(minimum=1), toolChoice=TOOL_CHOICE),
    inferenceConfig=object_schema(
        maxTokens=ANY, temperature=ANY, topP=ANY, stopSequences=list_schema(text_schema(1), 0, 2500)
    ),
    guardrailConfig=object_schema(
        guardrailIdentifier=text_schema(0, 2048, GUARDRAIL),
        guardrailVersion=text_schema(pattern="(|([1-9][0-9]{0,7})|(DRAFT))"),
        trace=enum_schema("enabled", "disabled", "enabled_full"),
        streamProcessingMode=enum_schema("sync", "async"),
    ),
    additionalModelRequestFields=ANY,
    additionalModelResponseFieldPaths=list_schema(text_schema(1, 256), 0, 10),
    promptVariables=Schema(kind=dict, items=union_schema(text=TEXT)),
    requestMetadata=Schema(
        kind=dict,
        key=text_schema(1, 256, METADATA_CHARACTERS + "*"),
        items=text_schema(0, 256, METADATA_CHARACTERS + "*"),
        minimum=1,
        maximum=16,
    ),
    performanceConfig=object_schema(latency=enum_schema("standard", "optimized")),
    serviceTier=object_schema("type", type=enum_schema("priority", "default", "flex", "reserved")),
    outputConfig=object_schema(
        textFormat=object_schema(
            "type",
            "structure",
            type=enum_schema("json_schema"),
            structure=union_schema(jsonSchema=object_schema("schema", schema=TEXT, name=TEXT, description=TEXT)),
        ),
        effort=text_schema(0, 16),
    ),
)
"""A request. Messages, system prompt and tools are checked block by block."""


def find_schema_faults(value: JSON, shape: Schema, path: JSONPath = ()) -> Iterator[SchemaFault]:
    """Yield all faults of a value. The content of an invalid shape is not checked."""
    if shape.kind is not None and not _has_type(value, shape.kind):
        name = str(path[-1]) if path and isinstance(path[-1], str) else "this"
        yield SchemaFault("shape", path, f"`{name}` must be {TYPE_NAMES[shape.kind]}.")
        return
    if shape.kind is dict:
        yield from _object_faults(cast(JSONObject, value), shape, path)
    elif shape.items is not None:
        for index, each in enumerate(cast(list[JSON], value)):
            yield from find_schema_faults(each, shape.items, (*path, index))
    if what := _violated_constraint(value, shape):
        yield SchemaFault("value", path, f"invalid value {_quote(value)}.", what)


def _object_faults(value: JSONObject, shape: Schema, path: JSONPath) -> Iterator[SchemaFault]:
    if shape.exactly_one and (len(value) != 1 or next(iter(value)) not in shape.members):
        yield SchemaFault("shape", path, f"expected exactly one of {', '.join(shape.members)}.")
        return
    for name in shape.required:
        if name not in value:
            yield SchemaFault("shape", path, f"`{name}` is missing.")
    for name, each in value.items():
        if shape.items is not None:
            if shape.key is not None and (what := _violated_constraint(name, shape.key)):
                yield SchemaFault("value", (*path, name), f"invalid name {_quote(name)}.", what)
            yield from find_schema_faults(each, shape.items, (*path, name))
        elif (inner := shape.members.get(name)) is not None:
            yield from find_schema_faults(each, inner, (*path, name))
        elif not shape.allow_unknown:
            yield SchemaFault("name", (*path, name), f"`{name}` is not a known field.", ", ".join(shape.members))


def _violated_constraint(value: JSON, shape: Schema) -> str:
    """Return the constraint that a value does not satisfy, or ""."""
    if shape.enum and str(value).rpartition("/")[2] not in shape.enum:
        return f"Member must satisfy enum value set: [{', '.join(shape.enum)}]"
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
    if shape.minimum is not None and size < shape.minimum:
        return f"Member must have {measured} greater than or equal to {shape.minimum}"
    if shape.maximum is not None and size > shape.maximum:
        return f"Member must have {measured} less than or equal to {shape.maximum}"
    return "Member must be base64" if shape.base64 and not decode_base64(cast(str, value)) else ""


def _has_type(value: JSON, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _quote(value: JSON) -> str:
    said = repr(value)
    return said if len(said) < 60 else f"{said[:50]}…"
