"""The credentials of a request, and their removal from its reply: some servers quote a key in their errors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast
from urllib.parse import parse_qsl

from contextc._json import JSON, JSONObject

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
