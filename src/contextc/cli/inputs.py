"""Inputs of commands: the configured store, options of an agent, files and standard input."""

import os
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, cast

from msgspec.structs import replace

from contextc._sequence_comparison import find_near_names
from contextc.app.agent_choices import AgentChoices, ToolSelection
from contextc.cli.command_line import Option
from contextc.cli.console import err, escape_at_terminal, escape_markup, pluralize, progress_bar, to_one_line
from contextc.config import PolicyName, Settings, make_private_folder, mask_secrets, read_settings
from contextc.errors import ContextcError, InvalidSetting, UnknownBranch, UnknownConversation
from contextc.store import Store, open_store
from contextc.store.message_log import DEFAULT_AGENT
from contextc.store.sqlite import remove_empty_store

# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Open the configured store for a command: option, missing file, retention, and the warning of a pending erasure.


StoreOption = Annotated[str | None, Option("--store", help="sqlite:///chat.db, postgresql://… (default: configured).")]
RequestOption = Annotated[
    str | None, Option("--request", help="A request of the conversation, by its number or CHANNEL/NUMBER.")
]
MAX_CLOSE_NAMES, MIN_PART_LENGTH = 3, 3


@contextmanager
def open_configured_store(store: str | None, *, create: bool = False) -> Generator[Store]:
    """Open the configured store. Only with `create`, a missing file is created, and expired content is redacted.

    So commands that read change nothing. If the command fails, a file that was created and is empty is removed.
    """
    settings = read_settings(store)
    age, missing = settings.parse_retention(), missing_store_file(settings)
    if missing and not create:
        raise InvalidSetting(
            f"{settings.store.value}: store not found",
            fix="Name one that exists with `--store`, or create one with `contextc import` or `contextc chat`.",
        )
    if missing and settings.store.source == "default":
        make_private_folder(os.path.dirname(missing))
    try:
        with open_store(settings.store.value) as handle:
            if create and age is not None and (redacted := handle.expire(age)):
                err.print(
                    f"redacted {pluralize(redacted, 'message')} older than {escape_markup(settings.retention.value)}"
                )
            if create:
                _limit_observed(handle, settings)
            try:
                yield handle
            except (UnknownConversation, UnknownBranch) as error:
                error.detail = f" --store {shlex.quote(mask_secrets(store))}" if store is not None else ""
                if isinstance(error, UnknownConversation):
                    error.close = _find_close_conversations(handle, error.conversation)
                raise
    except BaseException:
        if missing:
            remove_empty_store(missing)
        raise


def parse_request(text: str | None) -> tuple[str, int | None]:
    """Return the channel of `--request` ("" if it is not named) and the number of the request (None: not given)."""
    if text is None:
        return "", None
    channel, _, number = text.rpartition("/")
    if not (number.isascii() and number.isdecimal()):
        raise InvalidSetting(f"--request must be a number or CHANNEL/NUMBER, got {text!r}.")
    return channel, int(number)


def _find_close_conversations(store: Store, name: str) -> tuple[str, ...]:
    """Return at most three conversations whose names contain the given one, or have a similar spelling."""
    try:
        names = [each.name for each in store.conversations()]
    except ContextcError:
        return ()
    containing = [each for each in names if len(name) >= MIN_PART_LENGTH and name.lower() in each.lower()]
    close = [*containing, *find_near_names(name, names)]
    return tuple(dict.fromkeys(close))[:MAX_CLOSE_NAMES]


def _limit_observed(store: Store, settings: Settings) -> None:
    """Delete observed conversations beyond their own retention and size limit, and report it."""
    age, size = settings.parse_observed_age(), settings.parse_observed_size()
    if age is None and size is None:
        return
    from contextc.observation import limit_observed  # most stores have no limit, and it takes time to import

    with progress_bar("deleting observed traffic") as report:
        deleted = limit_observed(store, age=age, max_bytes=size, progress=report)
    if deleted.conversations:
        limits = [f"{age.days} days"] if age is not None else []
        limits += [f"{size:,} bytes"] if size is not None else []
        err.print(
            f"deleted {pluralize(deleted.conversations, 'observed conversation')} ({deleted.size:,} bytes), "
            f"beyond the limit of {' and '.join(limits)}"
        )


def missing_store_file(settings: Settings) -> str | None:
    """Return the path of a SQLite store if its file is missing."""
    scheme, _, path = settings.store.value.partition(":///")
    path = os.path.expanduser(path.partition("?")[0])
    return path if scheme == "sqlite" and path and not os.path.exists(path) else None


