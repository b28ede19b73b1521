"""The `delegations` fragment: tasks of other agents whose results are pending. A result itself is a message."""

from contextc.prompts.escape import escaped_line
from contextc.prompts.fragment import Delegation, PromptContext, PromptFragment


def render_delegations(surroundings: PromptContext) -> str | None:
    if not surroundings.delegations:
        return None
    return "\n".join(
        ["You wait for the results of these delegations:", *map(_delegation_line, surroundings.delegations)]
    )


def _delegation_line(delegation: Delegation) -> str:
    task = escaped_line(delegation.task)
    return f"- @{escaped_line(delegation.to).removeprefix('@')}{': ' if task else ''}{task}"


DELEGATIONS = PromptFragment("delegations", render_delegations, "dynamic", priority=30)
