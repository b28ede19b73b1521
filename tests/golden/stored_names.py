"""Names that are stored or sent, and texts that models read, collected from today's code.

Python names are not among them: types are described by the JSON that is written for them.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args

import msgspec

import contextc as cc
import contextc.errors
from contextc._json import JSONObject
from contextc.app.agent_factory import build_tools
from contextc.cli import COMMANDS, load_command
from contextc.cli.command_line import read_parameters
from contextc.compiler.compaction import LEAD
from contextc.compiler.draft import REMOVED_TEXT, Budget, LeftOutMessage
from contextc.compiler.history import HISTORY_TOOLS
from contextc.compiler.ledger import OpenAttempt, StoredSummary
from contextc.compiler.manifest import Fragment, ManifestLine, RequestRecord
from contextc.events import AnyEvent
from contextc.executor.model_call import NO_RESULT_TEXT
from contextc.executor.tool_runner import ALTERED_RESULT, DECLINED_RESULT, NO_APPROVER_RESULT
from contextc.executor.turn_store import INTERRUPTED_RESULT
from contextc.formats import format_names
from contextc.interchange.contextc_jsonl import BlobLine, HeaderLine, MessageLine, TodosLine
from contextc.messages import PART_TYPES, Message
from contextc.prompts import PromptBuilder
from contextc.providers.registry import provider_names
from contextc.store.ledger_schema import ChannelState, LedgerRow
from contextc.store.turn_controls import NOT_RUN_RESULT
from contextc.store.turn_records import QueuedMessage, StepRecord, TurnRecord
from contextc.tools.todos import TODO_TOOL, Todo
from contextc.triggers import ResourceUsage, TriggerContext, default_triggers, resource_triggers
from contextc.web.http_errors import error_status_and_body
from tests.golden.scenario_script import LOOK, SURROUNDINGS
from tests.golden.server_answers import openapi
from tests.golden.store_content import alone, as_json

STORED: dict[str, Any] = {
    "message": Message,
    **{f"part {part.__struct_config__.tag}": part for part in PART_TYPES},
    **{f"event {event.__struct_config__.tag}": event for event in get_args(AnyEvent)},
    "turn": TurnRecord,
    "step": StepRecord,
    "queued input": QueuedMessage,
    "todo": Todo,
    "channel state": ChannelState,
    "channel attempt": OpenAttempt,
    "ledger row": LedgerRow,
    "manifest": RequestRecord,
    "manifest fragment": Fragment,
    "manifest line": ManifestLine,
    "manifest left": LeftOutMessage,
    "manifest budget": Budget,
    "summary": StoredSummary,
    "export header": HeaderLine,
    "export message": MessageLine,
    "export blob": BlobLine,
    "export todos": TodosLine,
}
"""Every type whose JSON is in a column, in a file or in an answer."""

SENTENCES = (
    ALTERED_RESULT,
    DECLINED_RESULT,
    INTERRUPTED_RESULT,
    LEAD,
    NO_APPROVER_RESULT,
    NOT_RUN_RESULT,
    REMOVED_TEXT,
    NO_RESULT_TEXT,
)
"""Texts that models read, and that no recorded request is sure to have."""


def names() -> JSONObject:
    with TemporaryDirectory() as folder, alone(Path(folder)):
        return cast(JSONObject, as_json(_names()))


def _names() -> JSONObject:
    return {
        "schema": schema(),
        "types": {label: described(kind) for label, kind in STORED.items()},
        "tools": tools(),
        "triggers": triggers(),
        "fragments": fragments(),
        "sentences": [*SENTENCES],
        "formats": [*format_names()],
        "providers": sorted(provider_names()),
        "errors": errors(),
        "commands": commands(),
    }


def schema() -> JSONObject:
    """Tables with their columns, and indexes, of a new store."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "new.db"
        cc.open_store(file).close()
        return schema_of(file)


