"""`contextc demo`: one task of an agent, recorded twice, with its findings and both bills, in the web UI.

The requests of the first conversation are those of an agent with common mistakes, recorded as those of any program are.
The second one is the same task, compiled by contextc. Nothing is sent: the answers are written here, and what a request
reads from the prompt cache follows from where it differs from the one before.
"""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, NamedTuple

from msgspec.structs import replace
from rich.table import Table

from contextc._json import JSONObject, decode, encode
from contextc.cli.command_line import Option
from contextc.cli.console import err, escape_markup, out, progress_bar
from contextc.cli.server_access import (
    INSTALL_WEB,
    WebUIProcess,
    has_display,
    is_web_installed,
    open_browser,
    printed_link,
    redirect_file,
    with_token,
)
from contextc.compiler import MessageCompiler
from contextc.config import find_data_folder, make_private_folder, mask_secrets
from contextc.errors import InvalidSetting
from contextc.formats.streams import encode_reply
from contextc.messages import ToolCall, Usage, assistant, tool_result, user
from contextc.observation import observe
from contextc.providers import provider
from contextc.store import Store, message_log, open_store
from contextc.tools.definitions import Tool

MODEL = "claude-opus-5-5"
WITH_MISTAKES, COMPILED = "demo-with-mistakes", "demo-with-contextc"
TITLES = {WITH_MISTAKES: "Slow import, with common mistakes", COMPILED: "Slow import, with contextc"}
SHOWN_FINDINGS = 5
BYTES_PER_TOKEN = 4
STEP_MS = 9_000
FINISHED_MS = 120_000
"""Milliseconds since the end of the task: it is not shown as one that is being recorded."""


class Step(NamedTuple):
    """A reply of the model that calls a tool, and the result."""

    text: str
    tool: str
    arguments: JSONObject
    result: str
    is_error: bool = False


def _log_file(batches: int) -> str:
    return "\n".join(
        f"02:{number // 60:02d}:{number % 60:02d} INFO import_orders batch {number} of 480: 500 rows, "
        f"{0.4 + number * 0.013:.2f} s, {500 - number % 7} written, {number % 7} unchanged"
        for number in range(1, batches)
    )


def _git_log(commits: int) -> str:
    """Return the output of `git log --stat`: the newest commit is the one that made the import slow."""
    changes = [
        "Keep orders in one table",
        "Widen the column note",
        "Index the orders by day",
        "Vacuum after the import",
    ]
    return "\n\n".join(
        f"commit {blake2b(b'%d' % number, digest_size=20).hexdigest()}\n"
        f"Author: Ada Bauer <ada@orders.example>\n"
        f"Date:   2026-{(270 - number) // 30:02d}-{1 + (270 - number) % 30 % 28:02d} 16:{number % 60:02d}:04 +0200\n\n"
        f"    {changes[number % len(changes)]}\n\n"
        f" db/migrations/{42 - number:04d}.sql | {24 + 7 * number % 31} {'+' * 18}{'-' * (number % 9)}\n"
        f" 1 file changed, {24 + 7 * number % 31} insertions(+), {number % 9} deletions(-)"
        for number in range(commits)
    )


def _source_file(name: str, functions: int) -> str:
    return "\n\n".join(
        f"def {name}_{number}(rows: list[Row], connection: Connection) -> int:\n"
        f"    known = {{row.id: row for row in fetch_all(connection, table={number})}}\n"
        f"    changed = [row for row in rows if known.get(row.id) != row]\n"
        f"    connection.executemany(UPSERT_{number}, changed)\n"
        f"    return len(changed)"
        for number in range(functions)
    )


def _tool(name: str, argument: str) -> Tool:
    schema: JSONObject = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": f"The {argument} for {name}. " * 12}},
        "required": [argument],
    }
    return Tool(
        name=name,
        description=f"Call {name} with a {argument}. Read the manual of the project first.",
        parameters=schema,
    )


