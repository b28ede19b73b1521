"""What a page wants that sends its history with every request: where its last message goes, and what is new in it.

The record is ours, so of such a history only what a person said counts. It is known again by its uid. A page cuts its
own history in three ways, and each of them is a place to go on from: an answer is to be given anew, a message was
edited, or messages of its own were dropped. What others said here meanwhile, which it cannot know, stays.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from contextc.messages import Media, Message, Text, admit
from contextc.store.places import UID, check_name
from contextc.store.sync import original_uid


class Place(NamedTuple):
    """Go on behind message `after` (None: from the end) with `messages`; with none, answer what is there."""

    after: int | None
    messages: list[Message]


NOTHING = ("", 0)
"""What a message says in which there are only things of the page's own."""


def check(theirs: Sequence[Message]) -> None:
    """Raise `InvalidMessage` where a person's message cannot be kept: known before anything is done because of it."""
    for message in theirs:
        texts = [cast(object, part.text) for part in message.parts if isinstance(part, Text)]
        is_text = all([isinstance(text, str) for text in texts])
        if message.role == "user" and not (is_text and _says(message) == NOTHING):
            admit(message)
            if message.uid:
                check_name(message.uid, "message")


def placed(ours: Sequence[Message], theirs: Sequence[Message]) -> Place:
    """Where a page goes on that sent these messages; the last one is a person's."""
    known = {original_uid(message.uid): message for message in ours if message.role == "user"}
    said = [message for message in theirs if message.role == "user" and _says(message) != NOTHING]
    fresh = unknown(ours, theirs)
    last = known.get(said[-1].uid) if said else None
    if last is not None:
        if _says(last) != _says(said[-1]) and not last.redacted:
            return Place(last.seq - 1, [said[-1]])
        return Place(last.seq if ours[-1] is not last else None, [])
    before = [known[message.uid].seq for message in said if message.uid in known]
    dropped = [message.seq for message in ours if before and message.seq > before[-1] and _is_of_a_page(message)]
    return Place(dropped[0] - 1 if dropped else None, fresh)


def unknown(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Message]:
    """What a person said at the end of a history that is not in the record yet."""
    known = {original_uid(message.uid) for message in ours}
    fresh: list[Message] = []
    for message in reversed([message for message in theirs if message.role != "user" or _says(message) != NOTHING]):
        if message.role != "user" or message.uid in known:
            break
        fresh.append(message)
    return fresh[::-1]


def _is_of_a_page(message: Message) -> bool:
    """Whether a page sent this: it came with a name of its own."""
    return message.role == "user" and not UID.fullmatch(message.uid)


def _says(message: Message) -> tuple[str, int]:
    return message.text.strip(), sum([isinstance(part, Media) for part in message.parts])
