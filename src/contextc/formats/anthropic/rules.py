"""The rules of Anthropic's Messages API, as far as a request can be held against them without asking."""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import errors, mends, sketch
from contextc.formats.checking import (
    Finding,
    RuleBook,
    Sketch,
    at,
    dotted,
    joined,
    match,
    next_turn,
    not_matching,
    repeated,
)
from contextc.formats.signatures import is_sound

ANSWERED = ("stream", "stop_sequences", "metadata", "service_tier", "temperature", "top_p", "top_k", "container")
"""Settings that a request for an answer may have, and one for a count may not."""
ID, TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}")


BOOK = RuleBook(
    "ANT",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.block,
    house="anthropic",
    unknown=sketch.unknown,
)
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message, block and tool has the fields its kind must have.

    A message has a `role` and `content`; a block has a `type` that the API knows, and the fields of that type.

    Example: [{"role": "user", "content": [{"type": "text"}]}]
    Repair: what has no sound shape becomes text, so that the model still sees it; a tool is left out.
    """
    return request.misshapen


@rule(2, errors.NO_MESSAGES, mend=mends.with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """There is at least one message.

    Example: []
    Repair: a line that says so is put in, from the user.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "there are no messages.")


@rule(4, errors.EMPTY_CONTENT, mend=mends.without_empty_messages)
def says_something(request: Sketch) -> Iterable[Finding]:
    """No message is empty, except a final one of the assistant.

    Example: [{"role": "user", "content": []}]
    Repair: the message is left out.
    """
    for turn in request.turns:
        last = turn is request.turns[-1] and turn.role == "assistant"
        if not turn.wire["content"] and not last and "output_config" not in turn.wire:
            yield at(turn.path, "this message is empty.")


@rule(5, errors.BLANK_TEXT)
def texts_are_not_blank(request: Sketch) -> Iterable[Finding]:
    """No text block is empty or white space alone.

    Models return such blocks beside a call, and a history that sends them back is refused.

    Example: [{"role": "user", "content": [{"type": "text", "text": " "}]}]
    Repair: the block is left out.
    """
    said = [piece for turn in request.turns if turn.wire["content"] != "" for piece in turn.of("text")]
    for piece in (*request.prompt, *said):
        if not piece.text.strip():
            yield at(piece.path, "this text is blank.")


