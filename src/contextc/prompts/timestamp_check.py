"""Find a timestamp in text that should be constant: a date with time, a time of day, today's date.

A prompt that starts with the time differs at every call, and no provider's cache ever hits (OpenHands
software-agent-sdk#3690). A date alone may be a version or a deadline, and a time an opening hour. They count only
shortly after words like "now" or "today", in the same sentence.
"""

import re
from functools import lru_cache

_MONTH = r"[A-Z][a-z]{2,8}"
_CANDIDATE = re.compile(
    r"(?<![\w:.-])(?:"
    r"(?P<sure>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|(?:[01]?\d|2[0-3]):[0-5]\d:[0-5]\d(?!:?\w))"
    r"|(?:[01]?\d|2[0-3]):[0-5]\d(?![:\w])"
    r"|\d{4}-\d{2}-\d{2}(?!\w)|\d{1,2}[./]\d{1,2}[./]\d{4}(?!\w)"
    rf"|\d{{1,2}}\.? {_MONTH},? \d{{4}}(?!\w)|{_MONTH} \d{{1,2}}, \d{{4}}(?!\w)"
    r"|1[5-9]\d{8}(?:\d{3})?(?!\w))"
)
_CUE = re.compile(r"\b(?:now|today|current(?:ly)?|as of|time|timestamp|date)\b[^\n.!?\d]{0,30}$", re.IGNORECASE)
_REACH = 45
_TWO_DIGITS = re.compile(r"\d\d")  # every timestamp has them, most lines do not


@lru_cache(maxsize=32)
def find_timestamp(text: str) -> str | None:
    """Return the first timestamp in a text, or None."""
    return next(filter(None, (_find_in_line(line) for line in text.splitlines() if _TWO_DIGITS.search(line))), None)


def _find_in_line(line: str) -> str | None:
    for found in _CANDIDATE.finditer(line):
        if found["sure"]:
            return found[0]
        if cue := _CUE.search(line[max(0, found.start() - _REACH) : found.start()]):
            return cue[0] + found[0]
    return None
