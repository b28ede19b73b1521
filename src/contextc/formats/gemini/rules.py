"""The rules of Google's generateContent, as far as a request can be held against them without asking."""

import re
from collections.abc import Iterable, Iterator

from contextc._json import JSONObject
from contextc.formats.checking import (
    Finding,
    Path,
    Piece,
    RuleBook,
    Sketch,
    Turn,
    at,
    joined,
    match,
    next_turn,
    not_matching,
    repeated,
)
from contextc.formats.gemini import errors, mends, sketch
from contextc.formats.gemini.sketch import camels, listed, place

FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")

BOOK = RuleBook(
    "GEM",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.block,
    key="contents",
    unknown=sketch.unknown,
)
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every content, part and function has the fields its kind must have, and no others.

    A part says what it is by the name of its one data field: `text`, `functionCall`, `inlineData` and so on. Names may
    be written in snake case as well.

    Example: [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    Repair: what has no sound shape becomes text, so that the model still sees it; a function is left out.
    """
    return [finding for finding in request.misshapen if not finding.facts.keys() & {"second", "role"}]


@rule(2, errors.NO_CONTENTS, mend=mends.with_a_content)
def has_contents(request: Sketch) -> Iterable[Finding]:
    """There is at least one content.

    Example: []
    Repair: a line that says so is put in, from the user.
    """
    if not request.turns and not request.misshapen:
        yield at(("contents",) if request.body else (), "there are no contents.")


@rule(3, errors.NO_PARTS)
def contents_have_parts(request: Sketch) -> Iterable[Finding]:
    """No content is empty.

    Models now and then answer nothing at all, and a history that sends this back is refused. A part may be empty text.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": []}, {"role": "user", "parts":
        [{"text": "hello?"}]}]
    Repair: the content is left out.
    """
    for turn in request.turns:
        if not turn.wire.get("parts") and turn.wire.get("parts") != {}:
            yield at(turn.path, "this content is empty.", where=place(turn.path))


@rule(4, errors.MISSHAPEN)
def parts_say_one_thing(request: Sketch) -> Iterable[Finding]:
    """A part has exactly one data field.

    Example: [{"role": "user", "parts": [{"text": "Look:", "fileData": {"fileUri": "gs://bucket/a.png"}}]}]
    Repair: each field becomes a part of its own.
    """
    return [finding for finding in request.misshapen if "second" in finding.facts]


@rule(5, errors.ROLE)
def roles_are_known(request: Sketch) -> Iterable[Finding]:
    """A content is the user's or the model's.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "assistant", "parts": [{"text": "Hello!"}]}]
    Repair: what the assistant said becomes the model's, everything else the user's.
    """
    return [finding for finding in request.misshapen if "role" in finding.facts]


@rule(6, errors.WRONG_ROLE)
def parts_stand_with_their_role(request: Sketch) -> Iterable[Finding]:
    """Calls are the model's, and results are not.

    Example: [{"role": "user", "parts": [{"functionCall": {"name": "look"}}]}, {"role": "user", "parts":
        [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]
    Repair: calls become the model's, results become the user's.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            if piece.kind == "call" and turn.role != "model":
                yield _at(piece, f"{_called(piece)} cannot be the {turn.role}'s.", kind="functionCall", role="model")
            elif piece.kind == "result" and turn.role == "model":
                yield _at(piece, f"{_called(piece)} cannot be the model's.", kind="functionResponse", role="user")


@rule(7, errors.CALL_PLACE, mend=mends.with_an_opening)
def calls_follow_the_user(request: Sketch) -> Iterable[Finding]:
    """Calls come after a content of the user, or after results.

    A history that was cut at the wrong place begins with calls. Two contents of the model in a row are one reply.

    Example: [{"role": "model", "parts": [{"functionCall": {"name": "look"}}]}, {"role": "user", "parts":
        [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]
    Repair: a line from the user is put before the first content.
    """
    for turn in joined(request.turns)[:1]:
        calls = turn.of("call")
        if calls and turn.role == "model":
            yield at(turn.path, f"{_called(calls[0])} stands at the beginning.")


@rule(8, errors.COUNT)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered by a result in the next content.

    Contents of one role that follow each other are one content to Google: two replies may be answered together.
    A crash, a cancelled turn or a cut leaves a call without its result, and every later request fails.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {"name":
        "look"}}]}, {"role": "user", "parts": [{"text": "and?"}]}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in match(joined(request.turns), next_turn).unanswered:
        yield at(call.path, f"{_called(call)} has no result in the next content.")


@rule(9, "{what}")
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every result answers a call of the content before it.

    They are matched by id where both have one, else by name and order.

    Example: [{"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    turns = joined(request.turns)
    earlier = dict(zip((turn.path for turn in turns[1:]), turns, strict=False))
    for turn, result in match(turns, next_turn).orphans:
        before = earlier.get(turn.path)
        what = errors.COUNT if before and before.of("call") else errors.RESULT_PLACE
        yield at(result.path, f"{_called(result)} has no call in the content before.", what=what)


@rule(10, errors.COUNT)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {"id": "a",
        "name": "look"}}]}, {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "look", "response":
        {"output": "1"}}}, {"functionResponse": {"id": "a", "name": "look", "response": {"output": "2"}}}]}]
    Repair: the first is kept; another that says something else becomes text.
    """
    for _, result in match(joined(request.turns), next_turn).doubled:
        yield at(result.path, f"{_called(result)} is not the first for its call.")


@rule(11, errors.SIGNATURE, mend=mends.with_sound_signatures)
def signatures_are_sound(request: Sketch) -> Iterable[Finding]:
    """A `thoughtSignature` is the one that came on its part.

    It is base64, and one of Google's own is whole. The stand-ins that its guide names are taken as well.

    Example: [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "Hello!",
        "thoughtSignature": "not a signature"}]}, {"role": "user", "parts": [{"text": "go on"}]}]
    Repair: it is left out; a call gets the stand-in for a signature that Google takes.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            if not mends.is_sound(piece.wire):
                yield at(piece.path, "the signature of this part is not one of Google's.")


