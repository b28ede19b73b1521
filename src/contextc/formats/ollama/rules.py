"""The rules of Ollama's `/api/chat`, as far as a request can be held against them without asking.

The server checks types and settings, and little else: it hands the messages to the template of the model. Some
templates refuse what does not belong together; others show the model half of it, and nobody hears of it. Both are
flagged here, because neither is what was meant.
"""

from collections.abc import Iterable

from contextc._json import JSON, encode
from contextc.formats.checking import Finding, RuleBook, Sketch, at, match, repeated
from contextc.formats.ollama import errors, mends, sketch
from contextc.formats.ollama.schemas import wrongs
from contextc.formats.ollama.sketch import until_the_next_reply
from contextc.formats.settings import inner

BOOK = RuleBook(
    "OLL",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.message,
    unknown=sketch.unknown,
)
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message, call and tool has the fields its kind must have, and each is of its type.

    `content` is one text: there are no parts here. The arguments of a call are an object. The role is system, user,
    assistant or tool; a message of another role is not refused, but no template shows it.

    Example: [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    Repair: what was meant is written as it should be; what cannot be understood becomes text, and a tool is left out.
    """
    return request.misshapen


@rule(2, mend=mends.with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """There is at least one message.

    Without any, the model is loaded and says nothing (`done_reason: load`).

    Example: []
    Repair: a line that says so is put in, from the user.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "there are no messages.")


@rule(3)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered by a tool message before the assistant speaks again.

    Nobody refuses it; the model reads that it asked, and goes on as if it had been told.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
        "function": {"name": "look", "arguments": {}}}]}, {"role": "user", "content": "and?"}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in match(request.turns, until_the_next_reply).unanswered:
        yield at(call.path, f"the call {call.id} of {call.name} is not answered before the assistant speaks again.")


@rule(4, errors.ORPHAN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every tool message answers a call of the assistant's last message: by `tool_call_id`, else by `tool_name`.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_name": "look", "content": "1"}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    for _, result in match(request.turns, until_the_next_reply).orphans:
        name = result.id or result.name or "without a name"
        yield at(result.path, f"no call for the result {name} stands in the assistant's last message.")


@rule(5)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
        "function": {"name": "look", "arguments": {}}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "a", "content": "2"}]
    Repair: the first is kept; another that says something else becomes text.
    """
    for _, result in match(request.turns, until_the_next_reply).doubled:
        yield at(result.path, f"the call {result.id} has another result already.")


@rule(6)
def calls_of_a_message_have_ids_of_their_own(request: Sketch) -> Iterable[Finding]:
    """No two calls of one message have the same id.

    They may have none at all. In a later message an id may come again.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
        "function": {"name": "look", "arguments": {}}}, {"id": "a", "function": {"name": "find", "arguments": {}}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the second call and its result get an id of their own.
    """
    for turn in request.turns:
        for call in repeated(turn.of("call")):
            yield at(call.path, f"another call of this message is called {call.id} already.")


@rule(7)
def calls_are_the_assistants(request: Sketch) -> Iterable[Finding]:
    """Only the assistant asks for tools, and only the assistant thinks.

    Templates look for calls and thinking in its messages alone, and show the model nothing of others.

    Example: [{"role": "user", "content": "hi", "tool_calls": [{"id": "a", "function": {"name": "look", "arguments":
        {}}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the message becomes the assistant's.
    """
    for turn in request.turns:
        if turn.role != "assistant" and (turn.of("call") or (turn.role != "tool" and turn.of("reasoning"))):
            yield at(turn.path, f"the {turn.role} cannot ask for a tool, nor think.")


@rule(8, errors.NOT_BASE64, mend=mends.with_plain_pictures)
def pictures_are_base64(request: Sketch) -> Iterable[Finding]:
    """`images` are the bytes of pictures as base64, and nothing before it: no `data:` URL, no address, no path.

    Example: [{"role": "user", "content": "What is this?", "images": ["data:image/png;base64,iVBORw=="]}]
    Repair: what stands before the bytes is left out; of what has no bytes, a line of text says where it was.
    """
    for turn in request.turns:
        for picture in turn.of("media"):
            if (byte := mends.wrong_byte(picture.text)) is not None:
                yield at(picture.path, "this picture is not plain base64.", byte=byte)


@rule(9, errors.THINK, mend=mends.without_think)
def think_is_a_level(request: Sketch) -> Iterable[Finding]:
    """`think` is true, false, or a level: low, medium, high, max.

    Example: {"think": "xhigh", "messages": [{"role": "user", "content": "hi"}]}
    Repair: it is left to the model.
    """
    value: JSON = request.body.get("think")
    if not mends.thinks(value):
        yield at(("think",), f"there is no level {value!r} of thinking.", value=encode(value).decode())


@rule(10, errors.FORMAT, mend=mends.without_format)
def format_is_json(request: Sketch) -> Iterable[Finding]:
    """`format` is "json", or a JSON Schema.

    Example: {"format": "xml", "messages": [{"role": "user", "content": "hi"}]}
    Repair: it is left to the model.
    """
    value: JSON = request.body.get("format")
    if not mends.forms(value):
        yield at(("format",), f"an answer cannot have the form {value!r}.", value=encode(value).decode())


@rule(11, errors.OPTION, mend=mends.with_sound_options)
def options_have_their_types(request: Sketch) -> Iterable[Finding]:
    """Numbers in `options` are numbers, and `stop` is a list of texts.

    An option that nobody knows is passed over.

    Example: {"options": {"stop": "END"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the option is left out.
    """
    for name, expected in mends.wrong_options(request.body).items():
        message = f"the option `{name}` must be of {expected}."
        yield at(("options", name), message, name=name, expected=expected)


@rule(12, errors.TOP_LOGPROBS, mend=mends.with_few_logprobs)
def logprobs_are_few(request: Sketch) -> Iterable[Finding]:
    """`top_logprobs` is 0 to 20.

    Example: {"top_logprobs": 21, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the nearest number that is taken.
    """
    count: JSON = request.body.get("top_logprobs")
    if type(count) is int and not 0 <= count <= mends.MOST_LOGPROBS:
        yield at(("top_logprobs",), f"`top_logprobs` is {count}, and 0 to 20 are allowed.")


@rule(13, errors.MISSHAPEN, mend=mends.with_sound_schemas)
def schemas_have_their_types(request: Sketch) -> Iterable[Finding]:
    """In the schema of a tool `type` is a text, `required` a list of names, and a property an object.

    A property may have several types. What else a schema says is passed over.

    Example: {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "required":
        "at", "properties": {"at": {"type": "string"}}}}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: a single name becomes a list; what is of another type is left out.
    """
    for tool in request.tools:
        for wrong in wrongs(inner(tool.wire["function"].get("parameters"))):
            path = (*tool.path, "function", "parameters", *wrong.path)
            yield at(path, f"`{wrong.path[-1]}` is of the wrong type in this schema.", what=wrong.error)
