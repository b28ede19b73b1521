"""The public API: its names, and the time to import them."""

import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

import contextc as cc

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_there_and_nothing_else_is_promised() -> None:
    nowhere = [name for name in cc.__all__ if not hasattr(cc, name)]
    assert nowhere == [], "name the module of each in `_MODULES`"
    assert sorted(cc.__all__) == cc.__all__ == dir(cc)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        cc.nope  # noqa: B018  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]


STORE_NAMES = {
    *("append", "extend", "load", "sync", "blob", "conversation", "conversations", "begin", "overview", "overviews"),
    *("set_title", "delete", "branches", "fork", "rewind", "edit", "switch", "reset", "pin", "unpin", "pinned"),
    *("redact", "redact_text", "expire", "pending_erasure"),
    *("todos", "add_todo", "set_todo", "change_todos", "replace_todos"),
    *("lease", "acquire", "release", "on_lease_lost", "stream", "recover", "recovered"),
    *("turns", "steps", "events", "enqueue", "queued"),
    *("approvals", "turn_approvals", "answer_approval", "answered_turns", "cancel_turn", "stop_turn", "turn_requests"),
    *("approval_rules", "revoke_rule"),
    *("tags", "tag", "untag", "notes", "add_note", "delete_note"),
    *("read", "write", "aio", "backup", "address", "close"),
}


def test_a_store_has_the_names_that_its_reference_describes(store: cc.Store) -> None:
    """`dir(store)`, an editor and the reference show what a program needs. The package uses `engine_of(store)`."""
    assert {name for name in dir(store) if not name.startswith("_")} == STORE_NAMES
    assert {name for name in dir(store.aio) if not name.startswith("_")} <= STORE_NAMES | {"store"}
    section = (ROOT / "docs" / "reference" / "store.md").read_text().partition("## Names of a store\n")[2]
    rows = re.findall(r"^\| (`.*?`) \|", section.partition("\n## ")[0], re.MULTILINE)
    described = [name for row in rows for name in re.findall(r"`(\w+)[(`]", row)]
    assert sorted(described) == sorted(STORE_NAMES)


def test_what_a_store_returns_is_printed_with_what_it_is(tmp_path: Path) -> None:
    """In a notebook or a log, an address in memory says nothing. What a store returns otherwise prints its fields."""
    with cc.open_store(tmp_path / "chat.db") as store:
        assert (repr(store), repr(store.aio)) == (f"<Store {store.address}>", f"<AsyncStore {store.address}>")
        store.append("demo", cc.user("hello"))
        with store.lease("demo") as lease, store.stream(lease, cc.assistant([], uid="u1")) as stream:
            assert repr(stream) == "<Stream u1 of 'demo' for 'assistant': open>"
            stream.write("hi")
        assert repr(stream) == "<Stream u1 of 'demo' for 'assistant': sent>"
        assert repr(store.conversation("demo")).startswith("Conversation(name='demo', ")
        assert repr(store.branches("demo")[0]).startswith("Branch(number=1, ")
    assert repr(store) == f"<Store {store.address}, closed>"


def test_every_public_class_function_and_method_has_a_docstring() -> None:
    """`help(cc.Agent)` and an editor have nothing else to show."""
    folder = ROOT / "src" / "contextc"
    packages = ["contextc", *(f"contextc.{path.parent.name}" for path in folder.glob("*/__init__.py"))]
    modules = [import_module(name) for name in (*packages, "contextc.errors", "contextc.events")]
    missing: set[str] = set()
    for module in modules:
        names: list[str] = getattr(module, "__all__", [] if module.__name__ in packages else list(vars(module)))
        for name in names:
            value: object = getattr(module, name)
            if name.startswith("_") or not isinstance(value, type | FunctionType):
                continue
            if not value.__module__.startswith("contextc"):
                continue
            if not value.__doc__:
                missing.add(f"{value.__module__}.{name}")
            for key, member in vars(value).items() if isinstance(value, type) else ():
                is_code = isinstance(member, FunctionType | property | classmethod | staticmethod)
                if is_code and not key.startswith("_") and not inspect.getdoc(getattr(value, key)):
                    missing.add(f"{value.__module__}.{name}.{key}")
    assert sorted(missing) == []