def warn_pending_erasure(erasures: int) -> None:
    """Warn that removed content is still in the files of a store."""
    if erasures:
        err.print(
            "pending: the content is still in the store's files, because another connection reads them. It is "
            "removed when the store is next opened after that.",
            soft_wrap=True,
        )


# ── options of an agent ───────────────────────────────────────────────────────────────────────────────────────────────
# Options that the commands with an agent share.


AgentOption = Annotated[str, Option("--agent", help="The name of the agent.")]
SystemOption = Annotated[str | None, Option("--system", help="A system prompt, or @file (default: configured).")]
ToolsOption = Annotated[
    ToolSelection | None,
    Option(
        "--tools",
        help="The tools of the model (default: all; none for the local model and for programs with their own).",
    ),
]
RootOption = Annotated[Path, Option("--root", help="The working directory of tools.")]
StepsOption = Annotated[int | None, Option("--steps", help="Limit of steps per turn (default: 250).")]
BudgetOption = Annotated[int | None, Option("--budget", help="Limit of the whole input in tokens.")]
PolicyOption = Annotated[
    PolicyName | None,
    Option("--policy", help="How messages are left out when the window is full (default: configured)."),
]
MCPOption = Annotated[
    str | None,
    Option("--mcp", help="The configured MCP servers: all, none, or names with commas (default: all, with all tools)."),
]
OutputOption = Annotated[int | None, Option("--output", help="Limit of an answer in tokens.")]


class AgentCommandOptions(AgentChoices, frozen=True, kw_only=True):
    """The choices as options of a command. A subclass has the other options of a command."""

    agent: AgentOption = DEFAULT_AGENT
    system: SystemOption = None
    tools: ToolsOption = None
    root: RootOption = Path(".")
    budget: BudgetOption = None
    output: OutputOption = None
    policy: PolicyOption = None
    steps: StepsOption = None
    mcp: MCPOption = None

    @classmethod
    def set_signature(cls, command: Callable[..., None]) -> None:
        """Set the signature of a command, from which its options are read: first those of the subclass."""
        fields = signature(cls).parameters.values()
        ordered = sorted(fields, key=lambda field: field.name in AgentChoices.__struct_fields__)
        cast(Any, command).__signature__ = Signature(ordered)

    def chosen(self) -> AgentChoices:
        """Return the choices, with the folder as a path that exists and the system prompt as its text."""
        given: dict[str, Any] = {name: getattr(self, name) for name in AgentChoices.__struct_fields__}
        found = AgentChoices(**given)
        return replace(found, root=resolve_root(self.root), system=read_system_prompt(self.system))


def enable_telemetry() -> None:
    """Record spans and metrics if that is configured. Without an SDK nothing is exported, which is a warning."""
    if (chosen := read_settings().parse_telemetry()) == "off":
        return
    from contextc import telemetry  # it imports OpenTelemetry

    telemetry.enable(content=chosen == "content")
    if not telemetry.is_configured():
        err.print(
            "[yellow]warning:[/] telemetry is on, but there is no OpenTelemetry SDK: run `opentelemetry-instrument "
            "contextc …`",
            soft_wrap=True,
        )


def parse_reference(text: str) -> int | str:
    """Return a reference to a message: its number, or its uid or id."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 12 else text


def resolve_root(root: Path) -> Path:
    """Return the working directory of tools. Raise InvalidSetting if it does not exist."""
    folder = root.expanduser().resolve()
    if not folder.is_dir():
        raise InvalidSetting(f"--root {root}: directory not found", fix="Create it, or name another one.")
    return folder


def check_positive(**given: int | None) -> None:
    for name, number in given.items():
        if number is not None and number <= 0:
            raise InvalidSetting(f"--{name} must be greater than 0", got=number)


# ── files and standard input ──────────────────────────────────────────────────────────────────────────────────────────
# Reading and writing of files by commands. `-` is standard input or output.


def read_input(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as source:
            return source.read()
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be read: {error.strerror}.") from error


def open_private(path: str, flags: int) -> int:
    """Open a new file that only its owner can read. For the parameter `opener` of `open`."""
    return os.open(path, flags, 0o600)


def write_output(file: str, data: bytes) -> None:
    """Write a file completely or not at all. Only its owner can read it."""
    if file == "-":
        try:
            sys.stdout.buffer.write(escape_at_terminal(data))
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader closed the pipe, which is not an error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    partial = f"{file}.part"
    try:
        with open(partial, "wb", opener=open_private) as target:
            target.write(data)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def read_system_prompt(option: str | None) -> str | None:
    """Return the text, or the content of the file that @ names."""
    if option is None or not option.startswith("@"):
        return option
    try:
        return read_input(option[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{to_one_line(option[1:])} is not UTF-8 text.") from error
