"""Fixes that decoding and encoding a request do not make: cache breakpoints, settings, tools, reasoning."""

import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.bedrock.lint_parser import PART_KINDS, find_faults, parse_request
from contextc.formats.bedrock.media import (
    DOCUMENT_NAME,
    FORMATS,
    MAX_DOCUMENTS,
    MAX_IMAGES,
    describe_block,
    find_documents,
    with_unique_name,
)
from contextc.formats.fix_builders import change_messages, without_fields
from contextc.formats.lint_engine import JSONPath
from contextc.formats.media_encoding import decode_base64
from contextc.formats.signature_check import is_valid_signature

ID, NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_BREAKPOINTS = 4
ERROR_STATUS = re.compile("fail|err", re.IGNORECASE)
RANGES = {"temperature": (0, 1), "topP": (0, 1), "maxTokens": (1, None)}


def with_last_breakpoints(body: JSONObject) -> JSONObject:
    """Return the body with only its last cache breakpoints, up to the limit."""
    left = len(list(find_breakpoints(body))) - MAX_BREAKPOINTS

    def stays(before: list[JSONObject], block: JSONObject) -> bool:
        nonlocal left
        if "cachePoint" not in block:
            return True
        left -= 1
        return left < 0

    return _filter_blocks(body, stays)


def without_misplaced_breakpoints(body: JSONObject) -> JSONObject:
    return _filter_blocks(
        body, lambda before, block: not ("cachePoint" in block and before and "reasoningContent" in before[-1])
    )


def without_blank_texts(body: JSONObject) -> JSONObject:
    """Return the body without blank texts."""
    return _filter_blocks(body, lambda before, block: not is_blank(block))


def with_valid_thinking(body: JSONObject) -> JSONObject:
    """Return the body without reasoning that the model could not verify.

    A message that contained nothing else is left out.
    """
    return _filter_blocks(
        body, lambda before, block: "reasoningContent" not in block or is_valid_reasoning(block, is_for_claude(body))
    )


def without_claude_thinking(body: JSONObject) -> JSONObject:
    """Return the body without reasoning that Claude signed, for a model of another vendor."""
    return _filter_blocks(body, lambda before, block: not has_signature(block))


def with_valid_document_names(body: JSONObject) -> JSONObject:
    """Return the body with valid names for documents that only Bedrock can read.

    Other documents get their names from the encoder.
    """

    def is_sound(block: JSONObject) -> bool:
        return all(DOCUMENT_NAME.fullmatch(each["document"]["name"]) for each in find_documents([block]))

    def named(blocks: list[JSONObject]) -> list[JSONObject]:
        return [block if is_sound(block) else with_unique_name(block, "") for block in blocks]

    return change_messages(body, lambda message: {**message, "content": named(message["content"])})


def with_valid_calls(body: JSONObject) -> JSONObject:
    """Return the body with invalid calls of Bedrock's own tools as text.

    A call is invalid if its id or name does not match the pattern. Such a tool is left out.
    """

    def told(block: JSONObject) -> JSONObject:
        inside = cast(JSONObject, block.get("toolUse") or block.get("toolResult") or {})
        sound = ID.fullmatch(inside.get("toolUseId", "-")) and NAME.fullmatch(inside.get("name", "-"))
        return block if sound else {"text": encode(block).decode()}

    def is_sound(tool: JSONObject) -> bool:
        return bool(NAME.fullmatch(cast(JSONObject, next(iter(tool.values()))).get("name", "-")))

    messages = [{**each, "content": [told(block) for block in each["content"]]} for each in body["messages"]]
    if not body.get("toolConfig"):
        return {**body, "messages": messages}
    config = cast(JSONObject, body["toolConfig"])
    tools = [tool for tool in config["tools"] if is_sound(tool)]
    return {**body, "messages": messages, "toolConfig": {**config, "tools": tools}}


