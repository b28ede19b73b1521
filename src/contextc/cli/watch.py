"""`contextc watch -- COMMAND`: run a program, record its model requests, show them in the web UI, print a summary.

The program has the terminal to itself: it inherits standard input and output, and signals of the terminal reach it
directly. Its variables and options are set for this process only.
"""

import os
import secrets
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec.structs import replace

from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import err, escape_markup, format_dollars, ignoring_failed_output, out, pluralize
from contextc.cli.inputs import StoreOption, open_configured_store
from contextc.cli.proxy import (
    PORT,
    TIMEOUT,
    ConvertOption,
    FitOption,
    FixOption,
    LintOption,
    RedactOption,
    TimeoutOption,
    UpstreamOption,
    prepare_store,
    print_actions,
    print_gaps,
    print_setup,
)
from contextc.cli.server_access import (
    INSTALL_WEB,
    WebUIProcess,
    is_web_installed,
    open_browser,
    printed_link,
    redirect_file,
    with_token,
)
from contextc.errors import ContextcError, InvalidSetting
from contextc.store import Store

if TYPE_CHECKING:
    from contextc.analysis.finding import Finding
    from contextc.observation.observed_request import ObservedRequest
    from contextc.proxy.client_setup import ClientSetup
    from contextc.proxy.forward_proxy import ForwardProxy
    from contextc.proxy.proxy_server import ProxyServer
    from contextc.proxy.proxy_status import ProxyStatus, TrafficSummary


SIGNAL_EXIT_CODE = 128
FORWARDED_SIGNALS = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that are sent to this process only. Those of the terminal reach the program by themselves."""
STOP_SIGNALS = ("SIGTERM", "SIGHUP")
TERMINAL_SIGNALS = ("SIGINT", "SIGQUIT")
BACKGROUND_SECONDS = 0.5
"""Seconds between looks for processes in the background."""
KEY_SECONDS = 0.3
"""Seconds between looks whether the web UI is still wanted."""
STANDARD_FILES = range(3)
MAX_NAMED = 3
INSTALL_WATCH = "pip install 'contextc[watch]', or '.[watch]' in a clone"
MAX_ANALYSED = 2_000
"""The number of requests of a run up to which it is analysed at once."""


def run(
    command: Annotated[
        list[str] | None, Argument(help="The program and its arguments, after --.", show_default=False)
    ] = None,
    upstream: UpstreamOption = None,
    redact: RedactOption = None,
    timeout: TimeoutOption = TIMEOUT,
    lint: LintOption = False,
    fix: FixOption = False,
    fit: FitOption = False,
    convert: ConvertOption = None,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print no link and no summary; start the web UI only with --open.")
    ] = False,
    no_web: Annotated[bool, Option("--no-web", help="Do not start the web UI.")] = False,
    open: Annotated[bool, Option("--open", help="Open the web UI in a browser.")] = False,
    exit: Annotated[
        bool, Option("--exit", help="End the web UI with the program. Without it, and in a terminal, a key ends it.")
    ] = False,
    attach: Annotated[
        bool, Option("--attach", help="Run nothing: print a line per request that a running proxy records.")
    ] = False,
    via: Annotated[
        Literal["proxy", "base-url"] | None,
        Option(
            "--via",
            help="How the program reaches contextc: as its HTTPS proxy, or by a base URL. The default depends on the "
            "program.",
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run a program and record the model requests that it sends. Without one, print what to set for each client."""
    if attach:
        if command:
            raise InvalidSetting("--attach runs no program", got=command[0], fix="Remove --attach, or the program.")
        with open_configured_store(store) as handle:
            follow_recorded_requests(handle)
        return
    from contextc.proxy.upstreams import load_upstreams  # it takes time to import

    upstreams = load_upstreams(upstream or ())
    if not command:
        out.print("Run a program with [bold]contextc watch -- COMMAND[/], or start [bold]contextc proxy[/] and set:")
        from contextc.proxy.client_setup import ProxyAddresses

        print_setup(ProxyAddresses.make(f"http://127.0.0.1:{PORT}", "TOKEN"), upstreams)
        return
    if shutil.which(command[0]) is None:
        raise InvalidSetting("Program not found", got=command[0], fix="Write the command after `--`.")
    from contextc.observation.exchange_redaction import compile_patterns
    from contextc.providers import provider
    from contextc.proxy.access_checks import AccessRules
    from contextc.proxy.acting_exchanges import ActingOptions
    from contextc.proxy.client_setup import ProxyAddresses, find_set_upstreams, set_up_client, set_up_forwarded_client
    from contextc.proxy.proxy_server import ProxyServer, listen
    from contextc.proxy.relay import Timeouts

    compile_patterns(redact)
    is_moved = convert is not None or any([each.known_as and not each.is_vendor for each in upstreams.values()])
    already_set = find_set_upstreams(os.environ, upstreams)
    upstreams = {**upstreams, **{each.name: each for each in already_set.values()}}
    token = secrets.token_urlsafe(16)  # other users of this machine can reach the port
    forward = None
    if _is_forwarded(command, via, is_moved=is_moved):
        from contextc.proxy.forward_proxy import ForwardProxy

        forward = ForwardProxy(upstreams, token)
    address = prepare_store(store)
    proxy = ProxyServer(
        address,
        upstreams,
        forward=forward,
        access=AccessRules(token=token),
        redact=tuple(redact or ()),
        timeouts=Timeouts(silence=timeout),
        directory=os.getcwd(),
        acting=ActingOptions(lints=lint, fixes=fix, fits=fit, converts_to=provider(convert) if convert else None),
    )
    with ExitStack() as leaving:
        wants_web, link = _wants_web(no_web, quiet, open), ""
        with ExitStack() as running:
            listening = running.enter_context(listen("127.0.0.1", 0))
            url = running.enter_context(proxy.running(listening))
            if forward is not None:
                trust = running.enter_context(forward.trusted_in(os.environ))
                setup = set_up_forwarded_client(command, os.environ, forward.client_url(url), trust, forward.hosts)
            else:
                addresses = ProxyAddresses.make(url, token)
                setup = set_up_client(
                    command, os.environ, addresses, upstreams, already_set, is_converted=convert is not None
                )
            web = leaving.enter_context(WebUIProcess(address)) if wants_web else None
            if web is not None:
                with ignoring_failed_output():
                    link = _announce(web, quiet, open, leaving)
            code, is_stopped = run_program(setup.command, setup.environment)
            is_stopped = wait_for_background(proxy, token) or is_stopped
        is_recorded = proxy.close()
        with ignoring_failed_output():
            if web is not None and web.has_failed:
                err.print("[yellow]warning:[/] the web UI did not start. Start it with contextc serve.", soft_wrap=True)
            if not quiet:
                print_summary(proxy.summary, store, why_nothing_was_recorded(proxy, forward, setup))
                print_actions(proxy.summary)
                print_most_expensive(proxy.summary, store)
            print_gaps(proxy, is_recorded)
            is_over = exit or quiet or is_stopped or not proxy.summary.requests
            if web is not None and not is_over and has_terminal():
                wait_for_key(web, link)
    raise Exit(code)


