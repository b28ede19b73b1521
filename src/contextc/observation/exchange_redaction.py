"""Redaction of observed exchanges before anything is stored: keys, tokens, mail addresses, own regular expressions.

A match is replaced by a placeholder. It has a hash of the removed text, keyed with a random key of the store: the same
text has the same placeholder in one store, so prefixes still compare, and the text cannot be guessed from it elsewhere.
The expressions of this package take time in proportion to the text. An expression of a user may not: it has a time
limit, see `user_regex_search`. A text that takes longer is removed as a whole.
"""

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias, TypeGuard, cast
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from contextc._credential_mask import (
    CREDENTIAL_PATTERNS,
    LETTERS,
    START,
    Around,
    NamedPattern,
    compile_pattern,
    get_logger,
)
from contextc._json import JSON, JSONObject, encode
from contextc.compiler.manifest import ProxyAction
from contextc.errors import InvalidInput
from contextc.messages import Message
from contextc.observation.exchange_parser import ObservedReply
from contextc.observation.user_regex_search import SearchTooSlow, find_spans
from contextc.store import Store
from contextc.store.transaction_engine import Transaction

Redaction: TypeAlias = bool | str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""Names of `BUILTIN_PATTERNS` and regular expressions. True stands for all built-in patterns, False for none."""
KEY_BYTES, HASH_BYTES = 32, 8
OWN = "pattern"
BUILTIN_PATTERNS: dict[str, tuple[str | Around, ...]] = {
    **CREDENTIAL_PATTERNS,
    "mail": (
        Around(
            START + r"[A-Za-z0-9._%+-]",
            LETTERS + "._%+-",
            r"@(?=((?![0-9]x\.)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}))",
        ),
    ),
}
_log = get_logger("contextc.observation")
PLACEHOLDER = re.compile(r"(\[redacted:[a-z]+:[0-9a-f]{16}\])")
_JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_keys: WeakKeyDictionary[Store, bytes] = WeakKeyDictionary()
_clean: set[tuple[tuple[NamedPattern, ...], bytes]] = set()
"""Hashes of texts without a match. The requests of a conversation repeat most texts, which are not searched again."""
MAX_CLEAN, MIN_CLEAN_LENGTH = 50_000, 200


class OwnPattern(NamedPattern):
    """A regular expression of a user, which is searched with a time limit."""

    __slots__ = ()

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        yield from find_spans(self.pattern, text)


def compile_patterns(redact: Redaction | None) -> tuple[NamedPattern, ...]:
    """Return the patterns to remove. Raise InvalidInput for an unknown name or an invalid regular expression."""
    if redact is None or isinstance(redact, bool):
        given: list[str | re.Pattern[str]] = list(BUILTIN_PATTERNS) if redact else []
    else:
        given = [redact] if isinstance(redact, str | re.Pattern) else list(redact)
    named = [each for each in given if isinstance(each, str) and each in BUILTIN_PATTERNS]
    own = [each for each in given if not isinstance(each, str) or each not in BUILTIN_PATTERNS]
    found = [each for name in BUILTIN_PATTERNS if name in named for each in _builtin(name)]
    return (*found, *[OwnPattern(OWN, _compile(each)) for each in own])


@lru_cache
def _builtin(name: str) -> tuple[NamedPattern, ...]:
    return tuple([compile_pattern(name, each) for each in BUILTIN_PATTERNS[name]])


def _compile(given: object) -> re.Pattern[str]:
    names = ", ".join(BUILTIN_PATTERNS)
    if isinstance(given, str) and re.fullmatch(r"[a-z_]*", given):  # a misspelled name would remove nothing
        raise InvalidInput(
            "redact: unknown pattern", got=given, fix=f"Use {names}, or pass a word as re.compile({given!r})."
        )
    try:
        pattern = re.compile(given) if isinstance(given, str) else given
    except re.error as error:
        raise InvalidInput(f"redact: invalid regular expression ({error})", got=given) from None
    if not _is_text_pattern(pattern):
        raise InvalidInput(f"redact: expected {names} or regular expressions for text", got=type(given).__name__)
    if pattern.search("") is not None:
        raise InvalidInput("redact: the regular expression matches empty text", got=pattern.pattern)
    return pattern


def _is_text_pattern(given: object) -> TypeGuard[re.Pattern[str]]:
    return isinstance(given, re.Pattern) and isinstance(cast(re.Pattern[str], given).pattern, str)


class Redactor:
    """Removes the matches of patterns, with the placeholders of one store."""

    def __init__(self, patterns: tuple[NamedPattern, ...], key: bytes) -> None:
        self._patterns, self._key = patterns, key

    def redact_text(self, text: str) -> str:
        for pattern in self._patterns:
            if "[redacted:" not in text:
                text = self._replace(pattern, text)
                continue
            pieces = PLACEHOLDER.split(text)  # every second piece is a placeholder
            text = "".join([each if at % 2 else self._replace(pattern, each) for at, each in enumerate(pieces)])
        return text

    def redact_body(self, body: bytes) -> bytes:
        """Return a body in JSON whose texts are redacted; its formatting stays. Another body is redacted as text."""
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = body.decode("utf-8", "surrogateescape")
            return self.redact_text(text).encode("utf-8", "surrogateescape")
        return _JSON_STRING.sub(lambda match: self._redact_string(match[0]), body)

    def redact_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {name: self.redact_text(value) for name, value in headers.items()}

    def redact_reply(self, reply: ObservedReply) -> ObservedReply:
        """Return a decoded reply without the matches, which may have been split between events of its stream."""
        messages = tuple([self._redact_message(each) for each in reply.messages])
        error, request_id = self.redact_text(reply.error), self.redact_text(reply.request_id)
        return replace(reply, messages=messages, error=error, request_id=request_id)

    def redact_action(self, action: ProxyAction) -> ProxyAction:
        """Return an action whose texts are redacted: they may quote the request."""
        return replace(action, changes=tuple([self.redact_text(each) for each in action.changes]))

    def _redact_message(self, message: Message) -> Message:
        body = encode(message)
        redacted = self.redact_body(body)
        if redacted == body:
            return message
        try:
            return msgspec.json.decode(redacted, type=Message)
        except msgspec.DecodeError:  # an own pattern matches a name of a field or of a type
            return replace(message, parts=(), extra=None)

    def _redact_string(self, raw: bytes) -> bytes:
        if len(raw) < MIN_CLEAN_LENGTH:
            return self._search_string(raw)
        entry = (self._patterns, blake2b(raw, digest_size=16).digest())
        if entry in _clean:
            return raw
        found = self._search_string(raw)
        if found is raw:
            if len(_clean) >= MAX_CLEAN:
                _clean.clear()
            _clean.add(entry)
        return found

    def _search_string(self, raw: bytes) -> bytes:
        try:
            text: str = json.loads(raw) if b"\\" in raw else raw[1:-1].decode()
        except (ValueError, UnicodeDecodeError):
            return raw
        redacted = self.redact_text(text)
        if redacted == text:
            return raw
        return json.dumps(redacted, ensure_ascii=b"\\u" in raw).encode()

    def _replace(self, pattern: NamedPattern, text: str) -> str:
        found: list[str] = []
        at = 0
        try:
            for start, end in pattern.spans(text):
                if start < end:
                    found += [text[at:start], self._placeholder(pattern.name, text[start:end])]
                    at = end
        except SearchTooSlow:
            expression = pattern.pattern.pattern
            _log.warning(
                "redact: %r takes too long on a text of %d characters, which is removed", expression, len(text)
            )
            return self._placeholder(pattern.name, text)
        return "".join([*found, text[at:]]) if found else text

    def _placeholder(self, name: str, secret: str) -> str:
        data = secret.encode("utf-8", "surrogatepass")
        return f"[redacted:{name}:{blake2b(data, key=self._key, digest_size=HASH_BYTES).hexdigest()}]"


def make_redactor(store: Store, redact: Redaction | None) -> Redactor | None:
    """Return the redactor of a store; None if nothing is to be redacted."""
    patterns = compile_patterns(redact)
    return Redactor(patterns, load_key(store)) if patterns else None


def load_key(store: Store) -> bytes:
    """Return the key of a store's placeholders. It is made on first use."""
    if store not in _keys:
        _keys[store] = store.read(_read_key) or store.write(_make_key)
    return _keys[store]


