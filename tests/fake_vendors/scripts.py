"""Scripts in place of a model: functions from a request to a reply. `wanderer` has another one."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeAlias

from tests.fake_vendors.replies import Reply
from tests.fake_vendors.vendor import AcceptedRequest

Script: TypeAlias = Callable[[AcceptedRequest], Reply]


class ScriptEnded(Exception):
    """The script has no reply left."""


class Scripted:
    """Script that returns replies in order. A repeated request (equal bytes) gets the same reply again."""

    def __init__(self, replies: Iterable[Reply | str]) -> None:
        self.replies = iter([Reply(each) if isinstance(each, str) else each for each in replies])
        self.given: dict[str, Reply] = {}
        self.lock = Lock()

    def __call__(self, ask: AcceptedRequest) -> Reply:
        with self.lock:
            if ask.identity not in self.given:
                reply = next(self.replies, None)
                if reply is None:
                    raise ScriptEnded("The script has no more replies.")
                self.given[ask.identity] = reply
            return self.given[ask.identity]
