"""The rules of Bedrock's Converse API.

`message_rules` has rules 1 to 11. The model id is in the URL, so rules for single models are checked only where the
body shows the model.
"""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.bedrock import error_texts, fixes, lint_parser
from contextc.formats.bedrock.encode import vendor_of
from contextc.formats.bedrock.media import DOCUMENT_NAME, MAX_DOCUMENTS, MAX_IMAGES, find_documents
from contextc.formats.bedrock.message_rules import RULES
from contextc.formats.lint_engine import (
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    find_duplicates,
    format_dotted_path,
    make_finding,
    schema_error,
)
from contextc.formats.rule_checks import iter_parts, repeat_in_example

ID, NAME = re.compile(r"[a-zA-Z0-9_.:-]+"), re.compile(r"[a-zA-Z0-9_-]+")
MAX_LENGTH = 64
CLAUDE_VENDOR = "anthropic"

rule = RULES.register


@rule(12, error_texts.CONSTRAINT, fix=fixes.with_valid_calls)
def check_call_id_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a call has 1 to 64 letters, digits, and any of `_ . : -`.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a/1", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a/1",
        "content": [{"text": "1"}]}}]}]
    Repair: other characters are replaced, in the call and in its result.
    """
    for _, piece in iter_parts(request):
        kind = next(iter(piece.wire))
        if kind == "toolUse" or (kind == "toolResult" and piece.kind == "other"):
            yield from _check_constraint(piece.wire[kind]["toolUseId"], ID, (*piece.path, kind, "toolUseId"), piece)


@rule(13, error_texts.CONSTRAINT, fix=fixes.with_valid_calls)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The name of a tool has 1 to 64 letters, digits, `_` and `-`.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "files.read", "inputSchema": {"json": {"type":
        "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: other characters are replaced, wherever the name is used.
    """
    for tool in request.tools:
        yield from _check_constraint(tool.id, NAME, (*tool.path, next(iter(tool.wire)), "name"), tool)
    for _, piece in iter_parts(request):
        if "toolUse" in piece.wire:
            yield from _check_constraint(piece.wire["toolUse"]["name"], NAME, (*piece.path, "toolUse", "name"), piece)


def _check_constraint(
    value: str, pattern: re.Pattern[str], path: JSONPath, piece: RequestPart
) -> Iterator[RuleFinding]:
    """Yield a finding if a value breaks the pattern or length limit in the vendor's API description."""
    what = ""
    if len(value) > MAX_LENGTH:
        what = f"Member must have length less than or equal to {MAX_LENGTH}"
    elif not pattern.fullmatch(value):
        what = f"Member must satisfy regular expression pattern: {pattern.pattern}"
    if what:
        message = f"invalid value {value!r}: it has more than {MAX_LENGTH} characters, or some that are not allowed."
        yield make_finding(piece.path, message, value=value, where=_format_member_path(path), what=what)


def _format_member_path(path: JSONPath) -> str:
    """Return a path as Bedrock writes it, such as `messages.1.member.content.1.member.toolUse.name`."""
    whole = path if isinstance(path[0], str) else ("messages", *path)
    return ".".join(f"{step + 1}.member" if isinstance(step, int) else step for step in whole)


@rule(14, error_texts.NO_TOOLS)
def check_has_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request whose messages contain calls or results has tools.

    This applies even if the model is to make no more calls.

    Example: {"messages": [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse":
        {"toolUseId": "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId":
        "a", "content": [{"text": "1"}]}}]}]}
    Repair: a placeholder tool is added whose description states that there are no tools.
    """
    if not request.body or request.body.get("toolConfig"):
        return
    used = next((piece for turn in request.messages for piece in turn.parts if piece.kind in ("call", "result")), None)
    if used is not None:
        yield make_finding((), "messages contain calls or results, but `toolConfig` is missing.")


@rule(15, error_texts.DUPLICATE_TOOL, fix=fixes.with_unique_tools)
def check_unique_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tools have different names.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}, {"toolSpec":
        {"name": "look", "inputSchema": {"json": {}}}}]}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the first tool is kept.
    """
    for tool in find_duplicates(request.tools):
        yield make_finding(tool.path, f"duplicate tool name {tool.id}.")


