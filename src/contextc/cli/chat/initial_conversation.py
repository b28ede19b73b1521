"""Selection of the first conversation of a chat: the named one, the last one, or a new one named after the time."""

from contextc.app.conversation_names import time_based_names
from contextc.errors import InvalidSetting
from contextc.store import Store


def pick_conversation(store: Store, name: str | None, *, resume_last: bool) -> str:
    if name is not None:
        return name
    found = store.conversations()
    if resume_last:
        if not found:
            raise InvalidSetting("--continue: the store has no conversation.")
        return max([each.name for each in found], key=lambda name: _last_time(store, name))
    names = {each.name for each in found}
    return next(name for name in time_based_names() if name not in names)


def _last_time(store: Store, conversation: str) -> int:
    """Return the time of the last message."""
    last = store.load(conversation, last=1)
    return last[0].time if last else store.conversation(conversation).created
