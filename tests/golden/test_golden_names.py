"""Names that are stored or sent, and texts that models read, equal the recorded ones."""

from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import cast

import pytest

import contextc
from contextc.cli import RENAMED_COMMANDS
from tests.golden.json_compare import assert_same
from tests.golden.store_content import read
from tests.golden.stored_names import names, schema_of

RECORDED = read("names.json")
GROWING = ("schema", "types", "errors")


@pytest.fixture(scope="module")
def today() -> object:
    return names()


def test_commands_and_options_are_still_there(today: dict[str, dict[str, list[str]]]) -> None:
    """New ones may be added, and a renamed one is found by its earlier name."""
    for command, options in RECORDED["commands"].items():
        assert {*options} <= {*today["commands"][RENAMED_COMMANDS.get(command, command)]}, command


@pytest.mark.parametrize("what", [what for what in RECORDED if what != "commands"])
def test_names_are_what_they_were(today: dict[str, object], what: str) -> None:
    """Tables and columns, fields and tags of stored JSON, tools, triggers, prompt fragments, sentences, error kinds.

    New tables, columns, fields and error kinds may be added.
    """
    assert_same(RECORDED[what], _common(RECORDED[what], today[what]) if what in GROWING else today[what], what)


def test_the_golden_store_has_the_recorded_schema(raw: Path) -> None:
    assert_same(RECORDED["schema"], schema_of(raw), "the schema of the golden store")


def test_sentences_for_models_are_in_the_code() -> None:
    """Texts that no recorded request has: results of built-in tools, refusals, notes about what was left out.

    They are looked for among all string constants of the package, wherever they are. A text with values in it is
    recorded in pieces.
    """
    constants = {text for file in sorted(Path(contextc.__path__[0]).rglob("*.py")) for text in _constants(_code(file))}
    assert [text for text in read("sentences.json") if text not in constants] == []


def _common(recorded: object, today: object) -> object:
    """Return what is there today without what was added since."""
    if isinstance(recorded, dict) and isinstance(today, dict):
        old, new = cast(dict[str, object], recorded), cast(dict[str, object], today)
        common = {name: _common(old[name], each) for name, each in new.items() if name in old}
        common |= {"enum": new["enum"]} if "enum" in common else {}
        return {**common, "version": old["version"]} if "version" in common and "tables" in common else common
    if isinstance(recorded, list) and isinstance(today, list):
        pairs = zip(cast(list[object], recorded), cast(list[object], today), strict=False)
        return [_common(old, new) for old, new in pairs]
    return today


def _code(file: Path) -> CodeType:
    """The compiled file, from Python's cache where there is one."""
    found = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    assert found is not None, file
    return found


def _constants(code: CodeType) -> Iterator[str]:
    for each in code.co_consts:
        if isinstance(each, str):
            yield each
        elif isinstance(each, CodeType):
            yield from _constants(each)
        elif isinstance(each, tuple | frozenset):
            yield from (inside for inside in cast(tuple[object, ...], each) if isinstance(inside, str))
