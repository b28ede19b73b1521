"""`contextc proxy`: record the model requests of other programs, which use its address in place of the provider's."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Annotated

from contextc.cli.command_line import Option
from contextc.cli.console import err, escape_markup, out, pluralize
from contextc.cli.inputs import StoreOption, open_configured_store
from contextc.cli.server_access import TOKEN_VARIABLE, accepted_hosts, choose_token, display_host, printed_link
from contextc.config import read_settings
from contextc.errors import InvalidSetting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.proxy.client_setup import ProxyAddresses
    from contextc.proxy.proxy_server import ProxyServer
    from contextc.proxy.proxy_status import TrafficSummary
    from contextc.proxy.upstreams import Upstream

PORT = 8788
TIMEOUT = 3600.0
"""Model calls can take many minutes."""
ACTION_TEXTS = {"lint": "a provider would refuse", "fix": "repaired", "fit": "cut", "convert": "converted"}
UpstreamOption = Annotated[
    list[str] | None,
    Option("--upstream", help="Another upstream, or another address of a known one: NAME=URL; repeatable."),
]
RedactOption = Annotated[
    list[str] | None,
    Option("--redact", help="Remove before storing: keys, tokens, mail, or a regular expression; repeatable."),
]
TimeoutOption = Annotated[
    float, Option("--timeout", help="Seconds without a byte from an upstream after which a request fails.")
]
LintOption = Annotated[bool, Option("--lint", help="Report what a provider would refuse. Requests pass unchanged.")]
FixOption = Annotated[bool, Option("--fix", help="Repair what a provider would refuse, before it is sent.")]

FitOption = Annotated[bool, Option("--fit", help="Cut requests to the window of their model, before they are sent.")]
ConvertOption = Annotated[
    str | None,
    Option(
        "--convert",
        metavar="PROVIDER:MODEL",
        help="Let another provider answer, with a key of this environment. Clients keep their format.",
    ),
]


def run(
    host: Annotated[str, Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", help="The port; 0 selects a free one.")] = PORT,
    token: Annotated[
        str | None,
        Option(
            "--token",
            help=f"The token that clients must send (default: {TOKEN_VARIABLE} of the environment, or a random one).",
        ),
    ] = None,
    no_token: Annotated[
        bool, Option("--no-token", help="Require no token: every user of this machine can use the proxy.")
    ] = False,
    upstream: UpstreamOption = None,
    redact: RedactOption = None,
    timeout: TimeoutOption = TIMEOUT,
    lint: LintOption = False,
    fix: FixOption = False,
    fit: FitOption = False,
    convert: ConvertOption = None,
    directory: Annotated[
        Path | None,
        Option("--directory", help="The project of all programs that use the proxy: `contextc mcp` shows it there."),
    ] = None,
    until_eof: Annotated[bool, Option("--until-eof", hidden=True, help="Stop when standard input ends.")] = False,
    store: StoreOption = None,
) -> None:
    """Run a proxy that forwards model requests and records them. Ctrl-C stops it."""
    from contextc.observation.exchange_redaction import compile_patterns  # it takes time to import
    from contextc.providers import provider
    from contextc.proxy.access_checks import AccessRules
    from contextc.proxy.acting_exchanges import ActingOptions
    from contextc.proxy.client_setup import ProxyAddresses
    from contextc.proxy.proxy_server import ProxyServer, listen
    from contextc.proxy.relay import Timeouts
    from contextc.proxy.upstreams import load_upstreams

    secret = choose_token(host, token, no_token, is_in_path=True)
    if convert and not secret:
        raise InvalidSetting("--convert needs a token, because it uses a key of this server", fix="Remove --no-token.")
    upstreams = load_upstreams(upstream or ())
    compile_patterns(redact)
    address = prepare_store(store)
    with ExitStack() as leaving, listen(host, port) as listening:
        proxy = ProxyServer(
            address,
            upstreams,
            access=AccessRules(hosts=accepted_hosts(host), token=secret),
            redact=tuple(redact or ()),
            timeouts=Timeouts(silence=timeout),
            directory=str(directory.expanduser().absolute()) if directory is not None else "",
            acting=ActingOptions(lints=lint, fixes=fix, fits=fit, converts_to=provider(convert) if convert else None),
        )
        base = f"http://{display_host(host)}:{listening.getsockname()[1]}"

        def announce() -> None:
            out.print(f"contextc proxy is at [bold]{base}[/] · Ctrl-C stops it", soft_wrap=True)
            addresses = ProxyAddresses.make(base, secret)
            if secret and not sys.stdout.isatty():  # it may be a log
                link = printed_link(f"{addresses.secret}/contextc/status", sys.stdout, leaving)
                out.print(f"with its token: {escape_markup(link)}", soft_wrap=True)
                listed = ProxyAddresses.make(base, "TOKEN").listed
                addresses = ProxyAddresses(listed, listed)
            print_setup(addresses, upstreams)
            sys.stdout.flush()
            if not secret:
                err.print(
                    "[yellow]warning:[/] no token: every user of this machine can use this proxy.", soft_wrap=True
                )

        async def serve() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()

            def end(_number: int, _frame: FrameType | None) -> None:
                loop.call_soon_threadsafe(stop.set)

            def end_with_input() -> None:
                while sys.stdin.buffer.readline():
                    pass
                with suppress(RuntimeError):  # the loop is closed already
                    loop.call_soon_threadsafe(stop.set)

            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, end)
            if until_eof:
                Thread(target=end_with_input, name="contextc-input", daemon=True).start()
            await proxy.run(listening, stop, announce)

        asyncio.run(serve())
        is_recorded = proxy.close()
    print_actions(proxy.summary)
    print_gaps(proxy, is_recorded)


def prepare_store(store: str | None) -> str:
    """Create the store if it is missing, and return its address for another process."""
    with open_configured_store(store, create=True):
        return read_settings(store).store.value


def print_setup(proxy: "ProxyAddresses", upstreams: "Mapping[str, Upstream]") -> None:
    """Print the variable or the option of each client."""
    from contextc.proxy.client_setup import base_url, client_tables
    from contextc.proxy.upstreams import known_upstreams

    rows: list[tuple[str, str]] = []
    tables = client_tables()
    for variable in tables.variable:
        if variable.upstream in upstreams:
            url = base_url(proxy.secret, upstreams[variable.upstream], variable.base)
            rows.append((f"export {variable.name}={url}", variable.used_by))
    for hint in tables.hint:
        if hint.upstream in upstreams:
            address = proxy.listed if hint.is_argument else proxy.secret
            rows.append((hint.text.replace("{url}", base_url(address, upstreams[hint.upstream])), hint.client))
    known = known_upstreams()
    rows += [(base_url(proxy.secret, each), name) for name, each in upstreams.items() if name not in known]
    width = max([len(text) for text, _ in rows])
    for text, client in rows:
        out.print(f"  {escape_markup(text.ljust(width))}  [dim]{escape_markup(client)}[/]", soft_wrap=True)
    missing = [facts["note"] for name, facts in known.items() if name not in upstreams]
    for note in missing:
        out.print(f"  [dim]{escape_markup(note)}[/]", soft_wrap=True)


def print_actions(summary: "TrafficSummary") -> None:
    """Print on standard error what options found or changed, one line each."""
    for rule, figures in summary.actions.items():
        codes = ", ".join([f"{code} ({pluralize(count, 'time')})" for code, count in figures.codes.most_common(5)])
        cache = f" · {figures.cache_tokens:,} tokens from the first change on" if figures.cache_tokens else ""
        failed = f" (not done for {figures.failed:,})" if figures.failed else ""
        text = f"{ACTION_TEXTS[rule]} {pluralize(figures.requests, 'request')}{failed}"
        err.print(escape_markup(f"{rule}: {text}{f': {codes}' if codes else ''}{cache}"), soft_wrap=True)


def print_gaps(proxy: "ProxyServer", is_recorded: bool) -> None:
    """Print what was not recorded, if there is something."""
    for reason, count in proxy.gaps.counts.items():
        err.print(
            f"[yellow]warning:[/] {pluralize(count, 'request')} not recorded: {escape_markup(reason)}", soft_wrap=True
        )
    if not is_recorded:
        why = f" ({escape_markup(proxy.recorder.error)})" if proxy.recorder.error else ""
        err.print(
            f"[yellow]warning:[/] some requests are not recorded yet{why}. They are kept, and the next proxy with this "
            "store records them.",
            soft_wrap=True,
        )