def _read_key(tx: Transaction) -> bytes:
    row = tx.row("SELECT key FROM main.redaction_key WHERE number = 1")
    return bytes(row[0]) if row else b""


def _make_key(tx: Transaction) -> bytes:
    made = secrets.token_bytes(KEY_BYTES)
    tx.run("INSERT INTO main.redaction_key (number, key) VALUES (1, ?) ON CONFLICT DO NOTHING", made)
    return _read_key(tx)


# ── credentials of a request ──────────────────────────────────────────────────────────────────────────────────────────
# The credentials of a request, and their removal from its reply: some servers quote a key in their errors.


CREDENTIAL_FIELDS = frozenset(
    [
        "authorization", "proxy-authorization", "x-api-key", "api-key", "api_key", "apikey", "x-goog-api-key",
        "x-auth-token", "x-amz-security-token", "cookie", "set-cookie",
    ]
)  # fmt: skip
"""Header fields whose value is a credential."""
QUERY_FIELDS = CREDENTIAL_FIELDS | {"key", "token", "access_token", "sig", "x-amz-signature"}
MIN_LENGTH = 8
"""Shorter values are parts of ordinary texts."""


def find_credentials(headers: Iterable[tuple[str, str]], query: str = "") -> tuple[str, ...]:
    """Return the values of the credentials in the headers and the query of a request, the longest first."""
    found: set[str] = set()
    for name, value in headers:
        if (field := name.lower()) in CREDENTIAL_FIELDS:
            parts = [each.partition("=")[2] for each in value.split(";")] if "cookie" in field else value.split()
            found.update(parts)
    found.update([value for name, value in parse_qsl(query) if name.lower() in QUERY_FIELDS])
    return tuple(sorted([each for each in found if len(each) >= MIN_LENGTH], key=len, reverse=True))


