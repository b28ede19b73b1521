"""Items of the Responses API as messages, and back. An item comes back equal, whatever it contains.

The output of one model response becomes one assistant message, every other item a message of its own. An item that
cannot be decoded is kept whole as a provider block. The items of a message are stored with it only if encoding the
message would not give the same items.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, find_json_problem
from contextc.adapters.request_preparation import get_original, keep_original
from contextc.compiler.draft import list_blob_names
from contextc.errors import ContextcError, InvalidMessage
from contextc.formats import formatter
from contextc.formats.base import UNKNOWN_TOOL
from contextc.formats.openai_responses.codec import is_model_output
from contextc.messages import AnyPart, Message, ProviderBlock, Role, ToolResult, validate_message

ORIGINAL = "responses_items"
"""The key in `meta` of the items of a message."""
LoadBlob = Callable[[str], bytes]


class DecodedItems(NamedTuple):
    """A message, and the items that it was decoded from."""

    message: Message
    items: list[JSONObject]


def decode_items(items: Sequence[JSONObject], tool_names: dict[str, str] | None = None) -> list[DecodedItems]:
    """Return the messages of items. `tool_names` collects the tool of each call, because a result does not name it."""
    names = {} if tool_names is None else tool_names
    return [DecodedItems(_decode_group(group, names), group) for group in _group_items(items)]


def load_items(message: Message, load_blob: LoadBlob) -> list[JSONObject]:
    """Return the items that a stored message was decoded from; for other messages, its items."""
    original = get_original(message, ORIGINAL)
    return cast(list[JSONObject], original) if isinstance(original, list) else encode_items(message, load_blob)


def encode_items(message: Message, load_blob: LoadBlob) -> list[JSONObject]:
    """Return the items of a message. `load_blob` returns the bytes of its media."""
    blobs = {name: load_blob(name) for name in list_blob_names([message])}
    return [*formatter("openai_responses").encode([message], blobs=blobs).messages]


def _group_items(items: Iterable[JSONObject]) -> list[list[JSONObject]]:
    """Group the items by message: consecutive output of a model is one message."""
    found: list[list[JSONObject]] = []
    for index, item in enumerate(items):
        if problem := find_json_problem(cast(JSON, item), f"items[{index}]"):
            raise InvalidMessage(problem[1], field=problem[0])
        if found and is_model_output(item) and is_model_output(found[-1][-1]):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def _decode_group(group: list[JSONObject], names: dict[str, str]) -> Message:
    try:
        (message,) = formatter("openai_responses").decode_request({"input": group}).messages
        names |= {call.id: call.name for call in message.tool_calls}
        message = replace(message, parts=tuple([_name_result(part, names) for part in message.parts]))
        checked = validate_message(message)
    except (ContextcError, ValueError, KeyError, TypeError, AttributeError):
        return _keep_whole(group)
    blobs = {name: data for name, data in checked.blobs.items() if data is not None}
    try:
        written = [*formatter("openai_responses").encode([checked.message], blobs=blobs).messages]
    except (ContextcError, ValueError, KeyError, TypeError, AttributeError):
        return _keep_whole(group)
    return message if encode(written) == encode(group) else keep_original(message, ORIGINAL, cast(JSON, group))


def _name_result(part: AnyPart, names: dict[str, str]) -> AnyPart:
    if isinstance(part, ToolResult) and part.name == UNKNOWN_TOOL and part.call_id in names:
        return replace(part, name=names[part.call_id])
    return part


def _keep_whole(group: list[JSONObject]) -> Message:
    role: Role = "assistant" if is_model_output(group[0]) else "user"
    parts = tuple([ProviderBlock(provider="openai", data=item) for item in group])
    return keep_original(Message(role=role, parts=parts), ORIGINAL, cast(JSON, group))
