"""The lint engine: parsed requests, rules of providers, and findings.

A request may come from any source and be broken in any way. It is first *parsed* into turns and their parts (texts,
calls, results, reasoning), each with its path. A part without a valid shape is recorded in `misshapen`, and other rules
ignore it. A rule is a function from a parsed request to findings. Its docstring is its entry in the docs: rule, reason,
an example that breaks it, and the repair.

Rules report what a provider refuses. The encoders of contextc are stricter.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from inspect import getdoc
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode

Path: TypeAlias = tuple[str | int, ...]
Kind: TypeAlias = Literal["text", "reasoning", "call", "result", "media", "other"]
Fields: TypeAlias = Mapping[str, type | tuple[type, ...]]
"""Required fields of an object, and their types. A name that ends in `?` may be missing or null."""

NAMES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


class Violation(Struct, frozen=True):
    """A rule that a request breaks: its path, our message, and the provider's error text."""

    code: str
    path: str
    message: str
    error: str = ""


class Finding(NamedTuple):
    """A violation found by a rule, with the values that the provider's error text is formatted with."""

    path: Path
    message: str
    facts: dict[str, object]


class Piece(Struct, frozen=True, kw_only=True):
    """A block, part or item of a request. `id` is the id of a call, or of the call that a result answers."""

    kind: Kind
    path: Path
    wire: JSONObject
    id: str = ""
    name: str = ""
    text: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """A message of a request, with its parts that have a valid shape."""

    role: str
    path: Path
    wire: JSONObject
    pieces: tuple[Piece, ...] = ()

    def of(self, kind: Kind) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind == kind]


class Facts(Struct, frozen=True, kw_only=True):
    """Capabilities of the requested model, named as in `contextc.models`.

    An unknown model is assumed to accept everything.
    """

    reasoning: bool = False
    temperature: bool = True
    forced_tool_choice: bool = True
    prefill: bool = True
    tools_in_chat: bool = True
    media: tuple[str, ...] | None = None
    efforts: tuple[str, ...] = ()


NO_FACTS = Facts()


def reasons(facts: Facts, effort: JSON) -> bool:
    """Return True if an OpenAI model is certain to reason, and therefore refuses sampling settings."""
    if facts.temperature or effort == "none":
        return False
    return effort is not None or bool(facts.efforts and "none" not in facts.efforts)


class Sketch(Struct, frozen=True, kw_only=True):
    """A parsed request. `body` has the settings; it is empty if only messages were given."""

    turns: tuple[Turn, ...]
    body: JSONObject
    prompt: tuple[Piece, ...] = ()
    tools: tuple[Piece, ...] = ()
    misshapen: tuple[Finding, ...] = ()
    facts: Facts = NO_FACTS


Check: TypeAlias = Callable[[Sketch], Iterable[Finding]]
Mend: TypeAlias = Callable[[JSONObject], JSONObject]


class Rule(NamedTuple):
    """A rule of a provider. `says` is the provider's error text, a template for the facts of a finding.

    Decoding and encoding a request repairs most violations. `mend` repairs the others: it takes the body of a request
    that breaks this rule, and returns one that does not.
    """

    code: str
    check: Check
    says: str
    mend: Mend | None = None

    @property
    def title(self) -> str:
        return self._sections()[0]

    @property
    def why(self) -> str:
        return self._sections()[1]

    @property
    def example(self) -> str:
        """The shortest request that breaks the rule, as JSON."""
        return self._sections()[2]

    @property
    def repair(self) -> str:
        return self._sections()[3]

    def _sections(self) -> list[str]:
        what, _, rest = (getdoc(self.check) or "").partition("\n")
        why, _, rest = rest.partition("\nExample:")
        example, _, repair = rest.partition("\nRepair:")
        return [" ".join(section.split()) for section in (what, why, example, repair)]


