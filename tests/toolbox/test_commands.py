"""run_command and todos: the output of a command, and that its processes end with it."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import contextc as cc
from contextc.tools.builtin import command_tool, file_tools, run_command, todo_tool
from contextc.tools.builtin.run_command import ALLOWED_VARIABLES, allowed_environment
from tests.movable_clock import HOUR, MovableTime


def run(tool: cc.tools.FunctionTool, context: cc.ToolContext | None = None, **arguments: object) -> cc.ToolResult:
    return asyncio.run(tool.run(cc.ToolCall(id="c1", name=tool.name, arguments=arguments), context))


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended and waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(pids) > 0 and not any(is_alive(pid) for pid in pids)


def numbers_in(path: Path) -> list[int]:
    return [int(each) for each in path.read_text().split()]


def test_a_command_runs_in_the_folder_and_shows_what_it_printed(tmp_path: Path) -> None:
    tool = command_tool(tmp_path)
    assert tool.approval
    assert not tool.parallel
    assert run(tool, command="pwd; echo oops >&2").text == f"{tmp_path.resolve()}\noops"
    assert run(tool, command="echo a | tr a b; exit 3").text == "b\n[Exit code 3.]"
    assert run(tool, command="true").text == "[It printed nothing. Exit code 0.]"
    assert run(tool, command="kill -9 $$").text == "[Ended by signal 9.]"
    assert run(tool, command="cat").text == "[It printed nothing. Exit code 0.]"
    assert run(tool, command=r"printf '\033[31mred\033[0m'").text == "red"
    assert run(tool, command=" \n").is_error
    assert run(tool, command="echo a\0b").is_error


def test_what_a_command_prints_is_kept_as_a_beginning_and_an_end(tmp_path: Path) -> None:
    text = run(command_tool(tmp_path, output=3_000), command="seq 1000000").text
    assert len(text) < 3_100
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("999999\n1000000")
    assert "[6,885,896 bytes left out]" in text


def test_endless_output_ends_with_the_time_limit(tmp_path: Path) -> None:
    result = run(command_tool(tmp_path, timeout=0.3), command="yes")
    assert result.is_error
    assert result.text.endswith("[The command was stopped after 0.3 seconds, with everything it had started.]")
    assert len(result.text) < 31_000


def test_a_time_limit_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what hides from a polite signal."""
    monkeypatch.setattr(run_command, "time", clock := MovableTime())
    context = cc.ToolContext(progress=lambda line: clock.advance(HOUR) if line == "on" else None)
    command = "trap '' TERM; (trap '' TERM; sleep 300) & echo $! >> pids; sleep 300 & echo $! $$ >> pids; echo on; wait"
    result = run(command_tool(tmp_path, timeout=HOUR), context, command=command, seconds=HOUR)
    assert result.text == "on\n[The command was stopped after 3600 seconds, with everything it had started.]"
    assert len(numbers_in(tmp_path / "pids")) == 3
    assert all_end(numbers_in(tmp_path / "pids"))


def test_a_model_cannot_ask_for_more_time_than_there_is(tmp_path: Path) -> None:
    assert "stopped after 0.2 seconds" in run(command_tool(tmp_path, timeout=0.2), command="sleep 60", seconds=600).text


def test_cancelling_ends_the_whole_group_before_it_passes_on(tmp_path: Path) -> None:
    """Guarantee 11.10: nothing of a cancelled turn goes on."""
    tool = command_tool(tmp_path)

    async def cancelled() -> None:
        arguments = {"command": "trap '' TERM; sleep 300 & echo $! $$ > pids; sleep 300"}
        task = asyncio.create_task(tool.run(cc.ToolCall(id="c1", name="run_command", arguments=arguments)))
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(cancelled())
    assert all_end(numbers_in(tmp_path / "pids"))


def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    command = "sleep 300 & echo $! | tee pids > /dev/null; echo done"
    assert run(command_tool(tmp_path, timeout=120), command=command).text == "done"
    assert all_end(numbers_in(tmp_path / "pids"))


def test_a_command_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    assert run(command_tool(tmp_path), command="exec >&- 2>&-; sleep 0.1; touch made").text.startswith("[It printed")
    assert (tmp_path / "made").exists()


SECRETS = (
    *(
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "GITHUB_PAT",
        "PGPASSWORD",
        "MYSQL_PWD",
        "DATABASE_URL",
        "AWS_SECRET_ACCESS_KEY",
    ),
    *("AWS_SESSION_TOKEN", "SSH_AUTH_SOCK", "KUBECONFIG", "PIP_INDEX_URL", "BASH_ENV", "ENV", "MONKEY", "LC_SECRET"),
)


