"""Findings and changes of the options `--lint` and `--fix` in the body of a request. No I/O.

Everything that a repair does not change keeps its bytes. Token counts and other paths without a model's answer are not
checked: their requests are incomplete.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Raw

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc.compiler.body_splitting import comparable
from contextc.compiler.manifest import RequestAction
from contextc.errors import ContextcError, describe_error
from contextc.formats import formatter
from contextc.formats.base import Formatter
from contextc.linting import fix, lint
from contextc.models.tokens.counter import estimate_tokens
from contextc.observation.client_ids import COUNTING_PATH
from contextc.observation.exchange_parser import DECODE_ERRORS
from contextc.observation.format_detection import FormatDetector

MAX_CHANGES = 10
"""Findings or changes of a request that are described in its manifest. All are counted."""
INCOMPLETE_PATHS = ("/responses/compact",)
HEAD_FIELDS = ("tools", "toolConfig", "system", "systemInstruction", "system_instruction", "instructions")
"""Fields before the conversation, in the order in which providers cache them."""
ERRORS = (ContextcError, *DECODE_ERRORS, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_detector = FormatDetector()


class ChangedRequest(NamedTuple):
    """A request after a change, and the change."""

    body: bytes
    action: RequestAction


Change: TypeAlias = Callable[[bytes, str, str], ChangedRequest | None]
"""Takes the body of a request, its format and its address. Returns None if nothing is to be changed."""


def apply_changes(
    body: bytes, changes: Sequence[tuple[str, Change]], format: str, url: str
) -> tuple[bytes | None, list[RequestAction]]:
    """Return the changed body, None if nothing was changed, and what was done. A change that fails is left out."""
    made: bytes | None = None
    actions: list[RequestAction] = []
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


def describe_failure(rule: str, text: str) -> RequestAction:
    return RequestAction(rule=rule, failed=True, changes=(f"not done: {text}",))


def is_complete_path(url: str) -> bool:
    """Return True if requests to this address ask a model for an answer."""
    path = url.partition("?")[0]
    return COUNTING_PATH.search(path) is None and not path.endswith(INCOMPLETE_PATHS)


def find_request_format(value: JSONObject, format: str, url: str) -> str:
    return format or _detector.format_of(value, None, url)


def lint_request(body: bytes, format: str, url: str) -> RequestAction | None:
    """Return what the provider would refuse in a request; None if there is nothing."""
    if not is_complete_path(url):
        return None
    try:
        value = decode(body)
        found = lint(value, format=find_request_format(as_object(value), format, url))
    except ERRORS as error:
        return RequestAction(rule="lint", failed=True, changes=(f"The request could not be checked ({error})",))
    if not found:
        return None
    return RequestAction(
        rule="lint",
        codes=dict(Counter([each.code for each in found])),
        changes=tuple([f"{each.code} {each.path}: {each.message}" for each in found[:MAX_CHANGES]]),
        more=max(0, len(found) - MAX_CHANGES),
    )


def fix_request(body: bytes, format: str, url: str) -> ChangedRequest | None:
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
    action = RequestAction(
        rule="fix",
        codes=dict(Counter([each.code for each in repairs])),
        changes=tuple(texts[:MAX_CHANGES]),
        more=max(0, len(texts) - MAX_CHANGES),
        cache_tokens=count_changed_tokens(form, cast(JSONObject, value), fixed),
    )
    return ChangedRequest(encode_with_original_bytes(body, fixed), action)


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
    return b"[" + b",".join(_reuse(known, cast(Sequence[JSON], value))) + b"]"


def _reuse(known: dict[bytes, bytes], values: Sequence[JSON]) -> list[bytes]:
    return [known.get(made, made) for made in (encode(each) for each in values)]
