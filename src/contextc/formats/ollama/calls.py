"""Which call a result answers. Ids are optional here: older servers give none, and the SDK's own types drop them.

A call without an id is named by its number, as `openai_chat` names one. A result without an id answers the first call
of its name that still waits, or the first of any name where it has none; one with an id that no call has answers a call
that has none, in the same way. Calls wait until the assistant speaks again.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.open_calls import OpenCalls
from contextc.formats.openai_chat.decode import made_id
from contextc.formats.settings import inner


class Waiting(NamedTuple):
    """A call: its id, its name, and whether the id is one that we gave it."""

    id: str
    name: str
    made: bool = False


class Calls:
    """The calls of one request, read from its first message to its last."""

    def __init__(self, messages: Iterable[JSON] = ()) -> None:
        self.taken = set(_ids(messages))
        self.waiting = OpenCalls[Waiting]()
        self.number = 0

    def speaks(self) -> None:
        """The assistant begins a message: nobody waits for what was not answered before it."""
        self.waiting = OpenCalls[Waiting]()

    def asked(self, call: JSONObject) -> str:
        """The id of a call, its own or one that no other call of the request has."""
        given = text_of(call.get("id"))
        while not given and made_id(self.number) in self.taken:
            self.number += 1
        made = Waiting(given or made_id(self.number), text_of(inner(call.get("function")).get("name")), made=not given)
        self.taken.add(made.id)
        kinds = ("any", "made") if made.made else ("any",)
        keys = [key for kind in kinds for key in ((kind, ""), (kind, made.name))]
        self.waiting.add(made, ("id", made.id), *dict.fromkeys(keys))
        return made.id

    def answered(self, result: JSONObject) -> Waiting:
        """The id and the name of the call that a result is for; both empty where nobody asked."""
        call_id, name = text_of(result.get("tool_call_id")), text_of(result.get("tool_name"))
        call = self.waiting.take(("id", call_id)) or self.waiting.take(("made" if call_id else "any", name))
        return Waiting(call_id, name) if call is None else Waiting(call.id, name or call.name)


def speaks(message: JSONObject) -> bool:
    """Whether a message is the assistant's, whoever it says it is of."""
    return text_of(message.get("role")).lower() == "assistant" or bool(message.get("tool_calls"))


def _ids(messages: Iterable[JSON]) -> Iterator[str]:
    for message in messages:
        calls: JSON = inner(message).get("tool_calls")
        yield text_of(inner(message).get("tool_call_id"))
        for call in cast(list[JSON], calls) if isinstance(calls, list) else []:
            yield text_of(inner(call).get("id"))
