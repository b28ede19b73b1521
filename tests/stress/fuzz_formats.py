"""Fuzz `lint`, `fix`, `convert` and `observe` with damaged requests of every format.

A damaged request may be refused, with an error of the documented tree. Nothing else may be raised, a fixed request
breaks no rule, and a converted one breaks none of the target's. `main` prints the seed and the number of the first
request, which reproduce a failure: `python -m tests.stress.fuzz_formats --seed 7 --first 1200 --count 1`.
"""

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import NamedTuple, TypeAlias, cast

import contextc as cc
from contextc._json import JSON, JSONObject, decode
from contextc.formats import format_names, formatter
from tests.formats.known import known
from tests.formats.traffic import accepted, transcripts

NAMES = format_names()
RECORDED = {name: accepted(name) for name in NAMES}
TALKS = transcripts()
Spot: TypeAlias = tuple[JSON, JSON]
"""A container, and the key or index of one value in it."""
SHARE = 5_000
"""After so many requests `main` says how far it is."""
OBSERVED = 500
"""So many requests are recorded in one store."""
LARGEST = 2_500
"""Bodies with more characters are left out: small ones find the same faults faster."""


def _nested(depth: int) -> JSON:
    value: JSON = "deep"
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


VALUES: tuple[Callable[[], JSON], ...] = (
    lambda: None,
    lambda: True,
    lambda: False,
    lambda: 0,
    lambda: -1,
    lambda: 1.5,
    lambda: 2**70,
    lambda: 1e300,
    lambda: "",
    lambda: " ",
    lambda: "x",
    lambda: "\ud83d",
    lambda: "a\udc00b",
    lambda: "\x00",
    lambda: "{}",
    lambda: "{",
    lambda: "[1]",
    lambda: '{"a": 1' + "0" * 5_000 + "}",
    lambda: '{"a": ' * 2_000,
    lambda: "data:image/png;base64,AAAA",
    lambda: "a" * 300,
    list,
    dict,
    lambda: [[]],
    lambda: [{}],
    lambda: [None],
    lambda: ["x"],
    lambda: [1],
    lambda: [["x"]],
    lambda: {"": ""},
    lambda: {"type": "text", "text": "x"},
    lambda: {"type": []},
    lambda: {"type": {}},
    lambda: {"\ud800": 1},
    lambda: {"role": "user", "content": "x"},
    lambda: {"a": {"b": [{"c": None}]}},
    lambda: _nested(60),
)
NOT_JSON: tuple[Callable[[], JSON], ...] = (
    lambda: 10**5_000,
    lambda: -(10**5_000),
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: b"bytes",
    lambda: ("a", "tuple"),
    lambda: {1: "key"},
    lambda: _nested(150),
)
"""What is refused wherever it stands; it is tried rarely, because the rest of such a request is not looked at."""
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"x-contextc-conversation": "a"},
    {"x-claude-code-session-id": "s1", "x-claude-code-agent-id": "\ud800"},
    {"session-id": "x", "thread-id": "y"},
    {"session-id": "\udc80", "\ud800": "y"},
    {"x-contextc-conversation": "a" * 5000},
    {"x-contextc-conversation": "a\0b"},
    {"x-contextc-parent": "a", "x-contextc-conversation": "b"},
)
URLS = (
    "",
    "https://api.anthropic.com/v1/messages",
    "http://x/v1/chat/completions",
    "::::",
    "http://[::1",
    "\ud800://x",
    "http://a:b/c",
)
REPLIES: tuple[JSON, ...] = (
    None,
    {"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}], "usage": {"input_tokens": 1}},
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}}], "usageMetadata": {}},
    {
        "id": "r",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}],
    },
    {"error": {"type": "x", "message": "y"}},
    [{"type": "message_start", "message": {"role": "assistant", "content": []}}, {"type": "message_stop"}],
    [{"choices": [{"delta": {"content": "x"}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}],
)
WORDS = ("role", "type", "kind", "status", "state", "name")
"""Keys whose values are words of a format; they are replaced by words that some other format has there."""


class Case(NamedTuple):
    format: str
    body: JSON


class Failure(NamedTuple):
    """What went wrong: `what` is the same for requests that fail in the same way."""

    what: str
    case: Case
    detail: str = ""


class Samples(NamedTuple):
    """Requests to be damaged, by format, with the strings and keys that they use."""

    by_format: dict[str, list[Case]]
    words: dict[str, list[str]]
    keys: list[str]

    @property
    def all(self) -> list[Case]:
        return [case for name in NAMES for case in self.by_format[name]]


@cache
def samples(most: int = 1_000) -> Samples:
    """Requests of every format: examples of the rules, and at most so many of each kind of recorded ones."""
    by_format = {name: [each for each in _samples(name, most) if len(str(each.body)) <= LARGEST] for name in NAMES}
    content: dict[str, set[str]] = {text: set() for text in WORDS}
    times: Counter[str] = Counter()
    for holder, key in [spot for cases in by_format.values() for case in cases for spot in spots(case.body)]:
        if isinstance(key, str):
            times[key] += 1
        if key in content and isinstance(value := holder[key], str) and len(value) < 40:
            content[key].add(value)
    keys = sorted(key for key, count in times.items() if count > 5)
    return Samples(by_format, {text: sorted(values) for text, values in content.items()}, keys)


def _samples(name: str, most: int) -> Iterator[Case]:
    form, of = formatter(name), known(name)
    yield from [Case(name, each.request) for each in RECORDED[name][:most]]
    yield from [Case(name, decode(rule.example)) for rule in form.rules.rules if rule.example]
    if of.GOOD:
        yield Case(name, {**of.SETTINGS, form.messages_key: list(of.GOOD)})
    for messages in TALKS[:most]:
        short = [each if len(str(each)) < 1_500 else {**each, "content": "short"} for each in messages[:9]]
        yield Case(name, {**of.SETTINGS, **cc.convert({"messages": short}, source="openai_chat", target=name)})
    for other in [other for other in NAMES if other != name]:
        for each in RECORDED[other][: min(most, 40)]:
            yield Case(name, dict(cc.convert(each.request, source=other, target=name)))


def copied(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: copied(each) for name, each in cast(JSONObject, value).items()}
    return [copied(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


def spots(body: JSON) -> Iterator[Spot]:
    """Every place in a body, outermost first."""
    waiting: list[JSON] = [body]
    for holder in waiting:
        if isinstance(holder, dict):
            keys: list[JSON] = list(cast(JSONObject, holder))
        elif isinstance(holder, list):
            keys = list(range(len(cast(list[JSON], holder))))
        else:
            continue
        for key in keys:
            yield holder, key
            waiting.append(holder[key])


class Draw(NamedTuple):
    """What a damage is drawn from."""

    random: Random
    samples: Samples
    spots: list[Spot]


def _value(random: Random) -> JSON:
    return random.choice(NOT_JSON if random.random() < 0.03 else VALUES)()


def _replace(draw: Draw, spot: Spot) -> None:
    spot[0][spot[1]] = _value(draw.random)


def _delete(draw: Draw, spot: Spot) -> None:
    del spot[0][spot[1]]


def _double(draw: Draw, spot: Spot) -> None:
    holder, key = spot
    if isinstance(holder, list):
        cast(list[JSON], holder).insert(draw.random.randrange(len(cast(list[JSON], holder)) + 1), copied(holder[key]))
    else:
        holder[draw.random.choice(draw.samples.keys)] = copied(holder[key])


def _reorder(draw: Draw, spot: Spot) -> None:
    holder = spot[0]
    if isinstance(holder, list):
        draw.random.shuffle(cast(list[JSON], holder))
        return
    items = list(cast(JSONObject, holder).items())
    draw.random.shuffle(items)
    holder.clear()
    holder.update(items)


def _swap(draw: Draw, spot: Spot) -> None:
    """Put a copy of one value in the place of another."""
    holder, key = draw.random.choice(draw.spots)
    spot[0][spot[1]] = copied(holder[key])


def _rename(draw: Draw, spot: Spot) -> None:
    holder, key = spot
    if isinstance(holder, dict):
        holder[draw.random.choice(draw.samples.keys)] = cast(JSONObject, holder).pop(key)


def _add(draw: Draw, spot: Spot) -> None:
    holder = spot[0]
    if isinstance(holder, dict):
        holder[draw.random.choice(draw.samples.keys)] = _value(draw.random)
    else:
        cast(list[JSON], holder).append(_value(draw.random))


def _reword(draw: Draw, spot: Spot) -> None:
    """Replace a role or a type by another string."""
    named = [each for each in draw.spots if draw.samples.words.get(each[1])]
    if named:
        holder, key = draw.random.choice(named)
        holder[key] = draw.random.choice(draw.samples.words[key])


def _foreign(draw: Draw, spot: Spot) -> None:
    """Put a message of another format among those of this one."""
    lists = [cast(list[JSON], each[0]) for each in draw.spots if isinstance(each[0], list)]
    other = draw.random.choice(draw.samples.by_format[draw.random.choice(NAMES)])
    key, body = formatter(other.format).messages_key, other.body
    messages: JSON = cast(JSONObject, body).get(key) if isinstance(body, dict) else body
    if lists and isinstance(messages, list) and messages:
        holder = lists[0]
        holder.insert(draw.random.randrange(len(holder) + 1), copied(draw.random.choice(cast(list[JSON], messages))))


DAMAGES = (_replace, _replace, _replace, _delete, _double, _reorder, _swap, _rename, _add, _reword, _reword, _foreign)


def damaged(seed: int, number: int, source: Samples) -> Case:
    """The request of this number: the same for the same seed and samples, whatever came before it."""
    random = Random(f"{seed}:{number}")
    case = random.choice(source.by_format[random.choice(NAMES)])
    body: JSON = copied(case.body)
    if random.random() < 0.08 and isinstance(body, dict):
        body = cast(JSONObject, body).get(formatter(case.format).messages_key, body)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        places = list(spots(body))
        if not places:
            break
        random.choice(DAMAGES)(Draw(random, source, places), random.choice(places))
    return Case(case.format, body)


def failures(case: Case, targets: Sequence[str]) -> Iterator[Failure]:
    """What is wrong with how a request is checked, repaired, and converted into each of the targets."""
    name, body = case
    try:
        found = cc.lint(body, format=name)
    except Exception as error:
        if not _is_refusal(error):
            yield _raised("lint", case, error)
            return
        found = []
    try:
        fixed, repairs = cc.fix(cast(JSONObject, body), format=name)
        left = cc.lint(fixed, format=name)
        if left:
            yield Failure(f"fix leaves {left[0].code}", case, left[0].message)
        elif found and not repairs:
            yield Failure(f"fix repairs nothing of {found[0].code}", case)
    except Exception as error:
        if not _is_refusal(error):
            yield _raised("fix", case, error)
    for target in targets:
        try:
            made = cc.convert(cast(JSONObject, body), source=name, target=target)
            wrong = cc.lint(made, format=target)
            empty = any(warning.startswith("empty:") for warning in made.warnings)
            if wrong and not empty:
                yield Failure(f"convert {name} to {target} breaks {wrong[0].code}", case, wrong[0].message)
        except Exception as error:
            if not _is_refusal(error):
                yield _raised(f"convert to {target}", case, error)


def observe_failure(store: cc.Store, case: Case, random: Random) -> Failure | None:
    """What is wrong with how a request and a damaged reply are recorded, with odd ids, addresses and options."""
    draw = Draw(random, samples(), list(spots(reply := copied(random.choice(REPLIES)))))
    if draw.spots:
        random.choice((_replace, _delete, _rename))(draw, random.choice(draw.spots))
    try:
        cc.observe(
            store,
            request=_sent(case.body, random),
            reply=reply,
            format=random.choice((None, case.format)),
            headers=random.choice(HEADERS),
            url=random.choice(URLS),
            model=random.choice(("", "m", "\ud800")),
            provider=random.choice(("", "openai", "\udfff")),
            status=random.choice((None, 200, 500, 0)),
            conversation=random.choice((None, None, "a", "\ud800", "a\0b")),
            exchange_id=random.choice(("", "1", "\udc00")),
            parent=random.choice((None, None, "p", "\ud800")),
            redact=random.choice((None, None, ["keys"], True)),
        )
    except Exception as error:
        return None if _is_refusal(error) else _raised("observe", case, error)
    return None


def _sent(body: JSON, random: Random) -> bytes | JSONObject:
    if random.random() < 0.5:
        return cast(JSONObject, body)
    try:
        data = json.dumps(body).encode()
    except (TypeError, ValueError, RecursionError):
        return cast(JSONObject, body)
    at = random.randrange(len(data) + 1)
    return random.choice((data, data, data[:at], data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]))


def _is_refusal(error: Exception) -> bool:
    """Whether an error says what is wrong with a request, and does not just hand on that something failed inside."""
    return isinstance(error, cc.ContextcError) and error.__cause__ is None


def _raised(what: str, case: Case, error: Exception) -> Failure:
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = [each for each in traceback.extract_tb(error.__traceback__) if "contextc" in each.filename]
    place = f"{last.filename.rpartition('contextc/')[2]}:{last.lineno}"
    inner = f"{own[-1].filename.rpartition('contextc/')[2]}:{own[-1].lineno}" if own else ""
    what = what.partition(" ")[0]
    return Failure(f"{what} raises {type(error).__name__} at {place} from {inner}", case, str(error)[:200])


def fails(what: str, case: Case) -> bool:
    """Whether a request fails in this way."""
    return any(each.what == what for each in failures(case, NAMES))


def smallest(failure: Failure) -> Case:
    """The least of a request that still fails in the same way."""
    body: JSON = copied(failure.case.body)
    shrunk = True
    while shrunk:
        shrunk = False
        count = len(list(spots(body)))
        for index in range(count):
            for simplify in (_without, _plain):
                smaller = copied(body)
                places = list(spots(smaller))
                if index >= len(places) or not simplify(*places[index]):
                    continue
                if fails(failure.what, Case(failure.case.format, smaller)):
                    body, shrunk = smaller, True
                    break
    return Case(failure.case.format, body)


def _without(holder: JSON, key: JSON) -> bool:
    del holder[key]
    return True


def _plain(holder: JSON, key: JSON) -> bool:
    if isinstance(holder[key], str) and len(holder[key]) > 1 and key not in WORDS:
        holder[key] = "x"
        return True
    return False


def _shown(body: JSON) -> str:
    try:
        return ascii(body)
    except ValueError:  # an integer with too many digits
        return "(not shown)"


def fuzz(seed: int, first: int, count: int, targets: int, source: Samples) -> tuple[Counter[str], dict[str, Failure]]:
    """Check so many requests; how often each failure was found, and its first request."""
    times: Counter[str] = Counter()
    found: dict[str, Failure] = {}
    for start in range(first, first + count, OBSERVED):
        with cc.open_store("memory:") as store:
            for number in range(start, min(start + OBSERVED, first + count)):
                case = damaged(seed, number, source)
                chosen = [NAMES[(number + step) % len(NAMES)] for step in range(targets)]
                observed = observe_failure(store, case, Random(f"{seed}:{number}:observe"))
                for failure in (*failures(case, chosen), *([observed] if observed else [])):
                    times[failure.what] += 1
                    found.setdefault(failure.what, failure)
    return times, found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--count", type=int, default=300_000)
    asked.add_argument("--targets", type=int, default=len(NAMES), help="how many formats to convert into")
    asked.add_argument("--shrink", action="store_true", help="show the smallest request of each failure")
    given = asked.parse_args()
    source = samples()
    print(f"seed {given.seed}, {len(source.all)} samples", flush=True)
    began = time.process_time()
    times: Counter[str] = Counter()
    found: dict[str, Failure] = {}
    for first in range(given.first, given.first + given.count, SHARE):
        count = min(SHARE, given.first + given.count - first)
        more, kinds = fuzz(given.seed, first, count, given.targets, source)
        times += more
        for failure in [kinds[what] for what in kinds if what not in found]:
            shown = smallest(failure) if given.shrink else failure.case
            print(f"{failure.what} | {failure.detail} | {shown.format} | {_shown(shown.body)[:400]}", flush=True)
        found = kinds | found
        done = first + count - given.first
        speed = done / (time.process_time() - began)
        print(f"{done:,} requests, {speed:,.0f} a second; {len(found)} kinds of failures", flush=True)
    for what, count in times.most_common():
        print(f"{count:6} {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
