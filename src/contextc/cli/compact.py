"""`contextc compact`: summarize the old messages of a conversation, preview it, or undo it."""

import asyncio
from pathlib import Path
from textwrap import shorten
from typing import Annotated

from contextc.app.agent_choices import AgentChoices
from contextc.app.agent_factory import build_agent, resolve_model
from contextc.cli.command_line import Argument, Option
from contextc.cli.compile import ModelOption
from contextc.cli.console import JSONOption, escape_markup, format_dollars, out, pluralize, print_json
from contextc.cli.inputs import (
    AgentOption,
    BudgetOption,
    RootOption,
    StoreOption,
    SystemOption,
    ToolsOption,
    check_positive,
    open_configured_store,
    read_system_prompt,
    resolve_root,
)
from contextc.compiler.compaction import CompactionPreview, CompactionResult, undo_compaction
from contextc.errors import InvalidSetting
from contextc.executor import AgentExecutor
from contextc.inspection.preview import find_channels
from contextc.providers import Endpoint
from contextc.store.message_log import DEFAULT_AGENT

NOTHING = "There is nothing old enough to summarize."
SHOWN_LOST, MAX_QUOTED = 5, 60


def run(
    conversation: Annotated[str, Argument(help="The conversation's name.")],
    instructions: Annotated[
        str, Option("--instructions", "-i", help="What the summary should keep, in your own words.")
    ] = "",
    preview: Annotated[
        bool, Option("--preview", help="Show what would be summarized and what it costs. No model is called.")
    ] = False,
    undo: Annotated[bool, Option("--undo", help="Take the last summary back.")] = False,
    model: ModelOption = None,
    agent: AgentOption = DEFAULT_AGENT,
    system: SystemOption = None,
    tools: ToolsOption = None,
    root: RootOption = Path("."),
    budget: BudgetOption = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Summarize the old messages of a conversation now. They stay in the store, and --undo sends them again.

    The model of the last request writes the summary, unless another one is named.
    """
    if undo and (preview or instructions):
        raise InvalidSetting("--undo and another action are given", fix="Pass one of them.")
    check_positive(budget=budget)
    with open_configured_store(store) as handle:
        if undo:
            upto = undo_compaction(handle, conversation, agent)
            print_json({"upto": upto or 0}) if json else out.print(describe_undo(upto), soft_wrap=True)
            return
        used = [each for each in find_channels(handle, conversation) if each.agent == agent]
        named = model or (f"{used[-1].provider}:{used[-1].model}" if used else None)
        executor, client = build_agent(
            handle,
            resolve_model(named),
            AgentChoices(
                agent=agent, system=read_system_prompt(system), tools=tools, root=resolve_root(root), budget=budget
            ),
        )
        if preview:
            found = executor.preview_compaction(conversation)
            print_json(found) if json else out.print(_describe_preview(found), soft_wrap=True)
            return
        done = asyncio.run(_compact(executor, client, conversation, instructions))
    print_json(done) if json else out.print(describe_compaction(done), soft_wrap=True)


async def _compact(
    executor: AgentExecutor, client: Endpoint, conversation: str, instructions: str
) -> CompactionResult | None:
    try:
        return await executor.compact(conversation, instructions=instructions)
    finally:
        await client.close()


def describe_compaction(done: CompactionResult | None) -> str:
    """Return the result of a compaction as text with markup."""
    if done is None:
        return NOTHING
    digest = f" (without the model: {escape_markup(done.fallback)})" if done.fallback else ""
    summed = f"summarized messages 1 to {done.upto}: {done.before:,} tokens became {done.after:,}{digest}"
    if done.receipt is None or not done.receipt.missing:
        return summed
    lost = [shorten(escape_markup(each), MAX_QUOTED, placeholder="…") for each in done.receipt.lost[:SHOWN_LOST]]
    more = ["…"] if done.receipt.missing > SHOWN_LOST else []
    return (
        f"{summed}\nThe next request has {done.receipt.score:.0%} of the names, figures and sentences of people. It "
        f"lacks {done.receipt.missing:,}: {', '.join(lost + more)}\nThe model still finds them with search_history."
    )


def describe_undo(upto: int | None) -> str:
    """Return the result of an undo as text."""
    if upto is None:
        return "There is no summary to take back."
    return f"The summary of messages 1 to {upto} is no longer used. The next request sends them again, if they fit."


def _describe_preview(found: CompactionPreview | None) -> str:
    if found is None:
        return NOTHING
    lines = [
        f"{pluralize(found.messages, 'message')} up to message {found.upto}, {found.before:,} tokens, would become a "
        f"summary of at most {found.after:,} tokens.",
        f"The request for it has {found.input:,} input tokens, {found.cached:,} of them from the provider's cache.",
    ]
    if found.summary_cost is not None and found.cost_before is not None and found.cost_after is not None:
        costs = (found.summary_cost, found.cost_after, found.cost_before)
        now, after, before = (format_dollars(each, is_lower_bound=found.cost_is_lower_bound) for each in costs)
        about = "" if found.cost_is_lower_bound else "about "
        lines.append(f"It costs {about}{now}. The input of each later request costs {after} instead of {before}.")
    return "\n".join(lines)
