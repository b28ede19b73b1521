"""Messages of pydantic-ai as messages of contextc, and back.

A `ModelResponse` is one assistant message. Each part of a `ModelRequest` that a model reads is one message: a prompt, a
tool result, feedback. Parts that no model reads, such as records of changed settings, are none. What contextc has no
type for is kept as a provider block. Only what was changed is converted back; everything else stays the object that
pydantic-ai made.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from msgspec.structs import replace as replace_struct
from pydantic_ai.messages import (
    ERROR_OUTCOMES,
    BinaryContent,
    CachePoint,
    CompactionPart,
    FilePart,
    InstructionDeltaPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from contextc._json import JSONObject
from contextc.formats.base import as_json
from contextc.messages import (
    REDACTED_TEXT,
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    tool_call,
    user,
)
from contextc.store.message_matching import PartKey, get_part_key

PROVIDER = "pydantic_ai"
"""The provider of blocks that only pydantic-ai understands."""
UNKNOWN_MIME_TYPE = "application/octet-stream"
LEGACY_RETRY = "retry-prompt"


class ConvertedPart(NamedTuple):
    """A message, and the index of the part of the `ModelRequest` that it is; -1 for a whole `ModelResponse`."""

    message: Message
    part: int


def convert_message(message: ModelMessage) -> list[ConvertedPart]:
    """Return the messages of contextc that a message of pydantic-ai consists of."""
    if isinstance(message, ModelResponse):
        return [ConvertedPart(_response(message), -1)]
    found: list[ConvertedPart] = []
    for index, part in enumerate(message.parts):
        converted = _request_part(part)
        if converted is not None:
            found.append(ConvertedPart(converted, index))
    return found


def convert_messages(messages: Iterable[ModelMessage]) -> list[Message]:
    return [converted.message for message in messages for converted in convert_message(message)]


def to_usage(usage: RequestUsage) -> Usage | None:
    """Return the tokens that a provider reported; None if it reported none."""
    if not usage.has_values():
        return None
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=usage.details.get("reasoning_tokens", 0),
    )


def dump_message(message: ModelMessage) -> JSONObject:
    """Return a message as JSON, as pydantic-ai stores it."""
    return cast(JSONObject, ModelMessagesTypeAdapter.dump_python([message], mode="json")[0])


def load_message(value: JSONObject) -> ModelMessage:
    return ModelMessagesTypeAdapter.validate_python([value])[0]


# ── to contextc ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _request_part(part: ModelRequestPart) -> Message | None:
    if isinstance(part, UserPromptPart):
        return user([*_content(part.content)])
    if isinstance(part, ToolReturnPart):
        return Message(role="tool", parts=(_result(part),))
    if isinstance(part, SystemPromptPart):
        return system(part.content)
    if isinstance(part, RetryFeedbackPart):
        return user(part.model_response())
    if isinstance(part, CompactionPart):
        return user(part.content or "")
    if isinstance(part, InstructionDeltaPart):
        return system(part.render())
    if part.part_kind == LEGACY_RETRY:
        return _legacy_retry(part)
    return None


def _legacy_retry(part: Any) -> Message:  # Any: the type is deprecated, and importing it warns
    if part.tool_name is None:
        return user(part.model_response())
    result = ToolResult(call_id=part.tool_call_id, name=part.tool_name, content=part.model_response(), is_error=True)
    return Message(role="tool", parts=(result,))


def _content(content: str | Sequence[UserContent]) -> Iterator[AnyPart]:
    for item in [content] if isinstance(content, str) else content:
        if isinstance(item, str):
            yield Text(item)
        elif isinstance(item, TextContent):
            yield Text(item.content)
        elif not isinstance(item, CachePoint):
            yield _media(item)


def _media(item: Any) -> Media:  # a type of the union `MultiModalContent`
    if isinstance(item, BinaryContent):
        return Media(mime_type=item.media_type, data=item.data)
    mime_type = _mime_type(item)
    if isinstance(item, UploadedFile):
        return Media(mime_type=mime_type, file_id=item.file_id, provider=item.provider_name)
    return Media(mime_type=mime_type, url=item.url)


def _mime_type(item: Any) -> str:
    try:
        return str(item.media_type)
    except ValueError:  # it cannot be guessed from the URL
        return UNKNOWN_MIME_TYPE


def _result(part: ToolReturnPart[Any]) -> ToolResult:
    text = part.model_response_str(wrap_if_error=False)
    files = [_media(file) for file in part.files]
    content = (*([Text(text)] if text else []), *files) if files else text
    return ToolResult(
        call_id=part.tool_call_id, name=part.tool_name, content=content, is_error=part.outcome in ERROR_OUTCOMES
    )


def _response(message: ModelResponse) -> Message:
    parts = [converted for part in message.parts for converted in _response_part(message, part)]
    return replace_struct(assistant(parts), usage=to_usage(message.usage), finish=_finish(message))


def _response_part(message: ModelResponse, part: ModelResponsePart) -> Iterator[AnyPart]:
    if isinstance(part, TextPart):
        if part.content:
            yield Text(part.content)
    elif isinstance(part, ThinkingPart):
        yield Reasoning(
            text=part.content,
            signature=part.signature,
            id=part.id,
            provider=part.provider_name or message.provider_name,
            model=message.model_name,
        )
    elif isinstance(part, ToolCallPart):
        yield _call(part)
    elif isinstance(part, FilePart):
        yield _media(part.content)
    else:
        dumped = dump_message(replace(message, parts=[part]))
        yield ProviderBlock(provider=PROVIDER, data=cast(list[Any], dumped["parts"])[0])


def _call(part: ToolCallPart[Any]) -> ToolCall:
    arguments = part.args if part.args is not None else {}
    if isinstance(arguments, str):
        call = tool_call(part.tool_call_id, part.tool_name, arguments)
    else:
        call = ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=arguments)
    details = as_json(part.provider_details) if part.provider_details else None
    return replace_struct(call, extra={PROVIDER: details}) if details else call  # it may be signed: no cut changes it


FINISH_REASONS = {"tool_call": "tool_calls", "content_filter": "filter"}


def _finish(message: ModelResponse) -> str | None:
    return FINISH_REASONS.get(message.finish_reason or "", message.finish_reason)


# ── to pydantic-ai ────────────────────────────────────────────────────────────────────────────────────────────────────


def to_model_message(message: Message) -> ModelMessage:
    """Return a message that contextc inserted, or that it has without an original."""
    if message.redacted:
        message = replace_struct(message, parts=(Text(REDACTED_TEXT),))
    if message.role == "assistant":
        return ModelResponse(parts=[*_response_parts(message)])
    return ModelRequest(parts=[*_request_parts(message)])


def to_model_messages(messages: Iterable[Message]) -> list[ModelMessage]:
    """Return a history that contextc has without originals. Results of one reply are one request."""
    found: list[ModelMessage] = []
    for message in messages:
        converted = to_model_message(message)
        last = found[-1] if found else None
        if isinstance(converted, ModelRequest) and isinstance(last, ModelRequest):
            found[-1] = replace(last, parts=[*last.parts, *converted.parts])
        elif converted.parts:
            found.append(converted)
    return found


def change_part(part: ModelRequestPart, message: Message) -> list[ModelRequestPart]:
    """Return a part of a `ModelRequest` with the content of a message that replaces it."""
    if isinstance(part, ToolReturnPart):
        results = message.tool_results
        kept: ToolReturnPart[Any] = ToolReturnPart(
            tool_name=part.tool_name,
            content=results[0].text if results else message.text,
            tool_call_id=part.tool_call_id,
            timestamp=part.timestamp,
            outcome=part.outcome,
            retry=part.retry,
        )
        return [kept]
    if isinstance(part, UserPromptPart):
        return [replace(part, content=_user_content(message))]
    if isinstance(part, SystemPromptPart):
        return [replace(part, content=message.text)]
    return [*_request_parts(message)]


def change_response(response: ModelResponse, message: Message) -> ModelResponse:
    """Return a response with the content of a message that replaces it. Parts that are still there stay as they are.

    A call that lost its arguments stays without them. If reasoning is gone, no part has the id of its item any more:
    OpenAI would require the reasoning.
    """
    originals: dict[tuple[Any, ...], tuple[ModelResponsePart | None, PartKey]] = {}
    for part in response.parts:
        for converted in _response_part(response, part):
            originals.setdefault(_key(converted), (part, get_part_key("assistant", converted)))
    parts: list[ModelResponsePart] = []
    for converted in message.parts:
        kept, key = originals.get(_key(converted), (None, ()))
        if kept is None:
            parts += _response_parts(replace_struct(message, parts=(converted,)))
        elif isinstance(converted, ToolCall) and get_part_key("assistant", converted) != key:
            parts.append(replace(cast(ToolCallPart, kept), args=_arguments(converted)))
        else:
            parts.append(kept)
    if any(isinstance(part, ThinkingPart) and part not in parts for part in response.parts):
        parts = [replace(part, id=None) if isinstance(part, TextPart | ToolCallPart) else part for part in parts]
    return replace(response, parts=parts)


def _key(part: AnyPart) -> tuple[Any, ...]:
    """Return what identifies a part of a response before and after a request is compiled."""
    if isinstance(part, ToolCall):
        return "call", part.id
    if isinstance(part, Reasoning):
        return "reasoning", part.text, part.signature or part.data
    return get_part_key("assistant", part)


def _arguments(call: ToolCall) -> str | dict[str, Any]:
    return call.raw or dict(call.arguments)


def _request_parts(message: Message) -> Iterator[ModelRequestPart]:
    for result in message.tool_results:
        outcome = "failed" if result.is_error else "success"
        yield ToolReturnPart(tool_name=result.name, content=result.text, tool_call_id=result.call_id, outcome=outcome)
    if message.role == "system":
        yield SystemPromptPart(message.text)
    elif message.role == "user":
        yield UserPromptPart(_user_content(message))


def _user_content(message: Message) -> str | list[UserContent]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    found: list[UserContent] = []
    for part in message.parts:
        if isinstance(part, Text):
            found.append(part.text)
        elif isinstance(part, Media) and part.data is not None:
            found.append(BinaryContent(data=part.data, media_type=part.mime_type))
    return found


def _response_parts(message: Message) -> Iterator[ModelResponsePart]:
    for part in message.parts:
        if isinstance(part, Text):
            yield TextPart(part.text)
        elif isinstance(part, Reasoning):
            if part.text or part.signature:  # other reasoning was left out
                yield ThinkingPart(part.text, id=part.id, signature=part.signature, provider_name=part.provider)
        elif isinstance(part, ToolCall):
            yield ToolCallPart(part.name, _arguments(part), tool_call_id=part.id)
