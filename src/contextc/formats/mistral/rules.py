"""The rules of Mistral's chat completions, as far as a request can be held against them without asking.

Its validators differ between generations of its models. What the newest take is not refused here, except that ids have
nine letters: the newest would take others, and most of the models that are served do not.
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
    """Every message, chunk, call and tool has the fields its kind must have.

    The roles are `system`, `user`, `assistant` and `tool`. A tool message has a `tool_call_id`, and nobody else does.
    Sounds and files are written otherwise than at OpenAI, and a tool has `parameters`.

    Example: [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format":
        "wav"}}]}]
    Repair: what was meant is written as it should be; what cannot be understood becomes text, and a tool is left out.
    """
    return request.misshapen


@rule(2, errors.NO_MESSAGES, mend=with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """There is at least one message.

    Example: []
    Repair: a line that says so is put in, from the user.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "there are no messages.")


@rule(3, errors.NOTHING_SAID)
def the_assistant_says_something(request: Sketch) -> Iterable[Finding]:
    """A message of the assistant has `content`, unless it asks for tools.

    A turn that was cancelled before the first word leaves one without. An empty text is none.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}, {"role": "user", "content":
        "go on"}]
    Repair: the message is left out.
    """
    for turn in request.turns:
        if turn.role == "assistant" and not turn.wire.get("content") and not turn.wire.get("tool_calls"):
            yield at(turn.path, "the assistant says nothing here, and asks for nothing.")


@rule(4, errors.EXTRA, mend=mends.with_known_chunks)
def fields_are_known(request: Sketch) -> Iterable[Finding]:
    """Messages, chunks, calls and tools have no other fields than those of Mistral.

    What OpenAI and others add to a message is refused here: `name`, `refusal`, `reasoning_content`, `cache_control`.

    Example: [{"role": "user", "name": "ada", "content": "hi"}]
    Repair: the field is left out.
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
    """Settings that only OpenAI has are not sent.

    Among them `stream_options`, without which Mistral says what a stream used, and `max_completion_tokens`.

    Example: {"max_completion_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the length and the seed are kept under Mistral's names, others are left out.
    """
    for setting in mends.OPENAIS:
        if setting in request.body:
            yield at((setting,), f"`{setting}` is a setting of OpenAI's.", where=placed((setting,)))


@rule(6, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered by a tool message before anybody else speaks.

    A crash, a cancelled turn or a cut leaves a call without its result, and every later request fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "user", "content": "and?"}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in match(request.turns, results_at_once).unanswered:
        yield at(call.path, f"the call {call.id} is not answered by the tool messages after it.")


@rule(7, errors.MISSHAPEN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every tool message answers a call of the assistant's message right before the tool messages.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    roles = {turn.path: before.role for before, turn in pairwise(request.turns)}
    for turn, result in match(request.turns, results_at_once).orphans:
        what = errors.UNEXPECTED_ID.format(id=result.id)
        if (before := roles.get(turn.path)) in ("system", "user"):
            what = errors.UNEXPECTED_ROLE.format(role="tool", before=before)
        yield at(result.path, f"no call {result.id} stands in the assistant's message before this result.", what=what)


@rule(8, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "2"}]
    Repair: the first is kept; another that says something else becomes text.
    """
    for _, result in match(request.turns, results_at_once).doubled:
        yield at(result.path, f"the call {result.id} has another result already.", id=result.id)


@rule(9, errors.ID_TWICE)
def calls_of_a_message_have_ids_of_their_own(request: Sketch) -> Iterable[Finding]:
    """No two calls of one message have the same id.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}, {"id": "a1b2c3d4e", "function": {"name": "find", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: the second call and its result get an id of their own.
    """
    for turn in request.turns:
        for call in repeated(turn.of("call")):
            yield at(call.path, f"another call of this message is called {call.id} already.", id=call.id)


@rule(10, errors.EXTRA, mend=with_calls_of_the_assistant)
def calls_are_the_assistants(request: Sketch) -> Iterable[Finding]:
    """Only the assistant asks for tools.

    Example: [{"role": "system", "content": "hi"}, {"role": "user", "content": "hi", "tool_calls": [{"id":
        "a1b2c3d4e", "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e",
        "content": "1"}]
    Repair: the message becomes the assistant's.
    """
    for turn in request.turns:
        if turn.role != "assistant" and turn.wire.get("tool_calls"):
            where = placed((*turn.path, "tool_calls"))
            yield at(turn.path, f"the {turn.role} cannot ask for a tool.", where=where)


@rule(11, errors.ID_FORM)
def ids_have_nine_letters(request: Sketch) -> Iterable[Finding]:
    """The id of a call has exactly nine letters and digits.

    Ids of every other provider are longer, or have other characters.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "call_1", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "1"}]
    Repair: the id is written as nine letters, on the call and on its result.
    """
    for call in _calls(request):
        if not ID.fullmatch(call.id):
            yield at(call.path, f"the id {call.id!r} has not exactly nine letters and digits.", id=call.id)


@rule(12, errors.NAME_FORM)
def tool_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a tool is made of 1 to 64 letters, digits, `_` and `-`, wherever it stands.

    Example: {"tools": [{"type": "function", "function": {"name": "files.read", "parameters": {}}}], "messages":
        [{"role": "user", "content": "hi"}]}
    Repair: the name is spelled with the characters that are allowed, wherever it stands.
    """
    named = [(tool.path, tool.id) for tool in request.tools] + [(call.path, call.name) for call in _calls(request)]
    named += [(turn.path, turn.wire["name"]) for turn in request.turns if turn.role == "tool" and turn.wire.get("name")]
    for path, name in named:
        if not TOOL_NAME.fullmatch(name):
            yield at(path, f"the name {name!r} has characters that are not allowed, or too many.", name=name)


@rule(13, errors.UNEXPECTED_ROLE)
def system_messages_follow_no_reply(request: Sketch) -> Iterable[Finding]:
    """A system message stands first, or after others of the system or the user.

    After a reply or a result it is refused.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "system",
        "content": "Be brief."}, {"role": "user", "content": "go on"}]
    Repair: it becomes text of the user, tagged as a reminder of the system.
    """
    for before, turn in pairwise(request.turns):
        if turn.role == "system" and before.role in ("assistant", "tool"):
            message = f"a system message cannot follow the {before.role}'s."
            yield at(turn.path, message, role=turn.role, before=before.role)


@rule(14, errors.BEGINNING)
def the_assistant_does_not_begin(request: Sketch) -> Iterable[Finding]:
    """A conversation does not begin with calls of the assistant, and is not a single message of the assistant.

    A cut through a history leaves one that does.

    Example: [{"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function": {"name": "look", "arguments":
        "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: a line that says so is put before it, from the user.
    """
    turns = request.turns
    if turns and turns[0].role == "assistant" and (len(turns) == 1 or turns[0].of("call")):
        yield at(turns[0].path, "the conversation begins with the assistant.")


@rule(15, errors.LAST)
def the_assistant_does_not_end(request: Sketch) -> Iterable[Finding]:
    """A last message of the assistant says `prefix`: the model goes on from there.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]
    Repair: `prefix` is set.
    """
    last = request.turns[-1] if len(request.turns) > 1 else None
    if last is not None and last.role == "assistant" and not last.wire.get("prefix"):
        yield at(last.path, "the last message is the assistant's, and is not said to be a beginning.", role=last.role)


@rule(16, errors.PREFIX)
def only_the_last_is_a_beginning(request: Sketch) -> Iterable[Finding]:
    """Only the last message says `prefix`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello", "prefix": true}, {"role":
        "user", "content": "go on"}]
    Repair: `prefix` is left out.
    """
    for turn in request.turns[:-1]:
        if turn.role == "assistant" and turn.wire.get("prefix"):
            yield at(turn.path, "this message is said to be a beginning, and others follow it.")


@rule(17, errors.MISPLACED)
def chunks_stand_where_they_may(request: Sketch) -> Iterable[Finding]:
    """Pictures and sounds are not the assistant's, thoughts are, and the system says text.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "image_url", "image_url":
        "https://example.com/a.png"}]}, {"role": "user", "content": "go on"}]
    Repair: a line of text says what was there; thoughts of others become text.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            kind: JSON = piece.wire.get("type") if piece.kind not in ("call", "result") else None
            if kind is not None and kind not in TAKEN[turn.role]:
                message = f"a message of the {turn.role} cannot hold a chunk of type `{kind}`."
                yield at(piece.path, message, role=turn.role, chunk=CLASSES.get(kind, kind))


