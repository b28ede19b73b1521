"""The messages that an agent may see. The pass `agent_view` and the search in the history share these rules."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from contextc.messages import Media, Message, Text, UserNotice


class HiddenMessage(NamedTuple):
    """Why a message is hidden. `waits` is True if it is hidden only while another run is going."""

    why: str
    waits: bool = False


class Viewer(NamedTuple):
    """The agent whose view it is, its run, and the audiences that it belongs to.

    `is_going` returns True for a run that is still going. `shows_failed` is True if failed messages are visible.
    """

    agent: str
    run: str | None
    audiences: Collection[str]
    shows_failed: bool
    is_going: Callable[[str], bool]

    def is_own(self, message: Message) -> bool:
        """Return True if the agent wrote a message. One of an assistant without an author is its own."""
        if message.author is not None:
            return message.author == self.agent
        return message.role in ("assistant", "tool")

    def find_hidden(self, message: Message) -> HiddenMessage | None:
        """Return why a message is hidden; None if it is visible."""
        if message.redacted:
            return HiddenMessage("redacted")
        if message.status == "pending":
            return HiddenMessage("still being written")
        if message.status != "sent" and not self.shows_failed:
            return HiddenMessage(f"it ended as {message.status}")
        if message.audience is not None and message.audience not in self.audiences:
            return HiddenMessage(f"meant for {message.audience}")
        own = self.is_own(message)
        if own and message.run is not None and message.run != self.run and self.is_going(message.run):
            return HiddenMessage(f"run {message.run} is still going", waits=True)
        if not own and message.role == "tool":
            return HiddenMessage("another agent's tools")
        if not own and message.role == "assistant":
            if not any(type(part) is Media or (type(part) is Text and part.text.strip()) for part in message.parts):
                return HiddenMessage("another agent's tools")
        elif not _has_model_content(message):
            return HiddenMessage("nothing in it is for a model")
        return None


def _has_model_content(message: Message) -> bool:
    """Return True if a message has any part for a model. User notices alone do not count."""
    return any(type(part) is not UserNotice and not (type(part) is Text and not part.text) for part in message.parts)
