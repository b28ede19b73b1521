"""The tables of parameters in the docs name every parameter, and their defaults are those of the code."""

import ast
import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import contextc as cc
from contextc.cli.inputs import AgentCommandOptions
from contextc.cli.proxy import run as run_proxy
from contextc.cli.worker import run as run_worker
from contextc.compiler.draft import CompilerOptions
from contextc.executor.agent_config import AgentConfig, AgentOptions, keyword_names
from contextc.store.message_log import DEFAULT_AGENT

DOCS = Path(__file__).parent.parent / "docs"
NAME = re.compile(r"`([^`]+)`")
LIMIT = re.compile(r"`(?:cc\.)?Limits\((\w+)=([\d_]+)\)`")


class Row(NamedTuple):
    """A row of a table: the names in its first cell, and its other cells."""

    names: list[str]
    cells: list[str]


def table(page: str, head: str) -> list[Row]:
    """The rows of the table with this first line."""
    lines = (DOCS / page).read_text().splitlines()
    assert lines.count(head) == 1, f"{page} has no table {head}"
    found: list[Row] = []
    for line in lines[lines.index(head) + 2 :]:
        if not line.startswith("|"):
            break
        first, *others = line.strip("|").split(" | ")
        found.append(Row(NAME.findall(first), [each.strip() for each in others]))
    return found


def text_of(rows: list[Row], name: str) -> str:
    return " ".join(next(row for row in rows if name in row.names).cells)


def has_value(text: str, value: object) -> bool:
    """True if a text has this number, or this text in quotes."""
    if isinstance(value, str):
        return f'"{value}"' in text
    return re.search(rf"(?<![\d.]){re.escape(f'{value:g}')}(?!\d|\.\d)", text) is not None


def defaults_of(function: Any) -> dict[str, Any]:
    return {each.name: each.default for each in inspect.signature(function).parameters.values()}


def test_the_parameters_of_an_executor_are_those_of_the_code() -> None:
    rows = table("reference/turns.md", "| parameter | |")
    own = {name for name in AgentOptions.__annotations__ if name not in CompilerOptions.__struct_fields__}
    named = {name for row in rows for name in row.names}
    assert {*keyword_names(cc.AgentExecutor), *own} == named - {"strategy", "high", "low"}
    defaults = {each.name: each.default for each in fields(AgentConfig) if each.default is not MISSING}
    stated = {name: defaults[name] for name in own if isinstance(defaults.get(name), int | float)}
    assert stated.keys() == {"summarize_at", "lease_seconds", "session_gap"}
    for name, value in {**stated, "name": DEFAULT_AGENT, "summarize": defaults["summarize"]}.items():
        assert has_value(text_of(rows, name), value), f"turns.md: the default of {name} is {value}"
    assert f'`summarize="{defaults["summarize"]}"` (the default)' in (DOCS / "turns.md").read_text()


def test_the_limits_of_a_turn_are_those_of_the_code() -> None:
    rows = table("reference/turns.md", "| limit | default | |")
    assert {row.names[0]: ast.literal_eval(NAME.findall(row.cells[0])[0]) for row in rows} == vars(cc.Limits())
    prose = LIMIT.findall("".join((DOCS / page).read_text() for page in ("turns.md", "reference/turns.md")))
    assert len(prose) >= 4
    for name, value in prose:
        assert int(value) == getattr(cc.Limits(), name), f"turns.md: Limits({name}={value})"
    steps = AgentCommandOptions.__annotations__["steps"].__metadata__[0]
    assert f"(default: {cc.Limits().steps})" in steps.help


def test_the_options_of_a_compiler_are_those_of_the_code() -> None:
    stated: dict[str, object] = {}
    for row in table("reference/compiler.md", "| option | default | |"):
        values = [ast.literal_eval(each) for each in NAME.findall(row.cells[0])]
        stated |= dict(zip(row.names, values, strict=True))
    assert stated == msgspec.structs.asdict(CompilerOptions())


def test_the_arguments_of_compile_are_those_of_the_code() -> None:
    rows = table("reference/compiler.md", "| argument | |")
    defaults = defaults_of(cc.MessageCompiler.compile)
    assert {name for row in rows for name in row.names} == defaults.keys() - {"self", "conversation", "former"}
    assert has_value(text_of(rows, "name"), defaults["name"])


def test_the_options_of_an_agent_are_those_of_the_code() -> None:
    rows = table("agent.md", "| option | |")
    named = {name for row in rows for name in row.names}
    defaults = defaults_of(cc.Agent)
    assert named - AgentOptions.__annotations__.keys() == set(keyword_names(cc.Agent))
    assert has_value(text_of(rows, "name"), defaults["name"])


def test_the_arguments_of_observe_exist() -> None:
    named = {name for row in table("observe.md", "| argument | meaning |") for name in row.names}
    assert named <= defaults_of(cc.observe).keys()


def test_the_parameters_of_a_postgresql_address_are_those_of_the_code() -> None:
    from contextc.store.postgres import PREPARE_THRESHOLD, AddressOptions  # it needs the package psycopg

    rows = table("reference/store.md", "| parameter of the address | default | what it is |")
    options = AddressOptions()._asdict() | {"prepare": PREPARE_THRESHOLD}
    assert {name for row in rows for name in row.names} == options.keys()
    for row in rows:
        value = options[row.names[0]]
        assert row.cells[0] == f"`{value}`" or has_value(row.cells[0], value), f"{row.names[0]} is {value}"


@pytest.mark.parametrize("name", ["concurrency", "queue", "heartbeat"])
def test_the_options_of_a_worker_are_those_of_the_code(name: str) -> None:
    rows = table("fleet.md", "| option | meaning |")
    row = next(row for row in rows if row.names[0].startswith(f"--{name} "))
    value = defaults_of(run_worker)[name]
    assert (f"(`{value}`)" if isinstance(value, str) else f"({value:g})") in row.cells[0]


def test_the_options_of_the_proxy_are_those_of_the_code() -> None:
    rows, defaults = table("proxy.md", "| option | meaning |"), defaults_of(run_proxy)
    assert f"{defaults['host']}:{defaults['port']} by default" in text_of(rows, "--port")
    assert (text_of(rows, "--timeout").endswith("an hour by default"), defaults["timeout"]) == (True, 3600)