@rule(6, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered by a result in the next message.

    Messages of one role that follow each other are one message to the API: two replies may be answered together.
    A crash, a cancelled turn or a cut leaves a call without its result, and every later request fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": "and?"}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for turn, call in match(joined(request.turns), next_turn).unanswered:
        message = f"the call {call.id} has no result in the next message."
        yield at(call.path, message, where=dotted(turn.path), ids=call.id)


@rule(7, errors.RESULTS_FIRST)
def results_come_first(request: Sketch) -> Iterable[Finding]:
    """Results stand before anything else in their message.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "text", "text": "Here:"}, {"type":
        "tool_result", "tool_use_id": "a", "content": "1"}]}]
    Repair: results come first, and what stood before them after.
    """
    for turn in joined(request.turns):
        results = turn.of("result")
        others = [index for index, piece in enumerate(turn.pieces) if piece.kind != "result"]
        if results and others and others[0] < len(results):
            message = f"something stands before the result of {results[-1].id}."
            yield at(turn.pieces[others[0]].path, message, where=dotted(turn.path), count=len(results))


@rule(8, errors.ORPHAN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every result answers a call of the previous message.

    Example: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    for _, result in match(joined(request.turns), next_turn).orphans:
        yield at(result.path, f"no call {result.id} stands in the message before.", id=result.id)


@rule(9, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"},
        {"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: the first is kept; another that says something else becomes text.
    """
    for _, result in match(joined(request.turns), next_turn).doubled:
        yield at(result.path, f"the call {result.id} has another result already.", id=result.id)


@rule(10, errors.REUSED_ID)
def ids_are_used_once(request: Sketch) -> Iterable[Finding]:
    """No two calls of a reply have the same id.

    In a later reply an id may come again, once it was answered: some providers begin to count anew in every reply.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}, {"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: the later call and its result get an id of their own.
    """
    for turn in joined(request.turns):
        for call in repeated(turn.of("call")):
            yield at(call.path, f"another call of this reply is called {call.id} already.")


@rule(11, errors.WRONG_ROLE)
def blocks_stand_with_their_role(request: Sketch) -> Iterable[Finding]:
    """Calls and thinking are the assistant's, results are the user's, and system messages are text.

    Example: [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role":
        "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: what a model said becomes the assistant's, results become the user's.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            role = {"call": "assistant", "reasoning": "assistant", "result": "user"}.get(piece.kind, turn.role)
            if piece.kind == "media" and turn.role == "system":
                role = "user"
            if role != turn.role:
                kind = piece.wire["type"]
                yield at(piece.path, f"a `{kind}` block cannot be the {turn.role}'s.", kind=kind, role=role)


@rule(12, errors.ID_FORM)
def ids_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The id of a call is made of letters, digits, `_` and `-`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a.1",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.1"}]}]
    Repair: the id is spelled with the characters that are allowed, on the call and on its result.
    """
    for call, id in not_matching(ID, (call for turn in request.turns for call in turn.of("call"))):
        yield at(call.path, f"the id {id!r} has characters that are not allowed.")


@rule(13, errors.SYSTEM_PLACE)
def system_messages_have_their_place(request: Sketch) -> Iterable[Finding]:
    """A system message follows the user's and is last, or followed by the assistant's.

    So it is never the first: what comes before everything else is the system prompt, in `system`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "system",
        "content": "Be brief."}]
    Repair: it becomes text of the user, in `<system-reminder>`.
    """
    others = [(index, turn) for index, turn in enumerate(request.turns) if turn.role != "system"]
    place = 0
    for index, turn in enumerate(request.turns):
        while place < len(others) and others[place][0] < index:
            place += 1
        if turn.role != "system" or (not turn.wire["content"] and "output_config" in turn.wire):
            continue
        before = others[place - 1][1] if place else None
        after = others[place][1] if place < len(others) else None
        ran = before is not None and before.pieces and "tool" in str(before.pieces[-1].wire.get("type"))
        follows = before is not None and (before.role == "user" or (ran and not before.of("call")))
        if not (follows and (after is None or after.role == "assistant")):
            yield at(turn.path, "a system message cannot stand here.")


@rule(14, errors.SIGNATURE, mend=mends.with_sound_thinking)
def thinking_is_signed(request: Sketch) -> Iterable[Finding]:
    """A thinking block has the signature it came with.

    The signature vouches for the text. A changed one, or that of another provider, is refused.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
        "hm", "signature": ""}, {"type": "text", "text": "Hello!"}]}, {"role": "user", "content": "go on"}]
    Repair: the block is left out; nobody but the model that wrote it could have read it.
    """
    for turn in request.turns:
        for piece in turn.of("reasoning"):
            if not is_sound(piece.wire.get("signature", piece.wire.get("data"))):
                yield at(piece.path, "the signature of this block is not one of Anthropic's.")


@rule(15, errors.THINKING_FIRST, mend=mends.without_thinking)
def thinking_begins_a_turn(request: Sketch) -> Iterable[Finding]:
    """With thinking enabled, the last reply begins with its thinking if it asks for tools.

    Example: {"model": "claude-sonnet-4-5", "max_tokens": 2048, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking",
        "thinking": "", "signature": "s"}, {"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role":
        "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, {"role": "assistant", "content": [{"type":
        "tool_use", "id": "b", "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result",
        "tool_use_id": "b"}]}]}
    Repair: thinking is turned off for this request.
    """
    thinking: JSON = request.body.get("thinking")
    replies = [turn for turn in joined(request.turns) if turn.role == "assistant"]
    if not isinstance(thinking, dict) or cast(JSONObject, thinking).get("type") != "enabled" or not replies:
        return
    last = replies[-1]
    begins = last.pieces[0].kind if last.pieces else "reasoning"
    if begins != "reasoning" and last.of("call") and any(turn.of("reasoning") for turn in replies):
        yield at(last.pieces[0].path, "the reply has lost its thinking.", kind=last.pieces[0].wire.get("type", "text"))


@rule(16, errors.TOO_MANY_MARKS, mend=mends.with_last_marks)
def cache_marks_are_few(request: Sketch) -> Iterable[Finding]:
    """At most four blocks have `cache_control`.

    Example: {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text":
        "b", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "c", "cache_control": {"type":
        "ephemeral"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "d", "cache_control":
        {"type": "ephemeral"}}, {"type": "text", "text": "e", "cache_control": {"type": "ephemeral"}}]}]}
    Repair: the first marks are taken off, and the last four stay.
    """
    marked = [path for path, _ in mends.marks(request.body or {"messages": [turn.wire for turn in request.turns]})]
    if len(marked) > mends.MOST_MARKS:
        yield at(marked[0], f"{len(marked)} blocks have `cache_control`, and four may.", count=len(marked))


@rule(17, errors.MISPLACED_MARK, mend=mends.with_marks_on_content)
def cache_marks_stand_on_content(request: Sketch) -> Iterable[Finding]:
    """Thinking and blank text have no `cache_control`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
        "hm", "signature": "s", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Hello!"}]}, {"role":
        "user", "content": "go on"}]
    Repair: the mark is taken off.
    """
    for turn in request.turns:
        for piece in turn.of("reasoning"):
            if piece.wire.get("cache_control"):
                yield at(piece.path, "a thinking block cannot be marked.", what="Extra inputs are not permitted")


@rule(18, errors.TOOL_NAME)
def tool_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a tool is made of 1 to 128 letters, digits, `_` and `-`.

    Example: {"tools": [{"name": "files.read", "input_schema": {"type": "object"}}], "messages": [{"role": "user",
        "content": "hi"}]}
    Repair: the name is spelled with the characters that are allowed, wherever it stands.
    """
    for tool, name in not_matching(TOOL_NAME, request.tools):
        yield at(tool.path, f"the name {name!r} has characters that are not allowed, or too many.")
    for turn in request.turns:
        for call in turn.of("call"):
            if not TOOL_NAME.fullmatch(call.name):
                yield at(call.path, f"the name {call.name!r} has characters that are not allowed, or too many.")


