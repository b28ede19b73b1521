"""The lint engine: parsed requests, rules of providers, and findings.

A request may come from any source and be broken in any way. It is first *parsed* into turns and their parts (texts,
calls, results, reasoning), each with its path. A part without a valid shape is recorded in `malformed`, and other rules
ignore it. A rule is a function from a parsed request to findings. Its texts are in the `rules.toml` of the format:
rule, reason, an example that breaks it, the repair, our message, and the provider's error.

Rules report what a provider refuses. The encoders of contextc are stricter.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct, toml
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, json_type_name
from contextc._plugins import data_files
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty

JSONPath: TypeAlias = tuple[str | int, ...]
PartKind: TypeAlias = Literal["text", "reasoning", "call", "result", "media", "other"]
FieldTypes: TypeAlias = Mapping[str, type | tuple[type, ...]]
"""Fields of an object, and their types; `object` allows any value. A name that ends in `?` may be missing or null."""

TYPE_NAMES: dict[type, str] = {
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


class RuleFinding(NamedTuple):
    """A violation found by a rule, with the values that the provider's error text is formatted with."""

    path: JSONPath
    message: str
    facts: dict[str, object]


class RequestPart(Struct, frozen=True, kw_only=True, gc=False):
    """A block, part or item of a request. `id` is the id of a call, or of the call that a result answers."""

    kind: PartKind
    path: JSONPath
    wire: JSONObject
    id: str = ""
    name: str = ""
    text: str = ""


class RequestMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A message of a request, with its parts that have a valid shape."""

    role: str
    path: JSONPath
    wire: JSONObject
    parts: tuple[RequestPart, ...] = ()

    def parts_of(self, kind: PartKind) -> list[RequestPart]:
        return [piece for piece in self.parts if piece.kind == kind]


class ModelCapabilities(Struct, frozen=True, kw_only=True):
    """Capabilities of the requested model, named as in `contextc.models`.

    An unknown model is assumed to accept everything.
    """

    reasoning: bool = False
    temperature: bool = True
    forced_tool_choice: bool = True
    prefill: bool = True
    tools_in_chat: bool = True
    system_between: bool = True
    system_ignored: bool = False
    media: tuple[str, ...] | None = None
    efforts: tuple[str, ...] = ()


UNKNOWN_MODEL = ModelCapabilities()


def is_reasoning(facts: ModelCapabilities, effort: JSON) -> bool:
    """Return True if an OpenAI model is certain to reason, and therefore refuses sampling settings."""
    if facts.temperature or effort == "none":
        return False
    return effort is not None or bool(facts.efforts and "none" not in facts.efforts)


UNKNOWN_NAME = "unknown_name"
"""Fact of a malformed value: only its type or the name of a field is unknown. The provider may know it since."""


class ParsedRequest(Struct, frozen=True, kw_only=True, dict=True):
    """A parsed request. `body` has the settings; it is empty if only messages were given.

    What several rules need is computed once.
    """

    messages: tuple[RequestMessage, ...]
    body: JSONObject
    system: tuple[RequestPart, ...] = ()
    tools: tuple[RequestPart, ...] = ()
    malformed: tuple[RuleFinding, ...] = ()
    facts: ModelCapabilities = UNKNOWN_MODEL

    @property
    def has_unknown_names(self) -> bool:
        """True if a malformed value may be of a type that the provider has added."""
        return any(UNKNOWN_NAME in finding.facts for finding in self.malformed)

    @cached_property
    def merged(self) -> "list[RequestMessage]":
        """The messages as `merge_sides` returns them."""
        return merge_sides(self.messages)

    def match_results(self, ends: "ResultRange", *, merged: bool = False) -> "PairingErrors":
        """Match calls with results, of messages as they are or of merged ones."""
        if (found := self._pairings.get((ends, merged))) is None:
            found = match_results(self.merged if merged else self.messages, ends)
            self._pairings[ends, merged] = found
        return found

    @cached_property
    def _pairings(self) -> "dict[tuple[ResultRange, bool], PairingErrors]":
        return {}


RuleCheck: TypeAlias = Callable[[ParsedRequest], Iterable[RuleFinding]]
Fix: TypeAlias = Callable[[JSONObject], JSONObject]


class RuleTexts(Struct, frozen=True, kw_only=True):
    """The texts of a rule, in the `rules.toml` of its format.

    `example` is the shortest request that breaks the rule, as JSON. `repeat` is an item of a list in it, and how often
    it occurs: the example has it once, with `…` after it. `message` describes a violation, and `error` is the
    provider's error text. Both are templates for the facts of a finding.
    """

    title: str
    example: str
    repair: str
    reason: str = ""
    message: str = ""
    error: str = ""
    repeat: tuple[str, int] | None = None


class Rule(NamedTuple):
    """A rule of a provider. Its texts are in the `rules.toml` of the format.

    Decoding and encoding a request repairs most violations. `fix` repairs the others: it takes the body of a request
    that breaks this rule, and returns one that does not. `is_open`: the rule compares names with a list that the
    provider may have extended since.
    """

    code: str
    check: RuleCheck
    rules: "RuleSet"
    fix: Fix | None = None
    is_open: bool = False

    @property
    def title(self) -> str:
        return self.rules.texts[self.code].title

    @property
    def reason(self) -> str:
        return self.rules.texts[self.code].reason

    @property
    def example(self) -> str:
        texts = self.rules.texts[self.code]
        if texts.repeat is None:
            return texts.example
        item, count = texts.repeat
        return texts.example.replace(f"{item}, …", ", ".join([item] * count))

    @property
    def repair(self) -> str:
        return self.rules.texts[self.code].repair

    @property
    def provider_message(self) -> str:
        return self.rules.texts[self.code].error


class RuleSet:
    """The rules of one format: the parser of its requests, and the checks.

    `coerce` takes a misshapen value and its path, and returns an equivalent value with a valid shape, or the same
    value if there is none. `message` and `block` build a user message or a block from text, as the last resort.
    `vendor` is the vendor whose rules these are; more is known about its own models. `unknown_fields` finds fields of
    messages that the format does not have, even if its provider accepts them. `format` is the folder with the texts,
    and `format_path` writes a path as the provider does.
    """

    def __init__(
        self,
        prefix: str,
        format: str,
        parse: Callable[[JSON], ParsedRequest],
        *,
        coerce: Callable[[JSON, JSONPath], JSON],
        message: Callable[[str], JSON],
        block: Callable[[str], JSON],
        messages_key: str = "messages",
        vendor: str = "",
        unknown_fields: RuleCheck = lambda sketch: (),
        format_path: "Callable[[JSONPath], str] | None" = None,
    ) -> None:
        self.prefix, self.format, self.parse, self.coerce = prefix, format, parse, coerce
        self.message, self.block, self.unknown_fields = message, block, unknown_fields
        self.messages_key, self.vendor, self._format_path = messages_key, vendor, format_path or format_dotted_path
        self.rules: list[Rule] = []

    @cached_property
    def texts(self) -> dict[str, RuleTexts]:
        """The texts of the rules by code."""
        text = data_files(f"contextc.formats.{self.format}", ".toml")["rules.toml"]
        return toml.decode(text, type=dict[str, RuleTexts])

    def register(
        self, number: int, *, fix: Fix | None = None, is_open: bool = False
    ) -> Callable[[RuleCheck], RuleCheck]:
        """Register a function as the rule with this number."""

        def enter(check: RuleCheck) -> RuleCheck:
            self.rules.append(Rule(f"{self.prefix}{number:03d}", check, self, fix, is_open))
            return check

        return enter

    def as_text(self, value: JSON, path: JSONPath) -> JSON:
        """Return a misshapen value as text, or None if it should be left out."""
        if path in ((), (self.messages_key,)):
            return [] if path else {self.messages_key: []}
        if path[0] != self.messages_key and path[0] != "system":
            return None
        words = value if isinstance(value, str) else encode(value).decode()
        if path == ("system",):
            return words
        return self.message(words) if len(path) == 2 and path[0] == self.messages_key else self.block(words)

    def get(self, code: str) -> Rule:
        return next(rule for rule in self.rules if rule.code == code)

    def lint(self, body: JSON, facts: ModelCapabilities = UNKNOWN_MODEL) -> list[Violation]:
        """Return the violations in a request, or in its list of messages, ordered by position."""
        sketch = self.parse(body) if facts is UNKNOWN_MODEL else replace(self.parse(body), facts=facts)
        found = [(finding, rule) for rule in self.rules for finding in rule.check(sketch)]
        return [
            Violation(rule.code, format_path(finding.path), *self._texts(rule.code, finding))
            for finding, rule in sorted(found, key=lambda each: (_sort_key(each[0].path), each[1].code))
        ]

    def _texts(self, code: str, finding: RuleFinding) -> tuple[str, str]:
        """Return our message and the provider's error text."""
        path, facts, texts = finding.path, finding.facts, self.texts[code]
        if "where" not in facts and "{where" in texts.error:
            full = path if not path or isinstance(path[0], str) else (self.messages_key, *path)
            steps = [step for step in str(facts.get("field", "")).split(".") if step]
            facts = {"where": self._format_path((*full, *steps)), **facts}
        return finding.message or texts.message.format_map(facts), texts.error.format_map(facts)


