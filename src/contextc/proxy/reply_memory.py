"""Replies of a provider that a client of another format cannot hold: its reasoning and signatures.

A client sends back what it was given, in its own format. If a reply with calls is among it, the provider's own version
takes its place, so that the model continues with its reasoning. The memory is limited, and lost with the process. Then
the request is converted without it, which every provider accepts.
"""

from collections.abc import Iterable
from threading import Lock

from contextc.messages import Message

MAX_REPLIES = 4_096


class ReplyMemory:
    """The last replies with calls, by the ids of their calls as the client has them."""

    def __init__(self) -> None:
        self._replies: dict[str, Message] = {}
        self._lock = Lock()

    def remember(self, reply: Message) -> None:
        """Keep a reply. The ids of its calls are those that the client was given."""
        with self._lock:
            for call in reply.tool_calls:
                self._replies[call.id] = reply
            while len(self._replies) > MAX_REPLIES:
                del self._replies[next(iter(self._replies))]

    def restore(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return messages with the provider's own version of its replies."""
        return tuple([self._find(each) if each.role == "assistant" and each.tool_calls else each for each in messages])

    def _find(self, message: Message) -> Message:
        ids = [call.id for call in message.tool_calls]
        with self._lock:
            known = self._replies.get(ids[0])
        return known if known is not None and [call.id for call in known.tool_calls] == ids else message