INSTRUCTIONS = (
    "You work in the project orders-service: Python 3.13 and PostgreSQL 17. Look before you change anything. Measure, "
    "and say how sure you are. " * 6
)
QUESTION = "The nightly import takes five hours since last week. Why?"
STEPS = (
    Step("I begin with the job.", "read_file", {"path": "jobs/nightly.py"}, _source_file("import_orders", 24)),
    Step("What does its log say?", "run", {"command": "cat nightly.log"}, _log_file(240)),
    Step("How are rows found?", "search", {"pattern": "fetch_all"}, _source_file("fetch_all", 8)),
    *(
        Step("", "run", {"command": "psql -c 'EXPLAIN …'"}, "Error: connection refused on port 5432", is_error=True)
        for _ in range(3)
    ),
    Step("The copy has another port.", "run", {"command": "psql -p 5433 -c 'EXPLAIN …'"}, "Seq Scan on orders\n" * 12),
    Step("Once more the job.", "read_file", {"path": "jobs/nightly.py"}, _source_file("import_orders", 24)),
    Step("What changed last week?", "run", {"command": "git log --stat db/"}, _git_log(31)),
    Step("", "read_file", {"path": "db/migrations/0042.sql"}, _source_file("migrate", 12)),
)
MESSAGES = 2 * len(STEPS) + 2
ANSWER = (
    "The import looks up each order by external_id. Migration 0042 made the table anew without that index, so each "
    "lookup reads the whole table: 201 s for one batch, 0.4 s before.\n\n"
    "```sql\nCREATE INDEX CONCURRENTLY orders_external_id ON orders (external_id);\n```"
)
USED_TOOLS = (
    _tool("read_file", "path"),
    _tool("run", "command"),
    _tool("search", "pattern"),
)
USED_NAMES = {each.name for each in USED_TOOLS}
UNUSED_TOOLS = tuple(
    [_tool(each, "text") for each in ("deploy", "open_ticket", "send_mail", "draw_chart", "translate")]
)


def run(
    show: Annotated[
        bool,
        Option(
            "--show", negative="--no-show", help="Show both in the web UI until Ctrl-C, or only print what is found."
        ),
    ] = True,
    open: Annotated[
        bool | None, Option("--open", negative="--no-open", help="Open a browser (default: if there is a display).")
    ] = None,
    store: Annotated[
        str | None, Option("--store", help="The store for both conversations (default: demo.db in your data folder).")
    ] = None,
) -> None:
    """Record one task twice, offline: an agent with common mistakes, and contextc. Shows findings and both bills."""
    from contextc.analysis import findings  # they take time to import
    from contextc.cli.findings_report import print_findings

    address = store or _default_store()
    with open_store(address) as handle:
        if not _is_recorded(handle, address):
            with progress_bar("recording") as report:
                record(handle, report)
        out.print("One task with the same answers, recorded twice:\n")
        _print_bills(handle)
        out.print(f"\nWhat [bold]{WITH_MISTAKES}[/] wastes, the most expensive first:\n")
        print_findings(findings(handle, WITH_MISTAKES), SHOWN_FINDINGS, several=False)
    shown = escape_markup(shlex.quote(mask_secrets(address)))
    out.print("\nLook on with:")
    for command in (f"findings {WITH_MISTAKES} --costs", f"explain {COMPILED}"):
        out.print(f"  contextc {command} --store {shown}", soft_wrap=True)
    if show and is_web_installed():
        _show(address, has_display() if open is None else open)
    elif show:
        err.print(f"\nThe web UI is not installed: {escape_markup(INSTALL_WEB)}", soft_wrap=True)


def _is_recorded(store: Store, address: str) -> bool:
    """Return True if both conversations are there, and False if none is. Raise if they are incomplete or changed."""
    lengths = {each.name: each.length for each in store.conversations() if each.name in (WITH_MISTAKES, COMPILED)}
    if lengths and list(lengths.values()) != [MESSAGES, MESSAGES]:
        shown = shlex.quote(mask_secrets(address))
        commands = [f"`contextc delete {each} --store {shown}`" for each in sorted(lengths)]
        raise InvalidSetting(
            "The conversations of the demonstration are incomplete, or have changed since they were recorded",
            got=mask_secrets(address),
            fix=f"Delete them: {' and '.join(commands)}.",
        )
    return bool(lengths)


def _default_store() -> str:
    folder = find_data_folder(os.environ)
    make_private_folder(folder)
    return f"sqlite:///{os.path.join(folder, 'demo.db')}"


