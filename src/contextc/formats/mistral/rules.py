"""Rules of Mistral's chat completions that can be checked without calling the API.

Mistral's validators differ between generations of its models. What the newest accept is not reported here, with one
exception: ids must have nine letters. The newest models accept other ids, but most served models do not.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from contextc._json import JSON, JSONObject
from contextc.formats.checking import Fields, Finding, Path, Piece, RuleBook, Sketch, at, match, repeated, run_of
from contextc.formats.mistral import errors, mends, sketch
from contextc.formats.mistral.sketch import CALL, CHUNKS, DEFINED, FUNCTION, ROLES, TAKEN, TOOL, placed, unknown
from contextc.formats.openai_chat.mends import with_a_message, with_calls_of_the_assistant

ID = re.compile(r"[a-zA-Z0-9]{9}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CLASSES = {"image_url": "ImageURLChunk", "input_audio": "AudioChunk", "thinking": "ThinkChunk"}
results_at_once = run_of("tool")

BOOK = RuleBook("MIS", sketch.read, reshape=sketch.reshape, message=sketch.message, block=sketch.block, house="mistral")
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message, chunk, call and tool must have the fields its type requires.

    The roles are `system`, `user`, `assistant` and `tool`. Only a tool message has a `tool_call_id`. Audio and files
    are written differently from OpenAI's, and a tool must have `parameters`.

    Example: [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format":
        "wav"}}]}]
    Repair: a value whose meaning is clear is rewritten in the correct form; any other becomes text, and a malformed
        tool is removed.
    """
    return request.misshapen


