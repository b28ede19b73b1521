"""`contextc serve`: run the HTTP API and the web UI, by default for this machine only."""

import logging
import os
import secrets
import sys
import tempfile
import threading
import webbrowser
from contextlib import ExitStack, suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from contextc.cli.agent_options import (
    AgentOption,
    BudgetOption,
    OutputOption,
    RootOption,
    StepsOption,
    SystemOption,
    ToolsOption,
    check_positive,
    resolve_root,
)
from contextc.cli.console import err, escape_markup, out
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.cli.server_options import (
    TOKEN_VARIABLE,
    accepted_hosts,
    bracketed,
    check_token,
    display_host,
    is_loopback,
)
from contextc.errors import InvalidSetting
from contextc.store.conversation_types import DEFAULT_AGENT

PORT = 8377
DEFAULT_PORTS = {"http": 80, "https": 443}


def run(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 selects a free one.")] = PORT,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="The default provider and model (default: configured, or local)."),
    ] = None,
    agent: AgentOption = DEFAULT_AGENT,
    system: SystemOption = None,
    tools: ToolsOption = None,
    root: RootOption = Path("."),
    budget: BudgetOption = None,
    output: OutputOption = None,
    steps: StepsOption = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help=f"The token that clients must send (default: {TOKEN_VARIABLE} of the environment, or a random one).",
        ),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Require no token: every user of this machine has access.")
    ] = False,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", help="Another allowed origin, as in http://localhost:3000; repeatable."),
    ] = None,
    open: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser (default: if there is a display).")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run the web UI and the HTTP API. Ctrl-C stops it and running turns; partial answers are kept."""
    check_positive(budget=budget, output=output, steps=steps)
    try:
        from contextc.web.app_state import ServerOptions
        from contextc.web.application import create_application
        from contextc.web.server import create_server, listen
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise InvalidSetting(
            f"The package {error.name!r} is not installed", fix="Install it: pip install 'contextc[web]'"
        ) from error
    from contextc.app.model_selection import resolve_model
    from contextc.cli.chat.options import read_system_prompt

    secret = _token(host, token, no_token)
    folder = resolve_root(root)
    resolve_model(model)  # an unknown model raises before the server starts
    options = ServerOptions(
        model=model,
        agent=agent,
        root=folder,
        tools=tools,
        system=read_system_prompt(system),
        budget=budget,
        output=output,
        steps=steps,
        token=secret,
        hosts=accepted_hosts(host),
        origins=tuple([_parse_origin(each) for each in origin or ()]),
    )
    with listen(host, port) as listening, open_configured_store(store, create=True) as handle:
        address = f"http://{display_host(host)}:{listening.getsockname()[1]}/"
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        is_shown = open if open is not None else _has_display()
        with ExitStack() as leaving:
            ready = partial(_announce, address, secret, is_shown, leaving)
            server = create_server(create_application(handle, options), ready)
            server.run([listening])
    if server.exit_code:
        raise typer.Exit(server.exit_code)


def _announce(address: str, secret: str, open_browser: bool, stack: ExitStack) -> None:
    """Print the address when the server is ready, and open it in a browser if requested."""
    out.print(f"contextc is at [bold]{escape_markup(address)}[/] · Ctrl-C stops it", soft_wrap=True)
    if secret:
        out.print(f"with its token: {escape_markup(_with_token(address, secret))}", soft_wrap=True)
    else:
        err.print("[yellow]warning:[/] no token: every user of this machine can use this server.", soft_wrap=True)
    sys.stdout.flush()
    if open_browser:
        _open_browser(_redirect_file(_with_token(address, secret), stack) if secret else address)


def _redirect_file(link: str, stack: ExitStack) -> str:
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


def _with_token(address: str, secret: str) -> str:
    return f"{address}?token={quote(secret, safe='')}" if secret else address


def _token(host: str, given: str | None, none: bool) -> str:
    """Return the token that clients must send: the given one, or else a random one; "" with --no-token."""
    if none:
        if given:
            raise InvalidSetting("--token and --no-token cannot be used together", fix="Pass one of the two.")
        if not is_loopback(host):
            raise InvalidSetting(f"--no-token needs a loopback address, got --host {host}", fix="Remove --no-token.")
        return ""
    secret = check_token(given if given is not None else os.environ.get(TOKEN_VARIABLE, ""), given is not None)
    return secret or secrets.token_urlsafe(32)


def _parse_origin(value: str) -> str:
    """Return an origin as browsers send it: in lower case, and without a default port."""
    try:
        found = urlsplit(value.strip().rstrip("/"))
        name, port = found.hostname or "", found.port
    except ValueError:  # invalid port, or an unclosed bracket
        name, port, found = "", None, urlsplit("")
    more = found.path or found.query or found.fragment or "@" in found.netloc
    if found.scheme not in DEFAULT_PORTS or not name or more:
        raise InvalidSetting(
            "--origin must be scheme, host and port",
            got=value,
            fix="Write it as http://localhost:3000, without a path and without a login.",
        )
    shown = "" if port in (None, DEFAULT_PORTS[found.scheme]) else f":{port}"
    return f"{found.scheme}://{bracketed(name)}{shown}"


def _has_display() -> bool:
    """Return True if there is a terminal and a display for a browser."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open_browser(address: str) -> None:
    """Open a browser, if there is one."""

    def work() -> None:
        with suppress(Exception):
            webbrowser.open(address)

    threading.Thread(target=work, name="browser", daemon=True).start()
