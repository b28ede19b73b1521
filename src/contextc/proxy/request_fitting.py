"""`--fit`: cut a request to its model's window. No I/O, and no state.

The order is that of the compiler: old tool results are replaced by stubs, then the oldest turns are left out. The
latest turn and the results that wait for an answer stay. Trimming goes down to a low mark. It is repeated here as it
would have happened while the conversation grew, so that consecutive requests are cut at the same place and their prefix
stays in the provider's cache.
"""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode
from contextc.compiler.manifest import RequestAction
from contextc.errors import UnknownModel
from contextc.formats import formatter
from contextc.formats.base import Formatter, Request
from contextc.linting.preserve_formatting import restore_formatting
from contextc.linting.tolerant_decoding import coerce_request
from contextc.messages import Message, ToolResult
from contextc.models import Model, model
from contextc.models.tokens import TokenCounter
from contextc.models.tokens.counter import estimate_tokens, get_counter
from contextc.proxy.request_changes import (
    HEAD_FIELDS,
    ChangedRequest,
    count_changed_tokens,
    encode_with_original_bytes,
    find_request_format,
    is_complete_path,
)

LOW = 0.7
"""The share of the available tokens that is left after trimming."""
DEFAULT_RESERVE = 0.1
"""The share of the window that is reserved for the answer if the request states no length."""
MIN_RESULT_TOKENS = 96
"""Results of fewer tokens are not replaced."""
STUB = "[The result of {name}, {length:,} characters, was left out to save room.]"


def fit_request(body: bytes, format: str, url: str) -> ChangedRequest | None:
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
    trimmer = Trimmer(request.messages, counter, _available(form, given, request, facts))
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
    action = RequestAction(rule="fit", changes=tuple(texts), cache_tokens=count_changed_tokens(form, given, made))
    return ChangedRequest(encode_with_original_bytes(body, made), action)


def _available(form: Formatter, body: JSONObject, request: Request, facts: Model) -> int:
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
        waiting = self._last_answer(end)
        index = max(self._considered, self.dropped)
        while self.total > target and index < waiting:
            self._stub(index)
            index += 1
        self._considered = index
        while self.total > target and (after := self._next_turn(end)):
            self.total -= sum(self._tokens[self.dropped : after])
            self.dropped = after

    def _last_answer(self, end: int) -> int:
        """Return the index of the last reply before `end`. What follows it waits for an answer."""
        return next((at for at in range(end - 1, -1, -1) if self._messages[at].role == "assistant"), 0)

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
