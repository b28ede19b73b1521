"""The tables of the docs name what the code has, with its defaults.

A comment before a table declares what it describes, in one or several clauses:

    <!-- parameters: contextc.Agent, some of contextc.executor.agent_config.AgentOptions -->
    <!-- attributes: contextc.TurnResult -->
    <!-- methods: contextc.Store -->

A table of `parameters` has all parameters of a function or a class, or all fields of a Struct or a TypedDict; one of
`attributes` all public ones that are no methods. Of what comes after `some of` a table may have any, and what comes
after `not` is left out: the names of a class, or one name. A column `default` has the values of the code, and those of
`defaults of`. The signatures in a table of `methods` are complete; it need not have all methods.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

import contextc as cc
from contextc import events
from contextc.cli.inputs import AgentCommandOptions
from contextc.cli.proxy import run as run_proxy
from contextc.cli.worker import run as run_worker

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NAME = re.compile(r"`([^`]+)`")
LIMIT = re.compile(r"`(?:cc\.)?Limits\((\w+)=([\d_]+)\)`")
DECLARED = re.compile(r"<!-- (parameters|attributes|methods): (.+) -->\n((?:\|.*\n)+)")
TABLE = re.compile(
    r"^(.*)\n\| (?:parameter|argument|option|attribute|method|limit)(?: of `[^|]+`)? \|.*\n\|[-|]+\n\| `(?!-)", re.M
)
"""The tables that must be declared, with the line before them; not those of commands, whose options begin with `-`."""


class Row(NamedTuple):
    """A row of a table: the names in its first cell, and its other cells."""

    names: list[str]
    cells: list[str]


@dataclass(frozen=True)
class Declared:
    """A table that declares what it describes."""

    page: str
    kind: str
    clauses: list[str]
    head: list[str]
    rows: list[Row]

    def __str__(self) -> str:
        return f"{self.page}: {', '.join(self.clauses)}"

    @property
    def names(self) -> list[str]:
        return [re.split(r"[=(]", name)[0].rpartition(".")[2] for row in self.rows for name in row.names]


def rows_of(lines: list[str]) -> list[Row]:
    cells = [re.split(r" ?\| ", line.strip().strip("|")) for line in lines]
    return [Row(NAME.findall(first), [each.strip() for each in others]) for first, *others in cells]


def declared_tables() -> list[Declared]:
    found: list[Declared] = []
    for path in sorted(DOCS.glob("**/*.md")):
        for kind, clauses, text in DECLARED.findall(path.read_text()):
            head, _, *lines = text.splitlines()
            cells = [each.strip() for each in head.strip("|").split("|")]
            found.append(Declared(str(path.relative_to(DOCS)), kind, clauses.split(", "), cells, rows_of(lines)))
    return found


def table(page: str, head: str) -> list[Row]:
    """The rows of the table with this first line."""
    lines = (DOCS / page).read_text().splitlines()
    assert lines.count(head) == 1, f"{page} has no table {head}"
    start = lines.index(head) + 2
    end = next((number for number, line in enumerate(lines) if number > start and not line.startswith("|")), len(lines))
    return rows_of(lines[start:end])


def text_of(rows: list[Row], name: str) -> str:
    return " ".join(next(row for row in rows if name in row.names).cells)


def has_value(text: str, value: object) -> bool:
    """True if a text has this number, or this text in quotes."""
    if isinstance(value, str):
        return f'"{value}"' in text
    return re.search(rf"(?<![\d.]){re.escape(f'{value:g}')}(?!\d|\.\d)", text) is not None


def defaults_of(function: Any) -> dict[str, Any]:
    return {each.name: each.default for each in inspect.signature(function).parameters.values()}


# ── what a table declares ─────────────────────────────────────────────────────────────────────────────────────────────


def resolve(path: str) -> Any:
    """Return what a path such as `contextc.Store.append` names."""
    names = path.split(".")
    for end in range(len(names) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(names[:end]))
        except ModuleNotFoundError:
            continue
        for name in names[end:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"{path} does not exist")


def parameters_of(path: str) -> Mapping[str, object]:
    """Return the parameters of a function or class, or the fields of a type, with their defaults."""
    if path.startswith("contextc.adapters."):
        return parameters_in_source(path)
    target = resolve(path)
    if hasattr(target, "__dataclass_fields__") and "__init__" not in vars(target):
        return {each.name: each.default for each in fields(target)}
    if hasattr(target, "__struct_fields__"):
        return {each.name: each.default for each in msgspec.structs.fields(target)}
    if hasattr(target, "__total__"):
        return dict.fromkeys(target.__annotations__, inspect.Parameter.empty)
    parameters = inspect.signature(target).parameters.values()
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {each.name: each.default for each in parameters if each.kind not in variadic and each.name != "self"}


def parameters_in_source(path: str) -> Mapping[str, object]:
    """Return the parameters of a class or function whose module needs packages that may not be installed."""
    module, _, name = path.rpartition(".")
    tree = ast.parse((ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text())
    (kind,) = [each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name]
    if isinstance(kind, ast.FunctionDef):
        return dict.fromkeys([each.arg for each in (*kind.args.args, *kind.args.kwonlyargs)], inspect.Parameter.empty)
    found = {each.name: each.args for each in kind.body if isinstance(each, ast.FunctionDef)}.get("__init__")
    if found is not None:
        names = [each.arg for each in (*found.args[1:], *found.kwonlyargs)]
    else:
        names = [
            each.target.id
            for each in kind.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
    return {name: inspect.Parameter.empty for name in names if not name.startswith("_")}


def attributes_of(path: str) -> set[str]:
    """Return the public attributes of a class that are no methods, also those that its methods set."""
    target = resolve(path)
    names: set[str] = {name for each in target.__mro__ for name in inspect.get_annotations(each)}
    for each in ast.walk(ast.parse(dedent(inspect.getsource(target)))):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self":
            names.add(each.attr)
    names |= {name for name in dir(target) if not callable(getattr(target, name, None))}
    return {name for name in names if not name.startswith("_")}


def expected(table: Declared) -> tuple[set[str], set[str], dict[str, object]]:
    """Return the names that a table must have, those that it may have, and the defaults."""
    required: set[str] = set()
    optional: set[str] = set()
    excluded: set[str] = set()
    defaults: dict[str, object] = {}
    for clause in table.clauses:
        kind, path = next(
            (
                (each, clause.removeprefix(f"{each} "))
                for each in ("some of", "not", "defaults of")
                if clause.startswith(f"{each} ")
            ),
            ("", clause),
        )
        if "." not in path:
            names: Mapping[str, object] = {path: MISSING}
        elif table.kind == "attributes":
            names = dict.fromkeys(attributes_of(path), MISSING)
        else:
            names = parameters_of(path)
        if kind == "not":
            excluded |= names.keys()
        elif kind == "":
            required |= names.keys()
        elif kind == "some of":
            optional |= names.keys()
        if kind != "not":
            defaults |= {name: each for name, each in names.items() if not is_missing(each)}
    return required - excluded, optional - excluded, defaults


def is_missing(value: object) -> bool:
    return value is MISSING or value is msgspec.NODEFAULT or value is inspect.Parameter.empty


def written_signature(function: Callable[..., object], name: str) -> str:
    """Return a signature as the docs write it: without types."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(function).parameters.values()
    ]
    text = str(inspect.Signature([each for each in parameters if each.name != "self"]))
    return name + text.replace("'", '"')


