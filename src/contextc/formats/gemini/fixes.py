"""Fixes that decoding and encoding a request do not make: signatures, media, settings, functions."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TypeAlias, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.gemini.encode import PLACEHOLDER_SIGNATURE
from contextc.formats.gemini.lint_parser import TOOLS_NAMES, iter_list, to_camel_case, with_camel_case
from contextc.formats.identifiers import IdentifierCodec
from contextc.formats.lint_engine import JSONPath
from contextc.formats.media_encoding import decode_base64
from contextc.formats.signature_check import MIN_LENGTH, is_intact_google_signature

PartChange: TypeAlias = Callable[[JSONObject], JSONObject]

RUN_BY_GOOGLE = ("toolCall", "toolResponse", "executableCode", "codeExecutionResult")
PLACEHOLDER_SIGNATURES = (PLACEHOLDER_SIGNATURE, "context_engineering_is_the_way_to_go")
CONFIG_NAMES, CHOICE_NAMES = ("toolConfig", "tool_config"), ("functionCallingConfig", "function_calling_config")
ALLOWED_NAMES = ("allowedFunctionNames", "allowed_function_names")
NAMES = IdentifierCodec("a-zA-Z0-9_.:-", 128, first_characters="a-zA-Z_")
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


def with_signatures(body: JSONObject) -> JSONObject:
    """Return the body with the placeholder signature on the first call of each unsigned step in the last turn."""
    contents = [content for _, content in iter_list(body["contents"], ())]
    spoke = max((index for index, content in enumerate(contents) if _has_user_content(content)), default=0)
    found = contents[:spoke]
    for is_model, group in groupby(contents[spoke:], lambda content: content.get("role") == "model"):
        step = list(group)
        found += _with_signature(step) if is_model else step
    return {**body, "contents": found}


def _has_user_content(content: JSONObject) -> bool:
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
