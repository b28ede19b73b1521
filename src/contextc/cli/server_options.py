"""Options of commands that run a server: its hosts and its token."""

import ipaddress
import os
import re
import secrets
import socket

from contextc.errors import InvalidSetting

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
ALL_INTERFACES = ("0.0.0.0", "::")
MIN_TOKEN_LENGTH = 16
TOKEN_VARIABLE = "CONTEXTC_TOKEN"
URL_SAFE = re.compile(r"[A-Za-z0-9._~-]*")


def check_token(given: str, is_option: bool, *, is_in_path: bool = False) -> str:
    """Return a token without surrounding spaces. With `is_in_path`, it must be usable as a segment of a path."""
    secret = given.strip()
    if secret and not (secret.isascii() and secret.isprintable()):
        raise InvalidSetting("A token must consist of printable ASCII characters.")
    if is_in_path and not URL_SAFE.fullmatch(secret):
        raise InvalidSetting("A token of the proxy must consist of letters, digits, '.', '_', '~' and '-'.")
    if secret and len(secret) < MIN_TOKEN_LENGTH:
        raise InvalidSetting(
            f"{'--token' if is_option else TOKEN_VARIABLE}: a token must have {MIN_TOKEN_LENGTH} characters "
            f"or more, got {len(secret)}",
            fix="Leave it out to use a random one.",
        )
    return secret


def choose_token(host: str, given: str | None, none: bool, *, is_in_path: bool = False) -> str:
    """Return the token that clients must send: the given one, or else a random one; "" with --no-token."""
    if none:
        if given:
            raise InvalidSetting("--token and --no-token cannot be used together", fix="Pass one of the two.")
        if not is_loopback(host):
            raise InvalidSetting(f"--no-token needs a loopback address, got --host {host}", fix="Remove --no-token.")
        return ""
    text = given if given is not None else os.environ.get(TOKEN_VARIABLE, "")
    return check_token(text, given is not None, is_in_path=is_in_path) or secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def accepted_hosts(host: str) -> tuple[str, ...]:
    """Return the accepted host names. On all interfaces, they are not known, and only the token protects."""
    if host in ALL_INTERFACES:
        return ("*",)
    return tuple(dict.fromkeys([*LOOPBACK_HOSTS, bracketed(host).lower(), socket.gethostname().lower()]))


def display_host(host: str) -> str:
    return LOOPBACK_HOSTS[0] if host in ALL_INTERFACES else bracketed(host)


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
