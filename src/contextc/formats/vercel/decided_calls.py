"""Send back calls that a person has just approved or denied.

The SDK runs approved calls, and reports denied ones, before it calls the model. So these calls are sent without a
result. Pairing would insert a result, which the SDK would take for the tool's. To prevent that, the calls become native
parts.

    Before                                     After
    assistant  call a, Native request          assistant  Native call a, Native request
    user       Native answer                   user       Native answer
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.formats.vercel.encode import ORIGINAL_FORM, encode_segment, is_approval_response
from contextc.messages import AnyPart, Message, ProviderBlock, ToolCall


def seal_decided_calls(messages: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> Sequence[Message]:
    """Return the messages; calls decided by the approval responses at their end become native parts."""
    end = len(messages)
    while end and (messages[end - 1].role == "tool" or is_approval_response(messages[end - 1], provider)):
        end -= 1
    answers = [part for message in messages[end:] if message.role != "tool" for part in message.parts]
    if not answers:
        return messages
    begin = end
    while begin and (
        messages[begin - 1].role in ("assistant", "tool") or is_approval_response(messages[begin - 1], provider)
    ):
        begin -= 1
    turn = messages[begin:]
    answered = {_get(part, "approvalId") for part in answers}
    decided = {
        _get(part, "toolCallId")
        for message in turn
        for part in message.parts
        if _get(part, "type") == "tool-approval-request" and _get(part, "approvalId") in answered
    }
    results = Counter(result.call_id for message in turn for result in message.tool_results)

    def sealed(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolCall) or part.id not in decided:
            return part
        if results[part.id]:  # an earlier call of this id that already has its result
            results[part.id] -= 1
            return part
        alone = Message(role="assistant", parts=(part,), extra={provider: {ORIGINAL_FORM: {"list": True}}})
        (wire,) = encode_segment([alone], provider=provider, blobs=blobs).messages
        return ProviderBlock(provider=provider, data=wire["content"][0])

    seal = [replace(message, parts=tuple([sealed(part) for part in message.parts])) for message in turn]
    return [*messages[:begin], *seal]


def _get(part: AnyPart, name: str) -> str | None:
    data = cast(JSONObject, part.data) if isinstance(part, ProviderBlock) and isinstance(part.data, dict) else {}
    value = data.get(name)
    return value if isinstance(value, str) else None
