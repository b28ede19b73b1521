"""`contextc worker`: run turns of a PostgreSQL store that were submitted to its queue."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from types import FrameType
from typing import Annotated, cast

from contextc._garbage_collection import collect_garbage_rarely
from contextc.cli.command_line import Argument, Option
from contextc.cli.console import err, escape_markup, out
from contextc.cli.inputs import StoreOption, enable_telemetry, open_configured_store
from contextc.errors import InvalidSetting
from contextc.executor import AgentExecutor
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT
from contextc.store.turn_queue import DEFAULT_QUEUE
from contextc.worker import TurnWorker, WorkerOptions, WorkerTurn, cancel_parked, parked_turns, resume_parked

SHAPE = "a mapping from names to functions that get the store and return an AgentExecutor"


def run(
    agents: Annotated[
        str | None, Argument(metavar="MODULE:NAME", help=f"The agents: {SHAPE}, in an importable module.")
    ] = None,
    concurrency: Annotated[int, Option("--concurrency", help="Turns at a time.")] = 10,
    queue: Annotated[str, Option("--queue", help="The name of the queue.")] = DEFAULT_QUEUE,
    slots: Annotated[
        list[str] | None,
        Option("--slots", help="Model calls at a time over all workers, as in anthropic=20; repeatable."),
    ] = None,
    health: Annotated[
        str | None, Option("--health", help="Serve /health and /metrics here, as in 127.0.0.1:9100 or 9100.")
    ] = None,
    heartbeat: Annotated[
        float, Option("--heartbeat", help="Seconds between two signs of life; three missing ones count.")
    ] = 5.0,
    parked: Annotated[bool, Option("--parked", help="Only list the turns that workers gave up on.")] = False,
    resume: Annotated[
        str | None, Option("--resume", metavar="NAME", help="Only submit a parked turn of a conversation again.")
    ] = None,
    cancel: Annotated[
        str | None, Option("--cancel", metavar="NAME", help="Only give up a parked turn of a conversation.")
    ] = None,
    agent: Annotated[str, Option("--agent", help="The agent of --resume and --cancel.")] = DEFAULT_AGENT,
    store: StoreOption = None,
) -> None:
    """Run submitted turns until SIGTERM or Ctrl-C: steps that run are finished, and their turns handed over."""
    options = WorkerOptions(queue=queue, concurrency=concurrency, heartbeat=heartbeat, slots=_parse_slots(slots or []))
    host, port = _parse_address(health) if health is not None else ("", 0)
    if parked or resume is not None or cancel is not None:
        with open_configured_store(store) as handle:
            if resume is not None:
                _report("submitted again", resume_parked(handle, resume, agent=agent))
            if cancel is not None:
                _report("cancelled", cancel_parked(handle, cancel, agent=agent))
            if parked:
                _list_parked(handle)
        return
    if agents is None:
        raise InvalidSetting("the agents are missing", fix="Name them as MODULE:NAME.")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    enable_telemetry()
    found = _load_agents(agents)
    with open_configured_store(store, create=True) as handle:
        worker = TurnWorker(handle, _make_agents(agents, found, handle), options)
        collect_garbage_rarely()
        with asyncio.Runner(loop_factory=create_loop) as runner:
            runner.run(_run(worker, host if health is not None else None, port))


def create_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that connections of psycopg can use, which the usual one of Windows is not."""
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def call_on_signals(call: Callable[[], object]) -> None:
    """Call a function of the running loop on SIGTERM and Ctrl-C, until this process ends."""
    loop = asyncio.get_running_loop()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(call)

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, call)
        except NotImplementedError:  # Windows
            signal.signal(number, on_signal)


async def _run(worker: TurnWorker, host: str | None, port: int) -> None:
    from contextc.worker.health_server import serve_health

    call_on_signals(worker.stop)
    async with AsyncExitStack() as stack:
        if host is not None:
            bound = await stack.enter_async_context(serve_health(worker, host, port))
            out.print(f"health and metrics are at http://{escape_markup(host)}:{bound}", soft_wrap=True)
        names = escape_markup(", ".join(worker.agents))
        out.print(f"worker of queue {escape_markup(worker.options.queue)} runs {names} · Ctrl-C stops it")
        sys.stdout.flush()
        await worker.run()
    out.print("worker stopped")


def _list_parked(store: Store) -> None:
    found = parked_turns(store)
    for each in found:
        out.print(_describe(each), soft_wrap=True)
    if not found:
        err.print("no parked turns")


def _report(done: str, turn: WorkerTurn) -> None:
    out.print(f"{done}: {_describe(turn)}", soft_wrap=True)


def _describe(parked: WorkerTurn) -> str:
    turn = f"turn {parked.turn}" if parked.turn else "not begun"
    where = f"[bold]{escape_markup(parked.conversation)}[/] {escape_markup(parked.agent)}"
    return f"{where} {turn}: {escape_markup(parked.reason)}"


def _load_agents(spec: str) -> Mapping[str, object]:
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise InvalidSetting("the agents must be MODULE:NAME", got=spec)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidSetting(
            f"module {module!r} not found", fix="Run the worker in its folder, or install its package."
        ) from error
    if not hasattr(loaded, name):
        raise InvalidSetting(f"module {module!r} has no {name!r}", fix=f"Define {name}: {SHAPE}.")
    found: object = getattr(loaded, name)
    if not isinstance(found, Mapping):
        raise InvalidSetting(f"{spec} must be {SHAPE}, got {type(found).__name__}")
    return cast("Mapping[str, object]", found)


def _make_agents(spec: str, found: Mapping[str, object], store: Store) -> dict[str, AgentExecutor]:
    made: dict[str, AgentExecutor] = {}
    for name, each in found.items():
        if not callable(each):
            raise InvalidSetting(f"{spec}: agent {name!r} must be a function, got {type(each).__name__}")
        executor = cast("Callable[[Store], object]", each)(store)
        if not isinstance(executor, AgentExecutor):
            got = type(executor).__name__
            raise InvalidSetting(f"{spec}: agent {name!r} must return an AgentExecutor, got {got}")
        made[name] = executor
    return made


def _parse_slots(given: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in given:
        provider, _, number = each.partition("=")
        if not provider or not number.isdigit() or int(number) < 1:
            raise InvalidSetting("--slots must be PROVIDER=NUMBER", got=each, fix="Write it as anthropic=20.")
        found[provider] = int(number)
    return found


def _parse_address(given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise InvalidSetting("--health must be HOST:PORT", got=given, fix="Write it as 127.0.0.1:9100.")
    return host.strip("[]") or "127.0.0.1", int(port)
