"""The rules of Bedrock's Converse API.

`message_rules` has rules 1 to 11. The model id is in the URL, so rules for single models are checked only where the
body shows the model.
"""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.bedrock import errors, mends, sketch
from contextc.formats.bedrock.encode import house
from contextc.formats.bedrock.media import DOCUMENT_NAME, MOST_DOCUMENTS, MOST_IMAGES, documents
from contextc.formats.bedrock.message_rules import BOOK
from contextc.formats.checking import (
    Finding,
    Path,
    Piece,
    Sketch,
    Turn,
    at,
    dotted,
    misfit,
    repeated,
)

ID, NAME = re.compile(r"[a-zA-Z0-9_.:-]+"), re.compile(r"[a-zA-Z0-9_-]+")
LONGEST = 64
CLAUDES = "anthropic"

rule = BOOK.rule


@rule(12, errors.CONSTRAINT, mend=mends.with_sound_calls)
def ids_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The id of a call is 1 to 64 letters, digits, and any of `_ . : -`.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a/1", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a/1",
        "content": [{"text": "1"}]}}]}]
    Repair: the id is spelled with the characters that are allowed, on the call and on its result.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            kind = next(iter(piece.wire))
            if kind == "toolUse" or (kind == "toolResult" and piece.kind == "other"):
                yield from _constrained(piece.wire[kind]["toolUseId"], ID, (*piece.path, kind, "toolUseId"), piece)


