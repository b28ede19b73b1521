"""Decode messages of older versions of the Vercel AI SDK.

Calls without an id get one by order: `call_1`, `call_2`, …. A result belongs to the oldest open call of its name.
Messages that share an `id` are one reply with several calls. Successors of `function_call` are read too: `tool_calls`,
`toolInvocations`, and the `parts` of version 4, step by step.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, parse_object
from contextc.formats.base import Request
from contextc.formats.encoder_decoder_base import (
    UNKNOWN_TOOL,
    as_text,
    decode_definition,
    encode_definition,
    other_fields,
    with_extra,
)
from contextc.formats.media_encoding import decode_base64
from contextc.formats.message_groups import merge_neighbours
from contextc.formats.open_calls import OpenCalls
from contextc.formats.vercel_legacy.encode import ATTACHMENTS, GENERATED_ID, encode_segment
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    tool_call,
)
from contextc.tools.spec import NativeTool, Tool

ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
MAX_UNORDERED_PARTS = 100
"""Maximum number of parts to search for in the whole content, if they are out of order."""
DECODED_FIELDS = ("function_call", "tool_call_id", "tool_calls", "toolInvocations", "parts")


def decode_request(body: JSONObject, provider: str) -> Request:
    messages = _Decoder(provider).messages(cast(list[JSONObject], body.get("messages") or []))
    system = messages.pop(0) if messages and messages[0].role == "system" else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(_tool(tool, provider) for tool in cast(list[JSONObject], body.get("functions") or [])),
        settings=other_fields(body, "messages", "functions"),
    )


def collect_messages(events: Iterable[JSONObject]) -> JSONObject:
    """Collect the whole messages of one reply, one per call. Stream chunks of that time are not supported."""
    return {"messages": list(events)}


def decode_reply(reply: JSONObject, provider: str) -> Message:
    wire = cast(list[JSONObject], reply["messages"]) if "messages" in reply else [reply]
    decoded = _Decoder(provider).messages([{"role": "assistant", **message} for message in wire])
    messages = [message for message in decoded if message.role == "assistant"]
    parts = tuple(part for message in messages for part in message.parts)
    return replace(messages[0], parts=parts) if messages else Message(role="assistant")


class _Step(NamedTuple):
    said: list[AnyPart]
    invocations: list[JSONObject]


class _Decoder:
    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.given: set[object] = set()
        self.asked: set[object] = set()
        self.made = 0
        self.waiting = OpenCalls[ToolCall]()

    def messages(self, wire: list[JSONObject]) -> list[Message]:
        self.given = {_text(message, "tool_call_id") for message in wire}
        found: list[Message] = []
        group: object = None
        place = -1
        for message in wire:
            if message["role"] == "function" or message["role"] == "tool":
                found.append(Message(role="tool", parts=(self.result(message),)))
                continue
            decoded = list(self.message(message))
            if group is not None and message.get("id") == group and message.get("function_call"):
                found[place] = self.joined(found[place], decoded[0])
                continue
            group = message.get("id") if message.get("function_call") else None
            place = len(found)
            found += decoded
        return merge_neighbours(found, "tool")  # the results of one reply, as in all other formats

    def joined(self, reply: Message, further: Message) -> Message:
        """Return a reply with one more call. An `id` that only linked the two messages is dropped."""
        extra = dict((reply.extra or {}).get(self.provider, {}))
        uid = reply.uid
        if extra.get("id") == reply.tool_calls[0].id:
            del extra["id"]
            uid = ""
        parts = (*reply.parts, *further.parts)
        return replace(reply, parts=parts, uid=uid, extra={self.provider: extra} if extra else None)

    def message(self, wire: JSONObject) -> Iterator[Message]:
        role = ROLES.get(cast(str, wire["role"]))
        if role is None:  # `data`, which the SDK does not send to the model
            yield Message(role="user", parts=(ProviderBlock(provider=self.provider, data=wire),))
            return
        steps = self.steps(wire)
        said = steps[-1].said
        if words := _missing_text(_text(wire, "content"), Text, steps):
            said.append(Text(words))
        if thought := _missing_text(_text(wire, "reasoning"), Reasoning, steps):
            said.insert(0, Reasoning(text=thought, provider=self.provider))
        said += [self.attachment(each) for each in cast(list[JSONObject], wire.get(ATTACHMENTS) or [])]
        said += self.calls(wire)
        spread = ("content", "reasoning") if len(steps) > 1 or _parts(wire) else ()
        for number, step in enumerate(steps):
            reply, *results = self.step(step.said, step.invocations)
            reply = replace(reply, role=role, uid=_text(wire, "id") or "" if number == 0 else "")
            yield self.with_rest(reply, wire, spread) if number == 0 else reply
            yield from results

    def steps(self, wire: JSONObject) -> list[_Step]:
        """Return text and calls step by step, as version 4 reads them; at least one step.

        A text after calls in `parts` begins a new step. Calls that are only in `toolInvocations` are placed by their
        step number.
        """
        found, number = [_Step([], [])], 0
        for part in _parts(wire):
            kind = part.get("type")
            if kind == "tool-invocation":
                number = _add_invocation(found, cast(JSONObject, part["toolInvocation"]), number)
            elif kind != "step-start":
                if kind == "text" and found[-1].invocations:
                    found.append(_Step([], []))
                    number += 1
                found[-1].said.append(self.part(part))
        known = {str(each["toolCallId"]) for step in found for each in step.invocations}
        others = cast(
            list[JSONObject], wire["toolInvocations"] if isinstance(wire.get("toolInvocations"), list) else []
        )
        for each in sorted(others, key=lambda each: each.get("step") or 0):
            if str(each["toolCallId"]) not in known:
                number = _add_invocation(found, each, number)
        return found

    def part(self, part: JSONObject) -> AnyPart:
        """Decode a part of version 4, except calls."""
        match part.get("type"):
            case "text" if isinstance(part.get("text"), str):
                return Text(part["text"])
            case "reasoning" if isinstance(part.get("reasoning"), str):
                return Reasoning(text=part["reasoning"], provider=self.provider)
            case "file":
                mime_type = part.get("mimeType") or ""
                made = self.attachment({"contentType": mime_type, "url": f"data:{mime_type};base64,{part.get('data')}"})
                return made if isinstance(made, Media) else ProviderBlock(provider=self.provider, data=part)
            case _:
                return ProviderBlock(provider=self.provider, data=part)

    def step(self, said: list[AnyPart], invocations: list[JSONObject]) -> Iterator[Message]:
        """Return the text, the calls and their results as messages."""
        results: list[AnyPart] = []
        for each in invocations:
            call_id, name, given = cast(str, each["toolCallId"]), cast(str, each["toolName"]), each.get("args")
            if each.get("state") == "partial-call":
                said.append(ToolCall(id=call_id, name=name, arguments={}, raw=as_text(given), malformed=True))
            else:
                said.append(tool_call(call_id, name, _arguments(given)))
            if each.get("state") == "result" or "result" in each:
                results.append(ToolResult(call_id=call_id, name=name, content=as_text(each.get("result"))))
        yield Message(role="assistant", parts=tuple(said))
        if results:
            yield Message(role="tool", parts=tuple(results))

    def calls(self, wire: JSONObject) -> Iterator[ToolCall]:
        if given := wire.get("function_call"):
            call = self.call(given, _text(wire, "tool_call_id"))
            yield self.awaited(call)
        if isinstance(wire.get("tool_calls"), list):
            for each in cast(list[JSONObject], wire["tool_calls"]):
                function = cast(JSONObject, each.get("function") or {})
                name = function.get("name") or UNKNOWN_TOOL
                call_id = self.new_id() if (given_id := _text(each, "id")) is None else given_id
                yield self.awaited(tool_call(call_id, name, _arguments(function.get("arguments"))))

    def awaited(self, call: ToolCall) -> ToolCall:
        self.waiting.add(call, ("id", call.id), ("name", call.name), "any")
        self.asked.add(call.id)
        return call

    def call(self, given: JSON, call_id: str | None) -> ToolCall:
        """Decode a `function_call`: an object, or text that was still incomplete."""
        function = written_function(given) if isinstance(given, str) else cast(JSONObject, given)
        rest: JSONObject = {GENERATED_ID: True} if call_id is None else {}
        call_id = self.new_id() if call_id is None else call_id
        name = cast(str, function.get("name") or UNKNOWN_TOOL)
        written = function.get("arguments")
        if not function.get("name") and isinstance(given, str):
            made = ToolCall(id=call_id, name=name, arguments={}, raw=given, malformed=True)
        else:
            made = tool_call(call_id, name, _arguments(written))
            known = ("name", "arguments")
            rest |= {key: value for key, value in function.items() if key not in known}
        return replace(made, extra={self.provider: rest}) if rest else made

    def new_id(self) -> str:
        while True:
            self.made += 1
            if (name := f"call_{self.made}") not in self.given:
                return name

    def result(self, wire: JSONObject) -> ToolResult:
        name, call_id = _text(wire, "name"), _text(wire, "tool_call_id")
        same = self.waiting.pop(("id", call_id))
        if same is None and call_id not in self.asked:
            same = self.waiting.pop("any" if name is None else ("name", name))
        if same is not None:
            call_id, name = same.id, name or same.name
        content = wire.get("content")
        call_id = self.new_id() if call_id is None else call_id
        made = ToolResult(call_id=call_id, name=name or UNKNOWN_TOOL, content=as_text(content))
        ours: JSONObject = {"name": made.name, "content": made.content}
        known = {key: value for key, value in wire.items() if key not in ("role", "tool_call_id")}
        return with_extra(made, {**known, **ours}, ours, self.provider)

    def attachment(self, wire: JSONObject) -> AnyPart:
        url, mime_type = cast(str, wire.get("url") or ""), cast(str, wire.get("contentType") or "")
        head, comma, text = url.partition(",")
        name = cast(str | None, wire.get("name"))
        found: JSONObject = {"url": url}
        if comma and head.startswith("data:") and head.endswith(";base64"):
            mime_type = mime_type or head.removeprefix("data:").removesuffix(";base64")
            if not (data := decode_base64(text)):
                return ProviderBlock(provider=self.provider, data=wire)
            found = {"data": data}
        if not url or (mime_type and "/" not in mime_type):
            return ProviderBlock(provider=self.provider, data=wire)
        made = Media(mime_type=mime_type or "application/octet-stream", name=name, **found)
        alone = encode_segment([Message(role="user", parts=(made,))], provider=self.provider, blobs={}).messages
        return with_extra(made, wire, cast(JSONObject, alone[0][ATTACHMENTS][0]), self.provider)

    def with_rest(self, message: Message, wire: JSONObject, spread: tuple[str, ...] = ()) -> Message:
        """Return the message with the fields that encoding would not reproduce, except `spread`, which are decoded
        already.
        """
        encoded = encode_segment([message], provider=self.provider, blobs={}).messages
        read = (*DECODED_FIELDS, *spread)
        ours = {name: value for name, value in encoded[0].items() if name not in read} if encoded else {}
        if message.tool_calls:  # several calls share a generated id
            ours.pop("id", None)
        theirs = {
            name: value
            for name, value in wire.items()
            if name not in read or (name == "tool_calls" and isinstance(value, str))
        }
        return with_extra(message, theirs, ours, self.provider)


def encode_tool(tool: Tool) -> JSONObject:
    return encode_definition(tool, "parameters", strict=False)


def _tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    made = decode_definition(tool, "parameters", strict=False)
    return with_extra(made, tool, encode_tool(made), provider)


def _parts(wire: JSONObject) -> list[JSONObject]:
    parts = cast(list[JSON], wire["parts"] if isinstance(wire.get("parts"), list) else [])
    return [cast(JSONObject, part) for part in parts if isinstance(part, dict)]


def _add_invocation(steps: list[_Step], invocation: JSONObject, number: int) -> int:
    """Add a call to the last step, or to a new one if its step number differs."""
    step = cast(int | None, invocation.get("step"))
    if step is not None and step != number and (steps[-1].said or steps[-1].invocations):
        steps.append(_Step([], []))
    steps[-1].invocations.append(invocation)
    return number if step is None else step


def _missing_text(words: str | None, kind: type[Text | Reasoning], steps: list[_Step]) -> str:
    """Return the text that is not in the parts already, regardless of line breaks."""
    texts = [part.text for step in steps for part in step.said if isinstance(part, kind)]
    if words is None or (texts and "".join(words.split()) in "".join("".join(texts).split())):
        return ""
    rest: list[str] = []
    elsewhere: list[str] = []
    place = 0
    for text in texts:
        if (found := words.find(text, place)) >= 0:
            rest.append(words[place:found])
            place = found + len(text)
        elif len(elsewhere) < MAX_UNORDERED_PARTS:
            elsewhere.append(text)
        else:  # the text differs
            break
    words = "".join([*rest, words[place:]])
    for text in elsewhere:
        words = words.replace(text, "", 1)
    return words


def _text(wire: JSONObject, name: str) -> str | None:
    """Return a field that should be text; None if it is not."""
    value = wire.get(name)
    return value if isinstance(value, str) else None


def _arguments(given: JSON) -> JSONObject | str:
    return cast(JSONObject, given) if isinstance(given, dict) else as_text(given)


def written_function(text: str) -> JSONObject:
    """Return the function that a `function_call` given as text names; empty if the text names none."""
    whole = parse_object(text) or {}
    inside: JSON = whole.get("function_call") or whole
    if not isinstance(inside, dict):
        return {}
    function = cast(JSONObject, inside)
    return function if isinstance(function.get("name"), str) else {}
