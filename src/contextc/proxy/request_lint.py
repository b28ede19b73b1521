"""Findings and changes of the options `--lint` and `--fix` in the body of a request. No I/O.

Everything that a repair does not change keeps its bytes. Token counts and other paths without a model's answer are not
checked: their requests are incomplete.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc.compiler.manifest import ProxyAction
from contextc.compiler.past_requests import comparable
from contextc.errors import ContextcError, UnknownModel, describe_error
from contextc.formats import formatter
from contextc.formats.base import Formatter, Request
from contextc.linting import fix, lint
from contextc.linting.lint_and_fix import restore_formatting
from contextc.linting.request_reading import coerce_request
from contextc.messages import Message, ToolResult
from contextc.models import Model, model
from contextc.models.tokens import TokenCounter, estimate_tokens, get_counter
from contextc.observation.client_ids import COUNTING_PATH
from contextc.observation.exchange_parser import DECODE_ERRORS
from contextc.observation.reply_decoding import FormatDetector

MAX_CHANGES = 10
"""Findings or changes of a request that are described in its manifest. All are counted."""
INCOMPLETE_PATHS = ("/responses/compact",)
HEAD_FIELDS = ("tools", "toolConfig", "system", "systemInstruction", "system_instruction", "instructions")
"""Fields before the conversation, in the order in which providers cache them."""
ERRORS = (ContextcError, *DECODE_ERRORS, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_detector = FormatDetector()


class RewrittenRequest(NamedTuple):
    """A request after a change, and the change."""

    body: bytes
    action: ProxyAction


Change: TypeAlias = Callable[[bytes, str, str], RewrittenRequest | None]
"""Takes the body of a request, its format and its address. Returns None if nothing is to be changed."""


def apply_changes(
    body: bytes, changes: Sequence[tuple[str, Change]], format: str, url: str
) -> tuple[bytes | None, list[ProxyAction]]:
    """Return the changed body, None if nothing was changed, and what was done. A change that fails is left out."""
    made: bytes | None = None
    actions: list[ProxyAction] = []
    for name, change in changes:
        try:
            changed = change(body if made is None else made, format, url)
        except Exception as error:  # a defect must not stop the request
            actions.append(describe_failure(name, describe_error(error)))
            continue
        if changed is not None:
            made = changed.body
            actions.append(changed.action)
    return made, actions


def describe_failure(rule: str, text: str) -> ProxyAction:
    return ProxyAction(rule=rule, failed=True, changes=(f"not done: {text}",))


def is_complete_path(url: str) -> bool:
    """Return True if requests to this address ask a model for an answer."""
    path = url.partition("?")[0]
    return COUNTING_PATH.search(path) is None and not path.endswith(INCOMPLETE_PATHS)


def find_request_format(value: JSONObject, format: str, url: str) -> str:
    return format or _detector.format_of(value, None, url)


def lint_request(body: bytes, format: str, url: str) -> ProxyAction | None:
    """Return what the provider would refuse in a request; None if there is nothing."""
    if not is_complete_path(url):
        return None
    try:
        value = decode(body)
        found = lint(value, format=find_request_format(as_object(value), format, url))
    except ERRORS as error:
        return ProxyAction(rule="lint", failed=True, changes=(f"The request could not be checked ({error})",))
    if not found:
        return None
    return ProxyAction(
        rule="lint",
        codes=dict(Counter([each.code for each in found])),
        changes=tuple([f"{each.code} {each.path}: {each.message}" for each in found[:MAX_CHANGES]]),
        more=max(0, len(found) - MAX_CHANGES),
    )


def fix_request(body: bytes, format: str, url: str) -> RewrittenRequest | None:
    """Return the request without what its provider would refuse; None if nothing was changed.

    What the provider may have added since is kept: its answer is not known yet.
    """
    if not is_complete_path(url):
        return None
    value = decode(body)
    if not isinstance(value, dict):
        return None
    name = find_request_format(cast(JSONObject, value), format, url)
    form = formatter(name)
    fixed, repairs = fix(cast(JSONObject, value), format=name, keep_unknown=True)
    if not repairs or encode(fixed) == encode(value):
        return None
    left = {(each.code, each.path) for each in lint(fixed, format=name)}
    texts = [
        f"{each.code} {each.path}: {each.message} {'Not repaired.' if (each.code, each.path) in left else each.repair}"
        for each in repairs
    ]
    action = ProxyAction(
        rule="fix",
        codes=dict(Counter([each.code for each in repairs])),
        changes=tuple(texts[:MAX_CHANGES]),
        more=max(0, len(texts) - MAX_CHANGES),
        cache_tokens=count_changed_tokens(form, cast(JSONObject, value), fixed),
    )
    return RewrittenRequest(encode_with_original_bytes(body, fixed), action)


def count_changed_tokens(form: Formatter, before: JSONObject, after: JSONObject) -> int:
    """Return the estimated tokens from the first changed element on: tools, system prompt, messages in this order."""
    old, new = (_cached_elements(form, each) for each in (before, after))
    same = next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )
    return round(sum([estimate_tokens(each.decode()) for each in new[same:]]))


def _cached_elements(form: Formatter, body: JSONObject) -> list[bytes]:
    fields = [body[name] for name in (*HEAD_FIELDS, form.messages_key) if name in body]
    elements = [each for field in fields for each in (cast(list[JSON], field) if isinstance(field, list) else [field])]
    return [encode(comparable(each)) for each in elements]


def encode_with_original_bytes(original: bytes, value: JSONObject) -> bytes:
    """Return a changed request as bytes. Fields and elements that did not change keep theirs."""
    known = _decode_fields(original)
    fields = [encode(name) + b":" + _encode_field(known.get(name), each) for name, each in value.items()]
    return b"{" + b",".join(fields) + b"}"


def _encode_field(original: Raw | None, value: JSON) -> bytes:
    made = encode(value)
    if original is None:
        return made
    if encode(decode(bytes(original))) == made:
        return bytes(original)
    if not isinstance(value, list) or bytes(original)[:1] != b"[":
        return made
    known = {encode(decode(bytes(raw))): bytes(raw) for raw in _decode_elements(original)}
    return b"[" + b",".join([known.get(made, made) for made in map(encode, cast(Sequence[JSON], value))]) + b"]"


# ── to the window of the model ────────────────────────────────────────────────────────────────────────────────────────
# `--fit`: cut a request to its model's window. No I/O, and no state.
#
# The order is that of the compiler: old tool results are replaced by stubs, then the oldest turns are left out. The
# latest turn and the results that wait for an answer stay. Trimming goes down to a low mark. It is repeated here as it
# would have happened while the conversation grew, so that consecutive requests are cut at the same place and their
# prefix stays in the provider's cache.


LOW = 0.7
"""The share of the available tokens that is left after trimming."""
DEFAULT_RESERVE = 0.1
"""The share of the window that is reserved for the answer if the request states no length."""
MIN_RESULT_TOKENS = 96
"""Results of fewer tokens are not replaced."""
STUB = "[The result of {name}, {length:,} characters, was left out to save room.]"


def fit_request(body: bytes, format: str, url: str) -> RewrittenRequest | None:
    """Return the request, cut to its model's window; None if it fits, or if the model is unknown."""
    if not is_complete_path(url) or len(body) < MIN_RESULT_TOKENS:
        return None
    value = decode(body)
    if not isinstance(value, dict):
        return None
    given = cast(JSONObject, value)
    form = formatter(find_request_format(given, format, url))
    named = given.get("model")
    try:
        facts = model(named if isinstance(named, str) else url.rpartition("/")[2].partition(":")[0])
    except UnknownModel:
        return None
    if len(body) < facts.window // 2:  # no token is shorter than one byte, and the answer has at most the other half
        return None
    request = form.decode_request(coerce_request(form, given).body)
    counter = get_counter(facts.tokenizer, provider=form.provider, model=facts.name)
    trimmer = Trimmer(request.messages, counter, _available_tokens(form, given, request, facts))
    kept = trimmer.trim()
    if kept is None:
        return None
    made = form.encode_request(replace(request, messages=tuple(kept)))
    made = restore_formatting(form, given, made, [], lambda each: form.rules.lint(each))
    texts = [
        *([f"{trimmer.dropped:,} of {len(request.messages):,} messages were left out"] if trimmer.dropped else []),
        *([f"{trimmer.stubbed:,} tool results were replaced by stubs"] if trimmer.stubbed else []),
        f"{trimmer.before:,} tokens of messages became {trimmer.total:,}, of {trimmer.available:,} available",
    ]
    action = ProxyAction(rule="fit", changes=tuple(texts), cache_tokens=count_changed_tokens(form, given, made))
    return RewrittenRequest(encode_with_original_bytes(body, made), action)