def _is_forwarded(command: Sequence[str], via: str | None, *, is_moved: bool) -> bool:
    """Return True if the program reaches contextc as its proxy. Without the package for certificates, it cannot.

    With `is_moved`, another server answers than the one that the program calls by itself.
    """
    from contextc._installed_packages import installed_version
    from contextc.proxy.client_setup import wants_forward_proxy

    if via is not None or is_moved or not wants_forward_proxy(command, os.environ):
        return via == "proxy"
    if installed_version("cryptography") is not None:
        return True
    with ignoring_failed_output():
        err.print(
            f"[yellow]warning:[/] {escape_markup(os.path.basename(command[0]))} gets a base URL and may behave "
            f"differently. What prevents that is not installed: {escape_markup(INSTALL_WATCH)}",
            soft_wrap=True,
        )
    return False


def why_nothing_was_recorded(
    proxy: "ProxyServer", forward: "ForwardProxy | None", setup: "ClientSetup"
) -> Sequence[str]:
    """Return the reasons why a run has no record, as far as they are known."""
    reasons = list(setup.unrecorded)
    if forward is not None:
        if forward.distrusted:
            reasons.append(f"the program did not accept the certificate of contextc for {_join(forward.distrusted)}.")
        if forward.tunnelled:
            reasons.append(
                f"contextc does not know the hosts that the program called: {_join(forward.tunnelled)}. If one of them "
                "is a provider, name it with --upstream NAME=https://HOST."
            )
        if forward.unreachable:
            reasons.append(f"hosts that the program called cannot be reached: {_join(forward.unreachable)}.")
    if proxy.relay.unrecorded:
        reasons.append(f"what the program sent is not for a model: {_join(proxy.relay.unrecorded)}.")
    if reasons or proxy.relay.requests:
        return reasons
    if forward is not None:
        return [
            "the program sent nothing through the proxy in HTTPS_PROXY. Node's own fetch uses it from Node 22.21 on. "
            "--via base-url sets base URLs instead."
        ]
    return ["the program called none of the addresses that were set. --via proxy also records programs without one."]