def make_finding(path: JSONPath, message: str = "", **facts: object) -> RuleFinding:
    """Return a finding. Its message may be given by the texts of the rule."""
    return RuleFinding(path, message, facts)


def format_path(path: JSONPath) -> str:
    """Return a path as text, such as `messages[2].content[0].id`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def format_dotted_path(path: JSONPath) -> str:
    """Return a path as several providers write it, such as `messages.2.content.0.id`."""
    return ".".join(map(str, path if not path or isinstance(path[0], str) else ("messages", *path)))


class Problem(Enum):
    """The kind of a fault."""

    MISSING = "missing"
    TYPE = "type"
    VALUE = "value"


class Fault(NamedTuple):
    """An invalid field ("" for the value itself), and our message. A format words its provider's error from the rest.

    `expected` are the types that are accepted, and `got` is the value, if the problem is the type. `detail` is what
    the provider's error depends on otherwise.
    """

    field: str
    message: str
    problem: Problem = Problem.VALUE
    expected: tuple[type, ...] = ()
    got: JSON = None
    detail: JSON = None

    def inside(self, name: str) -> "Fault":
        """Return the fault of an object in the field `name`."""
        return self._replace(field=f"{name}.{self.field}")


def missing_field(field: str, name: str = "") -> Fault:
    return Fault(field, f"`{name or field}` is missing.", Problem.MISSING)


def schema_error(value: object, fields: FieldTypes) -> Fault | None:
    """Return the first fault of an object, or None if all fields are valid."""
    if not isinstance(value, dict):
        return Fault("", f"expected an object, got {type_name(value)}.", Problem.TYPE, (dict,), cast(JSON, value))
    given = cast(JSONObject, value)
    for name, kinds in fields.items():
        plain = name if name[-1] != "?" else name[:-1]
        each: JSON = given.get(plain)
        if type(each) is kinds:
            continue
        if each is None and (name != plain or plain not in given):
            if name == plain:
                return missing_field(plain)
            continue
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if kinds is not object and (not isinstance(each, wanted) or (isinstance(each, bool) and bool not in wanted)):
            expected = " or ".join(TYPE_NAMES[kind] for kind in wanted)
            return Fault(plain, f"`{plain}` must be {expected}, got {type_name(each)}.", Problem.TYPE, wanted, each)
    return None


def field_names(fields: FieldTypes, *more: str) -> frozenset[str]:
    """Return the names of these fields, and of `more`."""
    return frozenset([*(name.removesuffix("?") for name in fields), *more])


def unknown_field_findings(wire: JSON, names: Collection[str], path: JSONPath) -> Iterator[RuleFinding]:
    """Yield a finding for each field of an object that is not in `names`. Fields that are null are ignored."""
    for name, value in cast(JSONObject, wire).items() if isinstance(wire, dict) else ():
        if value is not None and name not in names:
            yield make_finding((*path, name), f"`{name}` is not a known field.", name=name)


def remove_fields(body: JSONObject, findings: Iterable[RuleFinding]) -> JSONObject:
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


class PairingErrors(NamedTuple):
    """Calls and results that do not match, each with its turn."""

    unanswered_calls: list[tuple[RequestMessage, RequestPart]]
    orphan_results: list[tuple[RequestMessage, RequestPart]]
    duplicate_results: list[tuple[RequestMessage, RequestPart]]


ResultRange: TypeAlias = Callable[[Sequence[RequestMessage]], Sequence[int]]
"""Maps each turn to the index after the last turn that may contain results of its calls."""


def match_results(turns: Sequence[RequestMessage], ends: ResultRange) -> PairingErrors:
    """Match calls with results. `ends` states how far after its call a result may come."""
    unanswered: list[tuple[RequestMessage, RequestPart]] = []
    orphans: list[tuple[RequestMessage, RequestPart]] = []
    doubled: list[tuple[RequestMessage, RequestPart]] = []
    results: dict[str, deque[tuple[int, RequestPart]]] = {}
    for index, turn in enumerate(turns):
        for result in turn.parts_of("result"):
            results.setdefault(result.id, deque()).append((index, result))
    last = ends(turns)
    for index, turn in enumerate(turns):
        for call in {call.id: call for call in turn.parts_of("call")}.values():
            waiting = results.get(call.id, deque())
            while waiting and waiting[0][0] <= index:
                orphans.append(_message_and_result(turns, waiting.popleft()))
            if not waiting or waiting[0][0] >= last[index]:
                unanswered.append((turn, call))
                continue
            waiting.popleft()
            while waiting and waiting[0][0] < last[index]:
                doubled.append(_message_and_result(turns, waiting.popleft()))
    orphans += [_message_and_result(turns, each) for waiting in results.values() for each in waiting]
    return PairingErrors(unanswered, orphans, doubled)


def _message_and_result(
    turns: Sequence[RequestMessage], result: tuple[int, RequestPart]
) -> tuple[RequestMessage, RequestPart]:
    return turns[result[0]], result[1]


def side_of(turn: RequestMessage) -> str:
    """Return the side of a turn: "model", "system" or "user". A turn with calls is the model's, one with results is
    not.
    """
    if turn.parts_of("call"):
        return "model"
    if turn.parts_of("result"):
        return "user"
    return {"assistant": "model", "model": "model", "system": "system"}.get(turn.role, "user")


def merge_sides(turns: Iterable[RequestMessage]) -> list[RequestMessage]:
    """Return the turns with neighbours of one side merged, for providers that merge them before checking pairs.

    A result after other content of its side starts a new turn: that content separates it from its call.
    """
    found: list[list[RequestMessage]] = []
    speaks, answers = "", False
    for turn in turns:
        result, side = bool(turn.parts_of("result")), side_of(turn)
        is_same = side == speaks
        if found and is_same and (answers or not result):
            found[-1].append(turn)
        else:
            found.append([turn])
        speaks, answers = side, result or (answers and is_same)
    return [
        replace(group[0], parts=tuple([piece for turn in group for piece in turn.parts])) if group[1:] else group[0]
        for group in found
    ]


def results_in_next_message(turns: Sequence[RequestMessage]) -> Sequence[int]:
    """Require results in the message directly after their calls."""
    return range(2, len(turns) + 2)


def require_results_while(accepts: Callable[[RequestMessage], bool]) -> ResultRange:
    """Require results in the messages directly after their calls for which `accepts` is true."""

    def ends(turns: Sequence[RequestMessage]) -> Sequence[int]:
        found = [len(turns)] * len(turns)
        for index in range(len(turns) - 2, -1, -1):
            found[index] = found[index + 1] if accepts(turns[index + 1]) else index + 1
        return found

    return ends


def results_in_role(role: str) -> ResultRange:
    """Require results in the messages of this role directly after their calls."""
    return require_results_while(lambda turn: turn.role == role)


def find_duplicates(pieces: Iterable[RequestPart]) -> Iterator[RequestPart]:
    """Yield each part whose id an earlier part has."""
    seen: set[str] = set()
    for piece in pieces:
        if piece.id in seen:
            yield piece
        seen.add(piece.id)


def _sort_key(path: JSONPath) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, step) if isinstance(step, int) else (1, step) for step in path)


def type_name(value: object) -> str:
    return "null" if value is None else TYPE_NAMES.get(type(value), type(value).__name__)


# ── parsing a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# The reader of requests for lint rules: what all formats share.
#
# A format derives its reader from `RequestReader`. The derived class states when a message, a block or a tool is
# malformed, and which parts a message has. A malformed value is recorded with the provider's error text, and other
# rules ignore it.


TYPED: FieldTypes = {"type": str}
ROLES = ("user", "assistant", "system")
"""Roles of messages that consist of blocks, whatever the provider."""
FOREIGN_FIELDS = ("tool_calls", "function_call", "tool_call_id", "parts", "toolCalls", "toolCallId")
"""Fields of messages in which other providers send content that would be lost."""


class RequestReader:
    """The reader of one request. `body` has its settings; it is empty if only messages were given."""

    messages_key: ClassVar[str] = "messages"
    messages_error: ClassVar[str] = "the messages must be a list."
    messages_required: ClassVar[bool] = False
    """True if a body without messages is reported as such."""
    tools_key: ClassVar[str] = "tools"
    tools_error: ClassVar[str] = "the tools must be a list."
    """May state `{given}`, the type of the value."""
    part_kinds: ClassVar[Mapping[str, PartKind]] = {}
    """The kinds of blocks, by their type."""
    default_kind: ClassVar[PartKind] = "other"

    def __init__(self, body: JSONObject) -> None:
        self.body = body
        self.misshapen: list[RuleFinding] = []

    @classmethod
    def parse(cls, body: JSON) -> ParsedRequest:
        """Parse any JSON value as a request, or as the messages of one."""
        whole = object_or_empty(body)
        reader = cls(whole)
        base: JSONPath = (cls.messages_key,) if is_object(body) else ()
        return ParsedRequest(  # read in this order: it is the order of the findings
            messages=tuple(reader.messages(whole.get(cls.messages_key) if base else body, base)),
            body=whole,
            system=tuple(reader.system()),
            tools=tuple(reader.tools(whole.get(cls.tools_key))),
            malformed=tuple(reader.misshapen),
        )

    def messages(self, given: JSON, base: JSONPath) -> Iterable[RequestMessage]:
        if is_list(given):
            for index, wire in enumerate(given):
                yield from self.message(wire, (*base, index))
        elif self.messages_required and base and self.messages_key not in self.body:
            self.refuse((), missing_field(self.messages_key))
        else:
            self.refuse(base, Fault("", self.messages_error, Problem.TYPE, (list,), given))

    def message(self, wire: JSON, path: JSONPath) -> Iterable[RequestMessage]:
        if wrong := self.message_error(wire):
            self.refuse(path, wrong)
        else:
            yield RequestMessage(role=self.role(wire), path=path, wire=wire, parts=tuple(self.parts(wire, path)))

    def role(self, wire: JSONObject) -> str:
        return wire["role"]

    def message_error(self, wire: JSON) -> Fault | None:
        """Return the first fault of a message, without those inside its blocks and calls."""
        return schema_error(wire, {"role": str})

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterable[RequestPart]:
        return self.blocks(wire.get("content"), (*path, "content"))

    def blocks(
        self, content: JSON, path: JSONPath, shapes: Mapping[str, FieldTypes] | None = None
    ) -> Iterator[RequestPart]:
        """Yield the parts of a text or of a list of blocks. `shapes` are the allowed types, if not all are."""
        if isinstance(content, str):
            yield RequestPart(kind="text", path=path, wire={}, text=content)
        elif is_list(content):
            for index, block in enumerate(content):
                if wrong := self.block_error(block, shapes):
                    self.refuse_typed(block, (*path, index), wrong)
                else:
                    yield self.part(block, (*path, index))

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        return tagged_error(block, shapes or {})

    def part(self, block: JSONObject, path: JSONPath) -> RequestPart:
        kind = self.part_kinds.get(block["type"], self.default_kind)
        return RequestPart(kind=kind, path=path, wire=block, text=block["text"] if kind == "text" else "")

    def system(self) -> Iterable[RequestPart]:
        return ()

    def tools(self, given: JSON) -> Iterable[RequestPart]:
        if given is not None and not is_list(given):
            message = self.tools_error.format(given=json_type_name(given))
            self.refuse((self.tools_key,), Fault("", message, Problem.TYPE, (list,), given))
        return self.listed_tools(list_or_empty(given), (self.tools_key,))

    def listed_tools(self, tools: list[JSON], base: JSONPath) -> Iterator[RequestPart]:
        for index, tool in enumerate(tools):
            path = (*base, index)
            if wrong := self.tool_error(tool):
                self.refuse_typed(tool, path, wrong)
            elif (name := self.tool_name(tool)) is not None:
                yield RequestPart(kind="other", path=path, wire=tool, id=name)

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(tool, {"name": str})

    def tool_name(self, tool: JSONObject) -> str | None:
        """Return the name of a tool with a valid shape; None if its provider runs it."""
        return tool["name"]

    def refuse(self, path: JSONPath, fault: Fault) -> None:
        """Record a malformed value."""
        self.misshapen.append(
            make_finding(path, fault.message, what=self.provider_text(path, fault), field=fault.field)
        )

    def refuse_typed(self, value: JSON, path: JSONPath, fault: Fault) -> None:
        """Record a malformed value that states its type. If only the type is unknown, the finding says so."""
        before = len(self.misshapen)
        self.refuse(path, fault)
        if fault.field.rpartition(".")[2] == "type" and isinstance(object_or_empty(value).get("type"), str):
            for finding in self.misshapen[before:]:
                finding.facts[UNKNOWN_NAME] = True

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        """Return the provider's error text for a malformed value."""
        return fault.message


