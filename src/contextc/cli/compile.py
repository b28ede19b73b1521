"""`contextc compile`: what one model would see now. Nothing is stored, and nothing is sent."""

from pathlib import Path
from typing import Annotated

import typer

from contextc.cli.account import overflow_figures, show, show_cost, show_overflow
from contextc.cli.files import read, write
from contextc.cli.import_ import FormatOption
from contextc.cli.terminal import JSONOption, StoreOption, err, opened, out, plain, print_json
from contextc.compiler import Compiled
from contextc.compiler.preview import preview, read_tools
from contextc.config import read_settings
from contextc.draft import Strategy
from contextc.errors import ContextOverflow, InvalidRequest, InvalidSetting
from contextc.formats import formatter
from contextc.providers import Provider, provider
from contextc.store import Store, open_store
from contextc.store.base import DEFAULT_AGENT
from contextc.tools import NativeTool, Tool
from contextc.transfer import import_lines, import_requests
from contextc.wire.files import read_requests
from contextc.wire.reading import readable

ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Provider and model: anthropic:claude-opus-5-5 (default: configured)"),
]
AgentOption = Annotated[str, typer.Option("--agent", help="Whose eyes the conversation is read with.")]
TOOLS = "left out: the definitions of"  # they are not left out here


def run(
    conversation: Annotated[str | None, typer.Argument(help="The conversation's name.")] = None,
    model: ModelOption = None,
    agent: AgentOption = DEFAULT_AGENT,
    system: Annotated[
        str | None, typer.Option("--system", help="A system prompt, or @file (default: as in the last request).")
    ] = None,
    tools: Annotated[
        str | None, typer.Option("--tools", help="A file with tool definitions (default: as in the last request).")
    ] = None,
    budget: Annotated[int | None, typer.Option("--budget", help="The tokens the whole input may take.")] = None,
    window: Annotated[int | None, typer.Option("--window", help="Another window than the model's.")] = None,
    output: Annotated[int | None, typer.Option("--output", help="The tokens the answer may take.")] = None,
    strategy: Annotated[Strategy, typer.Option("--strategy", help="How a cut is made: chunked or oldest.")] = "chunked",
    source: Annotated[
        str | None, typer.Option("--from", help="Compile a file instead, without a store; - for standard input.")
    ] = None,
    format: FormatOption = None,
    edit: Annotated[
        tuple[int, str] | None, typer.Option("--edit", help="As if message SEQ said TEXT: what would that cost?")
    ] = None,
    rewind: Annotated[
        int | None, typer.Option("--rewind", help="As if the conversation ended with message SEQ.")
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Print the exact request instead of its account.")] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Show what one model would see now: what goes in, what stays out and why. Exit code 1 where it does not fit."""
    if (conversation is None) is (source is None):
        raise InvalidSetting("Name a conversation of the store, or a file with --from.")
    whom = _provider(model, window)
    given = _tools(tools, whom)
    try:
        with opened(store) if source is None else open_store("memory:") as handle:
            if source is not None:
                conversation, found = _taken(handle, source, format)
                given = found if given is None else given
            compiled = preview(
                handle,
                whom,
                conversation or "",
                agent=agent,
                system_prompt=_text(system),
                tools=given,
                budget=budget,
                output=output,
                edit=edit,
                rewind=rewind,
                strategy=strategy,
            )
            _print(compiled, body=body, json=json, asked=edit is not None or rewind is not None)
    except ContextOverflow as error:
        if json:
            print_json({"error": str(error), **overflow_figures(error)})
        else:
            show_overflow(error, err if body else out)
        raise typer.Exit(1) from None


def _print(compiled: Compiled, *, body: bool, json: bool, asked: bool) -> None:
    if body:
        write("-", compiled.body)
        return
    if json:
        print_json({**compiled.manifest.as_json(), "is_new": compiled.is_new, "cost": compiled.cost._asdict()})
        return
    show(compiled.manifest)
    if not compiled.is_new:
        out.print("\n[yellow]nothing new:[/] the model has been shown all of this")
    if asked or (compiled.record.why and compiled.record.request > 1):
        show_cost(compiled.cost)


def _provider(model: str | None, window: int | None) -> Provider:
    named = model or read_settings().model.value
    if not named:
        raise InvalidSetting(
            "No model is named. Write --model anthropic:claude-opus-5-5, or set CONTEXTC_MODEL, or write "
            'model = "anthropic:claude-opus-5-5" in contextc.toml.'
        )
    return provider(named, window=window)


def _taken(store: Store, source: str, format: str | None) -> tuple[str, tuple[Tool | NativeTool, ...] | None]:
    """The conversation in a file, and the tools it names."""
    name = "standard input" if source == "-" else Path(source).stem
    data = read(source)
    if format is None:
        return import_lines(store, data.splitlines(), name).name, None
    bodies = read_requests(data).named(name)
    if len(bodies) > 1:
        raise InvalidRequest(f"{source} holds {len(bodies)} requests. Give one of them.")
    (taken,) = import_requests(store, bodies, format=format)
    for warning in taken.warnings:
        if not warning.startswith(TOOLS):
            err.print(plain(warning), soft_wrap=True)
    form = formatter(format)
    return name, form.decode_request(readable(form, bodies[name]).body).tools


def _tools(file: str | None, whom: Provider) -> tuple[Tool | NativeTool, ...] | None:
    return None if file is None else read_tools(read_requests(read(file)).bodies, whom.formatter)


def _text(given: str | None) -> str | None:
    """A text, or the content of a file."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return read(given[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{given[1:]} is not UTF-8 text.") from error
