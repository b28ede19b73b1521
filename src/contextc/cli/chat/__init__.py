"""`contextc chat`: an agent in the terminal, and in a pipe."""

from pathlib import Path
from typing import Annotated

import typer

from contextc.cli.console import JSONOption
from contextc.cli.inputs import (
    AgentOption,
    BudgetOption,
    OutputOption,
    PolicyOption,
    RootOption,
    StepsOption,
    StoreOption,
    SystemOption,
    ToolsOption,
    check_positive,
    open_configured_store,
    resolve_root,
)
from contextc.errors import InvalidSetting
from contextc.store.message_log import DEFAULT_AGENT


def run(
    question: Annotated[
        str | None, typer.Argument(help="Ask this and exit; - reads it from standard input (default: interactive).")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="The question, as an option.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Provider and model, as in anthropic:claude-opus-5-5 (default: configured, or local)."
        ),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="The conversation to continue, or the name of a new one.")
    ] = None,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue the last conversation.")] = False,
    agent: AgentOption = DEFAULT_AGENT,
    system: SystemOption = None,
    tools: ToolsOption = None,
    root: RootOption = Path("."),
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve all tool calls. Commands run without confirmation.")
    ] = False,
    steps: StepsOption = None,
    budget: BudgetOption = None,
    output: OutputOption = None,
    policy: PolicyOption = None,
    url: Annotated[str | None, typer.Option("--url", help="The address of your own endpoint for --model.")] = None,
    window: Annotated[
        int | None, typer.Option("--window", help="The context window of that model in tokens, if it is not known.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The environment variable that holds the key for that model.")
    ] = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Chat with a model that may use tools. Type /help for the commands.

    Without a terminal, each line of standard input is a turn, and the answers go to standard output. Exit code 1 if a
    turn failed, was stopped, or reached a limit. --json prints the events, one per line.
    """
    from contextc.cli.chat.session import ChatOptions, run_chat

    if question is not None and prompt is not None:
        raise InvalidSetting("A question and --prompt are given", fix="Pass one of the two.")
    if conversation is not None and go_on:
        raise InvalidSetting("Both --conversation and --continue are given", fix="Pass one of the two.")
    check_positive(steps=steps, budget=budget, output=output, window=window)
    options = ChatOptions(
        question=question if prompt is None else prompt,
        model=model,
        conversation=conversation,
        resume_last=go_on,
        agent=agent,
        system=system,
        tools=tools,
        root=resolve_root(root),
        yes=yes,
        steps=steps,
        budget=budget,
        output=output,
        policy=policy,
        url=url,
        window=window,
        key=key,
        json=json,
    )
    with open_configured_store(store, create=True) as handle:
        code = run_chat(handle, options)
    raise typer.Exit(code)
