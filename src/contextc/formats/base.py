"""What a wire format is: pure functions between our messages and a provider's JSON.

A history is encoded in *segments*: a reply of the model and what came after it. A segment, once encoded, never
changes, and a request is assembled from segments; encoding a whole history at once is the same thing done in one go.
What came from a provider and has no place in our types rides along in `extra`, under that provider's name, and goes
back to it alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeGuard, assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput, InvalidReply, InvalidRequest
from contextc.formats.checking import Finding, RuleBook, Sketch
from contextc.formats.grouping import in_their_order, segments
from contextc.formats.grouping import together as together
from contextc.formats.reading import Reader
from contextc.formats.reasoning import Policy, replayed
from contextc.formats.settings import SettingsTable, named, renamed
from contextc.formats.spelling import Speller
from contextc.messages import AnyPart, Extra, Media, Message, Native, Reasoning, ToolCall, ToolResult, system
from contextc.pairing import Paired, Repair, pair
from contextc.tools import NativeTool, Tool

OPENING = "(The conversation begins with the assistant.)"
ODD = (LookupError, TypeError, AttributeError, StopIteration, RuntimeError, OverflowError)
"""What a decoder raises where a request does not have the shape of its format."""
NO_RULES = RuleBook(
    "",
    lambda body: Sketch(turns=(), body=cast(JSONObject, body) if isinstance(body, dict) else {}),
    reshape=lambda value, path: value,
    message=lambda text: {"role": "user", "content": text},
    block=lambda text: {"type": "text", "text": text},
)
NO_SETTINGS = SettingsTable({"model": "model", "max_output_tokens": "max_tokens"})
ANY_SPELLING = Speller("")
Done: TypeAlias = Literal["left out", "described", "moved", "made up", "tagged", "changed", "kept"]


class Note(Struct, frozen=True):
    """Something a format could not say as it was: what was done, and to what."""

    done: Done
    text: str

    def __str__(self) -> str:
        return f"{self.done}: {self.text}"


class Encoded(Struct, frozen=True):
    """A segment in a provider's shape, and what had to be done to fit it in.

    `apart` says that its first message came as it is: it is not merged with a neighbour of the same role, and where it
    was the first of a request, nothing is put before it.
    """

    messages: tuple[JSONObject, ...]
    notes: tuple[Note, ...] = ()
    apart: bool = False


class Request(Struct, frozen=True, kw_only=True):
    """A request in our terms. `settings` is everything else the caller set, in the format's own words.

    `source` is the `place` and name of the format it was read in. Written in that format again, its calls and results
    stay where they are, if the provider takes them there.
    """

    messages: tuple[Message, ...]
    system: Message | None = None
    tools: tuple[Tool | NativeTool, ...] = ()
    settings: JSONObject = {}
    source: tuple[str, str] | None = None


class Written(NamedTuple):
    """A request on the wire, and what had to be done to write it."""

    body: JSONObject
    notes: tuple[Note, ...]


class Formatter(ABC):
    """One wire format, and the endpoint it is spoken to. `provider` names whose reasoning and native blocks go back.

    A format gives `name`, `provider`, `assemble`, `encode_tool` and the methods with an underscore; everything else is
    derived from them, or has a default. docs/formats.md shows a whole one.
    """

    name: ClassVar[str]
    rules: ClassVar[RuleBook] = NO_RULES
    settings: ClassVar[SettingsTable] = NO_SETTINGS
    messages_key: ClassVar[str] = "messages"
    system_among_messages: ClassVar[bool] = False
    spelling: ClassVar[Speller] = ANY_SPELLING
    unique_ids: ClassVar[bool] = False
    user_first: ClassVar[bool] = False
    """Whether a conversation must begin with the user; `join` then puts `OPENING` before one that does not."""
    system_leads: ClassVar[bool] = False
    """Whether a system message may stand first among the messages, though the prompt has a place of its own."""
    carries: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names in the `extra` of other providers that this format takes along for them."""
    nests: ClassVar[tuple[str, ...]] = ()
    """Names in `extra` under which only the names inside say something."""
    understood: ClassVar[tuple[str, ...]] = ()
    """Names inside those that our own types hold: what is under them goes over to everybody."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Names in `extra` that say only how something was written, and mean nothing elsewhere."""
    merges: ClassVar[bool] = False
    """Whether `join` merges neighbours of one role."""
    prefix_settings: ClassVar[tuple[str, ...]] = ()
    """Settings with which a provider's cache, or its reasoning, does not outlive a change."""
    lines: ClassVar[tuple[str, ...]] = ()
    """What each line of a session has one of, where a file of lines is one conversation; elsewhere each is its own."""
    tool_key: ClassVar[str] = ""
    """What a tool has in this format, and in no other; "" where its tools are another's, or cannot be told apart."""
    stand_in: ClassVar[Tool | None] = None
    """What is told in the place of tools where there are none and messages hold calls, if the provider wants some."""
    strict_tools: ClassVar[bool] = True
    """Whether a tool can say that the model is held to its schema."""
    keeps_layout: ClassVar[bool] = True
    """Whether a request read in this format is written with the same layout, unless that would break a rule."""
    needs_length: ClassVar[bool] = False
    """Whether every request must say how long the answer may be."""
    counts_all_input: ClassVar[bool] = True
    """Whether the input that a reply says it used is all of it; else what was in the cache may be missing there."""
    version: ClassVar[int] = 1
    """Grows when the same segment is encoded otherwise than before: what was shown is then shown anew."""
    provider: str
    reasoning: Policy = "native"

    @property
    def place(self) -> str:
        """The name under which `extra` holds what was said in this format."""
        return self.provider

    def encode(self, segment: Sequence[Message], *, blobs: Mapping[str, bytes] = {}) -> Encoded:
        """One segment, whose calls are paired. It depends on nothing before or after it."""
        return self._encode(self.spelling.write(replayed(segment, self.reasoning, self._unproved)), blobs)

    def _unproved(self, reasoning: Reasoning) -> tuple[AnyPart, ...]:
        """What stands in the place of reasoning that its provider would miss."""
        return ()

    @abstractmethod
    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> Encoded: ...

    def join(self, segments: Iterable[Encoded], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        """The messages of a request, from sealed segments, none of which is changed.

        `before` are the last messages of those already joined, back to a reply at least. They come first in what is
        returned, some of them replaced where the first segment had to be merged into them (`merges`).
        """
        return [*before, *(message for segment in segments for message in segment.messages)]

    def settled(self, messages: list[JSONObject], settings: JSONObject) -> list[JSONObject]:
        """Joined messages, with what the settings of the request demand of them. No message depends on others."""
        return messages

    def arguments(self, body: JSONObject, model: str) -> JSONObject:
        """A body as the keyword arguments of the vendor's own SDK call; most SDKs take what the API takes."""
        return body

    def marked(self, message: JSONObject) -> JSONObject | None:
        """The message with a cache point at its end; None where the format has none, or the message takes none."""
        return None

    def marks_in(self, blocks: Iterable[JSONObject]) -> int:
        """How many cache points the caller has set in these."""
        return 0

    def unmarked(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Joined messages without the cache points they came with: who compiles them sets others."""
        return messages

    def marked_head(self, body: JSONObject) -> JSONObject:
        """The body with a cache point behind its system prompt and tools, where there are any."""
        return body

    @abstractmethod
    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        """The whole body: settings, system prompt, tools and messages."""

    @abstractmethod
    def encode_tool(self, tool: Tool) -> JSONObject: ...

    def encode_tools(self, tools: Sequence[Tool | NativeTool]) -> list[JSONObject]:
        """The tools a model is told about; a tool that only another provider has is left out."""
        return [
            tool.data
            if isinstance(tool, NativeTool)
            else self._restored_tool(self.encode_tool(self.spelling.write_tool(tool)), tool.extra)
            for tool in tools
            if not isinstance(tool, NativeTool) or tool.provider == self.provider
        ]

    def is_tool(self, definition: Mapping[str, JSON]) -> bool:
        """Whether a tool is written in this format, as far as that can be told from it alone."""
        return bool(self.tool_key) and self.tool_key in definition

    def decode_tools(self, definitions: list[JSONObject]) -> tuple[Tool | NativeTool, ...]:
        """Tools as this format writes them."""
        return self.decode_request({self.messages_key: [], "tools": definitions}).tools

    def _restored_tool(self, ours: JSONObject, extra: Extra | None) -> JSONObject:
        return restored(ours, extra, self.place)

    def decode_request(self, body: JSONObject | list[JSONObject]) -> Request:
        """A request, or a bare list of messages, in our terms. Raises `InvalidRequest` where it has not the shape."""
        try:
            request = self._decode_request({self.messages_key: body} if isinstance(body, list) else body)
        except ODD as error:
            problem = f"this is not a request of {self.name} ({type(error).__name__}: {error})"
            raise InvalidRequest(f"{problem}. Call `lint` to see where, or `fix` to repair it.") from error
        messages = request.messages
        if self.user_first and len(messages) > 1 and messages[0].text == OPENING and messages[1].role == "assistant":
            messages = messages[1:]  # a line of ours
        return replace(
            request,
            messages=tuple(in_their_order([self.spelling.read(message) for message in messages])),
            tools=tuple([self.spelling.read_tool(tool) for tool in request.tools]),
            source=(self.place, self.name),
        )

    def around(self, message: JSONObject) -> Iterable[Finding]:
        """What stands around a message and is not read with it, in a file of lines or a stream of events."""
        return ()

    @abstractmethod
    def _decode_request(self, body: JSONObject) -> Request: ...

    def decode_reply(self, reply: object) -> Message:
        """A reply, as the vendor's SDK returned it or as JSON."""
        plain = as_json(reply)
        if not self._is_reply(plain):
            raise InvalidReply(self.name, plain)
        return self.spelling.read(self._decode_reply(plain))

    @abstractmethod
    def _is_reply(self, reply: JSONObject) -> bool:
        """Whether this has the shape of a reply of this format."""

    @abstractmethod
    def _decode_reply(self, reply: JSONObject) -> Message: ...

    def session_of(self, reply: JSONObject, field: str) -> str:
        """The session that a reply belongs to, as far as it says; `field` is the setting that names it in a request."""
        return text_of(reply.get("id"))

    def decode_stream(self, events: Iterable[object]) -> Message:
        """The whole reply, from its events, as the vendor's SDK gave them or as JSON; as much of it as came."""
        return self.spelling.read(self._decode_reply(self._gather(as_json(event) for event in events)))

    def reader(self) -> Reader:
        """What reads one reply of a provider while it comes."""
        raise InvalidInput(f"No provider streams the format {self.name}; `decode_stream` reads what is stored of one.")

    def _gather(self, events: Iterable[JSONObject]) -> JSONObject:
        """A reply as it would have come whole, from the events of its stream."""
        raise InvalidInput(f"format {self.name}: streams cannot be read. Define `_gather`, or decode a whole reply.")

    def format(self, history: Sequence[Message], system_prompt: str | None = None) -> list[JSONObject]:
        """The `messages` of a request, as the vendor's own SDK takes them."""
        self._check(history)
        prompt = _said(system_prompt) if self.system_among_messages else None
        head = self.encode([system(prompt)]).messages if prompt else ()
        return [*head, *self.encode_history(history)]

    def get_system_prompt(self, system_prompt: str | None) -> str | None:
        """The system prompt where the format has a place of its own for it; None where it stands among the messages."""
        return None if self.system_among_messages else _said(system_prompt)

    def _check(self, history: Sequence[Message]) -> None:
        strange = next((message for message in history if not isinstance(message, Message)), None)
        if strange is not None:
            raise InvalidInput(
                f"A {type(strange).__name__} is not a Message. Write cc.user(…), or read a provider's own messages "
                "with `decode_request`."
            )

    def encode_history(self, history: Sequence[Message], *, blobs: Mapping[str, bytes] = {}) -> list[JSONObject]:
        return self.join([self.encode(segment, blobs=blobs) for segment in segments(self.paired(history).messages)])

    def paired(self, history: Sequence[Message], *, taken: Collection[str] = ()) -> Paired:
        """The history with every call and its result together, and ids as often as this format takes them.

        `taken` are the ids, as they are spelled, of calls that stand before it.
        """
        return pair(history, unique_ids=self.unique_ids, spelled=self.spelling.id, taken=taken)

    def encode_request(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> JSONObject:
        """The whole body of a request, ready to be sent."""
        return self.write(request, blobs=blobs).body

    def write(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> Written:
        """The whole body of a request, and what could not be said as it was."""
        messages = self.held(request, blobs=blobs)
        if self.keeps_layout and request.source == (self.place, self.name):
            written = self._write(request, Paired([*messages], []), blobs)
            if not self.rules.lint(written.body):
                return written
        return self._write(request, self.paired(messages), blobs)

    def _write(self, request: Request, paired: Paired, blobs: Mapping[str, bytes]) -> Written:
        encoded = [self.encode(segment, blobs=blobs) for segment in segments(paired.messages)]
        notes = [note for segment in encoded for note in segment.notes]
        notes += [
            Note("left out", f"the tool {describe_tool(tool)} of {tool.provider}")
            for tool in request.tools
            if isinstance(tool, NativeTool) and tool.provider != self.provider
        ]
        if not self.strict_tools and (strict := [tool.name for tool in request.tools if _is_strict(tool)]):
            which = f"the tool{'s' if len(strict) > 1 else ''} {', '.join(strict)}"
            notes.append(Note("left out", f"`strict` of {which}, which {self.name} does not take"))
        has_calls = any(message.tool_calls or message.tool_results for message in paired.messages)
        if self.stand_in is not None and has_calls and not self.encode_tools(request.tools):
            notes.append(Note("made up", f"a tool {self.stand_in.name}, because there are calls and no tools"))
        if self.user_first and _is_opened(encoded):
            notes.append(Note("made up", "a line from the user, because the conversation begins with the assistant"))
        notes += [note for repair in paired.repairs if (note := noted(repair)) is not None]
        request = replace(request, settings=self.chosen(request))
        return Written(self.assemble(request, self.join(encoded)), tuple(notes))

    def chosen(self, request: Request) -> JSONObject:
        """The settings, with the tools they choose from under the names the model is told."""
        names = self.spelling.names
        if names is None:
            return request.settings
        told = {tool.name: names.spell(tool.name) for tool in request.tools if isinstance(tool, Tool)}
        changed = {name: spelled for name, spelled in told.items() if name != spelled}
        places = self.settings.put(named("named", "-")).keys() if changed else ()
        return {name: renamed(value, changed) if name in places else value for name, value in request.settings.items()}

    def held(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> Sequence[Message]:
        """The messages; where the provider holds earlier ones, results that pairing would call strays are sealed."""
        return request.messages


def _said(prompt: str | None) -> str | None:
    return prompt if prompt and not prompt.isspace() else None


def _is_strict(tool: Tool | NativeTool) -> TypeGuard[Tool]:
    return isinstance(tool, Tool) and tool.strict is True


def _is_opened(encoded: Sequence[Encoded]) -> bool:
    """Whether `join` puts `OPENING` before these."""
    first = next((segment for segment in encoded if segment.messages), None)
    return first is not None and not first.apart and first.messages[0]["role"] not in ("user", "system")


def noted(repair: Repair) -> Note | None:
    """What pairing did, as far as the model sees something else for it."""
    match repair.kind:
        case "synthetic":
            return Note("made up", f"a result for the call {repair.call_id}, which had none")
        case "orphan" | "duplicate":
            return Note("left out", f"a result for {repair.call_id} that no call asked for")
        case "moved" | "renamed":
            return None
        case _:
            assert_never(repair.kind)


def kept(extra: Extra | None, provider: str) -> JSONObject:
    """What this provider had said beyond our types."""
    return extra.get(provider, {}) if extra else {}


def remember(original: JSONObject, ours: JSONObject, provider: str) -> Extra | None:
    """What our own encoding of a provider's object would say otherwise; null stands for what it does not say at all."""
    rest: JSONObject = {
        name: value for name, value in original.items() if value is not None and ours.get(name) != value
    }
    rest |= {name: None for name, value in ours.items() if value is not None and original.get(name) is None}
    return {provider: rest} if rest else None


def restored(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Our encoding of an object, with what its provider had said: the other half of `remember`."""
    rest = kept(extra, provider)
    if not rest:
        return ours
    return {name: value for name, value in {**ours, **rest}.items() if rest.get(name, 0) is not None}


def grow(holder: JSONObject, name: str, more: str) -> None:
    """Add to a text in place: a stream may have ten thousand pieces, and copying them all each time would be felt."""
    text = cast(str, holder.get(name) or "")
    holder[name] = None  # with one owner left, Python grows the string instead of copying it
    text += more
    holder[name] = text


def as_json(value: object) -> JSONObject:
    """A reply or an event as plain data, whoever's class it is."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, JSON], value))
    # OpenAI's and Anthropic's classes write themselves; Google's have other names on the wire than in Python.
    dumps = (("to_dict", {"mode": "json"}), ("model_dump", {"mode": "json", "by_alias": True, "exclude_none": True}))
    for name, options in dumps:
        if callable(dump := getattr(value, name, None)):
            return cast(JSONObject, dump(**options))
    kind = type(value).__name__
    raise InvalidInput(f"A {kind} is not a reply. Give what the vendor's SDK returned, or its JSON as a dict.")


def text_of(value: JSON) -> str:
    """A text that ought to be there; "" where it is not."""
    return value if isinstance(value, str) else ""


def describe_media(media: Media) -> str:
    """One line in place of bytes that cannot be sent."""
    name = f" {media.name!r}" if media.name else ""
    size = f", {media.size:,} bytes" if media.size else ""
    where = f", {media.url}" if media.url else ""
    return f"[{media.kind}{name}: {media.mime_type}{size}{where}; not shown]"


def describe_native(native: Native) -> str:
    """One line in place of a block nobody else understands; a refusal is understood by all."""
    data = cast(JSONObject, native.data) if isinstance(native.data, dict) else {}
    if isinstance(data.get("refusal"), str) and data["refusal"].strip():
        return data["refusal"]
    kind = data.get("type") or next(iter(data), "block")
    return f"[{native.provider} {kind}; not shown]"


def describe_tool(tool: NativeTool) -> str:
    return str(tool.data.get("name") or tool.data.get("type") or next(iter(tool.data), "without a name"))


def error_unsaid(result: ToolResult) -> Note:
    """For formats that have no flag for it: the text of a result is all that says so."""
    return Note("left out", f"that the result of {result.name} is an error")


def arguments_wrapped(call: ToolCall) -> Note:
    """For formats whose arguments are objects, where a model wrote none."""
    return Note("changed", f"the malformed arguments of {call.name}, into an object that holds their text")


def is_foreign(reasoning: Reasoning, provider: str) -> bool:
    return reasoning.provider != provider