def _join(names: Mapping[str, int]) -> str:
    shown = sorted(names, key=lambda each: -names[each])[:MAX_NAMED]
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(shown) + more


def _wants_web(no_web: bool, quiet: bool, open: bool) -> bool:
    """Return True if the web UI is to be started. Print a hint if it is not installed."""
    if no_web or (quiet and not open):
        return False
    if not is_web_installed():
        with ignoring_failed_output():
            err.print(f"The web UI is not installed: {escape_markup(INSTALL_WEB)}", soft_wrap=True)
        return False
    return True


def _announce(web: WebUIProcess, quiet: bool, open: bool, leaving: ExitStack) -> str:
    """Print the link to the web UI, or open it, and return it. It leads to the requests as soon as there are any."""
    link = f"{with_token(web.address, web.token)}#/live/{time.time_ns() // 1_000_000}"
    if not quiet:
        shown = printed_link(link, sys.stderr, leaving)
        err.print(f"contextc shows the requests at\n{escape_markup(shown)}", soft_wrap=True)
        sys.stderr.flush()
    if open:
        open_browser(redirect_file(link, leaving))
    return link


def has_terminal() -> bool:
    """Return True if there is a person at a terminal: this process has all of it, and is not in the background."""
    if not all([os.isatty(each) for each in STANDARD_FILES]):
        return False
    return sys.platform == "win32" or os.tcgetpgrp(STANDARD_FILES[0]) == os.getpgrp()


def wait_for_key(web: WebUIProcess, link: str) -> None:
    """Keep the web UI until a key is pressed, or Ctrl-C or SIGTERM. What was typed before does not count."""
    err.print(f"The web UI stays until you press a key: {escape_markup(link)}", soft_wrap=True)
    sys.stderr.flush()
    with _stopped_by_signals() as stop, _single_keys() as is_pressed:
        while web.is_running and not stop.is_set() and not is_pressed(KEY_SECONDS):
            pass


@contextmanager
def _single_keys() -> "Generator[Callable[[float], bool]]":
    """Make keys of the terminal readable at once. Yield a function that waits some seconds for one."""
    if sys.platform == "win32":
        import msvcrt

        def is_hit(seconds: float) -> bool:
            time.sleep(seconds)
            return bool(msvcrt.kbhit() and msvcrt.getch())

        yield is_hit
    else:
        import termios
        import tty

        terminal = STANDARD_FILES[0]
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal)

        def is_readable(seconds: float) -> bool:
            return bool(select.select([terminal], [], [], seconds)[0])

        try:
            yield is_readable
        finally:
            with suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(terminal, termios.TCSAFLUSH, before)  # the key is not for the shell


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bool]:
    """Run a program in this terminal. Return its exit code, and whether this process was to stop meanwhile.

    The code is 128 and the number of a signal that ended the program.
    """
    with _signals_for_program() as (start, stopping):
        code = _wait(start(command, environment))
        return SIGNAL_EXIT_CODE - code if code < 0 else code, bool(stopping)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a program, and handle signals meanwhile, whichever thread they are delivered to.

    Handlers run in the main thread, and `process.wait()` is not interrupted by a signal that another thread gets.
    """
    if not hasattr(signal, "SIGCHLD"):
        return process.wait()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    on_child_end = signal.signal(signal.SIGCHLD, _ignore)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        while (code := process.poll()) is None:
            os.read(reader, 1024)  # each signal writes a byte, also that a child has ended
        return code
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, on_child_end)
        os.close(reader)
        os.close(writer)


def wait_for_background(proxy: "ProxyServer", token: str) -> bool:
    """Keep the proxy for processes that the program has left in the background, as long as they may use it.

    These have its address, and there was no request yet, or they are connected. Ctrl-C and SIGTERM end the wait, and
    True is returned.
    """
    from contextc.proxy.access_checks import find_processes

    with _stopped_by_signals() as stop:
        is_announced = False
        while (not proxy.relay.requests or proxy.relay.clients) and (left := find_processes(token)):
            if not is_announced:
                is_announced = True
                with ignoring_failed_output():
                    numbers = ", ".join([str(each) for each in left[:5]])
                    err.print(
                        f"contextc goes on: the program left a process in the background ({numbers}). Ctrl-C ends it.",
                        soft_wrap=True,
                    )
            if stop.wait(BACKGROUND_SECONDS):
                return True
    return False


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing. A handler, unlike SIG_IGN, is not inherited by the program."""


