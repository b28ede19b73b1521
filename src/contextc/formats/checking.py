"""What a provider's rule is, and how a request is read to be held against it.

A request comes from anywhere and may be broken in any way. So it is first *sketched*: turns, and in them the pieces
that rules speak of (texts, calls, results, reasoning), each with its place. What does not even have the shape of a
piece is set aside as `misshapen` and troubles no other rule. A rule is a function from a sketch to findings; its
docstring is its page in the docs: what, why, an example that breaks it, and the repair.

The checker says what a provider refuses. Our encoders keep to more than that, because they cannot ask.
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
"""The fields an object must have, and their types; a name that ends in `?` may be missing or null."""

NAMES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


class Violation(Struct, frozen=True):
    """A rule that a request breaks: where, in our words, and in the provider's."""

    code: str
    path: str
    message: str
    error: str = ""


class Finding(NamedTuple):
    """What a rule found, and the facts that the provider's own sentence is made of."""

    path: Path
    message: str
    facts: dict[str, object]


class Piece(Struct, frozen=True, kw_only=True):
    """A block, part or item of a request. `id` is a call's own, or that of the call a result answers."""

    kind: Kind
    path: Path
    wire: JSONObject
    id: str = ""
    name: str = ""
    text: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """A message of a request, and the pieces of it that have a sound shape."""

    role: str
    path: Path
    wire: JSONObject
    pieces: tuple[Piece, ...] = ()

    def of(self, kind: Kind) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind == kind]


class Facts(Struct, frozen=True, kw_only=True):
    """What is known of the model a request is for, in the words of `contextc.models`. Where nothing is known, a model
    is taken to accept everything.
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
    """Whether it is certain that a model of OpenAI's will reason, and so refuses sampling settings."""
    if facts.temperature or effort == "none":
        return False
    return effort is not None or bool(facts.efforts and "none" not in facts.efforts)


class Sketch(Struct, frozen=True, kw_only=True):
    """A request as rules see it. `body` holds the settings; it is empty where only messages were given."""

    turns: tuple[Turn, ...]
    body: JSONObject
    prompt: tuple[Piece, ...] = ()
    tools: tuple[Piece, ...] = ()
    misshapen: tuple[Finding, ...] = ()
    facts: Facts = NO_FACTS


Check: TypeAlias = Callable[[Sketch], Iterable[Finding]]
Mend: TypeAlias = Callable[[JSONObject], JSONObject]


class Rule(NamedTuple):
    """A rule of a provider. `says` is the provider's own error, with places for the facts of a finding.

    Most of what is broken is whole again once a request was decoded and encoded. `mend` is for the rest: it takes the
    body of a request that breaks this rule, and returns one that keeps it.
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
    """The rules of one format: how its requests are read, and what is checked in them.

    `reshape` gives something misshapen a sound shape that means the same, where there is one: it is handed the value
    and its path, and returns the value as it was where it knows no way. `message` and `block` make a message of the
    user, or a block, of a text: the last resort for what has no shape at all. `house` is whose rules these are: of its
    own models more is known. `unknown` finds the fields of messages that this format does not have, whether or not its
    provider refuses them.
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
        """Enter a function as the rule of this number."""

        def enter(check: Check) -> Check:
            self.rules.append(Rule(f"{self.prefix}{number:03d}", check, says, mend))
            return check

        return enter

    def as_text(self, value: JSON, path: Path) -> JSON:
        """Something misshapen as text; None where that makes no sense, and it is better left out."""
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
        """What is wrong with a request, or with the messages of one, from its first message to its last."""
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
    """`messages[2].content[0].id`"""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def dotted(path: Path) -> str:
    """`messages.2.content.0.id`, as several providers write it."""
    return ".".join(map(str, path if not path or isinstance(path[0], str) else ("messages", *path)))


def misfit(value: object, fields: Fields) -> tuple[str, str] | None:
    """The first field by which a value is not such an object, and one sentence about it; None where it is one."""
    if not isinstance(value, dict):
        return "", f"this must be an object, not {_kind(value)}."
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
            return plain, f"`{plain}` must be {' or '.join(NAMES[kind] for kind in wanted)}, not {_kind(each)}."
    return None


def known(fields: Fields, *more: str) -> frozenset[str]:
    """The names of these fields, and of `more`."""
    return frozenset([*(name.removesuffix("?") for name in fields), *more])


def strangers(wire: JSON, names: Collection[str], path: Path) -> Iterator[Finding]:
    """The fields of an object that are not among `names`; null is no value."""
    for name, value in cast(JSONObject, wire).items() if isinstance(wire, dict) else ():
        if value is not None and name not in names:
            yield at((*path, name), f"`{name}` is not a field here.", name=name)


def without(body: JSONObject, findings: Iterable[Finding]) -> JSONObject:
    """The body without the fields that were found."""
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
    """Calls and results that do not belong together, by the turn they stand in."""

    unanswered: list[tuple[Turn, Piece]]
    orphans: list[tuple[Turn, Piece]]
    doubled: list[tuple[Turn, Piece]]


Ends: TypeAlias = Callable[[Sequence[Turn]], Sequence[int]]
"""Of every turn, the index behind the last turn in which results of its calls may stand."""


def match(turns: Sequence[Turn], ends: Ends) -> Pairs:
    """Calls and results held against each other, where `ends` says how far behind its call a result may stand."""
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
    """Who speaks: the model, the system, or others. Whoever asks for tools is the model, and who answers is not."""
    if turn.of("call"):
        return "model"
    if turn.of("result"):
        return "user"
    return {"assistant": "model", "model": "model", "system": "system"}.get(turn.role, "user")


def joined(turns: Iterable[Turn]) -> list[Turn]:
    """The turns with neighbours of one side as one, for providers that join them before they check pairs.

    Results that come after other words of their side begin anew: something stands between them and their calls.
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
    """Results stand in the very next message."""
    return range(2, len(turns) + 2)


def run_while(among: Callable[[Turn], bool]) -> Ends:
    """Results stand in the messages that follow at once, as long as they are such."""

    def ends(turns: Sequence[Turn]) -> Sequence[int]:
        found = [len(turns)] * len(turns)
        for index in range(len(turns) - 2, -1, -1):
            found[index] = found[index + 1] if among(turns[index + 1]) else index + 1
        return found

    return ends


def run_of(role: str) -> Ends:
    """Results stand in the messages of this role that follow at once."""
    return run_while(lambda turn: turn.role == role)


def repeated(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Those whose id an earlier one has."""
    seen: set[str] = set()
    for piece in pieces:
        if piece.id in seen:
            yield piece
        seen.add(piece.id)


def not_matching(pattern: re.Pattern[str], pieces: Iterable[Piece]) -> Iterator[tuple[Piece, str]]:
    """Pieces whose id does not have the form a provider takes, with that id."""
    return ((piece, piece.id) for piece in pieces if not pattern.fullmatch(piece.id))


def _order(path: Path) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, step) if isinstance(step, int) else (1, step) for step in path)


def _kind(value: object) -> str:
    return "null" if value is None else NAMES.get(type(value), type(value).__name__)
