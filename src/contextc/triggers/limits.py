"""Triggers for limits of the turn and truncated replies, and a user notice with the number of tool calls.

The executor enforces the limits. These triggers warn the model at 80 % of a limit, and at the latest before the last
step or call. Limits count within a turn, so each turn has its own warnings.
"""

from collections.abc import Callable

from contextc._json import JSONObject
from contextc.triggers.base import ThresholdTrigger, Trigger, TriggerContext, TriggerMessage, percent

WARNING_SHARE = 0.8
NOTICE_EVERY_CALLS = 10
LIMIT_ADVICE = "At the limit the turn ends: do what matters most, and give an answer before that."


def step_limit_trigger() -> Trigger:
    return _limit_trigger(
        "step_limit",
        50,
        lambda moment: _count_share(moment.steps, moment.step_limit),
        lambda moment: f"{moment.steps} of at most {moment.step_limit} steps are made",
    )


def tool_call_limit_trigger() -> Trigger:
    return _limit_trigger(
        "tool_call_limit",
        51,
        lambda moment: _count_share(moment.tool_calls, moment.tool_call_limit),
        lambda moment: f"{moment.tool_calls} of at most {moment.tool_call_limit} tool calls are made",
    )


def cost_limit_trigger() -> Trigger:
    return _limit_trigger(
        "cost_limit",
        52,
        lambda moment: _share(moment.cost, moment.cost_limit),
        lambda moment: f"{moment.cost or 0:.3g} of at most {moment.cost_limit or 0:.3g} dollars are spent",
    )


def time_limit_trigger() -> Trigger:
    return _limit_trigger(
        "time_limit",
        53,
        lambda moment: _share(moment.seconds, moment.seconds_limit),
        lambda moment: f"{moment.seconds:.0f} of at most {moment.seconds_limit or 0:.0f} seconds have passed",
    )


def _limit_trigger(
    name: str, priority: int, value: Callable[[TriggerContext], float | None], figures: Callable[[TriggerContext], str]
) -> Trigger:
    lead = name.replace("_", " ").capitalize()
    return ThresholdTrigger(
        name=name,
        priority=priority,
        value=value,
        enter=WARNING_SHARE,
        exit=WARNING_SHARE,
        text=lambda moment: f"{lead}: {figures(moment)} in this turn. {LIMIT_ADVICE}",
        title=f"{lead} near",
    )


def _count_share(made: int, limit: int | None) -> float | None:
    if made and limit is not None and limit - made <= 1:
        return 1.0
    return _share(made, limit)


def _share(made: float | None, limit: float | None) -> float | None:
    if made is None or limit is None:
        return None
    return made / limit if limit > 0 else None


class OutputTruncatedTrigger(Trigger, frozen=True, kw_only=True):
    """A message after every reply that reached the output limit."""

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        if moment.finish != "length":
            return None, state
        text = (
            "Output cut: the last reply reached the output limit and is incomplete. Go on where it stopped, in smaller "
            "pieces. A tool call that was cut did not run as meant: make it again, with less content or in parts."
        )
        return TriggerMessage(text=text, title="Output cut"), state


class ToolCallCountTrigger(Trigger, frozen=True, kw_only=True):
    """A user notice after each `every` tool calls of a turn."""

    every: int = NOTICE_EVERY_CALLS

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        turn = [moment.conversation, moment.turn]
        told: int = state.get("told", 0) if state.get("turn") == turn else 0
        if moment.tool_calls // self.every <= told // self.every:
            return None, state
        text = (
            f"Tool calls: {moment.tool_calls} so far in this turn, step {moment.step}, context at "
            f"{percent(moment.share)}."
        )
        return TriggerMessage(text=text, title="Tool calls", kind="hint"), {"turn": turn, "told": moment.tool_calls}


def limit_triggers() -> list[Trigger]:
    return [
        step_limit_trigger(),
        tool_call_limit_trigger(),
        cost_limit_trigger(),
        time_limit_trigger(),
        OutputTruncatedTrigger(name="output_cut", priority=45),
        ToolCallCountTrigger(name="call_count", priority=90, kind="hint", at=("mid_step",)),
    ]