@rule(18, errors.ONE_OF, mend=mends.without_choice)
def the_choice_of_tools_is_one(request: Sketch) -> Iterable[Finding]:
    """`tool_choice` is auto, none, any or required, or names a function.

    Example: {"tool_choice": "sometimes", "messages": [{"role": "user", "content": "hi"}]}
    Repair: it is left to the model.
    """
    value: JSON = request.body.get("tool_choice")
    if not mends.chooses(value):
        message = f"tools cannot be chosen by {value!r}."
        yield at(("tool_choice",), message, where=placed(("tool_choice",)), known=_either(mends.CHOICES))


@rule(19, errors.EXTRA, mend=mends.without_others_settings)
def settings_are_not_of_others(request: Sketch) -> Iterable[Finding]:
    """Settings of other APIs are not sent.

    Those of Anthropic, of Ollama, of OpenAI's Responses and of gateways: `thinking`, `options`, `reasoning`.

    Example: {"reasoning": {"effort": "low"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is left out.
    """
    for setting in mends.OTHERS:
        if setting in request.body:
            yield at((setting,), f"`{setting}` is not one of Mistral's settings.", where=placed((setting,)))


@rule(20, errors.ONE_OF)
def calls_are_of_functions(request: Sketch) -> Iterable[Finding]:
    """A call, and a tool that is a function, says so where it says of what kind it is.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "type":
        "custom", "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e",
        "content": "1"}]
    Repair: it is said to be a function.
    """
    for each in (*_calls(request), *request.tools):
        kind: JSON = each.wire.get("type", mends.FUNCTION)
        if kind != mends.FUNCTION:
            message = f"it is a function, and not of the kind {kind!r}."
            yield at(each.path, message, where=placed((*each.path, "type")), known=_either([mends.FUNCTION]))


@rule(21, errors.ONE_OF, mend=mends.without_form)
def the_form_of_the_answer_is_one(request: Sketch) -> Iterable[Finding]:
    """`response_format` has the type text, json_object or json_schema.

    Example: {"response_format": {"type": "xml"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: it is left to the model.
    """
    value: JSON = request.body.get("response_format")
    if not mends.forms(value):
        where = placed(("response_format", "type"))
        message = f"an answer cannot have the form {value!r}."
        yield at(("response_format",), message, where=where, known=_either(mends.FORMS))


def _calls(request: Sketch) -> Iterator[Piece]:
    return (call for turn in request.turns for call in turn.of("call"))


def _either(words: Sequence[str]) -> str:
    """As pydantic lists what may stand somewhere."""
    *others, last = [f"'{word}'" for word in words]
    return f"{', '.join(others)} or {last}" if others else last


def _unknown(path: Path, wire: JSONObject, fields: Fields, *more: str) -> Iterator[Finding]:
    for name in unknown(wire, fields, *more):
        yield at(path, f"the field `{name}` is not one of Mistral's.", where=placed((*path, name)))
