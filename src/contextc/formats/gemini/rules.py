"""The lint rules of Google's generateContent."""

import re
from collections.abc import Iterable, Iterator

from contextc._json import JSONObject
from contextc.formats.fix_builders import insert_first_message
from contextc.formats.gemini import error_texts, fixes, lint_parser
from contextc.formats.gemini.lint_parser import format_google_path, iter_list, with_camel_case
from contextc.formats.lint_engine import (
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    RuleSet,
    find_duplicates,
    find_id_mismatches,
    make_finding,
    results_in_next_message,
)
from contextc.formats.rule_checks import find_empty_request, iter_parts

FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")

RULES = RuleSet(
    "GEM",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    messages_key="contents",
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every content, part and function has the required fields of its type, and no others.

    The name of a part's one data field is its type: `text`, `functionCall`, `inlineData` and so on. Names may also be
    in snake case.

    Example: [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    Repair: content without a valid shape becomes text, so that the model still sees it. An invalid function is left
        out.
    """
    return [finding for finding in request.malformed if not finding.facts.keys() & {"second", "role"}]


@rule(2, error_texts.NO_CONTENTS, fix=insert_first_message(RULES))
def check_has_contents(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request has at least one content.

    Example: []
    Repair: a user content is inserted which states that nothing has been said yet.
    """
    return find_empty_request(request, "contents is empty.", "contents")


@rule(3, error_texts.NO_PARTS)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No content is empty.

    Models sometimes answer with nothing, and a history that sends this back is refused. A part may be empty text.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": []}, {"role": "user", "parts":
        [{"text": "hello?"}]}]
    Repair: the content is left out.
    """
    for turn in request.messages:
        if not turn.wire.get("parts") and turn.wire.get("parts") != {}:
            yield make_finding(turn.path, "this content is empty.", where=format_google_path(turn.path))


@rule(4, error_texts.MALFORMED)
def check_single_data_field(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A part has exactly one data field.

    Example: [{"role": "user", "parts": [{"text": "Look:", "fileData": {"fileUri": "gs://bucket/a.png"}}]}]
    Repair: each field becomes a separate part.
    """
    return [finding for finding in request.malformed if "second" in finding.facts]


@rule(5, error_texts.INVALID_ROLE)
def check_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The role of a content is "user" or "model".

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "assistant", "parts": [{"text": "Hello!"}]}]
    Repair: "assistant" becomes "model", and any other role becomes "user".
    """
    return [finding for finding in request.malformed if "role" in finding.facts]


@rule(6, error_texts.WRONG_ROLE)
def check_part_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls are in contents of the model, results are not.

    Example: [{"role": "user", "parts": [{"functionCall": {"name": "look"}}]}, {"role": "user", "parts":
        [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]
    Repair: calls are moved to a content of the model, results to one of the user.
    """
    for turn, piece in iter_parts(request):
        if piece.kind == "call" and turn.role != "model":
            yield _finding_at(
                piece,
                f"{_describe(piece)} is not allowed in a content with role {turn.role}.",
                kind="functionCall",
                role="model",
            )
        elif piece.kind == "result" and turn.role == "model":
            yield _finding_at(
                piece,
                f"{_describe(piece)} is not allowed in a content with role model.",
                kind="functionResponse",
                role="user",
            )