@rule(19, errors.TOOL_TWICE, mend=mends.with_tools_once)
def tools_are_named_once(request: Sketch) -> Iterable[Finding]:
    """No two tools have the same name.

    Example: {"tools": [{"name": "look", "input_schema": {"type": "object"}}, {"name": "look", "input_schema": {"type":
        "object"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first is kept.
    """
    for tool in repeated(request.tools):
        yield at(tool.path, f"there is a tool {tool.id} already.")


@rule(20, errors.UNKNOWN_CHOICE, mend=mends.without_choice)
def chosen_tool_is_there(request: Sketch) -> Iterable[Finding]:
    """The tool that `tool_choice` names is among the tools.

    Example: {"tools": [{"name": "look", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name":
        "find"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model.
    """
    choice: JSON = request.body.get("tool_choice")
    name = cast(JSONObject, choice).get("name") if isinstance(choice, dict) else None
    if isinstance(request.body.get("tools"), list):
        tools = cast(list[object], request.body["tools"])
        known = [cast(JSONObject, tool).get("name") for tool in tools if isinstance(tool, dict)]
    else:
        known = []
    if name is not None and name not in known:
        yield at(("tool_choice",), f"there is no tool {name!r}.", name=name)


@rule(21, errors.TRAILING_SPACE)
def prefill_ends_without_space(request: Sketch) -> Iterable[Finding]:
    """Where the assistant speaks last, its text does not end with white space.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello, "}]
    Repair: the space is taken off.
    """
    last = request.turns[-1] if request.turns else None
    if last and last.role == "assistant" and last.pieces and (text := last.pieces[-1].text).rstrip() != text:
        yield at(last.pieces[-1].path, "the last text ends with white space.")


