"""Texts on which a regular expression could take quadratic time, derived from the expression itself.

A backtracking matcher is slow where a repetition can begin, or end, at many places of one run. So the runs repeat what
the expression itself repeats, or what it needs before its next step: samples of every repetition, of everything up to
a repetition, and single characters, each after every start that brings the matcher to that step.
"""

import random
import re
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

sre: Any = import_module("re._constants")
parser: Any = import_module("re._parser")
POOL = 'a0 -./_@:"\\\n<{é'
CATEGORIES = {
    sre.CATEGORY_DIGIT: "01",
    sre.CATEGORY_SPACE: " \n\t",
    sre.CATEGORY_WORD: "a0_Z",
    sre.CATEGORY_NOT_DIGIT: "a- ",
    sre.CATEGORY_NOT_SPACE: "a-.",
    sre.CATEGORY_NOT_WORD: "- .",
}
MAX_STEM, MAX_PUMP = 500, 40
FLOOR = 0.001
ROUNDS = (2, 5, 25)
FEW = (8, 12, 16, 20, 24)
TAILS = ("", "\n", "!")


class Hostile(NamedTuple):
    """A text of any length: a start, a repeated fragment, an end."""

    stem: str
    pump: str
    tail: str

    def text(self, length: int) -> str:
        return self.stem + self.pump * (length // len(self.pump)) + self.tail


class Sampler:
    """Samples of the parts of a parsed expression."""

    def __init__(self, pattern: str | bytes, flags: int, seed: int) -> None:
        self.tree = parser.parse(pattern, flags & ~re.DEBUG)
        self.random = random.Random(seed)
        self.groups: dict[int, str] = {}
        self.pool = sorted({*POOL, *self._literals(self.tree)})
        self.found: dict[tuple[str, str], None] = {}

    def _literals(self, items: Iterable[Any]) -> Iterator[str]:
        for op, given in items:
            if op in (sre.LITERAL, sre.NOT_LITERAL):
                yield chr(given)
            elif op is sre.IN:
                yield from (chr(value) for kind, value in given if kind is sre.LITERAL)
                yield from (chr(value[0]) for kind, value in given if kind is sre.RANGE)
            else:
                for each in self._bodies(op, given):
                    yield from self._literals(each)

    def _bodies(self, op: Any, given: Any) -> list[Any]:
        if op is sre.BRANCH:
            return list(given[1])
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            return [given[2]]
        if op is sre.SUBPATTERN:
            return [given[3]]
        if op is sre.ATOMIC_GROUP:
            return [given]
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return [given[1]]
        if op is sre.GROUPREF_EXISTS:
            return [each for each in given[1:] if each is not None]
        return []

    def _character(self, members: list[Any]) -> str:
        negated = any(kind is sre.NEGATE for kind, _ in members)
        some = set[str]()
        for kind, value in members:
            if kind is sre.LITERAL:
                some.add(chr(value))
            elif kind is sre.RANGE:
                some |= {
                    chr(value[0]),
                    chr(value[1]),
                    *(each for each in self.pool if value[0] <= ord(each) <= value[1]),
                }
            elif kind is sre.CATEGORY:
                some |= set(CATEGORIES[value])
        if negated:
            some = {each for each in self.pool if each not in some} or {"\x01"}
        return self.random.choice(sorted(some))

    def sample(self, items: Iterable[Any]) -> str:
        """Return a text that these parts match, or nearly so: positions and look-arounds are not obeyed."""
        return "".join([self._sample(op, given) for op, given in items])

    def _sample(self, op: Any, given: Any) -> str:
        if op is sre.LITERAL:
            return chr(given)
        if op is sre.NOT_LITERAL:
            return self.random.choice([each for each in self.pool if ord(each) != given])
        if op is sre.ANY:
            return self.random.choice(self.pool)
        if op is sre.IN:
            return self._character(given)
        if op is sre.GROUPREF:
            return self.groups.get(given, "")
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = given
            count = min(low + self.random.randrange(2), 400) if high > low else min(low, 400)
            return "".join([self.sample(body) for _ in range(count)])
        if op in (sre.ASSERT, sre.ASSERT_NOT, sre.AT):
            return ""
        bodies = self._bodies(op, given)
        made = self.sample(self.random.choice(bodies)) if bodies else ""
        if op is sre.SUBPATTERN and given[0] is not None:
            self.groups[given[0]] = made
        return made

    def walk(self, items: Iterable[Any], before: str) -> str:
        """Note every repetition with what comes before it; return a sample of all parts."""
        for op, given in items:
            self.found[(before, before)] = None
            for each in self._bodies(op, given):
                self.walk(each, before)
                self.found[(before, self.sample(each))] = None
            if op in (sre.ASSERT, sre.ASSERT_NOT):
                continue
            made = self._sample(op, given)
            self.found[(before, made)] = None
            before += made
        self.found[(before, before)] = None
        return before


def hostile_runs(pattern: str | bytes, flags: int = 0, seeds: int = 3, count: int = 700) -> list[Hostile]:
    """Return runs for an expression, the same ones each time."""
    pairs: dict[tuple[str, str], None] = {}
    pool: list[str] = []
    for seed in range(seeds):
        sampler = Sampler(pattern, flags, seed)
        sampler.walk(sampler.tree, "")
        pairs |= sampler.found
        pool = sampler.pool
    stems = list(dict.fromkeys([stem for stem, _ in pairs if len(stem) <= MAX_STEM]))
    pumps = [*dict.fromkeys([pump for _, pump in pairs if 0 < len(pump) <= MAX_PUMP]), *pool]
    chance = random.Random(0)
    fragments = [*pairs, *[("", pump) for pump in pumps], *[("", stem + pump) for stem, pump in pairs]]
    first = [
        Hostile(stem, pump, "") for stem, pump in chance.sample(fragments, min(len(fragments), count // 2)) if pump
    ]
    single = [Hostile("", each, "") for each in pool]
    mixed = [
        Hostile(chance.choice(stems), chance.choice(pumps) + chance.choice(("", chance.choice(pumps))), tail)
        for tail in (*TAILS, chance.choice(stems))
        for _ in range(count // 8)
    ]
    return list(dict.fromkeys([*single, *first, *mixed]))


def seconds(pattern: re.Pattern[Any], method: str, text: str, repeat: int = 1) -> float:
    """Return the shortest processor time of this thread: other programs on the machine do not count."""
    given: Any = text.encode("utf-8", "surrogatepass") if isinstance(pattern.pattern, bytes) else text
    return min(_seconds(pattern, method, given) for _ in range(repeat))


def _seconds(pattern: re.Pattern[Any], method: str, given: Any) -> float:
    start = time.thread_time()
    if method == "search":
        pattern.findall(given)
    else:
        getattr(pattern, method)(given)
    return time.thread_time() - start


def _is_too_fast(pattern: re.Pattern[Any], method: str, run: Hostile, size: int, rounds: int) -> bool:
    before, now = (seconds(pattern, method, run.text(each), repeat=rounds) for each in (size // 4, size))
    return now > FLOOR and now > 8 * before


def grows_too_fast(pattern: re.Pattern[Any], method: str, run: Hostile, length: int = 3_200) -> bool:
    """Return True if the time for four times the length is more than eight times as long, again and again.

    Short texts come first, so that an exponential expression ends, too. Times below a floor are not compared. A busy
    machine makes single times longer, never shorter: the shortest ones of more and more rounds have to agree.
    """
    for size in (*[each * len(run.pump) for each in FEW], length // 4, length):
        is_long = seconds(pattern, method, run.text(size)) > FLOOR
        if is_long and all(_is_too_fast(pattern, method, run, size, rounds) for rounds in ROUNDS):
            return True
    return False
