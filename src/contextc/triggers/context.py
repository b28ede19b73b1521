"""Triggers for context usage: warnings at 80 % and 90 % of the available tokens, and a message on recovery.

The levels are one group, so a rise above both gives one message. Each level warns once, until the share has fallen by a
margin below its threshold. A compaction resets all levels, so that a later rise is reported again. The share is that of
the request that contains the message, after trimming.
"""

from contextc.triggers.base import ThresholdTrigger, Trigger, TriggerContext, percent

HYSTERESIS = 0.05
CRITICAL_SHARE = 0.9


def context_triggers(*levels: float, margin: float = HYSTERESIS) -> list[Trigger]:
    """Return one trigger per level, by default 0.8 and 0.9. The lowest level also reports the recovery."""
    marks = sorted(set(levels)) or [0.8, CRITICAL_SHARE]
    return [_level_trigger(mark, margin, lowest=mark == marks[0]) for mark in marks]


def _level_trigger(mark: float, margin: float, *, lowest: bool) -> Trigger:
    return ThresholdTrigger(
        name=f"context_{mark * 100:g}",
        group="context",
        priority=20,
        level=round(mark * 100),
        scope="channel",
        at=("before_step", "after_compaction"),
        resets=("after_compaction",),
        value=lambda moment: moment.share,
        enter=mark,
        exit=mark - margin,
        text=_critical_text if mark >= CRITICAL_SHARE else _warning_text,
        title=f"Context {percent(mark)}",
        exit_text=_recovered_text if lowest else "",
        exit_title="Context recovered" if lowest else "",
    )


def _warning_text(moment: TriggerContext) -> str:
    return (
        f"Context warning: {_usage_text(moment)}. Read and print only what is needed, and write down open points and "
        "findings (todos, files) before older content is shortened."
    )


def _critical_text(moment: TriggerContext) -> str:
    return (
        f"Context critical: {_usage_text(moment)}. Older content is about to be shortened, summarized or left out. Write "
        "down now what must not be lost, finish the current piece of work, and avoid large results."
    )


def _recovered_text(moment: TriggerContext) -> str:
    return (
        f"Context recovered: {_usage_text(moment)}. Older content may have been shortened, summarized or left out; read "
        "again what is needed. The earlier context warning no longer holds."
    )


def _usage_text(moment: TriggerContext) -> str:
    if not moment.available:
        return f"{percent(moment.share)} of the available tokens are in use"
    return f"{percent(moment.share)} of the available tokens are in use ({moment.used:,} of {moment.available:,})"
