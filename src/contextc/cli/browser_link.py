"""Links to the web UI with a token, and how a browser is opened at one."""

import os
import sys
import tempfile
import threading
import webbrowser
from contextlib import ExitStack, suppress
from html import escape
from pathlib import Path
from typing import TextIO
from urllib.parse import quote


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

    threading.Thread(target=work, name="browser", daemon=True).start()