def _show(address: str, opens: bool) -> None:
    """Run the web UI until Ctrl-C."""
    with ExitStack() as leaving:
        web = leaving.enter_context(WebUIProcess(address))
        link = f"{with_token(web.address, web.token)}#/c/{WITH_MISTAKES}/inspect"
        out.print(
            f"\nThe inspector · Ctrl-C stops it\n{escape_markup(printed_link(link, sys.stdout, leaving))}",
            soft_wrap=True,
        )
        sys.stdout.flush()
        if opens:
            open_browser(redirect_file(link, leaving))
        with suppress(KeyboardInterrupt):
            web.wait()


# ── the two recordings ────────────────────────────────────────────────────────────────────────────────────────────────
# A request of the first conversation is that of the second one with mistakes added. Its cache is never hit: the only
# breakpoint is at the end, and the time at the start of the system prompt changes with every request.


def record(store: Store, report: Callable[[int, int], None]) -> None:
    """Record both conversations, with the same messages and replies."""
    chosen = provider(f"anthropic:{MODEL}")
    compiler, formatter = MessageCompiler(store, chosen), chosen.formatter
    began = message_log.now_ms() - (len(STEPS) + 1) * STEP_MS - FINISHED_MS
    store.append(COMPILED, replace(user(QUESTION), time=began))
    for number in range(len(STEPS) + 1):
        report(number, len(STEPS) + 1)
        step = STEPS[number] if number < len(STEPS) else None
        call = ToolCall(id=f"toolu_{number}", name=step.tool, arguments=step.arguments) if step else None
        if step and call:
            reply = assistant(step.text, tool_calls=[call], finish="tool_calls")
        else:
            reply = assistant(ANSWER, finish="stop")
        output = len(encode(reply)) // BYTES_PER_TOKEN
        time = began + number * STEP_MS  # of both, so that neither seems to take longer
        # A request of our own begins with its answer here: the first one at once, so that both runs take equally long.
        reply = replace(reply, time=time + STEP_MS // 2 * number // len(STEPS))

        compiled = compiler.compile(COMPILED, instructions=INSTRUCTIONS, tools=USED_TOOLS)
        sent = compiled.budget.system + compiled.budget.tools + compiled.budget.used
        read = min(sent, compiled.record.shared)
        paid = Usage(input=sent, output=output, cache_read=read, cache_write=sent - read)
        compiler.commit(compiled, reply, usage=paid)
        if step and call:
            result = tool_result(call.id, step.tool, step.result, is_error=step.is_error)
            store.append(COMPILED, replace(result, time=time + STEP_MS))

        request = _with_mistakes(decode(compiled.body), time)
        tokens = sent + len(encode(request)) // BYTES_PER_TOKEN - len(compiled.body) // BYTES_PER_TOKEN
        spent = Usage(input=tokens, output=output, cache_write=tokens)
        observe(
            store,
            request=request,
            reply=encode(encode_reply(formatter, chosen.model_id, [reply], spent, {})),  # bytes are kept as they are
            format="anthropic",
            conversation=WITH_MISTAKES,
            time=time,
            first_chunk=time + STEP_MS // 8,
            ended=time + STEP_MS // 2,
        )
    for name, title in TITLES.items():
        store.set_title(name, title)


def _with_mistakes(request: JSONObject, time: int) -> JSONObject:
    """Return a request that begins with the time, and defines tools that are never called."""
    clock = datetime.fromtimestamp(time / 1_000, UTC).isoformat(sep=" ", timespec="seconds")
    own = [each for each in request["tools"] if each["name"] in USED_NAMES]
    unused = [
        {"name": each.name, "description": each.description, "input_schema": each.parameters} for each in UNUSED_TOOLS
    ]
    return {**request, "system": f"The time is {clock}. {INSTRUCTIONS}", "tools": own + unused}


def _print_bills(store: Store) -> None:
    """Print what both conversations cost, and how much of their input was read from the cache."""
    from contextc.analysis import conversation_costs
    from contextc.cli.findings_report import show_cost

    table = Table(box=None, header_style="bold", show_edge=False)
    table.add_column("conversation", no_wrap=True)
    for heading in ("requests", "from the cache", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in (WITH_MISTAKES, COMPILED):
        costs = conversation_costs(store, name)
        table.add_row(name, f"{len(costs.requests)}", f"{costs.cache_share or 0:.0%}", show_cost(costs.cost))
    out.print(table)
