"""The `delegations` fragment: tasks of other agents whose results are pending. A result itself is a message."""

from contextc.prompts.escape import one_line
from contextc.prompts.fragment import Delegation, PromptFragment, Surroundings


def render(surroundings: Surroundings) -> str | None:
    if not surroundings.delegations:
        return None
    return "\n".join(["You wait for the results of these delegations:", *map(_line, surroundings.delegations)])


def _line(delegation: Delegation) -> str:
    task = one_line(delegation.task)
    return f"- @{one_line(delegation.to).removeprefix('@')}{': ' if task else ''}{task}"


FRAGMENT = PromptFragment("delegations", render, "dynamic", priority=30)