def test_every_exception_is_in_the_tree_and_public() -> None:
    """Guarantee 15.1: one tree."""
    errors = import_module("contextc.errors")
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    assert all(issubclass(kind, cc.ContextcError) for kind in kinds)
    assert {kind.__name__ for kind in kinds} <= set(vars(cc.errors))
    for kind in kinds:
        assert f"── {kind.__name__} " in (errors.__doc__ or "") or kind is cc.ContextcError


def test_importing_loads_nothing_that_is_not_needed() -> None:
    """Names are loaded on first use; a driver or a terminal library only if it is needed."""
    code = "import sys, contextc; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"msgspec", "sqlite3", "psycopg", "rich", "asyncio"} & set(loaded)
    code = "import sys, contextc; contextc.open_store('memory:'); contextc.user; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"psycopg", "rich", "asyncio"} & set(loaded)


MOST_LOADED = {
    "ContextcError": 2,
    "Message": 7,
    "Tool": 9,
    "Limits": 6,
    "tool": 15,
    "lint": 36,
    "AnthropicFormatter": 38,
    "open_store": 46,
    "SessionManager": 52,
}


def test_a_public_name_loads_only_what_it_needs() -> None:
    """A script that wants one value type should not wait for the executor and every client to be imported."""
    code = f"""if True:
        import os, sys, contextc
        for name in {list(MOST_LOADED)}:
            if (child := os.fork()) == 0:
                getattr(contextc, name)
                print(name, sum(each.startswith("contextc.") for each in sys.modules), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name: int(count) for name, count in (line.split() for line in result.splitlines())}
    assert loaded.keys() == MOST_LOADED.keys()
    assert {name: count for name, count in loaded.items() if count > MOST_LOADED[name]} == {}


def test_no_public_name_is_a_submodule() -> None:
    """`cc.lint` must stay a function whatever was imported before."""
    modules = {each.name for each in pkgutil.iter_modules(cc.__path__)}
    assert modules.isdisjoint(cc.__all__)
    assert len(cc.__all__) <= 58


def test_no_two_public_classes_share_a_name() -> None:
    """A name that is public in two packages would mean two things."""
    places: dict[str, set[str]] = {}
    for package in sorted(cc._PACKAGES):  # pyright: ignore[reportPrivateUsage]
        module = import_module(f"contextc.{package}")
        for name in getattr(module, "__all__", ()):
            if isinstance(kind := getattr(module, name), type):
                places.setdefault(name, set()).add(f"{kind.__module__}.{kind.__qualname__}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_missing_driver_is_named_with_the_way_out() -> None:
    code = """
import importlib.metadata, sys
import contextc as cc
def version(name):
    if sys.argv[1:]:
        return sys.argv[1]
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = version
sys.modules["psycopg"] = None
cc.open_store("postgresql://x")
"""
    failed = [
        subprocess.run([sys.executable, "-c", code, *version], capture_output=True, text=True, check=False).stderr
        for version in ([], ["3.1"], ["9.0"])
    ]
    assert (
        "postgresql:// stores require the package 'psycopg', which is not installed. "
        "Install it: pip install 'contextc[postgres]'"
    ) in failed[0]
    assert "package 'psycopg': expected version 3.2" in failed[1]
    assert " or newer, got '3.1'. Upgrade it: pip install --upgrade 'contextc[postgres]'" in failed[1]
    assert "package 'psycopg' 9.0 cannot be imported: ModuleNotFoundError: " in failed[2]


def test_the_changelog_describes_this_version() -> None:
    """Until its release, a version is a development version. A release has a date."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    if ".dev" in version:
        assert first == f"## {version.removesuffix('.dev0')} (unreleased)"
    else:
        assert re.fullmatch(rf"## {re.escape(version)} \(20\d\d-\d\d-\d\d\)", first)
