"""Reads the command line: a command is a function, and annotations of its parameters declare options and arguments.

    def run(file: Annotated[str, Argument(help="A file.")], json: Annotated[bool, Option("--json")] = False) -> None:

A library for this takes longer to import than most commands run. Values are texts, numbers, paths, choices (`Literal`),
flags, lists and tuples. What is invalid raises `UsageError`.
"""

import re
import sys
from collections.abc import Callable, Sequence
from inspect import Signature, signature
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct

from contextc._sequence_comparison import find_near_names


class Argument(Struct, frozen=True, kw_only=True):
    help: str = ""
    metavar: str = ""
    show_default: bool = True


class Option(Struct, frozen=True):
    """`negative` is the name of the opposite of a flag."""

    name: str
    short: str = ""
    negative: str = ""
    help: str = ""
    metavar: str = ""
    min: float | None = None
    hidden: bool = False


class UsageError(Exception):
    """The command line is invalid. `usage` is that of the command, once it is known."""

    def __init__(self, message: str) -> None:
        super().__init__(CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", message))


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Exit(Exception):
    """End the command with this exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Aborted(Exception):
    """The user ended a question with Ctrl-C, or there is no more input."""


class Parameter(Struct, frozen=True):
    """A parameter of a command. `types` are those of its values: one, or those of a tuple."""

    key: str
    declared: Argument | Option
    types: tuple[Any, ...]
    default: Any
    is_list: bool

    @property
    def is_flag(self) -> bool:
        return self.types == (bool,)

    @property
    def is_required(self) -> bool:
        return self.default is Signature.empty

    @property
    def names(self) -> tuple[str, ...]:
        """The names of an option."""
        declared = self.declared
        if isinstance(declared, Argument):
            return ()
        return (declared.name, declared.short) if declared.short else (declared.name,)

    @property
    def opposites(self) -> tuple[str, ...]:
        return (self.declared.negative,) if isinstance(self.declared, Option) and self.declared.negative else ()

    @property
    def label(self) -> str:
        """The name in texts."""
        return " / ".join(f"'{name}'" for name in self.names or [self.declared.metavar or self.key])

    def parse(self, given: Sequence[tuple[str, ...]]) -> Any:
        """Return the value for what was given: each time the option was, or each argument."""
        if not given:
            if self.is_required:
                kind = "option" if isinstance(self.declared, Option) else "argument"
                raise UsageError(f"Missing {kind} {self.label}.")
            return self.default
        values = [self._parse_values(each) for each in (given if self.is_list else given[-1:])]
        return values if self.is_list else values[0]

    def _parse_values(self, given: tuple[str, ...]) -> Any:
        if self.is_flag:
            return NEGATIVE not in given
        try:
            values = [_parse_value(kind, text) for kind, text in zip(self.types, given, strict=True)]
        except ValueError as error:
            raise UsageError(f"Invalid value for {self.label}: {error}") from None
        least = self.declared.min if isinstance(self.declared, Option) else None
        if least is not None and not values[0] >= least:
            raise UsageError(f"Invalid value for {self.label}: Input should be greater than or equal to {least:g}")
        return tuple(values) if len(values) > 1 else values[0]


def _parse_value(kind: Any, text: str) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"{text!r} is not one of {', '.join(map(repr, get_args(kind)))}.")
        return text
    try:
        return kind(text)
    except ValueError:
        name, article = ("integer", "an") if kind is int else ("number", "a")
        raise ValueError(f"Input should be a valid {name}, unable to parse string as {article} {name}") from None


def read_parameters(command: Callable[..., None]) -> list[Parameter]:
    found: list[Parameter] = []
    for key, parameter in signature(command).parameters.items():
        kind, declared = get_args(parameter.annotation)
        if get_origin(kind) in (Union, UnionType):
            (kind,) = [each for each in get_args(kind) if each is not NoneType]
        is_list = get_origin(kind) is list
        types = get_args(kind) if get_origin(kind) in (list, tuple) else (kind,)
        found.append(Parameter(key, declared, types, parameter.default, is_list))
    return found


NEGATIVE = "no"
"""What is noted for the opposite of a flag."""
HELP = Parameter("help", Option("--help", help="Show this message and exit."), (bool,), False, False)


class HelpWanted(Exception):
    """The options contain --help."""


def parse_arguments(
    parameters: Sequence[Parameter], given: Sequence[str], *, takes_rest: bool, is_interspersed: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of parameters, and with `takes_rest` the arguments after the last of them.

    Unless `is_interspersed`, options end where the first argument begins.
    """
    options = {name: each for each in (*parameters, HELP) for name in (*each.names, *each.opposites)}
    values: dict[str, list[tuple[str, ...]]] = {}
    arguments: list[str] = []
    left = list(given)
    while left:
        text = left.pop(0)
        if text == "--":
            break
        if text[:1] == "-" and len(text) > 1:
            _take_option(options, text, left, values)
        elif is_interspersed:
            arguments.append(text)
        else:
            left.insert(0, text)
            break
    arguments += left
    if HELP.key in values:
        raise HelpWanted
    positional = [each for each in parameters if isinstance(each.declared, Argument)]
    for number, each in enumerate(positional):
        after = len(positional) - number - 1
        end = max(len(arguments) - after, 0) if each.is_list else 1
        if arguments[:end]:
            values[each.key] = [(text,) for text in arguments[:end]]
        del arguments[:end]
    in_order = sorted(parameters, key=lambda each: list(values).index(each.key) if each.key in values else len(values))
    parsed = {each.key: each.parse(values.get(each.key, ())) for each in in_order}
    if arguments and not takes_rest:
        raise UsageError(f"Got unexpected extra argument(s) ({' '.join(arguments)})")
    return parsed, arguments


def _take_option(
    options: dict[str, Parameter], text: str, left: list[str], values: dict[str, list[tuple[str, ...]]]
) -> None:
    """Take an option, or short ones together, with their values from the arguments that are left."""
    name, equals, value = text.partition("=")
    if name in options:
        if equals and options[name].is_flag:
            raise UsageError(f"Option {name!r} does not take a value.")
        if equals:
            left.insert(0, value)
        _take_values(options[name], name, left, values)
        return
    if text.startswith("--"):
        close = ", ".join(sorted(find_near_names(name, [each for each in options if each.startswith("--")])))
        raise UsageError(f"No such option: {name}{f' (Possible options: {close})' if close else ''}")
    for position, letter in enumerate(text[1:], 2):
        short = f"-{letter}"
        if short not in options:
            raise UsageError(f"No such option: {short}")
        if not options[short].is_flag:
            if text[position:]:
                left.insert(0, text[position:])
            _take_values(options[short], short, left, values)
            return
        _take_values(options[short], short, left, values)


def _take_values(option: Parameter, name: str, left: list[str], values: dict[str, list[tuple[str, ...]]]) -> None:
    count = 0 if option.is_flag else len(option.types)
    if len(left) < count:
        raise UsageError(f"Option {name!r} requires {'an argument' if count == 1 else f'{count} arguments'}.")
    values.setdefault(option.key, []).append((NEGATIVE,) if name in option.opposites else tuple(left[:count]))
    del left[:count]


def confirm(question: str, *, on_stderr: bool = False) -> bool:
    """Ask a question, and return True if the answer is yes. The default is no."""
    output = sys.stderr if on_stderr else sys.stdout
    while True:
        output.write(f"{question} [y/N]:")
        output.flush()
        try:
            answer = input(" ").lower().strip()
        except (KeyboardInterrupt, EOFError):
            raise Aborted from None
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no", ""):
            return False
        output.write("Error: invalid input\n")
