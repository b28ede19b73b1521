"""`contextc serve`: run the HTTP API and the web UI, by default for this machine only."""

import logging
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec.structs import asdict

from contextc._installed_packages import check_package, installed_version
from contextc.cli.command_line import Exit, Option
from contextc.cli.console import err, escape_markup, out
from contextc.cli.inputs import (
    AgentCommandOptions,
    StoreOption,
    check_positive,
    enable_telemetry,
    open_configured_store,
)
from contextc.cli.proxy import PORT as PROXY_PORT
from contextc.cli.server_access import (
    INSTALL_WEB,
    TOKEN_VARIABLE,
    WEB_PACKAGES,
    accepted_hosts,
    bracketed,
    choose_token,
    display_host,
    has_display,
    open_browser,
    printed_link,
    redirect_file,
    with_token,
)
from contextc.config import read_settings
from contextc.errors import InvalidSetting
from contextc.store.turn_queue import DEFAULT_QUEUE

PORT = 8377
DEFAULT_PORTS = {"http": 80, "https": 443}


class ServeOptions(AgentCommandOptions, frozen=True, kw_only=True):
    """The options of the command."""

    host: Annotated[str, Option("--host", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option("--port", help="The port; 0 selects a free one.")] = PORT
    model: Annotated[
        str | None,
        Option("--model", "-m", help="The default provider and model (default: configured, or local)."),
    ] = None
    token: Annotated[
        str | None,
        Option(
            "--token",
            help=f"The token that clients must send (default: {TOKEN_VARIABLE} of the environment, or a random one).",
        ),
    ] = None
    no_token: Annotated[bool, Option("--no-token", help="Require no token: every user of this machine has access.")] = (
        False
    )
    approval_timeout: Annotated[
        int | None,
        Option("--approval-timeout", help="Seconds after which a pending approval is denied (default: never)."),
    ] = None
    origin: Annotated[
        list[str] | None,
        Option("--origin", help="Another allowed origin, as in http://localhost:3000; repeatable."),
    ] = None
    open: Annotated[
        bool | None, Option("--open", negative="--no-open", help="Open a browser (default: if there is a display).")
    ] = None
    proxy: Annotated[
        bool, Option("--proxy", help="Also run `contextc proxy` on this machine, with the same store.")
    ] = False
    proxy_port: Annotated[int, Option("--proxy-port", help="The port of --proxy; 0 selects a free one.")] = PROXY_PORT
    queue: Annotated[
        bool, Option("--queue", help="Submit turns to `contextc worker` processes instead of running them.")
    ] = False
    queue_name: Annotated[str, Option("--queue-name", help="The queue of --queue.")] = DEFAULT_QUEUE
    store: StoreOption = None


def run(**given: Any) -> None:
    """Run the web UI and the HTTP API. Ctrl-C stops it and running turns; partial answers are kept."""
    options = ServeOptions(**given)
    check_positive(
        budget=options.budget,
        output=options.output,
        steps=options.steps,
        **{"approval-timeout": options.approval_timeout},
    )
    for package in WEB_PACKAGES:
        if installed_version(package) is not None:
            check_package(package, extra="web")
    try:
        from contextc._garbage_collection import collect_garbage_rarely
        from contextc.web.app_state import ServerOptions
        from contextc.web.application import create_application
        from contextc.web.server import create_server, listen
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise InvalidSetting(
            f"The package {error.name!r} is not installed", fix=f"Install it: {INSTALL_WEB}."
        ) from error
    from contextc.app.agent_factory import describe_instruction_files, describe_mcp_servers, resolve_model

    if options.queue and sys.platform == "win32":
        raise InvalidSetting("--queue requires Linux or macOS", fix="Run the server there, or without --queue.")
    enable_telemetry()
    secret = choose_token(options.host, options.token, options.no_token)
    chosen = options.chosen()
    model = resolve_model(options.model)  # an unknown model raises before the server starts
    for line in (*describe_instruction_files(model.provider, chosen), *describe_mcp_servers(model.provider, chosen)):
        err.print(escape_markup(line), soft_wrap=True)
    if options.proxy:
        # Else its process would end, and the web UI would go on without it.
        from contextc.proxy.proxy_server import listen as listen_for_proxy  # it takes time to import

        try:
            listen_for_proxy("127.0.0.1", options.proxy_port).close()
        except InvalidSetting as error:
            raise InvalidSetting(
                f"proxy: {error.problem}", fix="Use another port: --proxy-port 0 selects a free one."
            ) from error
    served = ServerOptions(
        **asdict(chosen),
        model=options.model,
        queue=options.queue_name if options.queue else "",
        approval_timeout=options.approval_timeout,
        token=secret,
        hosts=accepted_hosts(options.host),
        origins=tuple([_parse_origin(each) for each in options.origin or ()]),
    )
    with (
        listen(options.host, options.port) as listening,
        open_configured_store(options.store, create=True) as handle,
    ):
        address = f"http://{display_host(options.host)}:{listening.getsockname()[1]}/"
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        is_shown = options.open if options.open is not None else has_display()
        with ExitStack() as leaving:
            ready = partial(_announce, address, secret, is_shown, leaving)
            server = create_server(create_application(handle, served), ready)
            if options.proxy:
                store = read_settings(options.store).store.value
                leaving.enter_context(_running_proxy(store, options.proxy_port))
            collect_garbage_rarely()
            server.run([listening])
    if server.exit_code:
        raise Exit(server.exit_code)


ServeOptions.set_signature(run)


@contextmanager
def _running_proxy(store: str, port: int) -> Generator[None]:
    """Run `contextc proxy` in a process that ends with this one. The web UI does not delay its requests."""
    process = subprocess.Popen(
        [sys.executable, "-m", "contextc", "proxy", "--until-eof", "--port", str(port)],
        stdin=subprocess.PIPE,
        env={**os.environ, "CONTEXTC_STORE": store},
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        with suppress(OSError):
            process.stdin.close()
        process.wait()


def _announce(address: str, secret: str, is_shown: bool, stack: ExitStack) -> None:
    """Print the address when the server is ready, and open it in a browser if requested."""
    out.print(f"contextc is at [bold]{escape_markup(address)}[/] · Ctrl-C stops it", soft_wrap=True)
    if secret:
        link = printed_link(with_token(address, secret), sys.stdout, stack)
        out.print(f"with its token: {escape_markup(link)}", soft_wrap=True)
    else:
        err.print("[yellow]warning:[/] no token: every user of this machine can use this server.", soft_wrap=True)
    sys.stdout.flush()
    if is_shown:
        open_browser(redirect_file(with_token(address, secret), stack) if secret else address)


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
