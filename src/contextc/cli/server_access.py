"""Access to servers of commands: hosts, token, links with a token, and the web UI in the background of `watch`."""

import ipaddress
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import webbrowser
from contextlib import ExitStack, suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import TextIO
from urllib.parse import quote

import msgspec

from contextc._json import JSONObject
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


# ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Links to the web UI with a token, and how a browser is opened at one.


def redirect_file(link: str, stack: ExitStack) -> str:
    """Return the address of a temporary file that redirects to a link, and that only this user can read.

    Without it, the token would be in the arguments of the browser, which every user of the machine can list.
    """
    number, path = tempfile.mkstemp(prefix="contextc-", suffix=".html")  # mode 0600
    stack.callback(Path(path).unlink, missing_ok=True)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>contextc</title>'
            f'<meta http-equiv="refresh" content="0; url={escape(link)}"><a href="{escape(link)}">Open contextc</a>\n'
        )
    return Path(path).as_uri()


def printed_link(link: str, output: TextIO, stack: ExitStack) -> str:
    """Return a link with a token for a terminal. Other output may be a log: it gets the address of a file with it."""
    return link if output.isatty() else f"{redirect_file(link, stack)} (only you can read it)"


def with_token(address: str, secret: str) -> str:
    return f"{address}?token={quote(secret, safe='')}" if secret else address


def has_display() -> bool:
    """Return True if there is a terminal and a display for a browser."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(address: str) -> None:
    """Open a browser, if there is one."""

    def work() -> None:
        with suppress(Exception):
            webbrowser.open(address)

    Thread(target=work, name="browser", daemon=True).start()


# ── the web UI in the background ──────────────────────────────────────────────────────────────────────────────────────
# The web UI in the background of another command: a process that ends with the command.


STOP_SECONDS = 20.0
WEB_PACKAGES = ("starlette", "uvicorn")
INSTALL_WEB = "pip install 'contextc[web]', or '.[web]' in a clone"


def is_web_installed() -> bool:
    return all([find_spec(name) is not None for name in WEB_PACKAGES])


class WebUIProcess:
    """A web UI on loopback with a token of its own.

    Its process starts beside the program and inherits a socket that listens, so `address` can be opened at once.
    """

    def __init__(self, store: str) -> None:
        self.token = secrets.token_urlsafe(32)  # other users of this machine can reach the port
        self._listening = socket.create_server((LOOPBACK_HOSTS[0], 0))
        self.address = f"http://{LOOPBACK_HOSTS[0]}:{self._listening.getsockname()[1]}/"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "contextc.web.background_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals of the terminal are for the program that runs in it
            pass_fds=() if sys.platform == "win32" else (self._listening.fileno(),),
        )
        settings: JSONObject = {"store": store, "token": self.token, "root": os.getcwd()}
        if sys.platform == "win32":
            settings["shared"] = self._listening.share(self._process.pid)
        else:
            settings["number"] = self._listening.fileno()
            self._listening.close()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
            self._process.stdin.flush()
        self._is_ready = Event()
        Thread(target=self._wait_until_ready, daemon=True).start()

    def _wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            if output.read(1):
                self._is_ready.set()

    @property
    def has_failed(self) -> bool:
        """True if the process ended before it accepted requests."""
        return not self._is_ready.is_set() and self._process.poll() is not None

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait for the end of the process."""
        self._process.wait()

    def __enter__(self) -> "WebUIProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process. Its event streams end first, if there can be any."""
        assert self._process.stdin is not None
        self._listening.close()
        if not self._is_ready.is_set():
            self._process.kill()
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
