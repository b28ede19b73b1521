"""Random histories with any content that a log may have. Each text is marked so that it can be found again.

A word's mark, `«t17»`, stands nowhere else in its history. Its letter says what it is a word of: `t` a text, `r` a
result, `a` arguments, `m` malformed arguments, `g` reasoning, `n` a native block, `h` a hint. So a loss, a doubling and
a change of order can be read off a request in any format.

A history is made up, or decoded from a recorded request or from one of our own, and continued: then its messages
carry what a provider said beyond our types.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from typing import Literal, NamedTuple, TypeAlias, cast

from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Request
from contextc.messages import AnyPart, Status, UserNotice
from contextc.tools.definitions import NativeTool
from tests.formats.known import Blocks, having, known
from tests.formats.traffic import accepted

MARK = re.compile(r"«[a-z]\d+»")
LONGEST_RECORDING = 3_000

Kind: TypeAlias = Literal["t", "r", "a", "m", "g", "n", "h"]
Step: TypeAlias = Literal["user", "reply", "calls", "answers", "result", "system", "aside", "data"]

OFTEN: tuple[Step, ...] = ("user", "calls", "answers")
STEPS: tuple[Step, ...] = (*OFTEN, *OFTEN, "reply", "result", "system", "aside", "data")
TEXTS = ("*", "", " ", "日本 * 🎉", "x\0*", '\n"*\\ ', "<system-reminder>*")
IDS = ("a", "b", "a.b:c", "call_1", "", "ü" * 30, "x" * 80, "a_2", "_x2E_")
NAMES = ("look", "files.read", "größe", "n" * 80, "a b", "1st", "_x2E_")
ARGUMENTS: tuple[str | JSONObject, ...] = (
    {},
    {"path": "*"},
    '{"path": "*"}',
    "",
    '{"cut": "*',
    "*",
    '["*"]',
    ' { "deep": {"list": [1, 2.5, null, {"ü": "*"}]} }',
    {"deep": {"list": [[], {}, True, "*"]}},
)
RETURNED: tuple[JSON, ...] = ("*", "", " ", {"n": 1, "said": "*"}, ["*", 2], "x\0*", None, '{"output": "*"}')
MEDIA = (
    cc.Media(mime_type="image/png", data=b"\x89PNG"),
    cc.Media(mime_type="image/png", data=b""),
    cc.Media(mime_type="image/jpeg", url="https://example.com/a.jpg"),
    cc.Media(mime_type="image/tiff", data=b"II*"),
    cc.Media(mime_type="audio/wav", data=b"RIFF"),
    cc.Media(mime_type="video/mp4", url="https://example.com/a.mp4"),
    cc.Media(mime_type="application/pdf", data=b"%PDF", name="a.pdf"),
    cc.Media(mime_type="application/pdf", url="https://example.com/a.pdf"),
    cc.Media(mime_type="text/plain", data=b"plain"),
    cc.Media(mime_type="text/plain", url="https://example.com/a.txt"),
    cc.Media(mime_type="application/zip", data=b"PK", name="ä.zip"),
    cc.Media(mime_type="image/png", file_id="1", provider="nobody"),
    cc.Media(mime_type="image/png", blob="0" * 64, size=3),
    *(each for name in having("FILES") for each in known(name).FILES),
)
THOUGHTS = (
    cc.Reasoning(text="*"),
    cc.Reasoning(text="*", provider="nobody", signature="s"),
    *(each for name in having("THOUGHTS") for each in known(name).THOUGHTS),
)
USER_BLOCKS: Blocks = (
    ("nobody", {"type": "odd", "said": "*"}),
    ("nobody", "*"),
    *(each for name in having("USER_BLOCKS") for each in known(name).USER_BLOCKS),
)
DATA: tuple[str, JSON] = ("vercel_legacy", {"role": "data", "content": "*", "data": {"n": 1}})
MODEL_BLOCKS: Blocks = (
    ("nobody", {"type": "odd", "said": "*"}),
    *(each for name in having("MODEL_BLOCKS") for each in known(name).MODEL_BLOCKS),
)

TEXT, ID, NAME = st.sampled_from(TEXTS), st.sampled_from(IDS), st.sampled_from(NAMES)
ARGUMENT = st.sampled_from(ARGUMENTS)
RESULT, ANY_MEDIA, THOUGHT = st.sampled_from(RETURNED), st.sampled_from(MEDIA), st.sampled_from(THOUGHTS)
USER_BLOCK, MODEL_BLOCK = st.sampled_from(USER_BLOCKS), st.sampled_from(MODEL_BLOCKS)
SYSTEM_PARTS = st.sampled_from(("text", "text", "text", "media", "hint", "odd block"))
USER_PARTS = st.sampled_from(("text", "text", "media", "user block", "hint"))
MODEL_PARTS = st.sampled_from(("text", "text", "thought", "thought", "media", "model block", "hint"))
STATUS: st.SearchStrategy[Status] = st.sampled_from(("sent", "sent", "sent", "cancelled", "error"))
FEW = st.integers(1, 3)
MOSTLY, SELDOM = st.sampled_from((True, True, True, False)), st.sampled_from((False, False, True))


class History(NamedTuple):
    """Messages, and the name of the format they were recorded in, if they begin with a recording."""

    messages: list[cc.Message]
    recorded: str = ""


def marks(text: str, kinds: str) -> list[str]:
    """The marks of these kinds in a text, in its order."""
    return [mark for mark in MARK.findall(text) if mark[1] in kinds]


class _Author:
    """Writes messages as hypothesis draws them. It knows which calls are open, so that some results are right."""

    def __init__(self, draw: st.DrawFn, first: int = 1) -> None:
        self.draw, self.numbers = draw, count(first)
        self.open: list[cc.ToolCall] = []

    def marked(self, text: str, kind: Kind) -> str:
        return text.replace("*", f"«{kind}{next(self.numbers)}»") if "*" in text else text

    def marked_json(self, value: JSON, kind: Kind) -> JSON:
        if isinstance(value, str):
            return self.marked(value, kind)
        if isinstance(value, list):
            return [self.marked_json(each, kind) for each in cast(list[JSON], value)]
        if isinstance(value, dict):
            return {name: self.marked_json(each, kind) for name, each in cast(JSONObject, value).items()}
        return value

    def messages(self, steps: Iterable[Step]) -> Iterator[cc.Message]:
        for step in steps:
            match step:
                case "user":
                    yield cc.user(self.several(USER_PARTS))
                case "system":
                    yield cc.system(self.several(SYSTEM_PARTS))
                case "reply":
                    yield cc.assistant(self.several(MODEL_PARTS), finish="stop", status=self.draw(STATUS))
                case "calls":
                    yield self.calls()
                case "answers":
                    yield from self.answers()
                case "result":
                    yield self.result(self.draw(ID), self.draw(NAME))
                case "data":
                    yield cc.user(self.native(DATA))
                case "aside":  # a tool message may hold other parts beside its results
                    message = self.result(self.draw(ID), self.draw(NAME))
                    yield cc.Message(role="tool", parts=(*message.parts, *self.several(USER_PARTS)))

    def several(self, kinds: st.SearchStrategy[str]) -> list[AnyPart]:
        return [self.part(self.draw(kinds)) for _ in range(self.draw(FEW))]

    def part(self, kind: str) -> AnyPart:
        match kind:
            case "text":
                return self.text()
            case "media":
                return self.draw(ANY_MEDIA)
            case "hint":
                return UserNotice(self.marked("*", "h"))
            case "thought":
                return self.thought()
            case "odd block":
                return self.native(USER_BLOCKS[0])
            case "user block":
                return self.native(self.draw(USER_BLOCK))
            case _:
                return self.native(self.draw(MODEL_BLOCK))

    def text(self) -> cc.Text:
        return cc.Text(self.marked(self.draw(TEXT), "t"))

    def native(self, block: tuple[str, JSON]) -> cc.messages.ProviderBlock:
        return cc.messages.ProviderBlock(provider=block[0], data=self.marked_json(block[1], "n"))

    def thought(self) -> cc.Reasoning:
        thought = self.draw(THOUGHT)
        return cc.Reasoning(
            text=self.marked(thought.text, "g"),
            signature=thought.signature,
            data=thought.data,
            id=thought.id and thought.id.replace("*", str(next(self.numbers))),
            provider=thought.provider,
        )

    def calls(self) -> cc.Message:
        """Return a reply with tool calls: texts and calls in any order, an id perhaps twice."""
        said = self.several(MODEL_PARTS)
        asked = [self.call() for _ in range(self.draw(FEW))]
        parts = [*said, *asked] if self.draw(st.booleans()) else [*asked[:1], *said, *asked[1:]]
        self.open += asked
        return cc.assistant(parts, finish="tool_calls", status=self.draw(STATUS))

    def call(self) -> cc.ToolCall:
        given = self.draw(ARGUMENT)
        whole = not isinstance(given, str) or cc.tool_call("", "", given.replace("*", "")).malformed is False
        return cc.tool_call(self.draw(ID), self.draw(NAME), self.marked_json(given, "a" if whole else "m"))

    def answers(self) -> Iterator[cc.Message]:
        """The results that open calls wait for, in their order or not, and perhaps not all."""
        waiting, self.open = self.open, []
        for call in reversed(waiting) if self.draw(st.booleans()) else waiting:
            if self.draw(MOSTLY):
                yield self.result(call.id, call.name)

    def result(self, call_id: str, name: str) -> cc.Message:
        content: object = self.marked_json(self.draw(RESULT), "r")
        if self.draw(SELDOM):
            content = [self.draw(ANY_MEDIA), cc.Text(str(content)), self.draw(ANY_MEDIA)][self.draw(FEW) - 1 :]
        return cc.tool_result(call_id, name, content, is_error=self.draw(SELDOM))


@cache
def recordings() -> tuple[tuple[str, tuple[cc.Message, ...]], ...]:
    """Histories that providers were sent, by the name of the format."""
    return tuple(
        (name, formatter(name).decode_request(exchange.request).messages)
        for name in format_names()
        for exchange in accepted(name)
        if len(str(exchange.request)) < LONGEST_RECORDING
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A history that was made up, or decoded and continued."""
    author, steps = _Author(draw), st.lists(st.sampled_from(STEPS), max_size=8)
    made_up = list(author.messages(draw(steps)))
    origin = draw(ORIGIN)
    if origin == "recorded":
        name, before = draw(st.sampled_from(recordings()))
        return History([*before, *made_up], name)
    if origin:
        decoded = formatter(origin).decode_request(formatter(origin).encode_request(Request(messages=tuple(made_up))))
        before = [decoded.system] if decoded.system is not None else []
        return History([*before, *decoded.messages, *author.messages(draw(steps))])
    return History(made_up)


ORIGIN = st.sampled_from(("", "", "", "", "", "", "recorded", "recorded", *format_names()))
TOOLS: tuple[cc.Tool | NativeTool, ...] = (
    *(cc.Tool(name=name, parameters={"type": "object", "properties": {}}) for name in NAMES),
    *(each for name in having("TOOLS") for each in known(name).TOOLS),
)
