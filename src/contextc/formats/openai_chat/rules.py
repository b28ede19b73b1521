"""The rules of OpenAI's Chat Completions, as far as a request can be held against them without asking.

OpenRouter, Groq, Mistral, DeepSeek, vLLM and others speak it too. What belongs together, all of them want together.
Limits that OpenAI alone sets are not held against a request that names another's model.
"""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.checking import (
    Finding,
    Piece,
    RuleBook,
    Sketch,
    Turn,
    at,
    match,
    reasons,
    repeated,
    run_of,
    strangers,
)
from contextc.formats.openai_chat import errors, mends, sketch
from contextc.formats.openai_chat.sketch import house, placed

LONGEST_ID = 64
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
results_at_once = run_of("tool")

BOOK = RuleBook(
    "OAC",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.block,
    house="openai",
    unknown=sketch.unknown,
)
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message, part, call and tool has the fields its kind must have.

    A message has a `role`, and what that role must have. A tool message has a `tool_call_id`, and nobody else does.
    The arguments of a call are a text. Parts and tools of the Responses API have other names, and are refused here.

    Example: [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    Repair: what was meant is written as it should be; what cannot be understood becomes text, and a tool is left out.
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


@rule(3, errors.NOTHING_SAID, mend=mends.without_silence)
def the_assistant_says_something(request: Sketch) -> Iterable[Finding]:
    """A message of the assistant has `content`, unless it asks for tools.

    A turn that was cancelled before the first word leaves one without.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null}]
    Repair: the message is left out.
    """
    for turn in request.turns:
        if turn.role == "assistant" and mends.is_silent(turn.wire):
            yield at(turn.path, "the assistant says nothing here, and asks for nothing.")


@rule(4, errors.EMPTY_LIST, mend=mends.without_empty_content)
def content_has_parts(request: Sketch) -> Iterable[Finding]:
    """Where `content` is a list, something is in it.

    Example: [{"role": "user", "content": []}]
    Repair: the message is left out; a result becomes an empty text.
    """
    for turn in request.turns:
        if turn.wire.get("content") == [] and not mends.asks(turn.wire):
            yield at(turn.path, "the content of this message is an empty list.", where=f"{placed(turn.path)}.content")


@rule(5, errors.EMPTY_LIST, mend=mends.without_empty_lists)
def lists_of_tools_are_not_empty(request: Sketch) -> Iterable[Finding]:
    """`tools` and `tool_calls` are left out where there are none.

    OpenAI's own SDK returns an empty list of calls in parsed replies, and its API refuses it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!", "tool_calls": []}, {"role":
        "user", "content": "go on"}]
    Repair: the list is left out.
    """
    if house(request.body) == "other":
        return
    if request.body.get("tools") == []:
        yield at(("tools",), "the list of tools is empty.")
    for turn in request.turns:
        if turn.wire.get("tool_calls") == []:
            yield at((*turn.path, "tool_calls"), "the list of calls is empty.", where=f"{placed(turn.path)}.tool_calls")


@rule(6, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered by a tool message before anybody else speaks.

    A crash, a cancelled turn or a cut leaves a call without its result, and every later request fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]}, {"role": "user", "content": "and?"}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in match(request.turns, results_at_once).unanswered:
        yield at(call.path, f"the call {call.id} is not answered by the tool messages after it.", ids=call.id)