def with_last_documents(body: JSONObject) -> JSONObject:
    """Return the body with only its last documents, up to the limit. A line of text replaces each earlier one."""
    left = len(list(find_documents(_all_blocks(body)))) - MAX_DOCUMENTS

    def shown(blocks: list[JSONObject]) -> list[JSONObject]:
        nonlocal left
        found: list[JSONObject] = []
        for block in blocks:
            if "document" in block and left > 0:
                left -= 1
                block = describe_block(block)
            elif "toolResult" in block:
                inside = cast(JSONObject, block["toolResult"])
                block = {"toolResult": {**inside, "content": shown(inside["content"])}}
            found.append(block)
        return found

    return {**body, "messages": [{**each, "content": shown(each["content"])} for each in body["messages"]]}


def with_text_system_messages(body: JSONObject) -> JSONObject:
    """Return the body with a line of text for each video or audio block in a system message."""

    def told(message: JSONObject) -> JSONObject:
        if message["role"] != "system":
            return message
        blocks = cast(list[JSONObject], message["content"])
        media = [PART_KINDS.get(next(iter(block), "")) == "media" for block in blocks]
        return {**message, "content": [describe_block(b) if m else b for b, m in zip(blocks, media, strict=True)]}

    return change_messages(body, told)


def with_last_images(body: JSONObject) -> JSONObject:
    """Return the body with only the last images of each message, up to the limit. A line replaces each earlier one."""

    def shown(blocks: list[JSONObject]) -> list[JSONObject]:
        places = {*[index for index, block in enumerate(blocks) if "image" in block][:-MAX_IMAGES]}
        return [describe_block(block) if index in places else block for index, block in enumerate(blocks)]

    return {**body, "messages": [{**each, "content": shown(each["content"])} for each in body["messages"]]}


def without_unknown_fields(body: JSONObject) -> JSONObject:
    body = deepcopy(body)
    for problem in list(find_faults(parse_request(body))):
        if problem.fault == "name":
            *before, last = problem.path
            _at(body, before).pop(last)
    return body


def with_valid_values(body: JSONObject) -> JSONObject:
    """Return the body with invalid values corrected, if the intended value is clear.

    Other invalid values are left out, and media become a line of text.
    """
    body = deepcopy(body)
    for problem in reversed(list(find_faults(parse_request(body)))):
        if problem.fault == "value":
            _fix_value(body, problem.path)
    return body


def _fix_value(body: JSONObject, path: JSONPath) -> None:
    *before, last = path
    shown = next(
        (end for end in range(len(path) - 1, 0, -1) if path[end] in FORMATS and isinstance(path[end - 1], int)), 0
    )
    if shown:
        holder, place = _at(body, path[: shown - 1]), path[shown - 1]
        if path[shown] in holder[place]:  # it may have two violations
            holder[place] = describe_block(holder[place])
    elif last == "status" and ERROR_STATUS.search(_at(body, path)):
        _at(body, before)["status"] = "error"
    elif before[-1:] == ["cachePoint"] and last == "type":
        _at(body, before)["type"] = "default"
    else:
        del _at(body, before)[last]


def _at(body: JSONObject, path: Iterable[str | int]) -> Any:  # Any: a list or an object
    found: Any = body
    for step in path:
        found = found[step]
    return found


def _all_blocks(body: JSONObject) -> list[JSONObject]:
    return [block for message in cast(list[JSONObject], body["messages"]) for block in message["content"]]


def with_unique_tools(body: JSONObject) -> JSONObject:
    seen: set[str] = set()

    def is_new(tool: JSONObject) -> bool:
        name = cast(JSONObject, next(iter(tool.values()))).get("name")
        return name is None or (name not in seen and not seen.add(name))

    config = cast(JSONObject, body["toolConfig"])
    return {**body, "toolConfig": {**config, "tools": [tool for tool in config["tools"] if is_new(tool)]}}


def without_tool_choice(body: JSONObject) -> JSONObject:
    return {**body, "toolConfig": without_fields(body["toolConfig"], "toolChoice")}


def with_settings_in_range(body: JSONObject) -> JSONObject:
    config = dict(cast(JSONObject, body["inferenceConfig"]))
    for name, _, _ in find_out_of_range(body):
        low, high = RANGES[name]
        number = config[name]
        if isinstance(number, int | float) and not isinstance(number, bool):
            within = max(low, number if high is None else min(high, number))
            config[name] = int(within) if name == "maxTokens" else within
        else:
            del config[name]
    return {**body, "inferenceConfig": config}


