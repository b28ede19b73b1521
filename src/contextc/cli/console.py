"""Functions that the commands share: consoles, common options, progress, confirmation, text blocks."""

import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import msgspec
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from contextc._sequence_comparison import find_near_names
from contextc.app.display_text import sanitize
from contextc.cli import command_line
from contextc.cli.command_line import Option
from contextc.errors import (
    ContextcError,
    ConversationBusy,
    InvalidInput,
    InvalidSetting,
    ProviderFailed,
    UnknownBranch,
    UnknownConversation,
    UnknownMessage,
    UnknownModel,
)

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

FormatOption = Annotated[
    str | None,
    Option("--format", "-f", help="The format: openai_chat, anthropic, gemini, … (default: recognised)."),
]
JSONOption = Annotated[bool, Option("--json", help="Print JSON.")]
SarifOption = Annotated[bool, Option("--sarif", help="Print SARIF 2.1.0, for code scanning.")]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask. Needed with --json, and without a terminal.")]


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if it is a terminal."""
    # It takes time to import.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def confirm(action: str, yes: bool, *, detail: str = "", json: bool = False) -> bool:
    """Ask for confirmation of an action that cannot be undone, unless `yes` is given.

    Only the question contains `detail`, which may be a secret. An error may be logged.
    """
    if yes:
        return True
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidSetting(f"{action}: no terminal to confirm it at", fix="Add --yes.")
    if command_line.confirm(f"{replace_control_characters(f'{action} {detail}'.strip())}?"):
        return True
    out.print("nothing was changed")
    return False


@contextmanager
def ignoring_failed_output() -> Generator[None]:
    """Ignore that standard error cannot be written, also at the end of this process: the exit code is another's."""
    try:
        yield
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def escape_markup(text: str) -> str:
    """Return a text for printing with rich, without markup and control characters."""
    return escape(replace_control_characters(text))


def replace_control_characters(text: str) -> str:
    """Return a text for a terminal, with control characters replaced."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def print_json(value: object) -> None:
    sys.stdout.write(escape_at_terminal(msgspec.json.format(msgspec.json.encode(value), indent=2)).decode() + "\n")


def escape_at_terminal(json: bytes) -> bytes:
    """Return JSON for standard output. At a terminal, control characters and those that change the direction of text
    become escapes, such as `\\u202e`: the same JSON, which cannot control the terminal."""
    if not sys.stdout.isatty():
        return json
    return UNSAFE.sub(_escape_character, json.decode(errors="backslashreplace")).encode()


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join([f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])


UNSAFE = re.compile(r"[^\x20-\x7e\n\t\r]|\r(?!\n)")
INDENT = 4


def print_block(heading: str, *below: str) -> None:
    """Print markup: the heading on one line, the rest indented, at any width.

    The heading is never cut, so names in it can be copied. In contrast to a table, no column is too narrow.
    """
    out.print(heading, soft_wrap=True)
    for each in below:
        for line in Text.from_markup(each).wrap(out, max(20, out.width - INDENT)):
            line.rstrip()
            out.print(Text(" " * INDENT) + line, soft_wrap=True)


DEFAULT_WIDTH = 160


def to_one_line(text: str, width: int = DEFAULT_WIDTH) -> str:
    """Return the text in one line, cut to `width`."""
    line = sanitize(" ".join(text.split()))
    return line if cell_len(line) <= width else chop_cells(line, max(1, width - 1))[0] + "…"


def format_dollars(cost: float, *, is_lower_bound: bool = False) -> str:
    """Return a cost as text. A lower bound, of which a part is unknown, reads "at least"."""
    return f"{'at least ' if is_lower_bound else ''}${cost:,.4f}"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Texts of errors for the command line.
#
# An error of the library states its fix for a Python caller. Where the command line has another fix, it replaces the
# library's. The replacement is chosen by the class of the error and by its `case`. Other errors are shown as they are.


Fix: TypeAlias = str | Callable[[ContextcError], str]
"""A fix: a template for the attribute `detail` of the error, or a function of the error."""


def _conversation(error: ContextcError) -> str:
    close = error.close if isinstance(error, UnknownConversation) else ()
    meant = f"Did you mean {' or '.join([repr(name) for name in close])}? " if close else ""
    return f"{meant}`contextc list{error.detail}` shows the conversations of the store."


def _busy(error: ContextcError) -> str:
    seconds = f"{error.seconds:.0f}" if isinstance(error, ConversationBusy) else "some"
    return (
        "Wait until the turn ends, or use another conversation: --conversation NAME. If the process of the turn was "
        f"killed, the conversation is free again in {seconds} s."
    )


def _window(error: ContextcError) -> str:
    model = error.model if isinstance(error, UnknownModel) else "NAME"
    return f'Pass --window 128000, or set window = 128_000 below [models."{model}"] in contextc.toml.'


def _format(error: ContextcError) -> str:
    """Return the fix for an unknown format. The name may be a provider's, whose format is known."""
    return format_fix(error.detail)