@rule(16, error_texts.UNKNOWN_CHOICE, fix=fixes.without_tool_choice)
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The tool in `toolChoice` is one of the tools.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}], "toolChoice":
        {"tool": {"name": "find"}}}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: `toolChoice` is removed, so the model chooses.
    """
    config: JSON = request.body.get("toolConfig")
    choice: JSON = cast(JSONObject, config).get("toolChoice") if isinstance(config, dict) else None
    chosen: JSON = cast(JSONObject, choice).get("tool") if isinstance(choice, dict) else None
    name = cast(JSONObject, chosen).get("name") if isinstance(chosen, dict) else None
    if name is not None and name not in [tool.id for tool in request.tools]:
        yield make_finding(("toolConfig", "toolChoice"), f"tool {name!r} not found in `toolConfig`.", name=name)


@rule(17, error_texts.EMPTY_ERROR)
def check_error_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A result with status `error` is not empty.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content":
        [], "status": "error"}}]}]
    Repair: a text is added which states the failure.
    """
    for _, result in iter_parts(request, "result"):
        inside = cast(JSONObject, result.wire["toolResult"])
        if inside.get("status") == "error" and inside["content"] in ([], [{"text": ""}]):
            where = format_dotted_path((*result.path, "toolResult"))
            yield make_finding(result.path, "this result has status `error` and no content.", where=where)


@rule(18, error_texts.NOT_AN_OBJECT)
def check_json_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The `json` of a result is an object.

    Send a list or a number as text, or as a field of an object.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content":
        [{"json": [1, 2]}]}}]}]
    Repair: the value becomes text.
    """
    for _, result in iter_parts(request, "result"):
        for index, each in enumerate(cast(list[JSON], result.wire["toolResult"]["content"])):
            if isinstance(each, dict) and "json" in each and not isinstance(each["json"], dict):
                path = (*result.path, "toolResult", "content", index)
                yield make_finding(path, "expected an object in `json`.", where=format_dotted_path((*path, "json")))


@rule(19, error_texts.DOCUMENT_WITHOUT_TEXT)
def check_document_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A message with a document also has a text that is not blank.

    Example: [{"role": "user", "content": [{"document": {"name": "Report", "format": "pdf", "source": {"bytes":
        "JVBERg=="}}}]}]
    Repair: a line of text is added.
    """
    for turn in request.messages:
        shown = [piece for piece in turn.parts_of("media") if "document" in piece.wire]
        if shown and not any(piece.text.strip() for piece in turn.parts_of("text")):
            yield make_finding(shown[0].path, "this document has no text next to it.")


@rule(20, error_texts.DOCUMENT_NAME, fix=fixes.with_valid_document_names)
def check_document_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The name of a document has only letters, digits, single spaces, `-`, and round or square brackets.

    Example: [{"role": "user", "content": [{"text": "Sum it up."}, {"document": {"name": "report.pdf", "format": "pdf",
        "source": {"bytes": "JVBERg=="}}}]}]
    Repair: other characters become spaces.
    """
    for turn, block in _valid_documents(request):
        name = block["document"]["name"]
        if not DOCUMENT_NAME.fullmatch(name):
            yield make_finding(
                turn.path, f"invalid document name {name!r}: it is too long, or has characters that are not allowed."
            )


@rule(21, error_texts.DUPLICATE_DOCUMENT)
def check_unique_documents(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The documents of a request have different names.

    Example: [{"role": "user", "content": [{"text": "Compare them."}, {"document": {"name": "Report", "format": "pdf",
        "source": {"bytes": "JVBERg=="}}}, {"document": {"name": "Report", "format": "pdf", "source": {"bytes":
        "JVBERi0="}}}]}]
    Repair: the later document is renamed.
    """
    seen: set[str] = set()
    for turn, block in _valid_documents(request):
        name = block["document"]["name"]
        if name in seen:
            yield make_finding(turn.path, f"duplicate document name {name!r}.")
        seen.add(name)