@rule(13, errors.CONSTRAINT, mend=mends.with_sound_calls)
def tool_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a tool is 1 to 64 letters, digits, `_` and `-`.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "files.read", "inputSchema": {"json": {"type":
        "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the name is spelled with the characters that are allowed, wherever it stands.
    """
    for tool in request.tools:
        yield from _constrained(tool.id, NAME, (*tool.path, next(iter(tool.wire)), "name"), tool)
    for turn in request.turns:
        for piece in turn.pieces:
            if "toolUse" in piece.wire:
                yield from _constrained(piece.wire["toolUse"]["name"], NAME, (*piece.path, "toolUse", "name"), piece)


def _constrained(value: str, pattern: re.Pattern[str], path: Path, piece: Piece) -> Iterator[Finding]:
    """A value against the pattern and the length that the vendor's own description of its API states."""
    what = ""
    if len(value) > LONGEST:
        what = f"Member must have length less than or equal to {LONGEST}"
    elif not pattern.fullmatch(value):
        what = f"Member must satisfy regular expression pattern: {pattern.pattern}"
    if what:
        message = f"{value!r} has characters that are not allowed, or too many."
        yield at(piece.path, message, value=value, where=_membered(path), what=what)


def _membered(path: Path) -> str:
    """`messages.1.member.content.1.member.toolUse.name`, as Bedrock writes it."""
    whole = path if isinstance(path[0], str) else ("messages", *path)
    return ".".join(f"{step + 1}.member" if isinstance(step, int) else step for step in whole)


@rule(14, errors.NO_TOOLS)
def tools_are_there(request: Sketch) -> Iterable[Finding]:
    """Where messages hold calls or results, there are tools.

    Also where the model is not to call any more: a history that has outlived its tools is refused.

    Example: {"messages": [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse":
        {"toolUseId": "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId":
        "a", "content": [{"text": "1"}]}}]}]}
    Repair: a tool is put in that says that there are none.
    """
    if not request.body or request.body.get("toolConfig"):
        return
    used = next((piece for turn in request.turns for piece in turn.pieces if piece.kind in ("call", "result")), None)
    if used is not None:
        yield at((), "there are calls in the messages, and no `toolConfig`.")


@rule(15, errors.TOOL_TWICE, mend=mends.with_tools_once)
def tools_are_named_once(request: Sketch) -> Iterable[Finding]:
    """No two tools have the same name.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}, {"toolSpec":
        {"name": "look", "inputSchema": {"json": {}}}}]}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the first is kept.
    """
    for tool in repeated(request.tools):
        yield at(tool.path, f"there is a tool {tool.id} already.")


@rule(16, errors.UNKNOWN_CHOICE, mend=mends.without_choice)
def chosen_tool_is_there(request: Sketch) -> Iterable[Finding]:
    """The tool that `toolChoice` names is among the tools.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}], "toolChoice":
        {"tool": {"name": "find"}}}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the choice is left to the model.
    """
    config: JSON = request.body.get("toolConfig")
    choice: JSON = cast(JSONObject, config).get("toolChoice") if isinstance(config, dict) else None
    chosen: JSON = cast(JSONObject, choice).get("tool") if isinstance(choice, dict) else None
    name = cast(JSONObject, chosen).get("name") if isinstance(chosen, dict) else None
    if name is not None and name not in [tool.id for tool in request.tools]:
        yield at(("toolConfig", "toolChoice"), f"there is no tool {name!r}.", name=name)


@rule(17, errors.EMPTY_ERROR)
def errors_say_something(request: Sketch) -> Iterable[Finding]:
    """A result whose status is `error` is not empty.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content":
        [], "status": "error"}}]}]
    Repair: a line says that it failed.
    """
    for turn in request.turns:
        for result in turn.of("result"):
            inside = cast(JSONObject, result.wire["toolResult"])
            if inside.get("status") == "error" and inside["content"] in ([], [{"text": ""}]):
                where = dotted((*result.path, "toolResult"))
                yield at(result.path, "this error says nothing.", where=where)


@rule(18, errors.NOT_AN_OBJECT)
def json_is_an_object(request: Sketch) -> Iterable[Finding]:
    """The `json` of a result is an object.

    A list or a number goes as text, or as a field of an object.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content":
        [{"json": [1, 2]}]}}]}]
    Repair: it becomes text.
    """
    for turn in request.turns:
        for result in turn.of("result"):
            for index, each in enumerate(cast(list[JSON], result.wire["toolResult"]["content"])):
                if isinstance(each, dict) and "json" in each and not isinstance(each["json"], dict):
                    path = (*result.path, "toolResult", "content", index)
                    yield at(path, "this is no object.", where=dotted((*path, "json")))


@rule(19, errors.WORDLESS_DOCUMENT)
def documents_come_with_words(request: Sketch) -> Iterable[Finding]:
    """A message that holds a document holds a text too, and not a blank one.

    Example: [{"role": "user", "content": [{"document": {"name": "Report", "format": "pdf", "source": {"bytes":
        "JVBERg=="}}}]}]
    Repair: a line is put beside it.
    """
    for turn in request.turns:
        shown = [piece for piece in turn.of("media") if "document" in piece.wire]
        if shown and not any(piece.text.strip() for piece in turn.of("text")):
            yield at(shown[0].path, "this document stands without a text.")


@rule(20, errors.DOCUMENT_NAME, mend=mends.with_sound_names)
def document_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a document is made of letters, digits, single spaces, `-`, and round or square brackets.

    Example: [{"role": "user", "content": [{"text": "Sum it up."}, {"document": {"name": "report.pdf", "format": "pdf",
        "source": {"bytes": "JVBERg=="}}}]}]
    Repair: other characters become spaces.
    """
    for turn, block in _documents(request):
        name = block["document"]["name"]
        if not DOCUMENT_NAME.fullmatch(name):
            yield at(turn.path, f"the name {name!r} has characters that are not allowed, or too many.")


@rule(21, errors.DOCUMENT_TWICE)
def documents_are_named_once(request: Sketch) -> Iterable[Finding]:
    """No two documents of a request have the same name.

    Example: [{"role": "user", "content": [{"text": "Compare them."}, {"document": {"name": "Report", "format": "pdf",
        "source": {"bytes": "JVBERg=="}}}, {"document": {"name": "Report", "format": "pdf", "source": {"bytes":
        "JVBERi0="}}}]}]
    Repair: the later one gets another name.
    """
    seen: set[str] = set()
    for turn, block in _documents(request):
        name = block["document"]["name"]
        if name in seen:
            yield at(turn.path, f"an earlier document is called {name!r} already.")
        seen.add(name)


def _documents(request: Sketch) -> Iterator[tuple[Turn, JSONObject]]:
    for turn in request.turns:
        sound = [piece.wire for piece in turn.pieces]
        for block in documents(sound):
            if misfit(block, {"document": dict}) is None and misfit(block["document"], {"name": str}) is None:
                yield turn, block


@rule(22, errors.SYSTEM_PLACE)
def system_messages_have_their_place(request: Sketch) -> Iterable[Finding]:
    """A system message follows the user's and is last, or followed by the assistant's.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"text": "Hello!"}]},
        {"role": "system", "content": [{"text": "Be brief."}]}]
    Repair: it becomes text of the user, in `<system-reminder>`.
    """
    turns = request.turns
    for index, turn in enumerate(turns):
        if turn.role != "system":
            continue
        before = next((turns[place] for place in range(index - 1, -1, -1) if turns[place].role != "system"), None)
        after = next((turns[place] for place in range(index, len(turns)) if turns[place].role != "system"), None)
        if before is None or before.role != "user" or (after is not None and after.role != "assistant"):
            yield at(turn.path, "a system message cannot stand here.")


@rule(23, errors.SIGNATURE, mend=mends.with_sound_thinking)
def reasoning_is_signed(request: Sketch) -> Iterable[Finding]:
    """Reasoning of Claude has the signature it came with.

    The signature vouches for the text. A changed one, or that of another provider, is refused.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"reasoningContent":
        {"reasoningText": {"text": "hm", "signature": ""}}}, {"text": "Hello!"}]}, {"role": "user", "content":
        [{"text": "go on"}]}]
    Repair: the block is left out; nobody but the model that wrote it could have read it.
    """
    claude = mends.claude(request.body)
    for turn in request.turns:
        for piece in turn.of("reasoning"):
            if not mends.is_signed(piece.wire, claude):
                yield at(piece.path, "the signature of this block is not one of Claude's.")


@rule(24, errors.TOO_MANY_MARKS, mend=mends.with_last_marks)
def cache_points_are_few(request: Sketch) -> Iterable[Finding]:
    """There are at most four cache points.

    Example: {"system": [{"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "b"}, {"cachePoint": {"type":
        "default"}}, {"text": "c"}, {"cachePoint": {"type": "default"}}], "messages": [{"role": "user", "content":
        [{"text": "d"}, {"cachePoint": {"type": "default"}}, {"text": "e"}, {"cachePoint": {"type": "default"}}]}]}
    Repair: the first are taken out, and the last four stay.
    """
    marked = list(mends.points(request.body or {"messages": [turn.wire for turn in request.turns]}))
    if len(marked) > mends.MOST_MARKS:
        yield at(marked[0], f"there are {len(marked)} cache points, and four may be.", count=len(marked))


@rule(25, errors.MISPLACED_MARK, mend=mends.with_marks_behind_content)
def cache_points_stand_behind_content(request: Sketch) -> Iterable[Finding]:
    """No cache point stands right behind reasoning.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"reasoningContent":
        {"reasoningText": {"text": "hm", "signature": "s"}}}, {"cachePoint": {"type": "default"}}, {"text": "Hello!"}]},
        {"role": "user", "content": [{"text": "go on"}]}]
    Repair: it is taken out.
    """
    for turn in request.turns:
        for before, piece in zip(turn.pieces, turn.pieces[1:], strict=False):
            if before.kind == "reasoning" and "cachePoint" in piece.wire:
                yield at(piece.path, "a cache point cannot stand behind reasoning.")


@rule(26, errors.CONSTRAINT, mend=mends.within_ranges)
def settings_are_within_their_ranges(request: Sketch) -> Iterable[Finding]:
    """Temperature and `topP` are from 0 to 1, and `maxTokens` is 1 or more.

    Other providers take temperatures up to 2.

    Example: {"inferenceConfig": {"temperature": 1.5}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the nearest value that is taken.
    """
    if isinstance(request.body.get("inferenceConfig"), dict):
        for name, value, what in mends.out_of_range(request.body):
            path = ("inferenceConfig", name)
            yield at(path, f"{value!r} is out of range.", value=value, where=".".join(path), what=what)


@rule(27, errors.NO_SIGNATURES, mend=mends.with_own_thinking)
def signed_reasoning_is_for_claude(request: Sketch) -> Iterable[Finding]:
    """Reasoning that Claude signed is not sent to a model of another house.

    Which model is asked can be seen where the body says `modelId`, as boto3's arguments do.

    Example: {"modelId": "amazon.nova-pro-v1:0", "messages": [{"role": "user", "content": [{"text": "hi"}]}, {"role":
        "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}, {"text":
        "Hello!"}]}, {"role": "user", "content": [{"text": "go on"}]}]}
    Repair: the block is left out; nobody but the model that wrote it could have read it.
    """
    model: object = request.body.get("modelId")
    if not isinstance(model, str) or house(model) in ("", CLAUDES):
        return
    for turn in request.turns:
        for piece in turn.of("reasoning"):
            if mends.has_signature(piece.wire):
                yield at(piece.path, f"{model} did not sign this.")


@rule(28, errors.CONSTRAINT, mend=mends.with_taken_values)
def values_are_taken(request: Sketch) -> Iterable[Finding]:
    """Words, addresses, bytes and lengths are such as the API describes them.

    Among them: no list of tools is empty, no description either, and no picture has a format that is not known.

    Example: {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "description": "", "inputSchema": {"json":
        {}}}}]}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: the word that was meant; else the value is left out, and a line stands in the place of what cannot be shown.
    """
    for each in sketch.faults(request):
        if each.fault == "value":
            value = _value_at(request, each.path)
            yield at(each.path, each.message, value=value, where=_membered(each.path), what=each.what)


def _value_at(request: Sketch, path: Path) -> str:
    """What stands at a place, as far as a sentence can hold it."""
    found: JSON = request.body
    if not request.body:
        found = {turn.path[0]: turn.wire for turn in request.turns}
    for step in path:
        found = found[step]
    return str(found)[:100]


@rule(29, errors.UNKNOWN_NAME, mend=mends.without_unknown_names)
def names_are_known(request: Sketch) -> Iterable[Finding]:
    """No object has a member that the API does not describe.

    AWS's SDK refuses such a request before it is sent. What only one model knows goes into
    `additionalModelRequestFields`.

    Example: {"inferenceConfig": {"max_tokens": 9}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    Repair: it is left out.
    """
    for each in sketch.faults(request):
        if each.fault == "name":
            where = dotted(each.path[:-1]) or "input"
            yield at(each.path, each.message, where=where, name=each.path[-1], known=each.what)


BOOK.unknown = names_are_known


@rule(30, errors.TOO_MANY_DOCUMENTS, mend=mends.with_few_documents)
def documents_are_few(request: Sketch) -> Iterable[Finding]:
    """There are at most five documents in a request.

    Example: [{"role": "user", "content": [{"text": "See."}, {"document": {"name": "A", "source": {"text": "a"}}},
        {"document": {"name": "B", "source": {"text": "b"}}}, {"document": {"name": "C", "source": {"text": "c"}}},
        {"document": {"name": "D", "source": {"text": "d"}}}, {"document": {"name": "E", "source": {"text": "e"}}},
        {"document": {"name": "F", "source": {"text": "f"}}}]}]
    Repair: the last five stay; before them stands the text of a document, or a line that it is not shown.
    """
    found = list(_documents(request))
    if len(found) > MOST_DOCUMENTS:
        yield at(found[MOST_DOCUMENTS][0].path, f"there are {len(found)} documents, and five may be.")


@rule(31, errors.TOO_MANY_IMAGES, mend=mends.with_few_images)
def images_are_few(request: Sketch) -> Iterable[Finding]:
    """There are at most twenty images in a message.

    Example: [{"role": "user", "content": [{"text": "See."}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}},
        {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes":
        "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source":
        {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png",
        "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format":
        "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image":
        {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}},
        {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes":
        "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source":
        {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png",
        "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}, {"image": {"format":
        "png", "source": {"bytes": "iVBO"}}}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}]}]
    Repair: the last twenty stay; before them stands a line that an image is not shown.
    """
    for turn in request.turns:
        count = sum("image" in piece.wire for piece in turn.pieces)
        if count > MOST_IMAGES:
            yield at(turn.path, f"there are {count} images, and twenty may be.", count=count)