@rule(7, error_texts.CALL_PLACE, fix=fixes.with_opening)
def check_call_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls come after a content of the user, or after results.

    A history that was trimmed at the wrong position begins with calls. Two contents of the model in a row are one
    reply.

    Example: [{"role": "model", "parts": [{"functionCall": {"name": "look"}}]}, {"role": "user", "parts":
        [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]
    Repair: a user content is inserted before the first content.
    """
    for turn in request.merged[:1]:
        calls = turn.parts_of("call")
        if calls and turn.role == "model":
            yield make_finding(turn.path, f"{_describe(calls[0])} is at the start of the conversation.")


@rule(8, error_texts.RESULT_COUNT)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every call has a result in the next content.

    Google merges neighbouring contents of one role, so one content may answer two replies. A crash, a cancelled turn or
    a trimmed history leaves a call without a result, and every later request fails.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {"name":
        "look"}}]}, {"role": "user", "parts": [{"text": "and?"}]}]
    Repair: a result found elsewhere is moved to its call. Otherwise a result is inserted which states that it is
        missing.
    """
    for _, call in request.match_results(results_in_next_message, merged=True).unanswered_calls:
        yield make_finding(call.path, f"{_describe(call)} has no result in the next content.")


@rule(9, "{what}")
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every result answers a call in the content before it.

    They are matched by id if both have one, else by name and order.

    Example: [{"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]
    Repair: a result is moved to its call. A result without a call becomes text.
    """
    turns = request.merged
    earlier = dict(zip((turn.path for turn in turns[1:]), turns, strict=False))
    for turn, result in request.match_results(results_in_next_message, merged=True).orphan_results:
        before = earlier.get(turn.path)
        what = error_texts.RESULT_COUNT if before and before.parts_of("call") else error_texts.RESULT_PLACE
        yield make_finding(result.path, f"{_describe(result)} has no call in the previous content.", what=what)


@rule(10, error_texts.RESULT_COUNT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A call has only one result.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {"id": "a",
        "name": "look"}}]}, {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "look", "response":
        {"output": "1"}}}, {"functionResponse": {"id": "a", "name": "look", "response": {"output": "2"}}}]}]
    Repair: the first result is kept. Another one with different content becomes text.
    """
    for _, result in request.match_results(results_in_next_message, merged=True).duplicate_results:
        yield make_finding(result.path, f"{_describe(result)} is a duplicate for its call.")


@rule(11, error_texts.SIGNATURE, fix=fixes.with_valid_signatures)
def check_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A `thoughtSignature` is the original one of its part.

    It is base64, and one of Google's own is complete. The placeholders from Google's guide are accepted as well.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "Hello!",
        "thoughtSignature": "not a signature"}]}, {"role": "user", "parts": [{"text": "go on"}]}]
    Repair: the signature is left out. A call gets the placeholder signature that Google accepts.
    """
    for _, piece in iter_parts(request):
        if not fixes.has_valid_signature(piece.wire):
            yield make_finding(piece.path, "the signature of this part is invalid.")


@rule(12, error_texts.UNSIGNED, fix=fixes.with_signatures)
def check_call_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """From Gemini 3 on, the first call of each step since the last user message has its signature.

    The request does not name its model, but only these models have a `thinkingLevel`.

    Example: {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}, "contents": [{"role": "user", "parts":
        [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {"name": "look"}}]}, {"role": "user", "parts":
        [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]}
    Repair: the call gets the placeholder signature that Google accepts.
    """
    if not fixes.has_thinking_level(request.body):
        return
    turns = request.merged
    spoke = max((index for index, turn in enumerate(turns) if _has_user_content(turn)), default=0)
    for index, turn in enumerate(turns[spoke:], spoke):
        if any(fixes.signature_of(piece.wire) for piece in turn.parts):
            continue
        for call in turn.parts_of("call")[:1]:
            yield make_finding(call.path, f"{_describe(call)} has no signature.", name=call.name, position=index + 1)


@rule(13, error_texts.BASE64, fix=fixes.with_valid_media)
def check_media_base64(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The data of `inlineData` is base64, in either alphabet.

    Example: [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data":
        "data:image/png;base64,iVBORw0KGgo="}}]}]
    Repair: the prefix of a data URL is removed. Text becomes a text part, and a line replaces unreadable data.
    """
    for _, piece in iter_parts(request):
        for path, part in _inline(piece):
            if not fixes.has_valid_media(part):
                data = str(with_camel_case(with_camel_case(part)["inlineData"])["data"])[:24]
                yield make_finding(
                    piece.path, "the data of this part is not base64.", where=format_google_path(path), data=data
                )


@rule(14, error_texts.FUNCTION_NAME)
def check_function_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The name of a function has at most 128 letters, digits, `_`, `.`, `:` and `-`, and begins with a letter or `_`.

    Example: {"tools": [{"functionDeclarations": [{"name": "read file"}]}], "contents": [{"role": "user", "parts":
        [{"text": "hi"}]}]}
    Repair: other characters are replaced, wherever the name is used.
    """
    for function, name in find_id_mismatches(FUNCTION_NAME, request.tools):
        message = f"invalid function name {name!r}: expected at most 128 letters, digits and `_.:-`."
        yield make_finding(function.path, message, where=format_google_path(function.path))


@rule(15, error_texts.DUPLICATE_FUNCTION, fix=fixes.with_unique_functions)
def check_unique_functions(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Functions have different names.

    Example: {"tools": [{"functionDeclarations": [{"name": "look"}, {"name": "look"}]}], "contents": [{"role": "user",
        "parts": [{"text": "hi"}]}]}
    Repair: the first function is kept.
    """
    for function in find_duplicates(request.tools):
        yield make_finding(function.path, f"duplicate function name {function.id}.", name=function.id)


@rule(16, error_texts.UNKNOWN_CHOICE, fix=fixes.with_declared_choice)
def check_allowed_functions(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The functions in `allowedFunctionNames` are declared.

    Example: {"tools": [{"functionDeclarations": [{"name": "look"}]}], "toolConfig": {"functionCallingConfig": {"mode":
        "ANY", "allowedFunctionNames": ["find"]}}, "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    Repair: the name is removed from the list. If the list becomes empty, all functions are allowed.
    """
    known = {str(function.get("name")) for function in fixes.declared_functions(request.body)}
    if request.body.get("cachedContent") or request.body.get("cached_content"):
        return  # the functions are in the cached content
    for path, name in fixes.allowed_functions(request.body):
        if str(name) not in known:
            yield make_finding(path, f"function {name!r} is not declared.", name=name, where=format_google_path(path))


def _finding_at(piece: RequestPart, message: str, **facts: object) -> RuleFinding:
    return make_finding(piece.path, message, where=format_google_path(piece.path), **facts)


def _describe(piece: RequestPart) -> str:
    """Return a description of a call or a result for messages."""
    given = with_camel_case(piece.wire)["functionCall" if piece.kind == "call" else "functionResponse"].get("id")
    what = "the call" if piece.kind == "call" else "the result"
    return f"{what} {given} of {piece.name}" if given else f"{what} of {piece.name}"


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