@rule(2, errors.NO_MESSAGES, mend=with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """A request must contain at least one message.

    Example: []
    Repair: a user message stating that nothing has been said yet is inserted.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "the request has no messages.")


@rule(3, errors.NOTHING_SAID)
def the_assistant_says_something(request: Sketch) -> Iterable[Finding]:
    """An assistant message must have `content`, unless it has tool calls.

    A turn that was cancelled before its first token leaves an empty message. An empty text does not count as content.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}, {"role": "user", "content":
        "go on"}]
    Repair: the message is removed.
    """
    for turn in request.turns:
        if turn.role == "assistant" and not turn.wire.get("content") and not turn.wire.get("tool_calls"):
            yield at(turn.path, "this assistant message has neither content nor tool calls.")


@rule(4, errors.EXTRA, mend=mends.with_known_chunks)
def fields_are_known(request: Sketch) -> Iterable[Finding]:
    """Messages, chunks, calls and tools must have only the fields that Mistral defines.

    Fields that OpenAI and others add to a message are rejected: `name`, `refusal`, `reasoning_content`,
    `cache_control`.

    Example: [{"role": "user", "name": "ada", "content": "hi"}]
    Repair: the field is removed.
    """
    for turn in request.turns:
        yield from _unknown(turn.path, turn.wire, ROLES[turn.role], "role")
        for piece in turn.pieces:
            if piece.kind == "call":
                yield from _unknown(piece.path, piece.wire, CALL)
                yield from _unknown((*piece.path, "function"), piece.wire["function"], FUNCTION)
            elif piece.kind != "result" and piece.wire:
                yield from _unknown(piece.path, piece.wire, CHUNKS[piece.wire["type"]], "type")
    for tool in request.tools:
        yield from _unknown(tool.path, tool.wire, TOOL)
        yield from _unknown((*tool.path, "function"), tool.wire["function"], DEFINED)


BOOK.unknown = fields_are_known


@rule(5, errors.EXTRA, mend=mends.without_openais_settings)
def settings_are_mistrals(request: Sketch) -> Iterable[Finding]:
    """Settings that only OpenAI has must not be sent.

    Examples are `max_completion_tokens` and `stream_options`. Mistral reports the usage of a stream without the latter.

    Example: {"max_completion_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the output limit and the seed are renamed to Mistral's names; other settings are removed.
    """
    for setting in mends.OPENAIS:
        if setting in request.body:
            yield at((setting,), f"`{setting}` is an OpenAI setting, which Mistral rejects.", where=placed((setting,)))


@rule(6, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every tool call must be answered by a tool message before any other message.

    A crash, a cancelled turn or a truncated history leaves a call without its result. Every later request then fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "user", "content": "and?"}]
    Repair: a result elsewhere in the history is moved to its call; if there is none, a result stating that it is
        missing is inserted.
    """
    for _, call in match(request.turns, results_at_once).unanswered:
        yield at(call.path, f"tool call {call.id} has no result in the tool messages after it.")


@rule(7, errors.MISSHAPEN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every tool message must answer a call in the assistant message directly before the tool messages.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: a result whose call is elsewhere is moved to it; a result without a call becomes text.
    """
    roles = {turn.path: before.role for before, turn in pairwise(request.turns)}
    for turn, result in match(request.turns, results_at_once).orphans:
        what = errors.UNEXPECTED_ID.format(id=result.id)
        if (before := roles.get(turn.path)) in ("system", "user"):
            what = errors.UNEXPECTED_ROLE.format(role="tool", before=before)
        yield at(
            result.path, f"tool call {result.id} of this result is not in the preceding assistant message.", what=what
        )


@rule(8, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A tool call must have exactly one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "2"}]
    Repair: the first result is kept; a different one becomes text.
    """
    for _, result in match(request.turns, results_at_once).doubled:
        yield at(result.path, f"tool call {result.id} already has a result.", id=result.id)


@rule(9, errors.ID_TWICE)
def calls_of_a_message_have_ids_of_their_own(request: Sketch) -> Iterable[Finding]:
    """Tool calls in one message must have distinct ids.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}, {"id": "a1b2c3d4e", "function": {"name": "find", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: the second call and its result get a new id.
    """
    for turn in request.turns:
        for call in repeated(turn.of("call")):
            yield at(call.path, f"another tool call in this message already has the id {call.id}.", id=call.id)


@rule(10, errors.EXTRA, mend=with_calls_of_the_assistant)
def calls_are_the_assistants(request: Sketch) -> Iterable[Finding]:
    """Only the assistant may call tools.

    Example: [{"role": "system", "content": "hi"}, {"role": "user", "content": "hi", "tool_calls": [{"id":
        "a1b2c3d4e", "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e",
        "content": "1"}]
    Repair: the role of the message becomes `assistant`.
    """
    for turn in request.turns:
        if turn.role != "assistant" and turn.wire.get("tool_calls"):
            where = placed((*turn.path, "tool_calls"))
            yield at(turn.path, f"a {turn.role} message cannot contain tool calls.", where=where)


@rule(11, errors.ID_FORM)
def ids_have_nine_letters(request: Sketch) -> Iterable[Finding]:
    """The id of a tool call must consist of exactly nine letters and digits.

    Ids of every other provider are longer, or contain other characters.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "call_1", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "1"}]
    Repair: the id is replaced by nine letters, on the call and on its result.
    """
    for call in _calls(request):
        if not ID.fullmatch(call.id):
            yield at(call.path, f"the id {call.id!r} must consist of exactly nine letters and digits.", id=call.id)


@rule(12, errors.NAME_FORM)
def tool_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """A tool name must consist of 1 to 64 letters, digits, `_` and `-`, in tools and in calls.

    Example: {"tools": [{"type": "function", "function": {"name": "files.read", "parameters": {}}}], "messages":
        [{"role": "user", "content": "hi"}]}
    Repair: the name is encoded with the allowed characters, wherever it occurs.
    """
    named = [(tool.path, tool.id) for tool in request.tools] + [(call.path, call.name) for call in _calls(request)]
    named += [(turn.path, turn.wire["name"]) for turn in request.turns if turn.role == "tool" and turn.wire.get("name")]
    for path, name in named:
        if not TOOL_NAME.fullmatch(name):
            yield at(path, f"invalid tool name {name!r}: expected 1 to 64 letters, digits, `_` and `-`.", name=name)


@rule(13, errors.UNEXPECTED_ROLE)
def system_messages_follow_no_reply(request: Sketch) -> Iterable[Finding]:
    """A system message must come first, or follow system or user messages.

    After a reply or a tool result it is rejected.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "system",
        "content": "Be brief."}, {"role": "user", "content": "go on"}]
    Repair: it becomes user text, tagged as a system reminder.
    """
    for before, turn in pairwise(request.turns):
        if turn.role == "system" and before.role in ("assistant", "tool"):
            message = f"a system message cannot follow a message of role {before.role}."
            yield at(turn.path, message, role=turn.role, before=before.role)


@rule(14, errors.BEGINNING)
def the_assistant_does_not_begin(request: Sketch) -> Iterable[Finding]:
    """A conversation must not begin with tool calls, nor consist of a single assistant message.

    A truncated history can begin this way.

    Example: [{"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function": {"name": "look", "arguments":
        "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: a user message stating this is inserted before it.
    """
    turns = request.turns
    if turns and turns[0].role == "assistant" and (len(turns) == 1 or turns[0].of("call")):
        yield at(turns[0].path, "the conversation begins with the assistant.")


@rule(15, errors.LAST)
def the_assistant_does_not_end(request: Sketch) -> Iterable[Finding]:
    """A last message from the assistant must have `prefix`: the model continues it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]
    Repair: `prefix` is set.
    """
    last = request.turns[-1] if len(request.turns) > 1 else None
    if last is not None and last.role == "assistant" and not last.wire.get("prefix"):
        yield at(last.path, "the last message is the assistant's and does not have `prefix`.", role=last.role)


@rule(16, errors.PREFIX)
def only_the_last_is_a_beginning(request: Sketch) -> Iterable[Finding]:
    """Only the last message may have `prefix`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello", "prefix": true}, {"role":
        "user", "content": "go on"}]
    Repair: `prefix` is removed.
    """
    for turn in request.turns[:-1]:
        if turn.role == "assistant" and turn.wire.get("prefix"):
            yield at(turn.path, "this message has `prefix` but is not the last.")


@rule(17, errors.MISPLACED)
def chunks_stand_where_they_may(request: Sketch) -> Iterable[Finding]:
    """Only the assistant may have thoughts, it may not have images or audio, and system messages hold text.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "image_url", "image_url":
        "https://example.com/a.png"}]}, {"role": "user", "content": "go on"}]
    Repair: a line of text describes what was there; thoughts in other messages become text.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            kind: JSON = piece.wire.get("type") if piece.kind not in ("call", "result") else None
            if kind is not None and kind not in TAKEN[turn.role]:
                message = f"a message of role {turn.role} cannot contain a chunk of type `{kind}`."
                yield at(piece.path, message, role=turn.role, chunk=CLASSES.get(kind, kind))


@rule(18, errors.ONE_OF, mend=mends.without_choice)
def the_choice_of_tools_is_one(request: Sketch) -> Iterable[Finding]:
    """`tool_choice` must be auto, none, any or required, or name a function.

    Example: {"tool_choice": "sometimes", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    value: JSON = request.body.get("tool_choice")
    if not mends.chooses(value):
        message = f"invalid `tool_choice` {value!r}."
        yield at(("tool_choice",), message, where=placed(("tool_choice",)), known=_either(mends.CHOICES))


@rule(19, errors.EXTRA, mend=mends.without_others_settings)
def settings_are_not_of_others(request: Sketch) -> Iterable[Finding]:
    """Settings of other APIs must not be sent.

    This covers settings of Anthropic, Ollama, OpenAI's Responses API and gateways: `thinking`, `options`, `reasoning`.

    Example: {"reasoning": {"effort": "low"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    for setting in mends.OTHERS:
        if setting in request.body:
            yield at((setting,), f"`{setting}` is not a Mistral setting.", where=placed((setting,)))


@rule(20, errors.ONE_OF)
def calls_are_of_functions(request: Sketch) -> Iterable[Finding]:
    """The `type` of a tool call, and of a tool that has a `function`, must be `function`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "type":
        "custom", "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e",
        "content": "1"}]
    Repair: the type becomes `function`.
    """
    for each in (*_calls(request), *request.tools):
        kind: JSON = each.wire.get("type", mends.FUNCTION)
        if kind != mends.FUNCTION:
            message = f"`type` must be `function`, got {kind!r}."
            yield at(each.path, message, where=placed((*each.path, "type")), known=_either([mends.FUNCTION]))


@rule(21, errors.ONE_OF, mend=mends.without_form)
def the_form_of_the_answer_is_one(request: Sketch) -> Iterable[Finding]:
    """`response_format` must have the type text, json_object or json_schema.

    Example: {"response_format": {"type": "xml"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    value: JSON = request.body.get("response_format")
    if not mends.forms(value):
        where = placed(("response_format", "type"))
        message = f"invalid `response_format` {value!r}."
        yield at(("response_format",), message, where=where, known=_either(mends.FORMS))


def _calls(request: Sketch) -> Iterator[Piece]:
    return (call for turn in request.turns for call in turn.of("call"))


def _either(words: Sequence[str]) -> str:
    """Return the values as pydantic lists the allowed ones."""
    *others, last = [f"'{word}'" for word in words]
    return f"{', '.join(others)} or {last}" if others else last


def _unknown(path: Path, wire: JSONObject, fields: Fields, *more: str) -> Iterator[Finding]:
    for name in unknown(wire, fields, *more):
        yield at(path, f"`{name}` is not a field that Mistral defines.", where=placed((*path, name)))
