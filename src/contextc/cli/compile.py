"""`contextc compile`: preview the next request to a model. Nothing is stored, and nothing is sent."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import JSONOption, err, escape_markup, out, print_json
from contextc.cli.explain import overflow_figures, print_cost, print_manifest, print_overflow
from contextc.cli.import_ import FormatOption
from contextc.cli.inputs import (
    PolicyOption,
    StoreOption,
    check_positive,
    open_configured_store,
    read_input,
    write_output,
)
from contextc.compiler import Compiled
from contextc.compiler.draft import TrimStrategy
from contextc.config import read_settings
from contextc.errors import ContextOverflow, InvalidImport, InvalidInput, InvalidRequest, InvalidSetting, UnknownModel
from contextc.formats import format_names, formatter
from contextc.inspection.preview import bill_lost_cache, find_channels, load_last_budget, parse_tools, preview_request
from contextc.interchange import import_lines, import_requests
from contextc.linting.request_reading import coerce_request, read_requests
from contextc.models.billing import Bill
from contextc.providers import Provider, provider
from contextc.store import Store, open_store
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import DEFAULT_AGENT
from contextc.tools.definitions import NativeTool, Tool

ModelOption = Annotated[
    str | None,
    Option(
        "--model",
        "-m",
        help="Provider and model, as in anthropic:claude-opus-5-5 (default: of the last request, or configured).",
    ),
]
TOOLS_WARNING = "left out: the definitions of"  # this command uses them
DYNAMIC_NOTICE = "dynamic fragments are rendered by your program, and not included here"


class CompileTarget(NamedTuple):
    """The target of a compilation, with the budget of the last request; None if it is not known."""

    provider: Provider
    agent: str
    directory: str | None = None
    budget: int | None = None
    remark: str = ""


def run(
    conversation: Annotated[str | None, Argument(help="The conversation's name.")] = None,
    model: ModelOption = None,
    agent: Annotated[
        str | None, Option("--agent", help="The agent whose view is compiled (default: of the last request).")
    ] = None,
    directory: Annotated[
        str | None, Option("--directory", help="The directory of the channel, for providers with one.")
    ] = None,
    system: Annotated[
        str | None, Option("--system", help="A system prompt, or @file (default: of the last request).")
    ] = None,
    tools: Annotated[
        str | None, Option("--tools", help="A file with tool definitions (default: of the last request).")
    ] = None,
    budget: Annotated[int | None, Option("--budget", help="Limit of the whole input in tokens.")] = None,
    window: Annotated[
        int | None,
        Option("--window", help="Context window of the model in tokens (default: of the last request, or known)."),
    ] = None,
    output: Annotated[int | None, Option("--output", help="Limit of the answer in tokens.")] = None,
    strategy: Annotated[
        TrimStrategy, Option("--strategy", help="How context is trimmed: chunked or oldest.")
    ] = "chunked",
    policy: PolicyOption = None,
    source: Annotated[
        str | None, Option("--from", help="Compile a file instead of a conversation; - for standard input.")
    ] = None,
    format: FormatOption = None,
    edit: Annotated[
        tuple[int, str] | None,
        Option("--edit", help="Preview with the text of message SEQ replaced by TEXT, and its cost."),
    ] = None,
    rewind: Annotated[
        int | None, Option("--rewind", help="Preview as if the conversation ended with message SEQ.")
    ] = None,
    body: Annotated[bool, Option("--body", help="Print the exact request instead of its manifest.")] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Preview the next request to a model: what is sent, what is left out, and why. Exit code 1 if it does not fit.

    Defaults are those of the last request. Dynamic fragments are rendered by your program, and not included.
    """
    if conversation is None and source is None:
        raise InvalidSetting("No conversation is named", fix="Name a conversation of the store, or a file with --from.")
    if conversation is not None and source is not None:
        raise InvalidSetting(f"Both {conversation!r} and --from {source} are given", fix="Pass one of the two.")
    check_positive(window=window, budget=budget, output=output)
    try:
        with open_configured_store(store) if source is None else open_store("memory:") as handle:
            found = None
            if source is not None:
                conversation, found = _import_source(handle, source, format)
            name = conversation or ""
            target = _resolve_target(handle, name, model, agent, directory, window)
            compiled = preview_request(
                handle,
                target.provider,
                name,
                agent=target.agent,
                directory=target.directory,
                system_prompt=_read_text(system),
                tools=_read_tools(tools, target.provider) if tools is not None else found,
                budget=target.budget if budget is None else budget,
                output=output,
                edit=edit,
                rewind=rewind,
                strategy=strategy,
                policy=policy or read_settings().parse_policy(),
            )
            remark = target.remark if budget is None else ""
            lost = bill_lost_cache(handle, compiled)
            _print(compiled, lost, remark, body=body, json=json, show_edit_cost=edit is not None or rewind is not None)
    except ContextOverflow as error:
        if json:
            print_json({"error": str(error), **overflow_figures(error)})
        else:
            print_overflow(error, err if body else out)
        raise Exit(1) from None