@rule(7, errors.ORPHAN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every tool message answers a call of the assistant's message right before the tool messages.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    for _, result in match(request.turns, results_at_once).orphans:
        yield at(result.path, f"no call {result.id} stands in the assistant's message before this result.")


@rule(8, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "a", "content": "2"}]
    Repair: the first is kept; another that says something else becomes text.
    """
    doubled = {result.path for _, result in match(request.turns, results_at_once).doubled}
    latest: dict[str, Turn] = {}
    for turn in request.turns:
        for result in turn.of("result"):
            first = latest.get(result.id, turn)
            latest[result.id] = turn
            if result.path in doubled:
                message = f"the call {result.id} has another result already."
                yield at(result.path, message, id=result.id, first=placed(first.path), where=placed(result.path))


@rule(9, errors.ID_TWICE, mend=mends.with_ids_apart)
def calls_of_a_message_have_ids_of_their_own(request: Sketch) -> Iterable[Finding]:
    """No two calls of one message have the same id.

    In a later message an id may come again: some providers begin to count anew in every reply.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}, {"id": "a", "type": "function", "function": {"name": "find",
        "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the second call and its result get an id of their own.
    """
    for turn in request.turns:
        for call in repeated(turn.of("call")):
            message = f"another call of this message is called {call.id} already."
            yield at(call.path, message, id=call.id, where=placed(turn.path))


@rule(10, errors.NOT_THE_ASSISTANT, mend=mends.with_calls_of_the_assistant)
def calls_are_the_assistants(request: Sketch) -> Iterable[Finding]:
    """Only the assistant asks for tools.

    Example: [{"role": "user", "content": "hi", "tool_calls": [{"id": "a", "type": "function", "function": {"name":
        "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the message becomes the assistant's.
    """
    for turn in request.turns:
        if turn.role != "assistant" and mends.asks(turn.wire):
            what = "tool calls" if turn.wire.get("tool_calls") else "a function call"
            yield at(turn.path, f"the {turn.role} cannot ask for a tool.", what=what)


@rule(11, errors.ID_LENGTH)
def ids_have_the_length(request: Sketch) -> Iterable[Finding]:
    """The id of a call has 1 to 64 characters.

    Ids of other providers are longer at times. OpenAI has refused more than 40, so that is what we write ourselves.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id":
        "call_00000000000000000000000000000000000000000000000000000000000000", "type": "function", "function": {"name":
        "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id":
        "call_00000000000000000000000000000000000000000000000000000000000000", "content": "1"}]
    Repair: the id gets a shorter form, on the call and on its result.
    """
    for call in _calls(request):
        length = len(call.id)
        if not 1 <= length <= LONGEST_ID:
            what = errors.TOO_LONG.format(most=LONGEST_ID, length=length) if length else errors.TOO_SHORT
            message = f"the id {call.id!r} has {length} characters, and 1 to {LONGEST_ID} are allowed."
            yield at(call.path, message, where=f"{placed(call.path)}.id", what=what)


@rule(12, errors.PATTERN, mend=mends.with_spelled_names)
def tool_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a tool is made of 1 to 64 letters, digits, `_` and `-`.

    Example: {"tools": [{"type": "function", "function": {"name": "files.read"}}], "messages": [{"role": "user",
        "content": "hi"}]}
    Repair: the name is spelled with the characters that are allowed, wherever it stands.
    """
    if house(request.body) == "other":
        return
    named = [(tool, tool.id) for tool in request.tools] + [(call, call.name) for call in _calls(request)]
    for piece, name in named:
        if not TOOL_NAME.fullmatch(name):
            message = f"the name {name!r} has characters that are not allowed, or too many."
            where = f"{placed(piece.path)}.{'custom' if 'custom' in piece.wire else 'function'}.name"
            yield at(piece.path, message, where=where, pattern="^[a-zA-Z0-9_-]+$")


@rule(13, errors.PATTERN, mend=mends.with_plain_names)
def names_of_people_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The `name` of who speaks has no white space, slash, bar or angle bracket.

    Example: [{"role": "user", "name": "Ada Lovelace", "content": "hi"}]
    Repair: `_` is put in place of each.
    """
    for turn in request.turns if house(request.body) != "other" else ():
        name = cast(str | None, turn.wire.get("name"))
        if turn.role in ("tool", "function") or name is None:
            continue
        if not name or mends.NOT_IN_A_NAME.search(name):
            message = f"the name {name!r} has characters that are not allowed, or none."
            yield at(turn.path, message, where=f"{placed(turn.path)}.name", pattern=r"^[^\s<|\\/>]+$")


@rule(14, errors.TOOL_TWICE, mend=mends.with_tools_once)
def tools_are_named_once(request: Sketch) -> Iterable[Finding]:
    """No two tools have the same name.

    Example: {"tools": [{"type": "function", "function": {"name": "look"}}, {"type": "function", "function": {"name":
        "look"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first is kept.
    """
    for tool in repeated(request.tools):
        yield at(tool.path, f"there is a tool {tool.id} already.", name=tool.id)


@rule(15, errors.TOO_MANY, mend=mends.with_few_tools)
def tools_are_not_too_many(request: Sketch) -> Iterable[Finding]:
    """There are at most 128 tools.

    Example: {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "a"}, {"type": "a"}, {"type":
        "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"},
        {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}, {"type": "a"}]}
    Repair: the first 128 are kept.
    """
    count = _length(request.body.get("tools"))
    if count > mends.MOST_TOOLS and house(request.body) != "other":
        yield at(("tools",), f"there are {count} tools, and 128 are allowed.", most=mends.MOST_TOOLS, count=count)


@rule(16, errors.UNKNOWN_CHOICE, mend=mends.without_choice)
def chosen_tools_are_there(request: Sketch) -> Iterable[Finding]:
    """The tools that `tool_choice` names are among the tools.

    Example: {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": {"type": "function",
        "function": {"name": "find"}}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model.
    """
    tools: JSON = request.body.get("tools")
    known = [mends.tool_name(tool) for tool in cast(list[JSON], tools)] if isinstance(tools, list) else []
    for name in _chosen(request.body.get("tool_choice")):
        if known and name not in known:
            yield at(("tool_choice",), f"there is no tool {name!r}.", name=name)


@rule(17, errors.NO_TOOLS, mend=mends.without_idle_settings)
def choices_come_with_tools(request: Sketch) -> Iterable[Finding]:
    """`tool_choice` and `parallel_tool_calls` are set only where there are tools.

    Example: {"tool_choice": "auto", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is left out.
    """
    if house(request.body) == "other":
        return
    for setting, needed in mends.NEEDS.items():
        if request.body.get(setting) not in (None, "none") and not request.body.get(needed):
            yield at((setting,), f"`{setting}` is set, but there are no {needed}.", setting=setting, needed=needed)


@rule(18, errors.TOO_MANY, mend=mends.with_few_stops)
def stops_are_few(request: Sketch) -> Iterable[Finding]:
    """There are at most four stop sequences.

    Example: {"stop": ["a", "b", "c", "d", "e"], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first four are kept.
    """
    count = _length(request.body.get("stop"))
    if count > mends.MOST_STOPS and house(request.body) != "other":
        yield at(("stop",), f"there are {count} stop sequences, and four are allowed.", most=4, count=count)


@rule(19, errors.MISPLACED_MEDIA, mend=mends.with_media_of_the_user)
def media_is_the_users(request: Sketch) -> Iterable[Finding]:
    """Pictures, sounds and files stand in messages of the user.

    A tool that returns a picture cannot put it into its result. Newer models do not refuse it there, and do not see it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": [{"type":
        "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]
    Repair: it is shown in a message of the user, after the results.
    """
    if house(request.body) == "other":
        return
    for turn in request.turns:
        for piece in turn.of("media") if turn.role != "user" else ():
            message = f"a message of the {turn.role} cannot hold a part of type `{piece.wire['type']}`."
            yield at(piece.path, message, where=placed(turn.path), role=turn.role)


@rule(20, errors.DAMAGED_REASONING, mend=mends.without_damaged_reasoning)
def reasoning_is_as_it_came(request: Sketch) -> Iterable[Finding]:
    """What OpenRouter gives in `reasoning_details` goes back as it came.

    Signatures and encrypted reasoning are handed to the provider that wrote them, and it refuses changed ones.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!", "reasoning_details":
        [{"type": "reasoning.encrypted", "format": "openai-responses-v1", "data":
        "gAAAAAB… and here somebody has cut a piece out of the middle, to save some tokens"}]}, {"role": "user",
        "content": "go on"}]
    Repair: the reasoning of that message is left out; nobody but the model that wrote it could have read it.
    """
    for turn in request.turns:
        for index in mends.damaged(turn.wire):
            path = (*turn.path, "reasoning_details", index)
            yield at(path, "this reasoning is not as its provider wrote it.", where=placed(path))


@rule(21, errors.NO_MAX_TOKENS, mend=mends.with_completion_limit)
def limit_has_its_new_name(request: Sketch) -> Iterable[Finding]:
    """Models that reason take `max_completion_tokens`, and no `max_tokens`.

    Checked where `model` names one of OpenAI's.

    Example: {"model": "gpt-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the number is kept under the new name.
    """
    if request.facts.reasoning and request.body.get("max_tokens") is not None:
        yield at(("max_tokens",), "`max_tokens` is not taken by a model that reasons.")


@rule(22, errors.NO_SAMPLING, mend=mends.without_sampling)
def sampling_is_left_alone(request: Sketch) -> Iterable[Finding]:
    """Models that reason take no `temperature` and no `top_p`, unless their effort is `none`.

    Checked where `model` names one of OpenAI's, and it is certain that it will reason.

    Example: {"model": "gpt-5", "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is left out.
    """
    for setting in mends.SAMPLING:
        value: JSON = request.body.get(setting)
        if value not in (None, 1) and reasons(request.facts, request.body.get("reasoning_effort")):
            yield at((setting,), f"`{setting}` is not taken by a model that reasons.", setting=setting, value=value)


@rule(23, errors.TOOLS_AND_EFFORT, mend=mends.with_no_effort)
def tools_come_without_effort(request: Sketch) -> Iterable[Finding]:
    """From GPT-5.4 on there are no tools here, unless the effort is `none`.

    Checked where `model` names one of them and an effort is set. To have both, ask by the Responses API.

    Example: {"model": "gpt-5.6", "reasoning_effort": "high", "tools": [{"type": "function", "function": {"name":
        "look"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the effort is set to `none`, because the tools are needed.
    """
    effort: JSON = request.body.get("reasoning_effort")
    asked = effort not in (None, "none") and "none" in request.facts.efforts
    if asked and request.body.get("tools") and not request.facts.tools_in_chat:
        message = "this model takes tools here only with the effort `none`."
        yield at(("reasoning_effort",), message, model=request.body["model"])


@rule(24, errors.TEXT_ALONE, mend=mends.with_pictures_described)
def pictures_are_for_models_that_see(request: Sketch) -> Iterable[Finding]:
    """Some models take no pictures: GPT-3.5, GPT-4, o1-mini, o3-mini.

    Checked where `model` names one of them.

    Example: {"model": "gpt-3.5-turbo", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url":
        {"url": "https://example.com/a.png"}}]}]}
    Repair: a line of text says what was there.
    """
    if request.facts.media != ():
        return
    for turn in request.turns:
        for piece in turn.of("media"):
            if piece.wire["type"] == mends.PICTURE:
                yield at(piece.path, "this model takes text alone.")


@rule(25, errors.UNKNOWN_PARAMETER, mend=mends.without_unknown_fields)
def fields_are_known(request: Sketch) -> Iterable[Finding]:
    """A message has no other fields than those of OpenAI, and of the endpoints that speak its API.

    Not checked where `model` names a model of another vendor, whose endpoint may take more.

    Example: [{"role": "user", "content": "hi", "createdAt": "2026-11-16"}]
    Repair: the field is left out.
    """
    if house(request.body) != "other":
        for turn in request.turns:
            for finding in strangers(turn.wire, sketch.FIELDS, turn.path):
                yield at(finding.path, finding.message, where=placed(finding.path))


def _calls(request: Sketch) -> Iterator[Piece]:
    return (call for turn in request.turns for call in turn.of("call")) if house(request.body) != "other" else iter(())


def _length(value: JSON) -> int:
    return len(cast(list[JSON], value)) if isinstance(value, list) else 0


def _chosen(choice: JSON) -> Iterator[str]:
    """The names of the tools a model is to choose from."""
    if not isinstance(choice, dict):
        return
    wire = cast(JSONObject, choice)
    allowed: JSON = wire.get("allowed_tools")
    tools: JSON = cast(JSONObject, allowed).get("tools") if isinstance(allowed, dict) else None
    for each in cast(list[JSON], tools) if isinstance(tools, list) else [wire]:
        if (named := sketch.called(each)) is not None:
            yield named["name"]