def _valid_documents(request: ParsedRequest) -> Iterator[tuple[RequestMessage, JSONObject]]:
    for turn in request.messages:
        sound = [piece.wire for piece in turn.parts]
        for block in find_documents(sound):
            if (
                schema_error(block, {"document": dict}) is None
                and schema_error(block["document"], {"name": str}) is None
            ):
                yield turn, block


@rule(22, error_texts.SYSTEM_PLACE)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A system message follows a user message, and is last or followed by an assistant message.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"text": "Hello!"}]},
        {"role": "system", "content": [{"text": "Be brief."}]}]
    Repair: the message becomes user text in `<system-reminder>`.
    """
    turns = request.messages
    for index, turn in enumerate(turns):
        if turn.role != "system":
            continue
        before = next((turns[place] for place in range(index - 1, -1, -1) if turns[place].role != "system"), None)
        after = next((turns[place] for place in range(index, len(turns)) if turns[place].role != "system"), None)
        if before is None or before.role != "user" or (after is not None and after.role != "assistant"):
            yield make_finding(turn.path, "system message in an invalid position.")


@rule(23, error_texts.SIGNATURE, fix=fixes.with_valid_thinking)
def check_reasoning_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Reasoning of Claude has its original signature.

    The signature authenticates the text. A changed signature, or one of another provider, is refused.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"reasoningContent":
        {"reasoningText": {"text": "hm", "signature": ""}}}, {"text": "Hello!"}]}, {"role": "user", "content":
        [{"text": "go on"}]}]
    Repair: the block is left out. Only the model that wrote it could use it.
    """
    claude = fixes.is_for_claude(request.body)
    for _, piece in iter_parts(request, "reasoning"):
        if not fixes.is_valid_reasoning(piece.wire, claude):
            yield make_finding(piece.path, "the signature of this block is missing or invalid.")


@rule(24, error_texts.TOO_MANY_BREAKPOINTS, fix=fixes.with_last_breakpoints)
def check_breakpoint_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request has at most four cache points.

    Example: {"system": [{"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "b"}, {"cachePoint": {"type":
        "default"}}, {"text": "c"}, {"cachePoint": {"type": "default"}}], "messages": [{"role": "user", "content":
        [{"text": "d"}, {"cachePoint": {"type": "default"}}, {"text": "e"}, {"cachePoint": {"type": "default"}}]}]}
    Repair: the last four are kept.
    """
    marked = list(fixes.find_breakpoints(request.body or {"messages": [turn.wire for turn in request.messages]}))
    if len(marked) > fixes.MAX_BREAKPOINTS:
        yield make_finding(marked[0], f"at most 4 cache points are allowed, got {len(marked)}.", count=len(marked))


@rule(25, error_texts.MISPLACED_BREAKPOINT, fix=fixes.without_misplaced_breakpoints)
def check_breakpoint_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No cache point directly follows reasoning.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"reasoningContent":
        {"reasoningText": {"text": "hm", "signature": "s"}}}, {"cachePoint": {"type": "default"}}, {"text": "Hello!"}]},
        {"role": "user", "content": [{"text": "go on"}]}]
    Repair: the cache point is removed.
    """
    for turn in request.messages:
        for before, piece in zip(turn.parts, turn.parts[1:], strict=False):
            if before.kind == "reasoning" and "cachePoint" in piece.wire:
                yield make_finding(piece.path, "a cache point cannot follow reasoning.")


