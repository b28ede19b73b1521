"""How the command line is read: options, arguments, help, and what is wrong with them."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from contextc.cli import COMMANDS, load_command, read_docstring
from contextc.cli.command_line import Argument, HelpWanted, Option, UsageError, parse_arguments, read_parameters
from tests.cli.conftest import Run


def example(
    first: Annotated[str, Argument()],
    others: Annotated[list[str] | None, Argument(metavar="OTHER")] = None,
    size: Annotated[int, Option("--size", "-s", min=1)] = 3,
    share: Annotated[float | None, Option("--share")] = None,
    folder: Annotated[Path, Option("--folder")] = Path("."),
    color: Annotated[Literal["red", "blue"], Option("--color", "-c")] = "red",
    edit: Annotated[tuple[int, str] | None, Option("--edit")] = None,
    name: Annotated[list[str] | None, Option("--name", "-n")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q")] = False,
    open: Annotated[bool | None, Option("--open", negative="--no-open")] = None,
) -> None: ...


DEFAULTS: dict[str, Any] = {
    "others": None,
    "size": 3,
    "share": None,
    "folder": Path("."),
    "color": "red",
    "edit": None,
    "name": None,
    "quiet": False,
    "open": None,
}


def parse(*given: str, is_interspersed: bool = True) -> dict[str, Any]:
    parameters = read_parameters(example)
    values, _ = parse_arguments(parameters, given, takes_rest=False, is_interspersed=is_interspersed)
    return {name: value for name, value in values.items() if name == "first" or value != DEFAULTS[name]}


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (["a"], {"first": "a"}),
        (["a", "b", "c"], {"first": "a", "others": ["b", "c"]}),
        (["a", "--size", "4"], {"first": "a", "size": 4}),
        (["--size=4", "a"], {"first": "a", "size": 4}),
        (["-s4", "a"], {"first": "a", "size": 4}),
        (["-qs", "4", "a"], {"first": "a", "size": 4, "quiet": True}),
        (["a", "--size", "4", "--size", "5"], {"first": "a", "size": 5}),
        (["a", "--share", "-.5", "--folder", "x/y"], {"first": "a", "share": -0.5, "folder": Path("x/y")}),
        (["a", "--edit", "7", "text"], {"first": "a", "edit": (7, "text")}),
        (["a", "-n", "x", "--name=y=z"], {"first": "a", "name": ["x", "y=z"]}),
        (["a", "-n", "--quiet"], {"first": "a", "name": ["--quiet"]}),
        (["a", "-c", "blue"], {"first": "a", "color": "blue"}),
        (["a", "--open"], {"first": "a", "open": True}),
        (["a", "--open", "--no-open"], {"first": "a", "open": False}),
        (["--", "--size", "-q"], {"first": "--size", "others": ["-q"]}),
        (["-"], {"first": "-"}),
    ],
)
def test_options_and_arguments_are_read(given: list[str], values: dict[str, Any]) -> None:
    """As other programs read them: in any order, short ones together, values after a space or an equals sign."""
    assert parse(*given) == values


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "Missing argument 'first'."),
        (["a", "--siz", "4"], "No such option: --siz (Possible options: --size)"),
        (["a", "-qx"], "No such option: -x"),
        (["a", "--size"], "Option '--size' requires an argument."),
        (["a", "--edit", "1"], "Option '--edit' requires 2 arguments."),
        (["a", "--quiet=1"], "Option '--quiet' does not take a value."),
        (["a", "--size", "0"], "Invalid value for '--size' / '-s': Input should be greater than or equal to 1"),
        (
            ["a", "--size", "x"],
            "Invalid value for '--size' / '-s': Input should be a valid integer, unable to parse string as an integer",
        ),
        (
            ["a", "--share", "x"],
            "Invalid value for '--share': Input should be a valid number, unable to parse string as a number",
        ),
        (["a", "-c", "green"], "Invalid value for '--color' / '-c': 'green' is not one of 'red', 'blue'."),
        (["a", "--\x1b[2J"], "No such option: --\\x1b[2J"),
    ],
)
def test_what_is_wrong_is_named(given: list[str], message: str) -> None:
    """An error names the option, and cannot control the terminal."""
    with pytest.raises(UsageError) as caught:
        parse(*given)
    assert str(caught.value) == message


def test_options_of_another_program_are_not_read() -> None:
    """`contextc watch program --quiet`: the option is the program's."""
    assert parse("-q", "a", "-q", "--help", is_interspersed=False) == {
        "first": "a",
        "others": ["-q", "--help"],
        "quiet": True,
    }


def test_help_goes_before_a_missing_argument() -> None:
    with pytest.raises(HelpWanted):
        parse("--size", "x", "--help")


def test_the_help_of_all_commands_has_the_docstring_of_each() -> None:
    """It is read without importing the command. In this process, an import hook hides the code."""
    code = """
from contextc.cli import COMMANDS, load_command, read_docstring
read = {name: read_docstring(name) for name in COMMANDS}
assert read == {name: load_command(name).__doc__ for name in COMMANDS}
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert read_docstring("list") == load_command("list").__doc__


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_option(name: str, run: Run) -> None:
    """Each with its default, and hidden ones left out."""
    ran = run(name, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    for each in read_parameters(load_command(name)):
        is_hidden = isinstance(each.declared, Option) and each.declared.hidden
        for option in (*each.names, *each.opposites):
            assert (f" {option} " in ran.stdout) is not is_hidden
    assert "--help" in ran.stdout


def test_without_a_command_the_help_is_printed(run: Run) -> None:
    """It lists the commands, and the exit code says that there was none."""
    ran, asked = run(), run("--help")
    assert (ran.returncode, asked.returncode) == (2, 0)
    assert ran.stdout == asked.stdout
    assert [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("│ ") and line[2].islower()] == [
        *COMMANDS
    ]


def test_an_unknown_command_is_named_with_similar_ones(run: Run) -> None:
    ran = run("lnt")
    assert ran.returncode == 2
    assert "No such command 'lnt'. Did you mean lint?" in ran.stderr


def test_help_imports_no_command() -> None:
    """The start of every command is the time to import what it needs."""
    code = """
import sys
from contextc.cli import app
try:
    app(["--help"])
except SystemExit:
    print(*sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.splitlines()[-1].split()
    ours = {each for each in loaded if each.startswith("contextc.cli.")}
    assert ours == {"contextc.cli.command_line", "contextc.cli.console", "contextc.cli.help_pages"}
    assert not {
        "asyncio",
        "sqlite3",
        "contextc.store",
        "contextc.formats",
        "rich.markdown",
        "rich.progress",
        "pydantic",
    } & set(loaded)
