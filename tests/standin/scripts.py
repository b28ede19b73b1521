"""What stands in for the model: a function from a request to a reply. Here the plain ones; `wanderer` has another."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeAlias

from tests.standin.reply import Reply
from tests.standin.vendor import Ask

Script: TypeAlias = Callable[[Ask], Reply]


class ScriptEnded(Exception):
    """More was asked than the script has answers for."""


class Scripted:
    """Replies in order. A request that comes again, byte for byte, is given the reply it had."""

    def __init__(self, replies: Iterable[Reply | str]) -> None:
        self.replies = iter([Reply(each) if isinstance(each, str) else each for each in replies])
        self.given: dict[str, Reply] = {}
        self.lock = Lock()

    def __call__(self, ask: Ask) -> Reply:
        with self.lock:
            if ask.identity not in self.given:
                reply = next(self.replies, None)
                if reply is None:
                    raise ScriptEnded("The script has no more replies.")
                self.given[ask.identity] = reply
            return self.given[ask.identity]