class RuleBook:
    """The rules of one format: the parser of its requests, and the checks.

    `reshape` takes a misshapen value and its path, and returns an equivalent value with a valid shape, or the same
    value if there is none. `message` and `block` build a user message or a block from text, as the last resort. `house`
    is the vendor whose rules these are; more is known about its own models. `unknown` finds fields of messages that the
    format does not have, even if its provider accepts them.
    """

    def __init__(
        self,
        prefix: str,
        read: Callable[[JSON], Sketch],
        *,
        reshape: Callable[[JSON, Path], JSON],
        message: Callable[[str], JSON],
        block: Callable[[str], JSON],
        key: str = "messages",
        house: str = "",
        unknown: Check = lambda sketch: (),
    ) -> None:
        self.prefix, self.read, self.reshape, self.key, self.house = prefix, read, reshape, key, house
        self.message, self.block, self.unknown = message, block, unknown
        self.rules: list[Rule] = []

    def rule(self, number: int, says: str = "", *, mend: Mend | None = None) -> Callable[[Check], Check]:
        """Register a function as the rule with this number."""

        def enter(check: Check) -> Check:
            self.rules.append(Rule(f"{self.prefix}{number:03d}", check, says, mend))
            return check

        return enter

    def as_text(self, value: JSON, path: Path) -> JSON:
        """Return a misshapen value as text, or None if it should be left out."""
        if path in ((), (self.key,)):
            return [] if path else {self.key: []}
        if path[0] != self.key and path[0] != "system":
            return None
        words = value if isinstance(value, str) else encode(value).decode()
        if path == ("system",):
            return words
        return self.message(words) if len(path) == 2 and path[0] == self.key else self.block(words)

    def named(self, code: str) -> Rule:
        return next(rule for rule in self.rules if rule.code == code)

    def lint(self, body: JSON, facts: Facts = NO_FACTS) -> list[Violation]:
        """Return the violations in a request, or in its list of messages, ordered by position."""
        sketch = self.read(body) if facts is NO_FACTS else replace(self.read(body), facts=facts)
        found = [(finding, rule) for rule in self.rules for finding in rule.check(sketch)]
        return [
            Violation(rule.code, spelled(finding.path), finding.message, self._said(rule, finding))
            for finding, rule in sorted(found, key=lambda each: (_order(each[0].path), each[1].code))
        ]

    def _said(self, rule: Rule, finding: Finding) -> str:
        path = finding.path if not finding.path or isinstance(finding.path[0], str) else (self.key, *finding.path)
        return rule.says.format(**{"where": dotted(path), **finding.facts})


def at(path: Path, message: str, **facts: object) -> Finding:
    return Finding(path, message, facts)


