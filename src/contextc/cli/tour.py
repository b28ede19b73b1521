"""`contextc tour`: a demonstration of contextc on a temporary SQLite file."""

import os
import signal
import subprocess
import sys
import tempfile

from rich.panel import Panel
from rich.table import Table

from contextc.cli.console import escape_markup, out
from contextc.cli.explain import print_manifest
from contextc.doctor import scan_store
from contextc.inspection.preview import preview_request
from contextc.messages import Message, Text, ToolCall, assistant, tool_result, user
from contextc.providers import provider
from contextc.store import Store, open_store

KILLED_WRITER = """
import sys, time, contextc as cc
store = cc.open_store(sys.argv[1])
lease = store.acquire("demo", "coder")
stream = store.stream(lease)
for word in "I would start with the parser, because everything else hangs on it".split():
    stream.write(word + " ")
    stream.flush()
    print(word, flush=True)
time.sleep(60)
"""


def run() -> None:
    """Run a demonstration: append, compile, fork, edit, and recover from a killed process."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tour.db")
        with open_store(f"sqlite:///{path}") as store:
            _append(store)
            _compile(store)
            _fork_and_edit(store)
            _kill_a_writer(store, path)
            _check(store)
    out.print("\nNext: [bold]contextc --help[/], or [bold]import contextc as cc[/] as the README shows.")


def _append(store: Store) -> None:
    _print_title("1  A conversation is a chain", "Each message's id is a hash of its content and of the previous id.")
    store.append("demo", user("Help me build a feature"))
    call = ToolCall(id="c1", name="read_file", arguments={"path": "a.py"})
    store.append("demo", assistant("Let me look.", tool_calls=[call]))
    store.append("demo", tool_result("c1", "read_file", "print(1)"))
    store.append("demo", assistant("It prints 1. What should it print?"))
    _print_messages(store.load("demo"))


def _compile(store: Store) -> None:
    _print_title(
        "2  The request for one model", "The same log for one model and one budget, with a manifest of every message."
    )
    store.append("demo", user("Two, please."))
    chosen = provider("anthropic:claude-opus-5-5", window=8_000, output=1_000)
    print_manifest(preview_request(store, chosen, "demo", system_prompt="You are a coder.").manifest)


def _fork_and_edit(store: Store) -> None:
    _print_title("3  History is never lost", "A fork shares its history and copies nothing. An edit is a new branch.")
    store.fork("demo", "what-if", at=3)
    store.append("what-if", assistant("The file prints 1. I would rather write a test first."))
    store.edit("demo", 1, user("Help me build a feature, with tests"))
    table = Table("conversation", "branch", "starts after", "messages", "", box=None, header_style="bold")
    for conversation in store.conversations():
        for branch in store.branches(conversation.name):
            current = "[green]current[/]" if branch.current else ""
            table.add_row(conversation.name, str(branch.number), str(branch.base), str(branch.length), current)
    out.print(table)


def _kill_a_writer(store: Store, path: str) -> None:
    _print_title("4  Crash recovery", "A second process streams an answer and is killed with SIGKILL during it.")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, f"sqlite:///{path}"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdout is not None, "stdout is a pipe"
            while child.stdout.readline().strip() not in ("parser,", ""):
                pass
        finally:
            child.send_signal(signal.SIGKILL)
    for recovered in store.recover():
        out.print(f"recovered the partial answer of agent [bold]{recovered.agent}[/]:")
        _print_messages(list(recovered.messages))


def _check(store: Store) -> None:
    _print_title("5  Verification", "The doctor verifies every chain, link by link.")
    faults = [finding for finding in scan_store(store) if finding.kind == "fault"]
    out.print("[green]no faults[/]" if not faults else f"[red]{len(faults)} faults[/]")


def _print_title(title: str, text: str) -> None:
    out.print()
    out.print(Panel(text, title=title, title_align="left", border_style="cyan", expand=False))


def _print_messages(messages: list[Message]) -> None:
    table = Table("seq", "role", "content", "status", "id", box=None, header_style="bold")
    for message in messages:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        texts += [f"{call.name}({call.arguments})" for call in message.tool_calls]
        texts += [f"{result.name} → {result.text}" for result in message.tool_results]
        table.add_row(str(message.seq), message.role, escape_markup(" ".join(texts)), message.status, message.id[:16])
    out.print(table)