@contextmanager
def _signals_for_program() -> (
    "Generator[tuple[Callable[[Sequence[str], Mapping[str, str]], subprocess.Popen[bytes]], list[int]]]"
):
    """Leave signals of the terminal to the program, and forward the others.

    Yield the function that starts it, and a list of the signals to stop that arrive.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []
    stopping: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if signal.Signals(number).name in STOP_SIGNALS:
            stopping.append(number)
        if not started:
            early.append(number)
        for process in started:
            process.send_signal(number)

    def start(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(command, env=dict(environment))
        started.append(process)
        for number in early:
            process.send_signal(number)
        return process

    handlers = {name: forward for name in FORWARDED_SIGNALS} | {name: _ignore for name in TERMINAL_SIGNALS}
    with _signal_handlers(handlers):
        yield start, stopping


@contextmanager
def _stopped_by_signals() -> Generator[Event]:
    """Yield an event that Ctrl-C and SIGTERM set."""
    stop = Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    with _signal_handlers({"SIGINT": end, "SIGTERM": end}):
        yield stop


@contextmanager
def _signal_handlers(handlers: "Mapping[str, Callable[[int, FrameType | None], None]]") -> Generator[None]:
    """Handle signals, as far as the system has them, and restore their earlier handlers."""
    before = {
        number: signal.signal(number, handler)
        for name, handler in handlers.items()
        if (number := getattr(signal, name, None)) is not None
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_summary(summary: "TrafficSummary", store: str | None, reasons: Sequence[str] = ()) -> None:
    """Print the figures of the run on standard error: standard output is the program's.

    An empty line is first, because the program may have ended without a newline. `reasons` say why requests may not
    have been recorded.
    """
    err.print()
    if not summary.requests:
        err.print(
            "contextc recorded no model request. `contextc watch` alone lists what programs can be pointed at it.",
            soft_wrap=True,
        )
        for reason in reasons:
            err.print(escape_markup(f"not recorded, because {reason}"), soft_wrap=True)
        return
    failed = f" ({summary.failed:,} failed or unfinished)" if summary.failed else ""
    is_unknown = not summary.input and not summary.output and bool(summary.without_usage)
    is_priced = bool(summary.cost) or not (summary.without_cost or is_unknown)
    cost = format_dollars(summary.cost, is_lower_bound=summary.cost_is_lower_bound) if is_priced else "unknown cost"
    cost += f" without {pluralize(summary.without_cost, 'request')}" if summary.cost and summary.without_cost else ""
    tokens = "unknown" if is_unknown else f"{summary.input:,} in, {summary.output:,} out"
    lines = [
        f"contextc recorded {pluralize(summary.requests, 'request')}{failed} in "
        f"{pluralize(len(summary.conversations), 'conversation')}",
        f"tokens: {tokens} · {cost}",
    ]
    if summary.without_usage:
        lines.append(
            f"not counted: {pluralize(summary.without_usage, 'request')} for which no usage was reported, with about "
            f"{summary.estimate:,} tokens in"
        )
    if summary.cache_share is not None and summary.rewrite_factor is not None:
        lines.append(
            f"cache: {summary.cache_share:.0%} of the input read, {summary.cache_write:,} tokens written · "
            f"rewrite factor {summary.rewrite_factor:.1f} (1.0 is ideal)"
        )
    if summary.breaks:
        reasons = ", ".join([f"{why} ({pluralize(count, 'time')})" for why, count in summary.breaks.most_common(3)])
        lines.append(f"prefix broken: {reasons}")
    option = f" --store {store}" if store else ""
    largest = max(summary.conversations, key=lambda name: summary.conversations[name])
    explain = f"contextc explain {largest}{option}"
    lines.append(
        f"look at it: contextc serve{option}   or: {explain}" if is_web_installed() else f"look at it: {explain}"
    )
    for line in lines:
        err.print(escape_markup(line), soft_wrap=True)
    sys.stderr.flush()


def of_run(found: "Iterable[Finding]", recorded: Collection[tuple[str, str, int]]) -> "Iterator[Finding]":
    """Return the findings about requests of a run, with the tokens and the cost of these requests only.

    A finding about a whole conversation is returned if the conversation began in this run.
    """
    begun = {conversation for conversation, _, request in recorded if request == 1}
    for each in found:
        mine = [loss for loss in each.losses if (each.conversation, loss.channel, loss.request) in recorded]
        if mine:
            costs = [loss.cost for loss in mine if loss.cost is not None]
            yield replace(
                each,
                losses=tuple(mine),
                tokens=sum([loss.tokens for loss in mine]),
                cost=sum(costs) if costs else None,
                cost_is_lower_bound=any([loss.cost_is_lower_bound for loss in mine]),
            )
        elif not each.losses and (
            (each.conversation, each.channel, each.request) in recorded if each.request else each.conversation in begun
        ):
            yield each


def print_most_expensive(summary: "TrafficSummary", store: str | None) -> None:
    """Print what cost most in the conversations of the run, on one line. Without a finding, print nothing.

    The program has ended already, so a failure is not reported.
    """
    if not 0 < summary.requests <= MAX_ANALYSED:
        return
    from contextc.analysis.conversation_findings import findings, group_by_cause  # it takes time to import

    try:
        with open_configured_store(store) as handle:
            found = [each for name in summary.conversations for each in findings(handle, name)]
    except ContextcError:
        return
    causes = group_by_cause(of_run(found, summary.recorded))
    if not causes or not causes[0].cost:
        return
    most, example = causes[0], causes[0].examples[0]
    option = f" --store {store}" if store else ""
    err.print(
        escape_markup(
            f"cost most: {most.title} ({most.code}, {pluralize(most.count, 'time')}, "
            f"{format_dollars(most.cost or 0.0, is_lower_bound=most.cost_is_lower_bound)}) · more: "
            f"contextc findings {shlex.quote(example.conversation)}{option}"
        ),
        soft_wrap=True,
    )
    sys.stderr.flush()


# ── --attach ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc watch --attach`: print a line per request that a proxy, or any other process, records.


POLL_SECONDS = 0.5


def follow_recorded_requests(store: Store) -> None:
    """Print recorded requests until Ctrl-C or SIGTERM."""
    from contextc.observation.new_requests import NewRequestReader  # it takes time to import
    from contextc.proxy.proxy_status import read_statuses

    with _stopped_by_signals() as stop:
        requests, statuses = NewRequestReader(store), read_statuses(store.address)
        _print_proxies(statuses)
        gaps = count_gaps(statuses)
        while True:
            is_over = stop.wait(POLL_SECONDS)
            for request in requests.read_new():
                out.print(escape_markup(describe_request(request)), soft_wrap=True)
            found = count_gaps(read_statuses(store.address))
            for reason, count in found.items():
                if (new := count - gaps.get(reason, 0)) > 0:
                    text = f"{pluralize(new, 'request')} not recorded: {escape_markup(reason)}"
                    out.print(f"[yellow]warning:[/] {text}", soft_wrap=True)
            gaps = found
            sys.stdout.flush()
            if is_over:
                return


def _print_proxies(statuses: "list[ProxyStatus]") -> None:
    for each in statuses:
        missing = sum(each.gaps.values())
        text = f"proxy at {each.address}: {pluralize(each.requests, 'request')}, {each.recorded:,} recorded"
        err.print(escape_markup(text + (f", {missing:,} not recorded" if missing else "")), soft_wrap=True)
    if not statuses:
        err.print("No proxy records to this store at the moment. Requests are shown when one does.", soft_wrap=True)
    err.print("time, conversation, model, tokens, read from the cache, cost, what broke the prefix · Ctrl-C ends")


def count_gaps(statuses: "list[ProxyStatus]") -> Mapping[str, int]:
    """Return the gaps of all proxies, by reason."""
    found: dict[str, int] = {}
    for each in statuses:
        for reason, count in each.gaps.items():
            found[reason] = found.get(reason, 0) + count
    return found


def describe_request(request: "ObservedRequest") -> str:
    """Return the line of a request."""
    from contextc.store.ledger_schema import EpochReason

    record, usage, bill = request.record, request.usage, request.bill
    facts = record.observed
    time = datetime.fromtimestamp((facts.began if facts is not None and facts.began else record.time) / 1000)
    parts = [f"{time:%H:%M:%S}", request.conversation, f"{request.channel.provider}:{request.channel.model}"]
    if usage is not None:
        parts.append(f"{usage.input:,} in {usage.output:,} out")
        parts += [f"{usage.cache_read / usage.input:.0%} cached"] if usage.input else []
        is_lower_bound = bill is not None and bill.is_lower_bound
        parts.append("cost unknown" if bill is None else format_dollars(bill.dollars, is_lower_bound=is_lower_bound))
    if facts is not None and facts.has_failed:
        parts.append(f"{facts.status} {facts.code}" if facts.code else facts.status)
    if record.why and record.why != EpochReason.FIRST_REQUEST:
        parts.append(f"prefix broken: {record.why}")
    return "  ".join(parts)
