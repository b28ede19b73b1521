"""Workers as processes that can be killed, stopped and resumed, and an agent whose tools write down what they do.

Tools wait in a file: a tool of number N ends when the file `end N` exists. So a test knows what a worker does without
waiting for time.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import contextc as cc
from contextc._json import JSONObject
from contextc.cli import worker as command
from contextc.errors import ContextcError
from contextc.events import AnyEvent, TurnFinish
from contextc.worker import TurnWorker, WorkerOptions
from tests.executor.scripted_provider import SONNET, Say, Scripted, says

PROCESSES = multiprocessing.get_context("forkserver")
PATIENCE = 60
LEASE, HEARTBEAT = 1.0, 0.2


def model(request: JSONObject) -> Say:
    """Make as many calls as the last input says, one per step: `work 2`, `pay 1` or `pick 1`. Then answer."""
    asks = [index for index, each in enumerate(request["messages"]) if asked_of(each)[0]]
    tool, number = asked_of(request["messages"][asks[-1]])
    made = sum(each["role"] == "assistant" for each in request["messages"][asks[-1] :])
    if made >= number:
        return says(f"Did {tool} {number}.")
    return says("Working.", ("toolu_" + uuid.uuid4().hex, tool, {"number": made + 1}))


def asked_of(message: JSONObject) -> tuple[str, int]:
    content = message["content"]
    texts = [content] if isinstance(content, str) else [each.get("text", "") for each in content]
    for text in reversed(texts if message["role"] == "user" else []):
        tool, _, number = text.partition(" ")
        if tool in ("work", "pay", "pick") and number.isdigit():
            return tool, int(number)
    return "", 0


class ToolFiles:
    """What tools wrote down, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, line: str) -> None:
        with (self.folder / "tools.txt").open("a") as file:
            file.write(line + "\n")

    def lines(self) -> list[str]:
        path = self.folder / "tools.txt"
        return path.read_text().splitlines() if path.exists() else []

    def begun(self) -> list[str]:
        return [line.split()[1] for line in self.lines() if line.startswith("begins")]

    def end(self, number: int) -> None:
        (self.folder / f"end {number}").touch()

    def may_end(self, number: int) -> bool:
        return (self.folder / f"end {number}").exists() or (self.folder / "end all").exists()

    def end_all(self) -> None:
        (self.folder / "end all").touch()


def make_tools(folder: Path) -> list[cc.tools.FunctionTool]:
    """Return a tool that works until the test says so, and one that needs approval."""
    files = ToolFiles(folder)

    @cc.tool
    async def work(number: int, context: cc.ToolContext) -> str:
        """Work until the test says that it is enough."""
        files.note(f"begins {context.call.id} {number} {os.getpid()}")
        while not files.may_end(number):
            await asyncio.sleep(0.01)
        files.note(f"ends {context.call.id} {number} {os.getpid()}")
        return f"did {number}"

    @cc.tool(approval=True)
    def pay(number: int, context: cc.ToolContext) -> str:
        """Pay."""
        files.note(f"begins {context.call.id} {number} {os.getpid()}")
        return f"paid {number}"

    return [work, pay]


def make_agent(store: cc.Store, folder: Path, lease: float = LEASE) -> cc.AgentExecutor:
    return cc.AgentExecutor(
        store,
        SONNET,
        tools=make_tools(folder),
        endpoint=Scripted(model),
        lease_seconds=lease,
        summarize=None,
        triggers=(),
    )


def delegate(request: JSONObject) -> Say:
    """Ask both agents at once. Then answer."""
    if request["messages"][-1]["role"] == "user" and len(request["messages"]) > 1:
        return says("Did both.")
    tasks = (("runner", "work 1"), ("cashier", "pay 1"))
    return says("Asking.", *[(f"toolu_{name}", name, {"task": task}) for name, task in tasks])


def make_boss(store: cc.Store, folder: Path, lease: float = LEASE) -> cc.AgentExecutor:
    """Return an agent that delegates to two others: one works, and one needs approval."""
    made = [
        cc.Agent(SONNET, name=name, tools=[each], endpoint=Scripted(model), triggers=())
        for name, each in zip(("runner", "cashier"), make_tools(folder), strict=True)
    ]
    tools = [each.as_tool() for each in made]
    boss = cc.Agent(
        SONNET, name="boss", tools=tools, store=store, endpoint=Scripted(delegate), lease_seconds=lease, triggers=()
    )
    return boss.executor


def run_worker(address: str, folder: Path, lease: float) -> None:
    log = open(folder / f"log {os.getpid()}", "a", buffering=1)  # noqa: SIM115
    logging.basicConfig(stream=log, level=logging.INFO)
    with cc.open_store(address) as store:
        options = WorkerOptions(heartbeat=HEARTBEAT, concurrency=4)
        agents = {"assistant": make_agent(store, folder, lease), "boss": make_boss(store, folder, lease)}
        worker = TurnWorker(store, agents, options)
        asyncio.run(command._run(worker, None, 0))  # pyright: ignore[reportPrivateUsage]


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, address: str, folder: Path, lease: float = LEASE) -> None:
        self.folder = folder
        self._process = PROCESSES.Process(target=run_worker, args=(address, folder, lease))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self) -> int | None:
        """Wait for the end, and return the exit code."""
        self._process.join(PATIENCE)
        return self._process.exitcode

    def log(self) -> str:
        path = self.folder / f"log {self.pid}"
        return path.read_text() if path.exists() else ""

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


@contextmanager
def workers(address: str, folder: Path) -> Generator[Callable[[], WorkerProcess]]:
    """Start workers by calling the yielded function; all of them are killed at the end."""
    started: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        started.append(WorkerProcess(address, folder))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for an event that other processes cause."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"this did not happen: {what}"
        time.sleep(0.02)


def in_event_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Run an asynchronous test."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def events(store: cc.Store, name: str = "demo") -> list[AnyEvent]:
    try:
        return store.events(name)
    except ContextcError:
        return []


def finished(store: cc.Store, number: int = 1, name: str = "demo") -> bool:
    return sum(isinstance(each, TurnFinish) for each in events(store, name)) >= number
