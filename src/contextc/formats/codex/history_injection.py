"""Splitting a list of items into history and prompt, and conversion of the history for import.

`thread/inject_items` takes items of the Responses API, not items of a thread. So items are decoded into messages and
encoded in that format. Reasoning is left out, because only its original thread can verify it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.codex.decode import decode_items, extract_items
from contextc.formats.codex.encode import is_user_item
from contextc.formats.codex.items import USER_BLOCKS
from contextc.formats.openai_responses import OpenAIResponsesFormatter
from contextc.messages import AnyPart, Message, ProviderBlock, Text
from contextc.messages.escaping import SYSTEM_CONTEXT

CONTINUE_TEXT = "Go on."
"""The prompt of a turn without user input."""
PROVIDER = "codex"


class HistoryAndPrompt(NamedTuple):
    """Items up to the agent's last one, and the `input` of `turn/start` for the items after it."""

    history: list[JSONObject]
    prompt: list[JSONObject]


def split_prompt(items: Sequence[JSONObject]) -> HistoryAndPrompt:
    """Split items into the history for a new thread, and its prompt."""
    behind = next((len(items) - back for back, item in enumerate(reversed(items)) if not is_user_item(item)), 0)
    prompt = [block for item in items[behind:] for block in _input(item)]
    return HistoryAndPrompt(list(items[:behind]), prompt or [{"type": "text", "text": CONTINUE_TEXT}])


def to_response_items(items: Sequence[JSONObject], *, provider: str = PROVIDER) -> list[JSONObject]:
    """Return the items for `thread/inject_items`: whole messages, and every call with its output."""
    history = [each for message in decode_items(extract_items(items), provider) for each in _portable_message(message)]
    return [_complete_item(item) for item in OpenAIResponsesFormatter().format(history)]


def _input(item: JSONObject) -> Iterator[JSONObject]:
    if item.get("type") == "hookPrompt":
        for fragment in cast(list[JSONObject], item.get("fragments") or []):
            yield {"type": "text", "text": text_of(fragment.get("text"))}
        return
    for block in cast(list[JSONObject], item.get("content") or []):
        if block.get("type") in USER_BLOCKS:
            yield {name: value for name, value in block.items() if value not in (None, [])}


def _portable_message(message: Message) -> Iterator[Message]:
    """Yield a message for another thread: marked texts become system messages again, which are possible here."""
    parts = [part for each in message.parts if (part := _portable_part(each)) is not None]
    if message.role != "user":
        yield replace(message, parts=tuple(parts))
        return
    said: list[AnyPart] = []
    for part in parts:
        if not isinstance(part, Text) or not part.text.startswith(SYSTEM_CONTEXT):
            said.append(part)
            continue
        if said:
            yield Message(role="user", parts=tuple(said))
            said = []
        yield Message(role="system", parts=(Text(part.text.removeprefix(SYSTEM_CONTEXT)),))
    if said:
        yield Message(role="user", parts=tuple(said))


def _portable_part(part: AnyPart) -> AnyPart | None:
    """Return a part without data that the Responses API cannot express, or None."""
    if not isinstance(part, ProviderBlock) or not isinstance(part.data, dict):
        return replace(part, extra=None)
    data = cast(JSONObject, part.data)
    if data.get("type") == "plan":
        return Text(text_of(data.get("text")))
    if data.get("type") == "hookPrompt":
        texts = [text_of(fragment.get("text")) for fragment in cast(list[JSONObject], data.get("fragments") or [])]
        return Text("\n\n".join(texts)) if any(texts) else None
    return Text(f"[{data['type']}: {data['path']}]") if data.get("type") in USER_BLOCKS and data.get("path") else None


def _complete_item(item: JSONObject) -> JSONObject:
    """Return an item as Codex expects it: with its type, and with its content in blocks."""
    if "role" not in item:
        return item
    content: JSON = item["content"]
    if isinstance(content, str):
        content = [{"type": "output_text" if item["role"] == "assistant" else "input_text", "text": content}]
    return {"type": "message", **item, "content": content}
