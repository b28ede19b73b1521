"""Decoding of rollout files, the JSON Lines record that Codex keeps of a thread on disk.

The history is in the `response_item` lines. They are items of the Responses API, and are decoded by that format. Codex
adds texts of its own (environment, skills, interrupted turns), which are neither the user's nor ours and are left out.
After a compaction, the replacement is the history.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.openai_responses import OpenAIResponsesFormatter
from contextc.formats.request_settings import object_or_empty
from contextc.messages import Message

HISTORY_TYPES = ("user.", "compaction.summary")
"""The content types that are part of the history. An unknown type is matched by its prefix."""
EVENT_FIELDS = {"timestamp", "type"}
"""The fields of a line that only records an event."""
HARNESS_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "<skills_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
)
"""Prefixes of Codex's own texts, in records that do not mark them."""


def is_rollout_line(line: JSONObject) -> bool:
    """Return True if this is a line of a rollout file. New versions add types."""
    return isinstance(line.get("type"), str) and (isinstance(line.get("payload"), dict) or line.keys() == EVENT_FIELDS)


def decode_rollout(lines: Iterable[JSONObject], provider: str) -> list[Message]:
    """Return the history at the end of the record."""
    form = OpenAIResponsesFormatter(provider=provider)
    return list(form.decode_request({"input": _history(lines)}).messages)


def _history(lines: Iterable[JSONObject]) -> list[JSONObject]:
    items: list[JSONObject] = []
    for line in lines:
        said = object_or_empty(line.get("payload"))
        if line["type"] == "response_item" and not object_or_empty(line.get("metadata")).get("compaction_output"):
            items += _without_harness(said)
        elif line["type"] == "compacted":
            instead: JSON = said.get("replacement_history")
            if isinstance(instead, list):
                items = [item for each in cast(list[JSONObject], instead) for item in _without_harness(each)]
            else:
                items = [{"type": "message", "role": "user", "content": text_of(said.get("message"))}]
        elif said.get("type") == "thread_rolled_back":
            items = _drop_last_turns(items, said.get("num_turns"))
    return items


def _without_harness(item: JSONObject) -> Iterator[JSONObject]:
    """Yield the item without Codex's own additions, unless it is then empty."""
    name = "internal_chat_message_metadata_passthrough"
    kinds: JSON = object_or_empty(item.get(name)).get("content_item_kinds")
    plain = {key: value for key, value in item.items() if key != name and value is not None}
    content: JSON = item.get("content")
    if item.get("type") != "message" or item.get("role") == "assistant" or not isinstance(content, list):
        yield plain
        return
    blocks = cast(list[JSONObject], content)
    told = cast(list[JSON], kinds) if isinstance(kinds, list) and len(cast(list[JSON], kinds)) == len(blocks) else []
    said = [block for index, block in enumerate(blocks) if not _is_harness(block, told[index] if told else None)]
    if said:
        yield {**plain, "content": said}


def _is_harness(block: JSONObject, kind: JSON) -> bool:
    if isinstance(kind, str) and kind != "unknown":
        return not kind.startswith(HISTORY_TYPES)
    return text_of(block.get("text")).lstrip().startswith(HARNESS_PREFIXES)


def _drop_last_turns(items: list[JSONObject], turns: JSON) -> list[JSONObject]:
    """Return the history without its last turns. Each turn begins with a user message."""
    begun = [index for index, item in enumerate(items) if item.get("role") == "user"]
    count = turns if isinstance(turns, int) else 0
    return items[: begun[-min(count, len(begun))]] if count > 0 and begun else items
