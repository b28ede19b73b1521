"""What a target of the Makefile runs exists, and so does every program that a page or a docstring says how to run.

Most of it takes too long for `make test`, so that nothing else would notice a renamed module.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests import stress
from tests.frameworks import FRAMEWORKS, TESTS
from tests.long_runs import proof_names
from tests.package_versions import PACKAGE_TESTS
from tests.stress.__main__ import RUNS

ROOT = Path(__file__).parent.parent
ADAPTERS = ROOT / "src" / "contextc" / "adapters"
WITHOUT_TESTS_OF_VERSIONS = {"all", "local", "mistral"}
"""Extras that are others together, need a model, or are the package of another."""
PROGRAM = re.compile(r"python\s+(?:-m\s+(tests[\w.]*\w)(?:\s+(\w+))?|((?:benchmarks|examples)/[\w/.]+\.py))")
PATH = re.compile(r"(?<![\w/.])(?:benchmarks|examples|tests)/(?!__pycache__)[\w/.-]*\w")
TARGET = re.compile(r"`make ([a-z][a-z-]*)|--no-print-directory (?:-j2 )?([a-z][a-z -]*)")
NAMES = {"STRESS": {*RUNS}, "PROOFS": {*proof_names()}, "FRAMEWORKS": {*FRAMEWORKS}, "PACKAGES": {*PACKAGE_TESTS}}
"""The names that are allowed in a variable of a target."""


def texts(*patterns: str) -> Iterator[tuple[str, str]]:
    """The path and the text of the files that may say how to run something."""
    for pattern in ("*.md", "docs/**/*.md", "Makefile", *patterns):
        for path in ROOT.glob(pattern):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_make_stress_runs_every_module_that_can_be_run() -> None:
    files = [path for path in Path(stress.__file__ or "").parent.glob("*.py") if path.stem != "__main__"]
    assert {path.stem for path in files if '\nif __name__ == "__main__":' in path.read_text()} == {*RUNS}
    assert [name for name in RUNS if not callable(import_module(f"tests.stress.{name}").main)] == []


def test_every_framework_has_tests_and_every_adapter_a_page() -> None:
    for name, framework in FRAMEWORKS.items():
        has_adapter = (ADAPTERS / f"{name}.py").exists() or (ADAPTERS / name).exists()
        assert framework.has_adapter == has_adapter, name
        assert [*(TESTS / name).glob("test_*.py")], name
        assert (ROOT / "docs" / "frameworks" / f"{name}.md").exists() == has_adapter, name
    assert {each.parent.name for each in TESTS.glob("*/test_*.py")} == {*FRAMEWORKS}


def test_every_extra_is_tested_with_other_versions_by_tests_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {each.extra for each in PACKAGE_TESTS.values()} == {"", *extras} - WITHOUT_TESTS_OF_VERSIONS
    paths = [path for each in PACKAGE_TESTS.values() for path in each.tests if path.startswith("tests/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_program_that_is_named_exists() -> None:
    """The pages, the Makefile and docstrings say how something is run or measured again."""
    missing: list[str] = []
    for file, text in texts("src/**/*.py", "tests/**/*.py", "benchmarks/**/*.py"):
        for module, argument, path in PROGRAM.findall(text):
            if path and not (ROOT / path).exists():
                missing.append(f"{file}: {path}")
            if module and module != "tests.stress.NAME" and find_spec(module) is None:
                missing.append(f"{file}: {module}")
            if module == "tests.stress" and argument and argument not in RUNS:
                missing.append(f"{file}: {module} {argument}")
    for file, text in texts("pyproject.toml"):
        missing += [f"{file}: {path}" for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert missing == []


def test_every_target_and_every_name_that_is_given_to_one_exists() -> None:
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)}
    missing: list[str] = []
    for file, text in texts("src/**/*.py", "tests/**/*.py"):
        named = [each for found in TARGET.findall(text) for each in "".join(found).split()]
        missing += [f"{file}: make {each}" for each in named if each not in targets]
        for variable, known in NAMES.items():
            for names in re.findall(rf'{variable}="([\w -]+)"', text):
                missing += [f"{file}: {variable}={each}" for each in names.split() if each not in known]
    assert missing == []