@rule(12, errors.UNSIGNED, mend=mends.with_signatures)
def calls_are_signed(request: Sketch) -> Iterable[Finding]:
    """From Gemini 3 on, the first call of each step since the user last spoke has its signature.

    The request does not name its model, but only these models have a `thinkingLevel`.

    Example: {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}, "contents": [{"role": "user", "parts":
        [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {"name": "look"}}]}, {"role": "user", "parts":
        [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]}]}
    Repair: the call gets the stand-in for a signature that Google takes.
    """
    if not mends.has_level(request.body):
        return
    turns = joined(request.turns)
    spoke = max((index for index, turn in enumerate(turns) if _speaks(turn)), default=0)
    for index, turn in enumerate(turns[spoke:], spoke):
        if any(mends.signature(piece.wire) for piece in turn.pieces):
            continue
        for call in turn.of("call")[:1]:
            yield at(call.path, f"{_called(call)} has lost its signature.", name=call.name, position=index + 1)


@rule(13, errors.BASE64, mend=mends.with_media)
def media_is_base64(request: Sketch) -> Iterable[Finding]:
    """The data of `inlineData` is base64, in either alphabet.

    Example: [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data":
        "data:image/png;base64,iVBORw0KGgo="}}]}]
    Repair: the head of a data URL is taken off; a text becomes a text part, and what cannot be read at all one line.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            for path, part in _inline(piece):
                if not mends.is_media(part):
                    data = str(camels(camels(part)["inlineData"])["data"])[:24]
                    yield at(piece.path, "the data of this part is not base64.", where=place(path), data=data)


@rule(14, errors.FUNCTION_NAME)
def function_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a function is made of letters, digits, `_`, `.`, `:` and `-`: 128 at most, and first a letter or `_`.

    Example: {"tools": [{"functionDeclarations": [{"name": "read file"}]}], "contents": [{"role": "user", "parts":
        [{"text": "hi"}]}]}
    Repair: the name is spelled with the characters that are allowed, wherever it stands.
    """
    for function, name in not_matching(FUNCTION_NAME, request.tools):
        message = f"the name {name!r} has characters that are not allowed, or too many."
        yield at(function.path, message, where=place(function.path))


@rule(15, errors.FUNCTION_TWICE, mend=mends.with_functions_once)
def functions_are_declared_once(request: Sketch) -> Iterable[Finding]:
    """No two functions have the same name.

    Example: {"tools": [{"functionDeclarations": [{"name": "look"}, {"name": "look"}]}], "contents": [{"role": "user",
        "parts": [{"text": "hi"}]}]}
    Repair: the first is kept.
    """
    for function in repeated(request.tools):
        yield at(function.path, f"there is a function {function.id} already.", name=function.id)


@rule(16, errors.UNKNOWN_CHOICE, mend=mends.with_known_choice)
def allowed_functions_are_there(request: Sketch) -> Iterable[Finding]:
    """The functions that `allowedFunctionNames` names are declared.

    Example: {"tools": [{"functionDeclarations": [{"name": "look"}]}], "toolConfig": {"functionCallingConfig": {"mode":
        "ANY", "allowedFunctionNames": ["find"]}}, "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    Repair: the name is taken off the list; without any name left, all functions are allowed.
    """
    known = {str(function.get("name")) for function in mends.functions(request.body)}
    if request.body.get("cachedContent") or request.body.get("cached_content"):
        return  # the functions are in the cache
    for path, name in mends.allowed(request.body):
        if str(name) not in known:
            yield at(path, f"there is no function {name!r}.", name=name, where=place(path))


def _at(piece: Piece, message: str, **facts: object) -> Finding:
    return at(piece.path, message, where=place(piece.path), **facts)


def _called(piece: Piece) -> str:
    """Return a call or a result, as a reader would know it."""
    given = camels(piece.wire)["functionCall" if piece.kind == "call" else "functionResponse"].get("id")
    what = "the call" if piece.kind == "call" else "the result"
    return f"{what} {given} of {piece.name}" if given else f"{what} of {piece.name}"


def _speaks(turn: Turn) -> bool:
    """Return True if the user says something here, beside results."""
    return turn.role != "model" and any(piece.kind != "result" for piece in turn.pieces)


def _inline(piece: Piece) -> Iterator[tuple[Path, JSONObject]]:
    """Return the parts with media of this piece: itself, or those in a result."""
    if piece.kind == "result":
        for name, value in piece.wire.items():
            yield from listed(camels(value).get("parts"), (*piece.path, name, "parts"))
    else:
        yield piece.path, piece.wire
