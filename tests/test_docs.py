"""Every example in the README and the docs is run, and prints what the page shows.

A ```python block is run; a ```text block right after it is its output. In a ```console block the lines after `$` are
run and the others are the output. The blocks of one page are one session, in one folder. `…` in an output stands for
anything.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from contextc import errors
from contextc.cli import COMMANDS
from tests import side_by_side
from tests.doc_examples import BLOCK, matches, run_python
from tests.forked_commands import run_contextc

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FOR_AGENTS = ROOT / "website" / "for_agents.md"
SHELL = re.compile(r"[|<>$*;&~]")
LISTED_PACKAGES = (
    *("analysis", "app", "compiler", "doctor", "executor", "formats"),
    *("inspection", "interchange", "observation", "providers", "proxy", "store", "web"),
)
"""Packages whose modules ARCHITECTURE.md lists."""
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
OTHER_PAGES = ("ARCHITECTURE", "CHANGELOG", "SECURITY", "CONTRIBUTING", "CODE_OF_CONDUCT")
LINKING_PAGES = [*PAGES, *(ROOT / f"{name}.md" for name in OTHER_PAGES)]


def run_console(block: str) -> tuple[str, str]:
    """What a block shows and what its commands print."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
    }
    shown, printed = "", ""
    for line in block.splitlines():
        if line.startswith("$ "):
            result = _result(line[2:], environment)
            printed += result.stdout + result.stderr
        else:
            shown += line + "\n"
    return shown, printed


def _result(command: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a line of a shell; a plain `contextc` command without one."""
    name, *arguments = shlex.split(command)
    if name == "contextc" and not SHELL.search(command):
        return run_contextc(*arguments, cwd=Path.cwd(), env=environment)
    return subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", [*PAGES, FOR_AGENTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_and_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONTEXTC_STORE", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    with (
        side_by_side.answering_model(monkeypatch)
        if page in (side_by_side.PAGE, side_by_side.MOVING)
        else contextlib.nullcontext()
    ):
        run_blocks(page)


def run_blocks(page: Path) -> None:
    names: dict[str, object] = {"__name__": "example"}
    printed = ""
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "python":
            printed = run_python(block, names)
        elif kind == "text":
            assert matches(block, printed), f"{page.name} shows:\n{block}\nbut it prints:\n{printed}"
        elif kind == "console":
            shown, printed = run_console(block)
            assert matches(shown, printed), f"{page.name} shows:\n{shown}\nbut it prints:\n{printed}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those of its headings, as GitHub and GitLab make them, and `<a id>`."""
    text = FENCED.sub("", page.read_text())
    headings = [re.sub(r"[^\w\- ]", "", head.lower()) for head in re.findall(r"^#+ (.+)$", text, re.M)]
    return {*(head.replace(" ", "-") for head in headings), *re.findall(r'<a id="([^"]+)">', text)}


@pytest.mark.parametrize("page", LINKING_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    """A heading that is renamed or moved to another page breaks links on pages that its author does not look at."""
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}, which does not exist"


def test_the_index_links_to_every_page() -> None:
    """A page without a link is not found."""
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / path).resolve() for path, _ in LINK.findall(index.read_text()) if path}
    assert [str(page) for page in PAGES if page not in linked and page != index] == []


def test_the_page_side_by_side_counts_the_lines_of_its_programs() -> None:
    """A program that is changed would leave a wrong number in the table."""
    assert side_by_side.table_rows() in side_by_side.PAGE.read_text()


def test_the_reference_names_every_error() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    named = [name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_the_docs_name_every_command() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in text] == []


@pytest.mark.parametrize("package", LISTED_PACKAGES)
def test_the_architecture_lists_every_module(package: str) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    modules = [each.name for each in (ROOT / "src" / "contextc" / package).glob("*.py") if each.name != "__init__.py"]
    assert modules
    assert [each for each in modules if not re.search(rf"\b{re.escape(each)}", page)] == []