TABLES = declared_tables()


@pytest.mark.parametrize("table", [each for each in TABLES if each.kind != "methods"], ids=str)
def test_a_table_has_the_names_of_the_code(table: Declared) -> None:
    """A parameter that is not in its table is not found; one that was renamed is an error for its reader."""
    required, optional, _ = expected(table)
    assert required or optional
    assert len(set(table.names)) == len(table.names)
    assert required - set(table.names) == set(), f"{table} lacks these"
    assert set(table.names) - required - optional == set(), f"{table} has these, and the code does not"


@pytest.mark.parametrize("table", [each for each in TABLES if "default" in each.head], ids=str)
def test_a_table_has_the_defaults_of_the_code(table: Declared) -> None:
    """In the column `default`, code is a value, and words describe None or what has no literal."""
    column = table.head.index("default") - 1
    *_, defaults = expected(table)
    for row in table.rows:
        stated = [ast.literal_eval(each) for each in NAME.findall(row.cells[column])]
        actual = [defaults.get(name, MISSING) for name in row.names]
        if not stated:
            literal: list[object] = [each for each in actual if isinstance(each, str | int | float | tuple)]
            assert not literal, f"{table}: the default of {row.names} is {literal}"
        else:
            assert stated * (len(actual) if len(stated) == 1 else 1) == actual, f"{table}: {row.names}"


@pytest.mark.parametrize("table", [each for each in TABLES if each.kind == "methods"], ids=str)
def test_a_table_has_the_signatures_of_the_code(table: Declared) -> None:
    """What a reader copies from a table can be called."""
    target = resolve(table.clauses[0])
    for written in (name for row in table.rows for name in row.names):
        awaited, signature = written.startswith("await "), written.removeprefix("await ")
        method = getattr(target, signature.partition("(")[0], None)
        assert callable(method), f"{table}: {written} does not exist"
        assert signature == written_signature(method, method.__name__)
        assert not awaited or inspect.iscoroutinefunction(method), f"{table}: {written} is no coroutine"


def test_every_table_of_parameters_declares_what_it_describes() -> None:
    """A table that declares nothing is not compared with anything."""
    undeclared = [
        f"{path.relative_to(DOCS)}: {found[0].splitlines()[1]}"
        for path in sorted(DOCS.glob("**/*.md"))
        for found in TABLE.finditer(path.read_text())
        if not found[1].startswith("<!--")
    ]
    assert undeclared == []
    assert len(TABLES) >= 20


def test_the_table_of_events_has_every_class_with_its_attributes() -> None:
    """A program that shows a turn to people reads the attributes of its events."""
    rows = table("reference/turns.md", "| type | class | other attributes | |")
    written = [(*row.names, *(NAME.findall(cell) for cell in row.cells[:2])) for row in rows]
    common = events.Event.__struct_fields__
    assert written == [
        (each.__struct_config__.tag, [each.__name__], [name for name in each.__struct_fields__ if name not in common])
        for each in get_args(events.AnyEvent)
    ]


# ── other values ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_limits_in_the_text_are_those_of_the_code() -> None:
    prose = LIMIT.findall("".join((DOCS / page).read_text() for page in ("turns.md", "reference/turns.md")))
    assert len(prose) >= 3
    for name, value in prose:
        assert int(value) == getattr(cc.Limits(), name), f"Limits({name}={value})"
    steps = AgentCommandOptions.__annotations__["steps"].__metadata__[0]
    assert f"(default: {cc.Limits().steps})" in steps.help


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
