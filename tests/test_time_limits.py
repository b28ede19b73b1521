"""No test gives something that it waits for less time than a busy machine may need.

A pause between two looks is shorter than a second. Everything longer is a limit, after which a test fails, and has at
least a minute. A test of a limit itself moves the clock (`tests/movable_clock.py`).
"""

import re
from pathlib import Path

TESTS = Path(__file__).parent
LEAST_SECONDS = 60
NUMBER = r"(?:timeout=)?([\d.]+)"
LIMIT = re.compile(
    rf"(?:\.wait|\.join|\.poll|\.get|asyncio\.timeout)\({NUMBER}\)"
    rf"|(?:asyncio\.wait_for|asyncio\.wait|asyncio\.to_thread|\.communicate|subprocess\.run)\(.*, {NUMBER}\)"
    r"|monotonic\(\) \+ ([\d.]+)"
    r"|(?:PATIENCE|SECONDS) = ([\d.]+)$",
    re.MULTILINE,
)


def test_what_is_waited_for_has_a_minute() -> None:
    short: list[str] = []
    for path in sorted(TESTS.rglob("*.py")):
        for found in LIMIT.finditer(path.read_text(encoding="utf-8")):
            seconds = float(next(filter(None, found.groups())))
            if 1 <= seconds < LEAST_SECONDS:
                short.append(f"{path.relative_to(TESTS)}: {found[0]}")
    assert short == []
