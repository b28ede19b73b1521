"""Triggers: rules that add messages between the steps of a turn.

Pure and synchronous. The executor creates the moment, calls `evaluate`, and stores the messages and the changed states
in one transaction. One module per family: context, resources, todos, progress, limits.
"""

from contextc.triggers.base import Kind, Moment, Resources, Say, Scope, Threshold, Trigger, When
from contextc.triggers.context import context_triggers
from contextc.triggers.evaluate import Shown, Verdict, check_triggers, evaluate, restate
from contextc.triggers.limits import limit_triggers
from contextc.triggers.progress import progress_triggers
from contextc.triggers.resources import cpu_trigger, memory_trigger, read_resources, resource_triggers
from contextc.triggers.todos import todo_triggers
from contextc.triggers.written import FunctionTrigger, trigger

__all__ = [
    "FunctionTrigger",
    "Kind",
    "Moment",
    "Resources",
    "Say",
    "Scope",
    "Shown",
    "Threshold",
    "Trigger",
    "Verdict",
    "When",
    "check_triggers",
    "context_triggers",
    "cpu_trigger",
    "default_triggers",
    "evaluate",
    "limit_triggers",
    "memory_trigger",
    "progress_triggers",
    "read_resources",
    "resource_triggers",
    "restate",
    "todo_triggers",
    "trigger",
]


def default_triggers() -> list[Trigger]:
    """Return the triggers for todos, context, progress and limits. Add memory and CPU by `+ resource_triggers()`."""
    return [*todo_triggers(), *context_triggers(), *progress_triggers(), *limit_triggers()]
