"""Decode the AI SDK's `UIMessage`.

It holds a whole turn. Each step becomes an assistant message and a tool message. User messages sent meanwhile become
user messages between them, as in `convertToModelMessages`. Unlike there, nothing is left out.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.formats.encoder_decoder_base import as_text
from contextc.formats.vercel import ui_messages
from contextc.formats.vercel.encode import ORIGINAL_FORM
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Role, ToolCall

PartDecoder: TypeAlias = Callable[[JSONObject, Role], AnyPart]
"""Decode a part of a `ModelMessage`, given the role of its message."""
URL_SCHEMES = ("https:", "http:", "data:")


def decode_ui_message(
    wire: JSONObject, decode: PartDecoder, provider: str, *, as_one_message: bool
) -> Iterator[Message]:
    """Decode one `UIMessage`. Its id becomes the uid of the first message; steering messages have their own.

    With `as_one_message`, steering messages stay in the message that they steered.
    """
    uid, role, about = cast(str, wire.get("id") or ""), cast(Role, wire["role"]), message_metadata(wire)
    parts = _Parts(decode, provider)
    for step in ui_messages.split_steps(cast(list[JSONObject], wire["parts"])):
        if step and ui_messages.is_steering_message(step[0]) and not as_one_message:
            heard = tuple(parts.part(each, "user") for each in cast(list[JSONObject], step[0]["parts"]))
            yield Message(role="user", parts=heard, uid=cast(str, step[0].get("id") or ""))
            continue
        said: list[AnyPart] = []
        results: list[AnyPart] = []
        answers: list[AnyPart] = []
        for part in step:
            if ui_messages.is_tool_part(part):
                parts.tool(part, said, results, answers)
            else:
                said.append(parts.part(part, role))
        if said:
            yield Message(role=role, parts=tuple(said), uid=uid, meta=about)
            uid, about = "", None
        if answers:
            yield Message(role="user", parts=tuple(answers))
        if results:
            yield Message(role="tool", parts=tuple(results))


def message_metadata(wire: JSONObject) -> JSONObject | None:
    return cast(JSONObject, wire["metadata"]) if isinstance(wire.get("metadata"), dict) else None


class _Parts(NamedTuple):
    decode: PartDecoder
    provider: str

    def part(self, part: JSONObject, role: Role) -> AnyPart:
        block = ui_messages.to_model_part(part)
        made = self.decode(block, role)
        if part.get("type") != "file" or part.get("providerReference") is None:
            return made
        shown = self.decode({**block, "data": part.get("url")}, role)  # other providers get the content of its URL
        if not isinstance(shown, Media) or not str(part["url"]).startswith(URL_SCHEMES):
            return made
        rest = (shown.extra or {}).get(self.provider, {})
        return replace(shown, extra={self.provider: {**rest, "data": block["data"]}})

    def tool(self, part: JSONObject, said: list[AnyPart], results: list[AnyPart], answers: list[AnyPart]) -> None:
        """Decode a tool part, which holds a call, its result and the approval request and response in between."""
        call_id, name = part["toolCallId"], part.get("toolName") or part["type"].removeprefix("tool-")
        given = part.get("input") if part.get("input") is not None else part.get("rawInput")
        call: JSONObject = {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}
        result: JSONObject = {
            "type": "tool-result",
            "toolCallId": call_id,
            "toolName": name,
            "output": ui_messages.tool_output(part),
        }
        if part.get("callProviderMetadata"):
            call["providerOptions"] = result["providerOptions"] = part["callProviderMetadata"]
        if part.get("resultProviderMetadata"):
            result["providerOptions"] = part["resultProviderMetadata"]
        by_provider = part.get("providerExecuted") is True
        if part.get("state") == "input-streaming":
            said.append(ToolCall(id=call_id, name=name, arguments={}, raw=as_text(given), malformed=True))
        else:
            said.append(self.decode({**call, "providerExecuted": True} if by_provider else call, "assistant"))
        if (asked := ui_messages.approval_request(part)) is not None:
            said.append(self.decode(asked, "assistant"))
        if (told := ui_messages.approval_response(part)) is not None:
            answers.append(self.decode(told, "tool"))
        if result["output"] is None:
            return
        if not by_provider:
            results.append(self.decode(result, "tool"))
        elif part.get("state") == "approval-responded":  # beside the response, although its call is not open
            answers.append(
                ProviderBlock(
                    provider=self.provider, data=result, extra={self.provider: {ORIGINAL_FORM: {"role": "tool"}}}
                )
            )
        else:
            said.append(self.decode(result, "assistant"))
