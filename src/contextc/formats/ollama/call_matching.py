"""Match tool results to calls. Ids are optional: older servers send none, and the SDK's types drop them.

A call without an id gets a numbered one, as in `openai_chat`. A result without an id answers the first open call of its
tool name, or the first open call if it has no name either. A result with an unknown id answers a call that has no id,
in the same way. Calls stay open until the next assistant message.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.open_calls import OpenCalls
from contextc.formats.openai_chat.decode import UNKNOWN_TOOL, generated_id
from contextc.formats.request_settings import object_or_empty


class OpenCall(NamedTuple):
    """An open call: its id, its tool name, and whether the id was generated."""

    id: str
    name: str
    is_generated: bool = False


class CallMatcher:
    """The tool calls of one request, read from its first message to its last."""

    def __init__(self, messages: Iterable[JSON] = ()) -> None:
        self.used_ids = set(_ids(messages))
        self.open_calls = OpenCalls[OpenCall]()
        self.number = 0

    def begin_reply(self) -> None:
        """Begin an assistant message: earlier calls are no longer open."""
        self.open_calls = OpenCalls[OpenCall]()

    def add_call(self, call: JSONObject) -> str:
        """Return the id of a call: its own, or a generated one that no other call of the request has."""
        given = text_of(call.get("id"))
        while not given and generated_id(self.number) in self.used_ids:
            self.number += 1
        made = OpenCall(
            given or generated_id(self.number),
            text_of(object_or_empty(call.get("function")).get("name")),
            is_generated=not given,
        )
        self.used_ids.add(made.id)
        kinds = ("any", "made") if made.is_generated else ("any",)
        keys = [key for kind in kinds for key in ((kind, ""), (kind, made.name or UNKNOWN_TOOL))]
        self.open_calls.add(made, ("id", made.id), *dict.fromkeys(keys))
        return made.id

    def match_result(self, result: JSONObject) -> OpenCall:
        """Return the id and name of the call that a result answers; those of the result itself if there is none."""
        call_id, name = text_of(result.get("tool_call_id")), text_of(result.get("tool_name"))
        call = self.open_calls.pop(("id", call_id)) or self.open_calls.pop(("made" if call_id else "any", name))
        return OpenCall(call_id, name) if call is None else OpenCall(call.id, name or call.name)


def is_assistant_message(message: JSONObject) -> bool:
    """Return True if a message is the assistant's, by its role or because it has tool calls."""
    return text_of(message.get("role")).lower() == "assistant" or bool(message.get("tool_calls"))


def _ids(messages: Iterable[JSON]) -> Iterator[str]:
    for message in messages:
        calls: JSON = object_or_empty(message).get("tool_calls")
        yield text_of(object_or_empty(message).get("tool_call_id"))
        for call in cast(list[JSON], calls) if isinstance(calls, list) else []:
            yield text_of(object_or_empty(call).get("id"))
