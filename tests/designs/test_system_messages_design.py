"""Design document D's scenario: one long turn with warnings, and a process that is killed during it."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.events import SystemMessageCreated, UserNoticeCreated
from contextc.providers import Provider
from contextc.triggers import ResourceUsage, memory_trigger
from tests.conftest import some
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, rebuilt, run_turn, says

STEPS = 110
MEMORY_HIGH, MEMORY_LOW = 40, 70
PROCESSES = multiprocessing.get_context("forkserver")


def small() -> Provider:
    return cc.provider(SONNET, window=25_000, output=4_000)


class Project(Scripted):
    """A model that reads one file after the other; how far it is, it sees in the request alone."""

    def __init__(self, *, done: int = 0, dies_at: int = 0) -> None:
        super().__init__(self.next)
        self.done, self.dies_at = done, dies_at

    def next(self, request: JSONObject) -> Say:
        self.done = sum(message["role"] == "assistant" for message in request["messages"])
        if self.done + 1 == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        tokens = len(encode(request)) // 4
        if self.done == STEPS:
            return says("I understand this project.", input=tokens)
        self.done += 1
        return says(call(self.done, "read_file", path=f"src/file_{self.done}.py"), input=tokens)

    def resources(self) -> ResourceUsage:
        """The machine at the step that is being prepared."""
        return ResourceUsage(memory=0.91 if MEMORY_HIGH <= self.done + 1 < MEMORY_LOW else 0.5, cpu=0.1)


def read_file(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "\n".join([f"def function_{line}(value): return value + {line}" for line in range(12)])


def agent(store: cc.Store, project: Project) -> cc.AgentExecutor:
    return cc.AgentExecutor(
        store,
        small(),
        tools=[read_file],
        triggers=[*cc.default_triggers(), memory_trigger()],
        instructions="You read code.",
        summarize=None,
        endpoint=project,
        resources=project.resources,
    )


def run_until_killed(address: str, dies_at: int) -> None:
    with cc.open_store(address) as store:
        run_turn(agent(store, Project(dies_at=dies_at)), "understand this project")


def warnings_in(body: bytes) -> list[str]:
    """The warnings of a request, in order."""
    marks = ("Memory warning", "Memory recovered", "Context warning", "Context critical")
    text = body.decode()
    found = [(text.index(mark), mark) for mark in marks for _ in range(text.count(mark + ":"))]
    return [mark for _, mark in sorted(found)]


def test_warnings_come_once_with_the_next_request_and_stay() -> None:
    """Guarantees 11.3, 11.4, 11.6: 110 tool calls; memory at step 40, context at 80 % and 90 % in the middle."""
    store, project = cc.open_store("memory:"), Project()

    run_turn(agent(store, project), "understand this project")

    told = [event for event in store.events("demo") if isinstance(event, SystemMessageCreated)]
    said_at = {event.trigger: event.step for event in told if not event.text.startswith("Memory recovered")}
    assert [event.trigger for event in told] == ["memory", "memory", "context_80", "context_90"]
    assert said_at["memory"] == MEMORY_HIGH
    assert MEMORY_LOW < said_at["context_80"] < said_at["context_90"] < STEPS
    assert store.turns("demo")[0].tool_calls == STEPS
    seen = [warnings_in(body) for body in project.bodies]
    assert len(seen) == STEPS + 1
    for step, found in enumerate(seen, 1):
        expected = ["Memory warning"] * (step >= MEMORY_HIGH) + ["Memory recovered"] * (step >= MEMORY_LOW)
        expected += ["Context warning"] * (step >= said_at["context_80"])
        expected += ["Context critical"] * (step >= said_at["context_90"])
        assert found == expected
    assert {decode(body)["system"][0]["text"] for body in project.bodies} == {"You read code."}
    assert executor_says_one_epoch(store)
    assert rebuilt(agent(store, Project()), "demo", STEPS + 1) == project.bodies


def executor_says_one_epoch(store: cc.Store) -> bool:
    compiler = agent(store, Project()).compiler
    return compiler.explain("demo").epoch == compiler.explain("demo", 1).epoch


@pytest.mark.parametrize("dies_at", some([94, MEMORY_HIGH, STEPS + 1], 1))
def test_a_restart_in_the_middle_changes_nothing(tmp_path: Path, dies_at: int) -> None:
    """Guarantee 11.4: the same messages, and the same requests to the byte, as in an uninterrupted run."""
    address = f"sqlite:///{tmp_path}/killed.db"
    child = PROCESSES.Process(target=run_until_killed, args=(address, dies_at))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with cc.open_store("memory:") as whole, cc.open_store(address) as killed:
        project = Project()
        run_turn(agent(whole, project), "understand this project")
        executor = agent(killed, Project(done=dies_at - 1))
        result = asyncio.run(resumed(executor))

        assert (result.finish, result.steps, result.tool_calls) == ("stop", STEPS + 1, STEPS)
        assert told(killed) == told(whole)
        assert rebuilt(executor, "demo", STEPS + 1) == project.bodies
        states = [
            store.read(lambda tx: tx.rows("SELECT name, body FROM main.trigger_state")) for store in (whole, killed)
        ]
        assert sorted(states[0]) == sorted(states[1])


async def resumed(executor: cc.AgentExecutor) -> cc.TurnResult:
    return await executor.resume("demo").wait()


def told(store: cc.Store) -> list[tuple[object, ...]]:
    return [(each.role, each.parts, each.turn, each.step, each.audience) for each in store.load("demo")]


def test_the_flow_diagram() -> None:
    """Guarantee 11.3. Design D: three files are read, memory is at 85 %, then the context at 82 %. A warning is in the
    request of the next step, and the step after it goes on.
    """
    usage = iter([100, 200, 18_500, 18_600])
    used = iter([0.5, 0.85, 0.85, 0.85])
    files = tuple(call(number, "read_file", path=f"{number}.py") for number in range(3))
    script = [
        says(*files, input=next(usage)),
        says("Careful.", call(3, "read_file", path="d.py"), input=next(usage)),
    ]
    model = Scripted(
        *script,
        says("I will sum up.", call(4, "read_file", path="e.py"), input=next(usage)),
        says("Done.", input=next(usage)),
    )
    store = cc.open_store("memory:")
    executor = cc.AgentExecutor(
        store,
        small(),
        tools=[read_file],
        triggers=[*cc.default_triggers(), memory_trigger()],
        endpoint=model,
        resources=lambda: ResourceUsage(memory=next(used), cpu=0.1),
        summarize=None,
    )

    run_turn(executor, "understand this project")

    memory, context = ["Memory warning"], ["Memory warning", "Context warning"]
    assert [warnings_in(body) for body in model.bodies] == [[], memory, memory, context]
    assert [each.trigger for each in store.events("demo") if isinstance(each, SystemMessageCreated)] == [
        "memory",
        "context_80",
    ]


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return "written"


def test_a_turn_may_end_after_steps_that_changed_nothing() -> None:
    """Guarantee 11.2. Design D goes on only after tools that write: `should_continue` is where such a rule belongs."""

    def has_writes(reply: cc.Message, results: Sequence[cc.Message]) -> bool:
        return any(each.name == "write_file" for each in reply.tool_calls)

    script = [
        says(call(1, "write_file", path="a.py", content="1"), call(2, "read_file", path="a.py")),
        says(call(3, "read_file", path="b.py")),
    ]
    store, model = cc.open_store("memory:"), Scripted(*script)
    executor = cc.AgentExecutor(
        store, small(), tools=[read_file, write_file], endpoint=model, should_continue=has_writes, triggers=()
    )

    run_turn(executor)

    (turn,) = store.turns("demo")
    assert (turn.steps, turn.finish) == (2, "stop")
    assert [each.role for each in store.load("demo")][-1] == "tool"


def test_notices_come_at_the_interval_that_is_set() -> None:
    """Guarantee 11.7. Design D checks every ten tool calls within a step: here after every second one."""

    @cc.trigger("busy", kind="hint", at="mid_step")
    def busy(moment: cc.TriggerContext) -> str | None:
        return f"{moment.tool_calls} calls, {moment.share:.0%} of the context" if moment.tool_calls % 2 == 0 else None

    calls = tuple(call(number, "read_file", path=f"{number}.py") for number in range(1, 7))
    store, model = cc.open_store("memory:"), Scripted(says(*calls), says("Done."))
    executor = cc.AgentExecutor(store, small(), tools=[read_file], endpoint=model, triggers=[busy])

    run_turn(executor)

    hints = [each.text for each in store.events("demo") if isinstance(each, UserNoticeCreated)]
    assert [text.partition(",")[0] for text in hints] == ["2 calls", "4 calls", "6 calls"]
    assert not any(b"of the context" in body for body in model.bodies)


def test_the_documents_hook_can_be_written_with_ours() -> None:
    """Guarantee 11.8. Design D skips the first step and adds a system message to the messages of later ones."""

    def on_prepare_messages(request: JSONObject, step: int) -> JSONObject | None:
        if step == 1:
            return None
        notice = {"role": "user", "content": f"<system-message>Step {step}.</system-message>"}
        return {**request, "messages": [*request["messages"], notice]}

    script = [says(call(1, "read_file", path="a.py")), says("Done.")]
    store, model = cc.open_store("memory:"), Scripted(*script)
    executor = cc.AgentExecutor(
        store, small(), tools=[read_file], endpoint=model, on_prepare_messages=on_prepare_messages, triggers=()
    )

    run_turn(executor)

    assert [b"Step 2." in body for body in model.bodies] == [False, True]
    assert rebuilt(executor, "demo", 2) == model.bodies