def schema_of(file: Path) -> JSONObject:
    with closing(sqlite3.connect(file)) as connection:
        made = "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%' ORDER BY name"
        (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
        return {
            "version": version,
            "tables": {
                name: [list(column[1:]) for column in connection.execute(f"PRAGMA table_info({name})")]
                for (name,) in connection.execute(made, ("table",)).fetchall()
            },
            "indexes": {
                name: [column for _, _, column in connection.execute(f"PRAGMA index_info({name})")]
                for (name,) in connection.execute(made, ("index",)).fetchall()
            },
        }


def described(kind: Any) -> JSONObject:  # a type
    """The JSON Schema of a type without the names of Python classes."""
    (made,), components = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    document = {"paths": {"it": made}, "components": {"schemas": components, "securitySchemes": {}}}
    found = openapi(document)
    return {"schema": found["paths"]["it"], "schemas": found["schemas"]}


def tools() -> list[JSONObject]:
    with TemporaryDirectory() as folder:
        found = [each.tool for each in build_tools("all", Path(folder))]
    return [cast(JSONObject, as_json(each)) for each in (*found, TODO_TOOL, *HISTORY_TOOLS)]


def triggers() -> JSONObject:
    """The facts of the built-in triggers, and what each says as things get worse and better."""
    failed = [
        message
        for number in range(4)
        for message in (
            cc.assistant(tool_calls=[cc.tool_call(f"c{number}", "look", {})]),
            cc.tool_result(f"c{number}", "look", "no", is_error=True),
        )
    ]
    todos = (Todo(number=1, text="look", state="doing"), Todo(number=2, text="rest"))
    bad: dict[str, Any] = {
        "share": 0.95, "used": 950, "available": 1_000, "steps": 9, "tool_calls": 10, "cost": 0.9, "seconds": 90.0,
        "finish": "length", "step_limit": 10, "tool_call_limit": 11, "cost_limit": 1.0, "seconds_limit": 100.0,
        "todos": todos, "resources": lambda: ResourceUsage(memory=0.99, cpu=0.99),
    }  # fmt: skip
    good: dict[str, Any] = {
        "share": 0.1,
        "used": 100,
        "available": 1_000,
        "resources": lambda: ResourceUsage(memory=0.1, cpu=0.1),
    }
    found: JSONObject = {}
    for each in [*default_triggers(), *resource_triggers()]:
        texts: list[Any] = []
        state: JSONObject = {}
        for when in each.at:
            for moment in (
                TriggerContext(when=when, last=tuple(failed[:4]), **bad),
                TriggerContext(when=when, last=tuple(failed), **bad),
                TriggerContext(when=when, **good),
            ):
                expected, state = each.check(moment, state)
                texts.append(
                    [*([expected.text, expected.title, expected.kind, expected.stop] if expected else []), state]
                )
        facts = (each.group, each.priority, each.level, each.kind, each.at, each.once, each.scope)
        found[each.name] = {"facts": as_json(facts), "said": texts}
    return found


def fragments() -> JSONObject:
    prompt = PromptBuilder().with_builtin(
        "identity", "project", "tools", "todos", "response", "delegations", "agents"
    )  # fmt: skip
    given = msgspec.structs.replace(
        SURROUNDINGS,
        directory="/golden",
        tools=(LOOK,),
        todos=(Todo(number=1, text="look", state="doing"), Todo(number=2, text="rest", state="dropped")),
    )
    rendered = prompt.render(given)
    return {each.id: [each.lifecycle, each.text] for each in (*rendered.static, *rendered.dynamic)}


def errors() -> JSONObject:
    """What the server answers for each error: its status and its kind."""
    found: JSONObject = {}
    for kind in vars(contextc.errors).values():
        if isinstance(kind, type) and issubclass(kind, cc.ContextcError):
            status, result = error_status_and_body(kind.__new__(kind))
            found[as_json(result)["error"]["kind"]] = status
    return dict(sorted(found.items()))


def commands() -> JSONObject:
    """Commands and their options."""
    return {
        name: sorted(
            [option for each in read_parameters(load_command(name)) for option in (*each.names, *each.opposites)]
        )
        for name in sorted(COMMANDS)
    }