@rule(22, errors.MAX_TOKENS, mend=mends.with_a_limit)
def says_how_long_the_answer_may_be(request: Sketch) -> Iterable[Finding]:
    """A request for an answer has `max_tokens`.

    One that only counts tokens has none; it is told by what it does not ask for.

    Example: {"model": "claude-opus-5-5", "stream": true, "messages": [{"role": "user", "content": "hi"}]}
    Repair: 8,192 is put in.
    """
    if any(request.body.get(name) is not None for name in ANSWERED) and request.body.get("max_tokens") is None:
        yield at((), "`max_tokens` is missing.")


@rule(23, errors.SERVER_ORPHAN, mend=mends.without_server_orphans)
def server_results_follow_their_call(request: Sketch) -> Iterable[Finding]:
    """The result of a tool that Anthropic runs stands after its call.

    Mostly in the same message; after a pause, or where its code calls a tool of ours, in a later one.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1", "content": []}, {"type": "text", "text": "Found it."}]}, {"role": "user",
        "content": "and?"}]
    Repair: the result is left out; it holds what only Anthropic can read.
    """
    pieces = [piece for turn in request.turns if turn.role == "assistant" for piece in turn.pieces]
    orphans = {id(wire) for wire in mends.server_orphans([piece.wire for piece in pieces])}
    for each in pieces:
        if id(each.wire) in orphans:
            piece, path = each.wire, each.path
            yield at(
                path, f"no call {piece['tool_use_id']} stands before this.", kind=piece["type"], id=piece["tool_use_id"]
            )


@rule(24, errors.NO_PREFILL, mend=mends.with_a_last_word)
def the_user_speaks_last(request: Sketch) -> Iterable[Finding]:
    """Models from Claude 4.6 on do not continue a last message of the assistant's.

    Checked where `model` names one of them. A turn that Anthropic paused while its own tools ran goes back as it is.

    Example: {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}, {"role":
        "assistant", "content": "Hello"}]}
    Repair: a line of the user's asks the model to go on.
    """
    if request.facts.prefill or request.body.get("max_tokens") is None:
        return
    last = list(takewhile(lambda turn: turn.role == "assistant", reversed(request.turns)))
    spoken = {piece.kind for turn in last for piece in turn.pieces}
    if "text" in spoken and spoken <= {"text", "reasoning"} and not request.misshapen:
        yield at(last[0].path, "the assistant speaks last, and this model does not go on from there.")


@rule(25, errors.FORCED_CHOICE, mend=mends.with_free_choice)
def tools_are_not_forced(request: Sketch) -> Iterable[Finding]:
    """Some models cannot be made to call a tool: Opus 5.5, Sonnet 5.5, Fable and Mythos from 5.1 on.

    Checked where `model` names one of them.

    Example: {"model": "claude-opus-5-5", "max_tokens": 100, "tools": [{"name": "look", "input_schema": {"type":
        "object"}}], "tool_choice": {"type": "any"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model; calls in parallel stay as they were set.
    """
    kind = mends.choice(request.body).get("type")
    if kind in ("any", "tool") and not request.facts.forced_tool_choice:
        yield at(("tool_choice",), f"`tool_choice` of type {kind!r} is not taken by this model.")


@rule(26, errors.UNKNOWN_FIELD, mend=mends.without_unknown_fields)
def fields_are_known(request: Sketch) -> Iterable[Finding]:
    """Messages and blocks have no other fields than those of Anthropic.

    Anthropic refuses what other providers add: `name`, `reasoning_content`, the `id` and `usage` of a reply. Not
    checked where `model` names a model of another vendor, whose endpoint may take more.

    Example: [{"role": "user", "name": "ada", "content": "hi"}]
    Repair: the field is left out.
    """
    if mends.is_claude(request.body):
        yield from sketch.unknown(request)