def _available_tokens(form: Formatter, body: JSONObject, request: Request, facts: Model) -> int:
    """Return the tokens that messages may have: the window without the head and the answer."""
    head = sum([estimate_tokens(encode(body[name]).decode()) for name in HEAD_FIELDS if name in body])
    asked = form.settings.read(request.settings).settings.max_output_tokens
    reserve = (
        min(asked or facts.output, facts.output, facts.window // 2) if asked else int(facts.window * DEFAULT_RESERVE)
    )
    return max(0, int(facts.window - head - reserve))


class Trimmer:
    """Trims messages. `total` are the tokens that are left, `before` those of all messages."""

    def __init__(self, messages: Sequence[Message], counter: TokenCounter, available: int) -> None:
        self._messages, self._counter, self.available = list(messages), counter, available
        self._tokens = [counter.count_message(each) for each in messages]
        self.before, self.total = sum(self._tokens), 0
        self.dropped = 0
        self._stubs: dict[int, int] = {}
        """Number of stubs by the index of their message."""
        self._considered = 0
        """Index before which all results have been considered."""

    @property
    def stubbed(self) -> int:
        """The number of stubs in what is left."""
        return sum([count for at, count in self._stubs.items() if at >= self.dropped])

    def trim(self) -> list[Message] | None:
        """Return what is left; None if everything fits."""
        if self.before <= self.available:
            return None
        for end in range(1, len(self._messages) + 1):
            self.total += self._tokens[end - 1]
            is_request = end == len(self._messages) or self._messages[end].role == "assistant"
            if is_request and self.total > self.available:
                self._cut(end, int(self.available * LOW))
        return self._messages[self.dropped :]

    def _cut(self, end: int, target: int) -> None:
        """Trim the messages before `end` until they have no more tokens than the target."""
        # What follows the last reply waits for an answer.
        waiting = next((at for at in range(end - 1, -1, -1) if self._messages[at].role == "assistant"), 0)
        index = max(self._considered, self.dropped)
        while self.total > target and index < waiting:
            self._stub(index)
            index += 1
        self._considered = index
        while self.total > target and (after := self._next_turn(end)):
            self.total -= sum(self._tokens[self.dropped : after])
            self.dropped = after

    def _next_turn(self, end: int) -> int:
        """Return where the second turn of what is left begins; 0 if only one is left."""
        return next((at for at in range(self.dropped + 1, end) if self._opens_turn(at)), 0)

    def _opens_turn(self, at: int) -> bool:
        return self._messages[at].role == "user" and not self._messages[at].tool_results

    def _stub(self, at: int) -> None:
        message = self._messages[at]
        if not message.tool_results or self._tokens[at] < MIN_RESULT_TOKENS:
            return
        parts = [
            replace(part, content=STUB.format(name=part.name or "a tool", length=len(part.text)))
            if isinstance(part, ToolResult) and len(part.text) > len(STUB)
            else part
            for part in message.parts
        ]
        made = replace(message, parts=tuple(parts))
        tokens = self._counter.count_message(made)
        if tokens < self._tokens[at]:
            self._stubs[at] = sum([old is not new for old, new in zip(message.parts, parts, strict=True)])
            self.total -= self._tokens[at] - tokens
            self._messages[at], self._tokens[at] = made, tokens
