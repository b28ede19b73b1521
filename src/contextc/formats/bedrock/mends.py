"""Repairs of what decoding and encoding does not put right by itself: cache points, settings, tools, reasoning."""

from collections.abc import Callable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic.mends import NOTHING_SAID
from contextc.formats.signatures import is_sound

MOST_MARKS = 4
RANGES = {"temperature": (0, 1), "topP": (0, 1), "maxTokens": (1, None)}


def with_a_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [{"role": "user", "content": [{"text": NOTHING_SAID}]}]}


def with_last_marks(body: JSONObject) -> JSONObject:
    """The body with its last cache points, as many as there may be."""
    left = len(list(points(body))) - MOST_MARKS

    def stays(before: list[JSONObject], block: JSONObject) -> bool:
        nonlocal left
        if "cachePoint" not in block:
            return True
        left -= 1
        return left < 0

    return _filtered(body, stays)


def with_marks_behind_content(body: JSONObject) -> JSONObject:
    return _filtered(
        body, lambda before, block: not ("cachePoint" in block and before and "reasoningContent" in before[-1])
    )


def without_blanks(body: JSONObject) -> JSONObject:
    """Without texts that say nothing, where nothing else is in their message."""
    return _filtered(body, lambda before, block: not is_blank(block))


def with_sound_thinking(body: JSONObject) -> JSONObject:
    """Without reasoning that the model could not verify; a message that was nothing else is left out."""
    return _filtered(body, lambda before, block: "reasoningContent" not in block or is_signed(block, claude(body)))


def with_tools_once(body: JSONObject) -> JSONObject:
    seen: set[str] = set()

    def is_new(tool: JSONObject) -> bool:
        name = cast(JSONObject, next(iter(tool.values()))).get("name")
        return name is None or (name not in seen and not seen.add(name))

    config = cast(JSONObject, body["toolConfig"])
    return {**body, "toolConfig": {**config, "tools": [tool for tool in config["tools"] if is_new(tool)]}}


def without_choice(body: JSONObject) -> JSONObject:
    config = {name: value for name, value in cast(JSONObject, body["toolConfig"]).items() if name != "toolChoice"}
    return {**body, "toolConfig": config}


def within_ranges(body: JSONObject) -> JSONObject:
    config = dict(cast(JSONObject, body["inferenceConfig"]))
    for name, _, _ in out_of_range(body):
        low, high = RANGES[name]
        number = config[name]
        if isinstance(number, int | float) and not isinstance(number, bool):
            config[name] = max(low, number if high is None else min(high, number))
        else:
            del config[name]
    return {**body, "inferenceConfig": config}


def out_of_range(body: JSONObject) -> Iterator[tuple[str, JSON, str]]:
    """Settings that are no number, or too much or too little, and what is demanded."""
    config = cast(JSONObject, body.get("inferenceConfig") or {})
    for name, (low, high) in RANGES.items():
        given = cast(object, config.get(name))
        if given is None:
            continue
        if not isinstance(given, int | float) or isinstance(given, bool):
            yield name, given, "Member must be a number"
        elif high is not None and given > high:
            yield name, given, f"Member must have value less than or equal to {high}"
        elif given < low:
            yield name, given, f"Member must have value greater than or equal to {low}"


def is_blank(block: JSONObject) -> bool:
    return isinstance(block.get("text"), str) and not block["text"].strip()


def is_signed(block: JSONObject, claude: bool) -> bool:
    """Whether this may be reasoning that its model signed. Only Claude signs, and takes none without."""
    thought = cast(JSONObject, block["reasoningContent"].get("reasoningText") or {})
    if not thought:
        return bool(block["reasoningContent"].get("redactedContent"))
    signature = thought.get("signature")
    return not claude if signature is None else is_sound(signature)


def claude(body: JSONObject) -> bool:
    """Whether a request is certainly one for Claude: it has settings that no other model has."""
    fields: object = body.get("additionalModelRequestFields")
    return isinstance(fields, dict) and not cast(JSONObject, fields).keys().isdisjoint(("thinking", "anthropic_beta"))


def points(body: JSONObject) -> Iterator[tuple[str | int, ...]]:
    """Where the cache points are, in the order of the prompt: tools, system, messages."""
    config = body.get("toolConfig")
    tools: JSON = cast(JSONObject, config).get("tools") if isinstance(config, dict) else None
    for path, blocks in ((("toolConfig", "tools"), tools), (("system",), body.get("system"))):
        yield from ((*path, index) for index in _marked(blocks))
    messages: JSON = body.get("messages")
    for number, message in enumerate(cast(list[JSON], messages) if isinstance(messages, list) else []):
        content: JSON = cast(JSONObject, message).get("content") if isinstance(message, dict) else None
        yield from (("messages", number, "content", index) for index in _marked(content))


def _marked(blocks: JSON) -> Iterator[int]:
    for index, block in enumerate(cast(list[JSON], blocks) if isinstance(blocks, list) else []):
        if isinstance(block, dict) and "cachePoint" in block:
            yield index


def _filtered(body: JSONObject, stays: Callable[[list[JSONObject], JSONObject], bool]) -> JSONObject:
    """The body with the blocks that stay, of tools, prompt and messages; what is empty then is left out."""

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
