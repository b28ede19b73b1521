"""Triggers: rules that add messages between the steps of a turn.

Pure and synchronous. The executor creates the context, calls `evaluate_triggers`, and stores the messages and the
changed states in one transaction.
"""

from contextc.triggers.base import (
    FunctionTrigger,
    ResourceUsage,
    ThresholdTrigger,
    Trigger,
    TriggerContext,
    TriggerKind,
    TriggerMessage,
    TriggerScope,
    TriggerTime,
    trigger,
)
from contextc.triggers.builtin_triggers import (
    context_triggers,
    cpu_trigger,
    limit_triggers,
    memory_trigger,
    progress_triggers,
    read_resources,
    resource_triggers,
    todo_triggers,
)
from contextc.triggers.evaluation import (
    Evaluation,
    TriggerMessagesInRequest,
    check_triggers,
    evaluate_triggers,
    restate_warnings,
)

__all__ = [
    "Evaluation",
    "FunctionTrigger",
    "ResourceUsage",
    "ThresholdTrigger",
    "Trigger",
    "TriggerContext",
    "TriggerKind",
    "TriggerMessage",
    "TriggerMessagesInRequest",
    "TriggerScope",
    "TriggerTime",
    "check_triggers",
    "context_triggers",
    "cpu_trigger",
    "default_triggers",
    "evaluate_triggers",
    "limit_triggers",
    "memory_trigger",
    "progress_triggers",
    "read_resources",
    "resource_triggers",
    "restate_warnings",
    "todo_triggers",
    "trigger",
]


def default_triggers() -> list[Trigger]:
    """Return the triggers for todos, context, progress and limits. Add memory and CPU by `+ resource_triggers()`."""
    return [*todo_triggers(), *context_triggers(), *progress_triggers(), *limit_triggers()]