def mask_value(value: object, credentials: Sequence[str]) -> object:
    """Return a reply as text, bytes or JSON without the credentials. Other values are returned as they are."""
    if isinstance(value, str):
        for each in credentials:
            value = value.replace(each, "*" * len(each))
        return value
    if isinstance(value, bytes):
        mask = CredentialMask(credentials)
        return mask.feed(value) + mask.finish()
    if isinstance(value, Mapping):
        return {name: mask_value(each, credentials) for name, each in cast(JSONObject, value).items()}
    if isinstance(value, list | tuple):
        return [mask_value(each, credentials) for each in cast(Sequence[JSON], value)]
    return value


class CredentialMask:
    """Replaces credentials in a stream of bytes by as many asterisks, also those that two pieces share."""

    __slots__ = ("_tail", "_values")

    def __init__(self, credentials: Iterable[str]) -> None:
        self._values = [each.encode("latin-1", "replace") for each in credentials]
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be passed on. The beginning of a credential is kept back until it is known to be none."""
        if self._tail:
            data = self._tail + data
        kept = 0
        for value in self._values:
            if value in data:
                data = data.replace(value, b"*" * len(value))
            end = data[-(len(value) - 1) :]
            at = end.find(value[:1])
            while at >= 0 and not value.startswith(end[at:]):
                at = end.find(value[:1], at + 1)
            kept = max(kept, len(end) - at if at >= 0 else 0)
        self._tail = data[len(data) - kept :]
        return data[: len(data) - kept] if kept else data

    def finish(self) -> bytes:
        """Return what was kept back."""
        tail, self._tail = self._tail, b""
        return tail