def format_fix(name: str, archives: Sequence[str] = ()) -> str:
    """Return the fix for an unknown format, with the formats of archives where those are allowed, too."""
    from contextc.formats.registry import close_formats, did_you_mean, format_names  # they take time to import
    from contextc.providers.registry import format_of_provider

    close = close_formats(name) or find_near_names(name.lower(), archives)[:1]
    format = format_of_provider(name)
    meant = did_you_mean(close)
    if format and format not in close:
        meant = f"It is the name of a provider. {did_you_mean([format])}"
    more = f" For all requests of the conversation: {', '.join(archives)}." if archives else ""
    return f"{meant}Known formats: {', '.join(format_names())}.{more}"


def _rule(error: ContextcError) -> str:
    return f"{error.fix} `contextc rule` lists all rules, `contextc rule ANT` those of a prefix."


def _login(error: ContextcError) -> str:
    login = f"Log in: {error.detail}; or name" if error.detail else "Name"
    return f"{login} the variable that holds a key: --key VARIABLE."


def _provider(error: ContextcError) -> str:
    is_general = isinstance(error, ProviderFailed) and error.kind == "invalid" and not error.way_out
    return "The provider rejects this request. Check it with `contextc lint`." if is_general else error.fix


OWN_ENDPOINT = "For your own endpoint, set url below [providers.{}] in contextc.toml."

FIXES: dict[tuple[type[ContextcError], str], Fix] = {
    (UnknownConversation, ""): _conversation,
    (UnknownMessage, ""): "Pass a seq, uid or id of the conversation.",
    (UnknownBranch, ""): "`contextc list{}` shows how many branches a conversation has.",
    (ConversationBusy, ""): _busy,
    (UnknownModel, ""): _window,
    (UnknownModel, "provider"): OWN_ENDPOINT,
    (InvalidSetting, "provider"): OWN_ENDPOINT,
    (
        InvalidSetting,
        "provider-name",
    ): 'Did you mean "{}"? For your own endpoint of that name, set url and format below [providers.NAME] in '
    "contextc.toml.",
    (InvalidSetting, "model-missing"): 'Write "{0}:", then the model. `contextc models {0}` lists the known ones.',
    (InvalidSetting, "provider-format"): "Set format below [providers.NAME] in contextc.toml.",
    (InvalidSetting, "untrusted"): "Read it, then run `contextc trust`, or move these settings to {}.",
    (InvalidSetting, "format"): _format,
    (InvalidSetting, "rule"): _rule,
    (
        InvalidSetting,
        "address",
    ): "Pass --url https://…/v1 --key THE_VARIABLE_WITH_THE_KEY, or set them below [providers.{}] in contextc.toml.",
    (InvalidSetting, "local-url"): "For another server: --model myserver:MODEL --url http://….",
    (InvalidSetting, "source"): "Pass --from {}.",
    (InvalidSetting, "source-file"): "Name the file: contextc import --from {} FILE.",
    (InvalidInput, "wrong-source"): "It is a file of {}: leave --from out.",
    (InvalidInput, "unknown-file"): "Pass --from if it is one of these: {}. Pass --format if it holds requests.",
    (InvalidInput, "unknown-format"): "Pass --format {}, or the format they are in.",
    (InvalidInput, "unknown-session"): "List the sessions: contextc import --from {} --all.",
    (InvalidInput, "no-session"): "Search elsewhere with --directory or --all.",
    (InvalidInput, "no-requests"): "Import both files: contextc import requests.jsonl results.jsonl.",
    (InvalidInput, "diverged"): "Import the session under another name (--as).",
    (
        InvalidInput,
        "left-branch",
    ): "Switch to branch {} first, or import the session under another name (--as).",
    (InvalidInput, "no-name"): "Name the conversation with --as. Nothing was imported.",
    (
        ProviderFailed,
        "key",
    ): "Set {}, or name the variable that holds the key: --key VARIABLE, or key in contextc.toml.",
    (ProviderFailed, "login"): _login,
    (ProviderFailed, ""): _provider,
}


def format_error(error: BaseException) -> str:
    """Return the text of an error, with the fix for the command line if it has one."""
    text = str(error)
    if not isinstance(error, ContextcError) or (fix := _fix(error)) is None:
        return text
    return f"{text.removesuffix(error.fix).rstrip()} {fix}"


def _fix(error: ContextcError) -> str | None:
    """Return the command line's own fix; None if the library's is used."""
    for kind in type(error).__mro__:
        if issubclass(kind, ContextcError) and (fix := FIXES.get((kind, error.case))) is not None:
            return fix.format(error.detail) if isinstance(fix, str) else fix(error)
    return None