@rule(26, error_texts.CONSTRAINT, fix=fixes.with_settings_in_range)
def check_setting_ranges(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`temperature` and `topP` are between 0 and 1, and `maxTokens` is at least 1.

    Other providers accept temperatures up to 2.

    Example: {"inferenceConfig": {"temperature": 1.5}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the nearest valid value is set.
    """
    if isinstance(request.body.get("inferenceConfig"), dict):
        for name, value, what in fixes.find_out_of_range(request.body):
            path = ("inferenceConfig", name)
            yield make_finding(path, f"{value!r} is out of range.", value=value, where=".".join(path), what=what)


@rule(27, error_texts.NO_SIGNATURES, fix=fixes.without_claude_thinking)
def check_reasoning_vendor(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Reasoning that Claude signed is not sent to a model of another vendor.

    Checked if the body names the model in `modelId`, as boto3's arguments do.

    Example: {"modelId": "amazon.nova-pro-v1:0", "messages": [{"role": "user", "content": [{"text": "hi"}]}, {"role":
        "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}, {"text":
        "Hello!"}]}, {"role": "user", "content": [{"text": "go on"}]}]}
    Repair: the block is left out. Only the model that wrote it could use it.
    """
    model: object = request.body.get("modelId")
    if not isinstance(model, str) or vendor_of(model) in ("", CLAUDE_VENDOR):
        return
    for _, piece in iter_parts(request, "reasoning"):
        if fixes.has_signature(piece.wire):
            yield make_finding(piece.path, f"this reasoning was signed by a model of another vendor, not by {model}.")


@rule(28, error_texts.CONSTRAINT, fix=fixes.with_valid_values)
def check_values(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Enumerated values, URLs, bytes and lengths satisfy the constraints in the API description.

    For example, the list of tools and each description are not empty, and every image has a known format.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "description": "", "inputSchema": {"json":
        {}}}}]}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the intended value is set if it is clear. Otherwise the value is left out, and a line of text replaces
        media.
    """
    for each in lint_parser.find_faults(request):
        if each.fault == "value":
            value = _value_at(request, each.path)
            yield make_finding(
                each.path, each.message, value=value, where=_format_member_path(each.path), what=each.what
            )


def _value_at(request: ParsedRequest, path: JSONPath) -> str:
    """Return the value at a path as text, cut to 100 characters."""
    found: JSON = request.body
    if not request.body:
        found = {turn.path[0]: turn.wire for turn in request.messages}
    for step in path:
        found = found[step]
    return str(found)[:100]


@rule(29, error_texts.UNKNOWN_NAME, fix=fixes.without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Objects have only members that the API description defines.

    AWS's SDK refuses such a request before it is sent. Settings of a single model belong in
    `additionalModelRequestFields`.

    Example: {"inferenceConfig": {"max_tokens": 9}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the member is left out.
    """
    for each in lint_parser.find_faults(request):
        if each.fault == "name":
            where = format_dotted_path(each.path[:-1]) or "input"
            yield make_finding(each.path, each.message, where=where, name=each.path[-1], known=each.what)


RULES.unknown_fields = check_known_fields


@rule(30, error_texts.TOO_MANY_DOCUMENTS, fix=fixes.with_last_documents)
def check_document_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request has at most five documents.

    Example: [{"role": "user", "content": [{"text": "See."}, {"document": {"name": "A", "source": {"text": "a"}}},
        {"document": {"name": "B", "source": {"text": "b"}}}, {"document": {"name": "C", "source": {"text": "c"}}},
        {"document": {"name": "D", "source": {"text": "d"}}}, {"document": {"name": "E", "source": {"text": "e"}}},
        {"document": {"name": "F", "source": {"text": "f"}}}]}]
    Repair: the last five are kept. Earlier ones become their text, or a line which states that they are not shown.
    """
    found = list(_valid_documents(request))
    if len(found) > MAX_DOCUMENTS:
        yield make_finding(found[MAX_DOCUMENTS][0].path, f"at most 5 documents are allowed, got {len(found)}.")


@rule(31, error_texts.TOO_MANY_IMAGES, fix=fixes.with_last_images)
@repeat_in_example('{"image": {"format": "png", "source": {"bytes": "iVBO"}}}', MAX_IMAGES + 1)
def check_image_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A message has at most twenty images.

    Example: [{"role": "user", "content": [{"text": "See."}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}},
        …]}]
    Repair: the last twenty are kept. A line of text replaces each earlier one.
    """
    for turn in request.messages:
        count = sum("image" in piece.wire for piece in turn.parts)
        if count > MAX_IMAGES:
            yield make_finding(turn.path, f"at most 20 images are allowed in a message, got {count}.", count=count)