def tagged_error(value: JSON, shapes: Mapping[str, FieldTypes], noun: str = "block") -> Fault | None:
    """Return the first fault of an object whose `type` states its fields; None if there is none."""
    if wrong := schema_error(value, TYPED):
        return wrong
    if (fields := shapes.get(value["type"])) is None:
        return Fault("type", f"unknown {noun} type {value['type']!r}.")
    return schema_error(value, fields)


def nested_error(name: str, value: object, fields: FieldTypes) -> Fault | None:
    """Return the first fault of an object in the field `name`; None if there is none."""
    wrong = schema_error(value, fields)
    return wrong.inside(name) if wrong else None


def block_message_error(wire: JSON, content: type | tuple[type, ...]) -> Fault | None:
    """Return the first fault of a message that consists of blocks and has content of this type; None without one."""
    if wrong := schema_error(wire, {"role": str, "content": content}):
        return wrong
    if wire["role"] not in ROLES:
        return Fault("role", f'invalid role {wire["role"]!r}: expected "user" or "assistant".')
    foreign = first_field(wire, FOREIGN_FIELDS)
    return Fault(foreign, f"`{foreign}` is not a known field of a message.") if foreign else None


def first_field(wire: JSONObject, names: Iterable[str]) -> str | None:
    """Return the first of these fields that an object has and that is not empty."""
    return next((name for name in names if wire.get(name)), None)