def test_the_docs_list_every_variable_that_is_passed() -> None:
    """Users decide by it what they keep in their environment."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    assert [name for name in sorted(ALLOWED_VARIABLES) if f"`{name}`" not in text] == []


def test_a_command_gets_an_allow_list_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command prints is stored and shown to a model. No list of forbidden names knows every credential."""
    for name in SECRETS:
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:hunter2@proxy.example:80")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    printed = run(command_tool(tmp_path), command="env").text
    assert "hunter2" not in printed
    assert {"LC_TIME=C", "VIRTUAL_ENV=/venv", f"PATH={os.environ['PATH']}"} <= set(printed.split("\n"))
    asked = allowed_environment(os.environ, ["DATABASE_URL"])
    assert [name for name in SECRETS if name in asked] == ["DATABASE_URL"]
    assert run(command_tool(tmp_path, variables=["DATABASE_URL"]), command="echo $DATABASE_URL").text == "hunter2"


PRYING = """
import asyncio, ctypes, os, sys
from pathlib import Path
import contextc as cc
from contextc.app.agent_factory import build_tools
from contextc.tools.builtin import command_tool
command = "grep -ao 'OPENAI_API_KEY=hunter2' /proc/$PPID/environ"
call = cc.ToolCall(id="c1", name="run_command", arguments={"command": command})
tool = command_tool(Path("/"))
print(asyncio.run(tool.run(call)).text)  # everything is imported before the rights are given up
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process that was started by this user
print(asyncio.run(tool.run(call)).text)
print("----")
build_tools("all", Path("/"))
print(asyncio.run(tool.run(call)).text)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_command_cannot_read_the_environment_of_the_process_that_runs_it() -> None:
    """/proc/PID/environ would give it what the allow-list keeps back."""
    environment = {**os.environ, "HOME": "/nowhere", "OPENAI_API_KEY": "hunter2"}
    done = subprocess.run(
        [sys.executable, "-c", PRYING], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    before, _, after = done.stdout.partition("----")
    assert ("hunter2" in before, "hunter2" in after, "Permission denied" in after) == (True, False, True)


def test_an_environment_that_is_given_is_all_that_a_command_sees(tmp_path: Path) -> None:
    tool = command_tool(tmp_path, environment={"PATH": os.environ["PATH"], "MY_TOKEN": "given"})
    assert run(tool, command="echo $MY_TOKEN").text == "given"


def test_the_last_line_is_reported_while_it_runs(tmp_path: Path) -> None:
    lines: list[str] = []
    run(command_tool(tmp_path), cc.ToolContext(progress=lines.append), command="echo one; echo two; sleep 0.1")
    assert lines[0] in ("one", "two")


def test_the_todo_tool_keeps_the_list_of_the_agent_that_calls() -> None:
    """Guarantee 8.4: todos have an API and a tool."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    context = cc.ToolContext(conversation="demo", agent="coder", store=store)
    assert (
        run(todo_tool(), context, todos=[{"text": "write"}, {"text": "test"}]).text == "1. [open] write\n2. [open] test"
    )
    assert run(todo_tool(), context, changes=[{"number": 1, "state": "done"}]).text == "1. [done] write\n2. [open] test"
    assert [todo.state for todo in store.todos("demo", "coder")] == ["done", "open"]
    assert store.todos("demo", "assistant") == []
    assert "There is no parameter `list`." in run(todo_tool(), context, list=[]).text
    assert run(todo_tool(), todos=[]).is_error


def test_the_built_in_tools_are_reported_whole_and_pass_every_rule(tmp_path: Path) -> None:
    tools = [each.tool for each in [*file_tools(tmp_path), command_tool(tmp_path), todo_tool()]]
    assert [tool.name for tool in tools] == (
        ["read_file", "list_files", "search_files", "edit_file", "write_file", "run_command", "todos"]
    )
    assert all(len(tool.description) > 40 for tool in tools)
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    for model in ("anthropic:claude-opus-5-5", "openai:gpt-5.2", "openai-chat:gpt-5.2", "gemini:gemini-3-pro-preview"):
        provider = cc.provider(model, window=100_000, output=1_000)
        compiled = cc.MessageCompiler(store, provider).compile("demo", tools=tools)
        assert cc.lint(dict(compiled.params), format=provider.format) == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot find a process that left the group")
def test_a_process_that_left_the_group_ends_with_its_command(tmp_path: Path) -> None:
    """`setsid` takes it out of the process group; nothing may be left running."""
    detach = "setsid sh -c 'echo $$ >> pids; exec sleep 300' & while [ ! -s pids ]; do :; done"
    run(command_tool(tmp_path), command=detach)
    assert all_end(numbers_in(tmp_path / "pids"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot find a process that left the group")
def test_a_process_that_left_the_group_ends_when_time_is_up(tmp_path: Path) -> None:
    detach = "(setsid sh -c 'echo $$ >> pids; exec sleep 300' &); while [ ! -s pids ]; do :; done; sleep 300"
    result = run(command_tool(tmp_path), command=detach, seconds=2)
    assert "stopped after 2 seconds" in result.text
    assert all_end(numbers_in(tmp_path / "pids"))
