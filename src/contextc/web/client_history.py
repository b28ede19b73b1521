"""Comparison of a client's message history with the stored conversation.

Some clients send their whole history with every request. The store is authoritative, so only user messages count; they
are matched by uid. A client changes its history in three ways, and each sets where to continue: an answer is
regenerated, a message was edited, or messages of the client were removed. Messages that other clients have stored
meanwhile are kept.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from contextc.messages import Media, Message, Text, validate_message
from contextc.store.message_log import UID_PATTERN, check_name, original_uid


class ContinuationPoint(NamedTuple):
    """Continue after message `after` (None: the end) with `messages`; without messages, answer the last one."""

    after: int | None
    messages: list[Message]


EMPTY_CONTENT = ("", 0)
"""Content of a message that has only client-specific parts."""


def check_client_messages(client_messages: Sequence[Message]) -> None:
    """Raise `InvalidMessage` if a user message cannot be stored. Called before anything is changed."""
    for message in client_messages:
        texts = [cast(object, part.text) for part in message.parts if isinstance(part, Text)]
        is_text = all([isinstance(text, str) for text in texts])
        if message.role == "user" and not (is_text and _content_key(message) == EMPTY_CONTENT):
            validate_message(message)
            if message.uid:
                check_name(message.uid, "message")


def find_continuation(stored_messages: Sequence[Message], client_messages: Sequence[Message]) -> ContinuationPoint:
    """Return where to continue, given a client's messages. The last one is a user message."""
    known = {original_uid(message.uid): message for message in stored_messages if message.role == "user"}
    user_messages = [
        message for message in client_messages if message.role == "user" and _content_key(message) != EMPTY_CONTENT
    ]
    fresh = new_user_messages(stored_messages, client_messages)
    last = known.get(user_messages[-1].uid) if user_messages else None
    if last is not None:
        if _content_key(last) != _content_key(user_messages[-1]) and not last.redacted:
            return ContinuationPoint(last.seq - 1, [user_messages[-1]])
        return ContinuationPoint(last.seq if stored_messages[-1] is not last else None, [])
    before = [known[message.uid].seq for message in user_messages if message.uid in known]
    dropped = [
        message.seq for message in stored_messages if before and message.seq > before[-1] and _is_from_client(message)
    ]
    return ContinuationPoint(dropped[0] - 1 if dropped else None, fresh)


def new_user_messages(stored_messages: Sequence[Message], client_messages: Sequence[Message]) -> list[Message]:
    """Return the user messages at the end of a history that are not stored yet."""
    known = {original_uid(message.uid) for message in stored_messages}
    fresh: list[Message] = []
    for message in reversed(
        [message for message in client_messages if message.role != "user" or _content_key(message) != EMPTY_CONTENT]
    ):
        if message.role != "user" or message.uid in known:
            break
        fresh.append(message)
    return fresh[::-1]


def _is_from_client(message: Message) -> bool:
    """Return True if a client sent this message: it has a client's uid."""
    return message.role == "user" and not UID_PATTERN.fullmatch(message.uid)


def _content_key(message: Message) -> tuple[str, int]:
    return message.text.strip(), sum([isinstance(part, Media) for part in message.parts])
