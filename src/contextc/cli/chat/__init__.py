"""`contextc chat`: an agent in the terminal, and in a pipe."""

from typing import Annotated, Any

from msgspec.structs import replace

from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import JSONOption
from contextc.cli.inputs import (
    AgentCommandOptions,
    StoreOption,
    check_positive,
    enable_telemetry,
    open_configured_store,
    resolve_root,
)
from contextc.errors import InvalidSetting


class ChatOptions(AgentCommandOptions, frozen=True, kw_only=True):
    """The arguments and options of the command."""

    question: Annotated[
        str | None, Argument(help="Ask this and exit; - reads it from standard input (default: interactive).")
    ] = None
    prompt: Annotated[str | None, Option("--prompt", "-p", help="The question, as an option.")] = None
    model: Annotated[
        str | None,
        Option(
            "--model", "-m", help="Provider and model, as in anthropic:claude-opus-5-5 (default: configured, or local)."
        ),
    ] = None
    conversation: Annotated[
        str | None, Option("--conversation", "-c", help="The conversation to continue, or the name of a new one.")
    ] = None
    resume_last: Annotated[bool, Option("--continue", help="Continue the last conversation.")] = False
    yes: Annotated[bool, Option("--yes", help="Approve all tool calls. Commands run without confirmation.")] = False
    url: Annotated[str | None, Option("--url", help="The address of your own endpoint for --model.")] = None
    window: Annotated[
        int | None, Option("--window", help="The context window of that model in tokens, if it is not known.")
    ] = None
    key: Annotated[str | None, Option("--key", help="The environment variable that holds the key for that model.")] = (
        None
    )
    store: StoreOption = None
    json: JSONOption = False


def run(**given: Any) -> None:
    """Chat with a model that may use tools. Type /help for the commands.

    Without a terminal, each line of standard input is a turn, and the answers go to standard output. Exit code 1 if a
    turn failed, was stopped, or reached a limit. --json prints the events, one per line.
    """
    from contextc.cli.chat.session import run_chat

    options = ChatOptions(**given)
    if options.question is not None and options.prompt is not None:
        raise InvalidSetting("A question and --prompt are given", fix="Pass one of the two.")
    if options.conversation is not None and options.resume_last:
        raise InvalidSetting("Both --conversation and --continue are given", fix="Pass one of the two.")
    check_positive(steps=options.steps, budget=options.budget, output=options.output, window=options.window)
    question = options.question if options.prompt is None else options.prompt
    enable_telemetry()
    with open_configured_store(options.store, create=True) as handle:
        code = run_chat(handle, replace(options, question=question, root=resolve_root(options.root)))
    raise Exit(code)


ChatOptions.set_signature(run)
