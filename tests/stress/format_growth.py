"""Check that the work of every format grows in proportion to the size of a request.

Each shape is a request that repeats one thing n times: messages, parallel calls, results, parts, tools, unknown
fields. Each operation is run on n and on 2n. `lines` counts executed lines, which is the same in every run. Loops in C
(`x in list`, joining of tuples) execute no lines, so `main` also compares CPU time, at larger sizes.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias, cast

import contextc as cc
from contextc._json import JSON, JSONObject, encode
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter, Request, split_segments
from contextc.interchange.open_any import detect_format, open_text
from contextc.linting.request_reading import read_requests
from tests.formats.known import known

if TYPE_CHECKING:
    from _typeshed import TraceFunction

Shape: TypeAlias = Callable[[Formatter, int], JSON]
Operation: TypeAlias = Callable[[str, JSON], object]
STEEPEST = 2.3
"""How much more work twice the size may take, in executed lines; twice is in proportion."""
STEEPEST_TIME = 3.2
"""The same in CPU time, which is less exact; four times is quadratic."""


def body(form: Formatter, history: Sequence[cc.Message], tools: Sequence[cc.Tool] = (), system: str = "") -> JSON:
    """A request with this history as it is: nothing in it is paired or put in order."""
    messages = form.join([form.encode(segment) for segment in split_segments(history)])
    prompt = cc.system(system) if system else None
    request = Request(messages=(), tools=tuple(tools), system=prompt, settings=known(form.name).SETTINGS)
    return form.assemble(request, messages)


def calls(ids: Sequence[str], name: str = "look") -> cc.Message:
    return cc.assistant(tool_calls=[cc.tool_call(each, name, '{"at": 1}') for each in ids])


def results(ids: Sequence[str], name: str = "look") -> list[cc.Message]:
    return [cc.tool_result(each, name, "seen") for each in ids]


def ids(n: int, pattern: str = "call_{:07d}") -> list[str]:
    return [pattern.format(number) for number in range(n)]


def repeated(value: JSON, key: str = "") -> Shape:
    """Return a request whose messages, or the value of a key, are repeated n times."""
    return lambda form, n: {**known(form.name).SETTINGS, key or form.messages_key: [value] * n}


def within(value: JSON) -> Shape:
    """A request with one message, of which every list holds n times the same."""

    def made(form: Formatter, n: int) -> JSON:
        message = form.format([cc.user("hi")])[0]
        inside = next((key for key, each in message.items() if isinstance(each, list)), "content")
        return {**known(form.name).SETTINGS, form.messages_key: [{**message, inside: [value] * n}]}

    return made


def foreign(source: str) -> Shape:
    """Messages of another format."""

    def made(form: Formatter, n: int) -> JSON:
        history = [message for each in ids(n // 2) for message in (calls([each]), *results([each]))]
        return {form.messages_key: formatter(source).format(history)}

    return made


def _settings(form: Formatter, n: int) -> JSON:
    return {**body(form, [cc.user("hi")]), **{f"unknown_{number}": number for number in range(n)}}


def _fields(form: Formatter, n: int) -> JSON:
    made = body(form, [cc.user("hi"), cc.assistant("ho"), cc.user("hm")])
    for message in made[form.messages_key]:
        message |= {f"unknown_{number}": number for number in range(n)}
    return made


def _tools(names: Sequence[str]) -> list[cc.Tool]:
    return [cc.Tool(name=name, description="x", parameters={"type": "object", "properties": {}}) for name in names]


def _schema(n: int) -> JSONObject:
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(n)}}


def _late(n: int) -> list[cc.Message]:
    """Calls one by one, and all their results at the end."""
    return [*[calls([each]) for each in ids(n)], *results(ids(n))]


PNG = cc.Media(mime_type="image/png", data=b"\x89PNG")
SHAPES: dict[str, Shape] = {
    "messages": lambda form, n: body(form, [cc.user("hi"), cc.assistant("ho")] * (n // 2)),
    "messages of the user": lambda form, n: body(form, [cc.user("hi")] * n),
    "messages of the assistant": lambda form, n: body(form, [cc.assistant("hi")] * n),
    "blank messages": lambda form, n: body(form, [cc.user(" "), cc.assistant(" ")] * (n // 2)),
    "system messages first": lambda form, n: body(form, [*[cc.system("be brief")] * n, cc.user("hi")]),
    "system messages between": lambda form, n: body(form, [cc.user("hi"), cc.system("be brief")] * (n // 2)),
    "steps": lambda form, n: body(form, [m for each in ids(n // 2) for m in (calls([each]), *results([each]))]),
    "steps of one id": lambda form, n: body(form, [m for _ in range(n // 2) for m in (calls(["a"]), *results(["a"]))]),
    "parallel calls": lambda form, n: body(form, [calls(ids(n)), *results(ids(n))]),
    "parallel calls, answered in reverse": lambda form, n: body(form, [calls(ids(n)), *results(ids(n)[::-1])]),
    "parallel calls, half of them answered": lambda form, n: body(form, [calls(ids(n)), *results(ids(n)[::-2])]),
    "parallel calls of one id": lambda form, n: body(form, [calls(["a"] * n), *results(["a"] * n)]),
    "calls without results": lambda form, n: body(form, [calls(ids(n))]),
    "calls one by one, results at the end": lambda form, n: body(form, _late(n // 2)),
    "calls one by one, results at the end in reverse": lambda form, n: body(
        form, [*[calls([each]) for each in ids(n // 2)], *results(ids(n // 2)[::-1])]
    ),
    "results without calls": lambda form, n: body(form, [cc.user("hi"), *results(ids(n))]),
    "results without calls behind a call": lambda form, n: body(form, [calls(["a", "b"]), *results(ids(n))]),
    "results of one call": lambda form, n: body(form, [calls(["a"]), *results(["a"] * n)]),
    "results of two calls": lambda form, n: body(form, [calls(["a", "b"]), *results(["b", "a"] * (n // 2))]),
    "long ids": lambda form, n: body(form, [calls(ids(n, "x" * 200 + "{}")), *results(ids(n, "x" * 200 + "{}"))]),
    "ids to be spelled": lambda form, n: body(form, [calls(ids(n, "run:{}")), *results(ids(n, "run:{}")[::-1])]),
    "names of tools": lambda form, n: body(form, [m for each in ids(n) for m in (calls([each], each),)]),
    "texts": lambda form, n: body(form, [cc.user([f"hi {number}" for number in range(n)])]),
    "texts of the assistant": lambda form, n: body(
        form, [cc.Message(role="assistant", parts=tuple(cc.Text(f"hi {number}") for number in range(n)))]
    ),
    "texts in a result": lambda form, n: body(
        form, [calls(["a"]), cc.tool_result("a", "look", [cc.Text("seen")] * n), cc.user("hi")]
    ),
    "pictures": lambda form, n: body(form, [cc.user([PNG] * n)]),
    "pictures in a result": lambda form, n: body(form, [calls(["a"]), cc.tool_result("a", "look", [PNG] * n)]),
    "reasoning": lambda form, n: body(
        form,
        [
            cc.user("hi"),
            cc.Message(
                role="assistant",
                parts=(*[cc.Reasoning(text="hm", signature="x", provider=form.provider)] * n, cc.Text("ho")),
            ),
            cc.user("well?"),
        ],
    ),
    "a long text": lambda form, n: body(form, [cc.user("word " * (20 * n))]),
    "a long system prompt": lambda form, n: body(form, [cc.user("hi")], system="word " * (20 * n)),
    "tools": lambda form, n: body(form, [cc.user("hi")], _tools(ids(n, "tool_{}"))),
    "tools of one name": lambda form, n: body(form, [cc.user("hi")], _tools(["look"] * n)),
    "a large schema": lambda form, n: body(form, [cc.user("hi")], [cc.Tool(name="look", parameters=_schema(n))]),
    "unknown settings": _settings,
    "unknown fields": _fields,
    "empty objects as messages": repeated({}),
    "nulls as messages": repeated(None),
    "texts as messages": repeated("hi"),
    "lists as messages": repeated([]),
    "messages of an unknown role": repeated({"role": "narrator", "content": "hi"}),
    "empty objects as parts": within({}),
    "nulls as parts": within(None),
    "texts as parts": within("hi"),
    "empty texts as parts": within({"type": "text", "text": ""}),
    "parts of an unknown type": within({"type": "hologram", "data": {}}),
    "empty objects as tools": repeated({}, "tools"),
    "messages of openai_chat": foreign("openai_chat"),
    "messages of anthropic": foreign("anthropic"),
    "messages of gemini": foreign("gemini"),
}


def _decoded_and_encoded(name: str, given: JSON) -> object:
    form = formatter(name)
    return form.encode_request(form.decode_request(given))


def _converted(target: str) -> Operation:
    def work(name: str, given: JSON) -> object:
        return cc.convert(cast(JSONObject, given), source=name, target=target)

    return work


OPERATIONS: dict[str, Operation] = {
    "lint": lambda name, given: cc.lint(given, format=name),
    "fix": lambda name, given: cc.fix(cast(JSONObject, given), format=name),
    "decode and encode": _decoded_and_encoded,
    "detect": lambda name, given: detect_format(given),
    "open": lambda name, given: open_text(encode(given).decode()),
    "open as": lambda name, given: open_text(encode(given).decode(), name),
    "read": lambda name, given: read_requests(encode(given), name),
    **{f"convert to {target}": _converted(target) for target in format_names()},
}
ALL = tuple(OPERATIONS)
"""All operations. `too_steep` converts each format to two others then, and every format is a target twice."""


def lines(work: Callable[[], object]) -> int:
    """How many lines of Python are executed."""
    count = 0

    def each(frame: FrameType, event: str, argument: object) -> "TraceFunction":
        nonlocal count
        count += event == "line"
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        _run(work)
    finally:
        sys.settrace(before)
    return count


def seconds(work: Callable[[], object]) -> float:
    """The CPU time, without the garbage collector: it starts at certain numbers of objects."""
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        _run(work)
        return time.process_time() - began
    finally:
        gc.enable()


def _run(work: Callable[[], object]) -> None:
    with suppress(cc.ContextcError):
        work()


def growth(operation: str, format: str, shape: str, n: int) -> tuple[int, int]:
    """The executed lines of an operation on a shape of size n, and of twice that size."""
    return cast(
        tuple[int, int],
        tuple(lines(_work(operation, format, shape, size)) for size in (2, n, 2 * n))[1:],  # the first fills caches
    )


def _work(operation: str, format: str, shape: str, n: int) -> Callable[[], object]:
    given = _body(format, shape, n)
    return lambda: OPERATIONS[operation](format, given)


@lru_cache(2)
def _body(format: str, shape: str, n: int) -> JSON:
    """Return the request of a shape, which the operations of one shape share: none of them changes it."""
    return SHAPES[shape](formatter(format), n)


def too_steep(operations: Sequence[str], formats: Sequence[str], shapes: Sequence[str], n: int) -> Iterator[str]:
    """What takes more work than in proportion, by CPU time, and also does at four times the size; what is quick is not
    judged.
    """
    for format in formats:
        names = format_names()
        near = [names[(names.index(format) + step) % len(names)] for step in range(1, 3)]
        unasked = (
            {f"convert to {target}" for target in names if target not in near} if operations is ALL else set[str]()
        )
        for done, shape in enumerate(shapes):
            if sys.stderr.isatty() or not done:
                end = "\x1b[K\r" if sys.stderr.isatty() else "\n"
                print(f"{format}: {done} of {len(shapes)} shapes", end=end, file=sys.stderr, flush=True)
            for operation in [each for each in operations if each not in unasked]:
                small, large = (_work(operation, format, shape, size) for size in (n, 2 * n))
                times = (seconds(small), seconds(large))
                if times[1] < 0.05 or times[1] < STEEPEST_TIME * times[0]:
                    continue
                small, large = (_work(operation, format, shape, size) for size in (4 * n, 8 * n))
                times = (min(seconds(small) for _ in range(2)), min(seconds(large) for _ in range(2)))
                if times[1] > STEEPEST_TIME * times[0]:
                    yield f"{operation}, {format}, {shape}: {times[0]:.3f} s, then {times[1]:.3f} s at {8 * n:,}"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--size", type=int, default=1_000)
    asked.add_argument("--format", action="append", choices=format_names())
    asked.add_argument("--shape", action="append", choices=list(SHAPES))
    asked.add_argument("--operation", action="append", choices=list(OPERATIONS))
    given = asked.parse_args()
    formats, shapes = given.format or format_names(), given.shape or list(SHAPES)
    count = 0
    for found in too_steep(given.operation or ALL, formats, shapes, given.size):
        count += 1
        print(found, flush=True)
    print(f"{len(formats)} formats, {len(shapes)} shapes of {given.size:,} and {2 * given.size:,}: {count} too steep")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