def find_out_of_range(body: JSONObject) -> Iterator[tuple[str, JSON, str]]:
    """Yield settings that are no number or out of range, with the constraint."""
    config = cast(JSONObject, body.get("inferenceConfig") or {})
    for name, (low, high) in RANGES.items():
        given = cast(object, config.get(name))
        if name not in config:
            continue
        if name == "maxTokens" and isinstance(given, float):
            yield name, given, "Member must be a whole number"
        elif not isinstance(given, int | float) or isinstance(given, bool):
            yield name, given, "Member must be a number"
        elif high is not None and given > high:
            yield name, given, f"Member must have value less than or equal to {high}"
        elif given < low:
            yield name, given, f"Member must have value greater than or equal to {low}"


def is_blank(block: JSONObject) -> bool:
    return isinstance(block.get("text"), str) and not block["text"].strip()


def is_separator(content: list[JSONObject], index: int, role: str) -> bool:
    """Return True if this is white space between a user's document and a cache breakpoint.

    A breakpoint may not follow a document directly, so white space is accepted there, and nowhere else.
    """
    if role != "user" or not is_blank(content[index]) or not content[index]["text"]:
        return False
    before, after = content[index - 1 : index], content[index + 1 : index + 2]
    return any("document" in each or "video" in each for each in before) and any("cachePoint" in each for each in after)


def has_signature(block: JSONObject) -> bool:
    inside: object = block.get("reasoningContent")
    thought = cast(JSONObject, inside) if isinstance(inside, dict) else {}
    return "redactedContent" in thought or bool(cast(JSONObject, thought.get("reasoningText") or {}).get("signature"))


def is_valid_reasoning(block: JSONObject, claude: bool) -> bool:
    """Return True if this may be valid reasoning. Only Claude signs reasoning, and it requires a signature."""
    thought = cast(JSONObject, block["reasoningContent"].get("reasoningText") or {})
    if not thought:
        return bool(decode_base64(block["reasoningContent"].get("redactedContent") or ""))
    signature = thought.get("signature")
    return not claude if signature is None else is_valid_signature(signature)


def is_for_claude(body: JSONObject) -> bool:
    """Return True if a request has settings that only Claude has."""
    fields: object = body.get("additionalModelRequestFields")
    return isinstance(fields, dict) and not cast(JSONObject, fields).keys().isdisjoint(("thinking", "anthropic_beta"))


def find_breakpoints(body: JSONObject) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of cache breakpoints in the order of the prompt: tools, system, messages."""
    config = body.get("toolConfig")
    tools: JSON = cast(JSONObject, config).get("tools") if isinstance(config, dict) else None
    for path, blocks in ((("toolConfig", "tools"), tools), (("system",), body.get("system"))):
        yield from ((*path, index) for index in _breakpoint_indexes(blocks))
    messages: JSON = body.get("messages")
    for number, message in enumerate(cast(list[JSON], messages) if isinstance(messages, list) else []):
        content: JSON = cast(JSONObject, message).get("content") if isinstance(message, dict) else None
        yield from (("messages", number, "content", index) for index in _breakpoint_indexes(content))


def _breakpoint_indexes(blocks: JSON) -> Iterator[int]:
    for index, block in enumerate(cast(list[JSON], blocks) if isinstance(blocks, list) else []):
        if isinstance(block, dict) and "cachePoint" in block:
            yield index


def _filter_blocks(body: JSONObject, stays: Callable[[list[JSONObject], JSONObject], bool]) -> JSONObject:
    """Return the body with only the blocks for which `stays` is true. Lists that become empty are left out."""

    def left(blocks: list[JSONObject]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for block in blocks:
            if stays(found, block):
                found.append(block)
        return found

    body = dict(body)
    if body.get("toolConfig"):
        body["toolConfig"] = {**body["toolConfig"], "tools": left(body["toolConfig"]["tools"])}
    if body.get("system"):
        body["system"] = left(body["system"])
    messages = [{**message, "content": left(message["content"])} for message in body["messages"]]
    return {**body, "messages": [message for message in messages if message["content"]]}