def _print(compiled: Compiled, lost: Bill | None, remark: str, *, body: bool, json: bool, show_edit_cost: bool) -> None:
    if body:
        write_output("-", compiled.body)
        return
    if json:
        bound = {"cost_is_lower_bound": True} if lost is not None and lost.is_lower_bound else {}
        cost = {**compiled.cost._asdict(), "dollars": lost.dollars if lost is not None else None, **bound}
        print_json({**compiled.manifest.as_json(), "is_new": compiled.is_new, "cost": cost})
        return
    print_manifest(compiled.manifest)
    if compiled.record.request > 1:
        out.print(f"\n[dim]{'; '.join(filter(None, [DYNAMIC_NOTICE, remark]))}[/]", soft_wrap=True)
    if not compiled.is_new:
        out.print("\n[yellow]nothing new:[/] the model has seen all of this")
    if show_edit_cost or (compiled.record.why and compiled.record.request > 1):
        print_cost(compiled.cost, lost)


def _resolve_target(
    store: Store, conversation: str, model: str | None, agent: str | None, directory: str | None, window: int | None
) -> CompileTarget:
    """Return the target: the named model, or else the one of the last request, or else the configured one."""
    configured = read_settings().model.value
    before = find_channels(store, conversation, agent=agent, directory=directory)
    if model is not None:
        before = [each for each in before if _matches_model(each, model) and each.agent == (agent or DEFAULT_AGENT)]
    elif len(before) > 1:
        before = [each for each in before if _matches_model(each, configured)] or before
    if len(before) == 1:
        return _last_target(store, before[0], window)
    if before:
        there = "; ".join(str(each) for each in before)
        raise InvalidSetting(
            f"{conversation!r} has several channels: {there}", fix="Select one with --model, --agent or --directory."
        )
    named = model or configured
    if not named:
        raise InvalidSetting(
            "No model is named",
            fix="Pass --model anthropic:claude-opus-5-5, set CONTEXTC_MODEL, or set "
            'model = "anthropic:claude-opus-5-5" in contextc.toml.',
        )
    return CompileTarget(provider(named, window=window), agent or DEFAULT_AGENT, directory)


def _matches_model(channel: Channel, model: str) -> bool:
    return model in (channel.model, f"{channel.provider}:{channel.model}")


def _last_target(store: Store, channel: Channel, window: int | None) -> CompileTarget:
    """Return the target of the last request, with its window and budget."""
    named, last = f"{channel.provider}:{channel.model}", load_last_budget(store, channel)
    agent, directory = channel.agent, channel.directory or None
    if window is not None or last is None:
        return CompileTarget(provider(named, window=window), agent, directory)
    known = 0
    with suppress(UnknownModel):
        known = provider(named).model.window
    given = [f"the window of {last.window:,}"] if last.window != known else []
    given += [f"the budget of {last.limit:,}"] if last.limit is not None else []
    remark = f"{' and '.join(given)} of the last request" if given else ""
    return CompileTarget(provider(named, window=last.window), agent, directory, last.limit, remark)


def _import_source(store: Store, source: str, format: str | None) -> tuple[str, tuple[Tool | NativeTool, ...] | None]:
    """Import the conversation in a file, and return its name and its tools."""
    name = "standard input" if source == "-" else Path(source).stem
    data = read_input(source)
    if format is None:
        try:
            return import_lines(store, data.splitlines(), name).name, None
        except InvalidImport as error:
            raise InvalidSetting(
                f"{source} is not in the format of contextc ({error.problem})",
                fix=f"For a provider's format, pass --format: {', '.join(format_names())}. Nothing was compiled.",
            ) from error
    bodies = read_requests(data, format).by_name(name)
    if len(bodies) > 1:
        raise InvalidRequest(f"{source} has {len(bodies)} requests", fix="Pass a file with one request.")
    (taken,) = import_requests(store, bodies, format=format)
    for warning in taken.warnings:
        if not warning.startswith(TOOLS_WARNING):
            err.print(escape_markup(warning), soft_wrap=True)
    form = formatter(format)
    return name, form.decode_request(coerce_request(form, bodies[name]).body).tools


def _read_tools(file: str, target: Provider) -> tuple[Tool | NativeTool, ...]:
    try:
        return parse_tools(read_requests(read_input(file)).bodies, target.formatter)
    except InvalidInput as error:
        raise InvalidSetting(f"--tools {file}: {error}") from error


def _read_text(option: str | None) -> str | None:
    """Return the text, or the content of the file that @ names."""
    if option is None or not option.startswith("@"):
        return option
    try:
        return read_input(option[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{option[1:]} is not UTF-8 text.") from error