def spelled(path: Path) -> str:
    """Return a path as text, such as `messages[2].content[0].id`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def dotted(path: Path) -> str:
    """Return a path as several providers write it, such as `messages.2.content.0.id`."""
    return ".".join(map(str, path if not path or isinstance(path[0], str) else ("messages", *path)))


def misfit(value: object, fields: Fields) -> tuple[str, str] | None:
    """Return the first invalid field of an object and a message, or None if all fields are valid."""
    if not isinstance(value, dict):
        return "", f"expected an object, got {_kind(value)}."
    given = cast(JSONObject, value)
    for name, kinds in fields.items():
        plain = name.removesuffix("?")
        each = cast(object, given.get(plain))
        if plain not in given or (each is None and name != plain):
            if name == plain:
                return plain, f"`{plain}` is missing."
            continue
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(each, wanted) or (isinstance(each, bool) and bool not in wanted):
            return plain, f"`{plain}` must be {' or '.join(NAMES[kind] for kind in wanted)}, got {_kind(each)}."
    return None


def known(fields: Fields, *more: str) -> frozenset[str]:
    """Return the names of these fields, and of `more`."""
    return frozenset([*(name.removesuffix("?") for name in fields), *more])


def strangers(wire: JSON, names: Collection[str], path: Path) -> Iterator[Finding]:
    """Yield a finding for each field of an object that is not in `names`. Fields that are null are ignored."""
    for name, value in cast(JSONObject, wire).items() if isinstance(wire, dict) else ():
        if value is not None and name not in names:
            yield at((*path, name), f"`{name}` is not a known field.", name=name)


def without(body: JSONObject, findings: Iterable[Finding]) -> JSONObject:
    """Return the body without the fields of these findings."""
    if not (found := list(findings)):
        return body
    body = deepcopy(body)
    for finding in found:
        holder: JSON = body
        for step in finding.path[:-1]:
            holder = holder[step]
        holder.pop(finding.path[-1], None)
    return body


class Pairs(NamedTuple):
    """Calls and results that do not match, each with its turn."""

    unanswered: list[tuple[Turn, Piece]]
    orphans: list[tuple[Turn, Piece]]
    doubled: list[tuple[Turn, Piece]]


Ends: TypeAlias = Callable[[Sequence[Turn]], Sequence[int]]
"""Maps each turn to the index after the last turn that may contain results of its calls."""


def match(turns: Sequence[Turn], ends: Ends) -> Pairs:
    """Match calls with results. `ends` states how far after its call a result may come."""
    unanswered: list[tuple[Turn, Piece]] = []
    orphans: list[tuple[Turn, Piece]] = []
    doubled: list[tuple[Turn, Piece]] = []
    results: dict[str, deque[tuple[int, Piece]]] = {}
    for index, turn in enumerate(turns):
        for result in turn.of("result"):
            results.setdefault(result.id, deque()).append((index, result))
    last = ends(turns)
    for index, turn in enumerate(turns):
        for call in {call.id: call for call in turn.of("call")}.values():
            waiting = results.get(call.id, deque())
            while waiting and waiting[0][0] <= index:
                orphans.append(_placed(turns, waiting.popleft()))
            if not waiting or waiting[0][0] >= last[index]:
                unanswered.append((turn, call))
                continue
            waiting.popleft()
            while waiting and waiting[0][0] < last[index]:
                doubled.append(_placed(turns, waiting.popleft()))
    orphans += [_placed(turns, each) for waiting in results.values() for each in waiting]
    return Pairs(unanswered, orphans, doubled)


def _placed(turns: Sequence[Turn], result: tuple[int, Piece]) -> tuple[Turn, Piece]:
    return turns[result[0]], result[1]


def side(turn: Turn) -> str:
    """Return the side of a turn: "model", "system" or "user". A turn with calls is the model's, one with results is
    not.
    """
    if turn.of("call"):
        return "model"
    if turn.of("result"):
        return "user"
    return {"assistant": "model", "model": "model", "system": "system"}.get(turn.role, "user")


def joined(turns: Iterable[Turn]) -> list[Turn]:
    """Return the turns with neighbours of one side merged, for providers that merge them before checking pairs.

    A result after other content of its side starts a new turn: that content separates it from its call.
    """
    found: list[list[Turn]] = []
    speaks, answers = "", False
    for turn in turns:
        result = bool(turn.of("result"))
        if found and side(turn) == speaks and (answers or not result):
            found[-1].append(turn)
        else:
            found.append([turn])
        speaks, answers = side(turn), result or (answers and side(turn) == speaks)
    return [replace(group[0], pieces=tuple(piece for turn in group for piece in turn.pieces)) for group in found]


def next_turn(turns: Sequence[Turn]) -> Sequence[int]:
    """Require results in the message directly after their calls."""
    return range(2, len(turns) + 2)


def run_while(among: Callable[[Turn], bool]) -> Ends:
    """Require results in the messages directly after their calls for which `among` is true."""

    def ends(turns: Sequence[Turn]) -> Sequence[int]:
        found = [len(turns)] * len(turns)
        for index in range(len(turns) - 2, -1, -1):
            found[index] = found[index + 1] if among(turns[index + 1]) else index + 1
        return found

    return ends


def run_of(role: str) -> Ends:
    """Require results in the messages of this role directly after their calls."""
    return run_while(lambda turn: turn.role == role)


def repeated(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield each part whose id an earlier part has."""
    seen: set[str] = set()
    for piece in pieces:
        if piece.id in seen:
            yield piece
        seen.add(piece.id)


def not_matching(pattern: re.Pattern[str], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, str]]:
    """Yield parts whose id does not match the provider's pattern, with the id."""
    return ((piece, piece.id) for piece in pieces if not pattern.fullmatch(piece.id))


def _order(path: Path) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, step) if isinstance(step, int) else (1, step) for step in path)


def _kind(value: object) -> str:
    return "null" if value is None else NAMES.get(type(value), type(value).__name__)
