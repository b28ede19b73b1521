"""Rules of Ollama's `/api/chat` that can be checked without calling the API.

The server checks types and settings, and passes the messages to the template of the model. Some templates reject
unmatched calls and results. Others silently show the model a part of them. Both cases are reported here.
"""

from collections.abc import Iterable

from contextc._json import JSON, encode
from contextc.formats.fix_builders import insert_first_message, remove_settings
from contextc.formats.lint_engine import (
    ParsedRequest,
    RuleFinding,
    RuleSet,
    make_finding,
)
from contextc.formats.ollama import error_texts, fixes, lint_parser
from contextc.formats.ollama.lint_parser import before_next_reply
from contextc.formats.ollama.tool_schema_check import find_type_mismatches
from contextc.formats.request_settings import object_or_empty
from contextc.formats.rule_checks import find_duplicate_ids, find_empty_request, iter_parts

RULES = RuleSet(
    "OLL",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_message,
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, call and tool must have the fields its type requires, with the correct types.

    `content` must be one text; parts are not supported. The arguments of a call must be an object. The role must be
    system, user, assistant or tool. A message of another role is not rejected, but no template shows it to the model.

    Example: [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    Repair: a value whose meaning is clear is rewritten in the correct form; any other becomes text, and a malformed
        tool is removed.
    """
    return request.malformed


@rule(2, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must contain at least one message.

    Without messages, the server only loads the model and returns nothing (`done_reason: load`).

    Example: []
    Repair: a user message stating that nothing has been said yet is inserted.
    """
    return find_empty_request(request)


@rule(3)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call must be answered by a tool message before the next assistant message.

    Ollama does not reject this. The model sees its call without a result and continues as if it had one.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
        "function": {"name": "look", "arguments": {}}}]}, {"role": "user", "content": "and?"}]
    Repair: a result elsewhere in the history is moved to its call; if there is none, a result stating that it is
        missing is inserted.
    """
    for _, call in request.match_results(before_next_reply).unanswered_calls:
        yield make_finding(
            call.path, f"tool call {call.id} of {call.name} has no result before the next assistant message."
        )


@rule(4, error_texts.ORPHAN)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool message must answer a call of the last assistant message, by `tool_call_id` or else `tool_name`.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_name": "look", "content": "1"}]
    Repair: a result whose call is elsewhere is moved to it; a result without a call becomes text.
    """
    for _, result in request.match_results(before_next_reply).orphan_results:
        name = result.id or result.name or "without a name"
        yield make_finding(result.path, f"the last assistant message has no tool call for the result {name}.")


@rule(5)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call must have exactly one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
        "function": {"name": "look", "arguments": {}}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "a", "content": "2"}]
    Repair: the first result is kept; a different one becomes text.
    """
    for _, result in request.match_results(before_next_reply).duplicate_results:
        yield make_finding(result.path, f"tool call {result.id} already has a result.")


@rule(6)
def check_distinct_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool calls in one message must have distinct ids.

    Ids are optional. A later message may use an id again.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
        "function": {"name": "look", "arguments": {}}}, {"id": "a", "function": {"name": "find", "arguments": {}}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the second call and its result get a new id.
    """
    for _, call in find_duplicate_ids(request.messages):
        yield make_finding(call.path, f"another tool call in this message already has the id {call.id}.")


@rule(7)
def check_call_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Only the assistant may have tool calls and thinking.

    Templates read calls and thinking only from assistant messages. In other messages the model does not see them.

    Example: [{"role": "user", "content": "hi", "tool_calls": [{"id": "a", "function": {"name": "look", "arguments":
        {}}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the role of the message becomes `assistant`.
    """
    for turn in request.messages:
        if turn.role != "assistant" and (turn.parts_of("call") or (turn.role != "tool" and turn.parts_of("reasoning"))):
            yield make_finding(turn.path, f"a {turn.role} message cannot contain tool calls or thinking.")


@rule(8, error_texts.NOT_BASE64, fix=fixes.with_plain_images)
def check_images_base64(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`images` must be plain base64, without a `data:` prefix, and neither a URL nor a path.

    Example: [{"role": "user", "content": "What is this?", "images": ["data:image/png;base64,iVBORw=="]}]
    Repair: the prefix is removed; an image without data is replaced by a line of text.
    """
    for _, picture in iter_parts(request, "media"):
        if (byte := fixes.first_invalid_byte(picture.text)) is not None:
            yield make_finding(picture.path, "this image is not plain base64.", byte=byte)


@rule(9, error_texts.THINK, fix=remove_settings("think"))
def check_think(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`think` must be true, false, or a level: low, medium, high, max.

    Example: {"think": "xhigh", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    value: JSON = request.body.get("think")
    if not fixes.is_valid_think(value):
        yield make_finding(("think",), f"invalid `think` value {value!r}.", value=encode(value).decode())


@rule(10, error_texts.FORMAT, fix=remove_settings("format"))
def check_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`format` must be "json" or a JSON schema.

    Example: {"format": "xml", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    value: JSON = request.body.get("format")
    if not fixes.is_valid_format(value):
        yield make_finding(("format",), f"invalid `format` value {value!r}.", value=encode(value).decode())


@rule(11, error_texts.OPTION, fix=fixes.with_valid_options)
def check_option_types(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Numeric `options` must be numbers, and `stop` must be a list of strings.

    Unknown options are ignored.

    Example: {"options": {"stop": "END"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the option is removed.
    """
    for name, expected in fixes.invalid_options(request.body).items():
        message = f"option `{name}` must be of {expected}."
        yield make_finding(("options", name), message, name=name, expected=expected)


@rule(12, error_texts.TOP_LOGPROBS, fix=fixes.with_allowed_logprobs)
def check_top_logprobs(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`top_logprobs` must be between 0 and 20.

    Example: {"top_logprobs": 21, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the value is changed to the nearest allowed one.
    """
    count: JSON = request.body.get("top_logprobs")
    if type(count) is int and not 0 <= count <= fixes.MAX_LOGPROBS:
        yield make_finding(("top_logprobs",), f"`top_logprobs` must be between 0 and 20, got {count}.")


@rule(13, error_texts.MALFORMED, fix=fixes.with_valid_schemas)
def check_tool_schemas(request: ParsedRequest) -> Iterable[RuleFinding]:
    """In a tool's schema, `type` must be a string, `required` a list of names, and each property an object.

    A property may have several types. Other keys of the schema are ignored.

    Example: {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "required":
        "at", "properties": {"at": {"type": "string"}}}}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: a single name becomes a list; other values of a wrong type are removed.
    """
    for tool in request.tools:
        for wrong in find_type_mismatches(object_or_empty(tool.wire["function"].get("parameters"))):
            path = (*tool.path, "function", "parameters", *wrong.path)
            yield make_finding(path, f"`{wrong.path[-1]}` has the wrong type in this schema.", what=wrong.error)
