"""Triggers for limits of the turn and truncated replies, and a user notice with the number of tool calls.

The executor enforces the limits. These triggers warn the model at 80 % of a limit, and at the latest before the last
step or call. Limits count within a turn, so each turn has its own warnings.
"""

from collections.abc import Callable

from contextc._json import JSONObject
from contextc.triggers.base import Moment, Say, Threshold, Trigger, percent

NEAR = 0.8
HINT_EVERY = 10
WAY_OUT = "At the limit the turn ends: do what matters most, and give an answer before that."


def step_limit() -> Trigger:
    return _limit(
        "step_limit",
        50,
        lambda moment: _counted(moment.steps, moment.step_limit),
        lambda moment: f"{moment.steps} of at most {moment.step_limit} steps are made",
    )


def tool_call_limit() -> Trigger:
    return _limit(
        "tool_call_limit",
        51,
        lambda moment: _counted(moment.tool_calls, moment.tool_call_limit),
        lambda moment: f"{moment.tool_calls} of at most {moment.tool_call_limit} tool calls are made",
    )


def cost_limit() -> Trigger:
    return _limit(
        "cost_limit",
        52,
        lambda moment: _share(moment.cost, moment.cost_limit),
        lambda moment: f"{moment.cost or 0:.3g} of at most {moment.cost_limit or 0:.3g} dollars are spent",
    )


def time_limit() -> Trigger:
    return _limit(
        "time_limit",
        53,
        lambda moment: _share(moment.seconds, moment.seconds_limit),
        lambda moment: f"{moment.seconds:.0f} of at most {moment.seconds_limit or 0:.0f} seconds have passed",
    )


def _limit(
    name: str, priority: int, value: Callable[[Moment], float | None], figures: Callable[[Moment], str]
) -> Trigger:
    lead = name.replace("_", " ").capitalize()
    return Threshold(
        name=name,
        priority=priority,
        value=value,
        enter=NEAR,
        exit=NEAR,
        text=lambda moment: f"{lead}: {figures(moment)} in this turn. {WAY_OUT}",
        title=f"{lead} near",
    )


def _counted(made: int, limit: int | None) -> float | None:
    if made and limit is not None and limit - made <= 1:
        return 1.0
    return _share(made, limit)


def _share(made: float | None, limit: float | None) -> float | None:
    if made is None or limit is None:
        return None
    return made / limit if limit > 0 else None


class OutputCut(Trigger, frozen=True, kw_only=True):
    """A message after every reply that reached the output limit."""

    def check(self, moment: Moment, state: JSONObject) -> tuple[Say | None, JSONObject]:
        if moment.finish != "length":
            return None, state
        text = (
            "Output cut: the last reply reached the output limit and is incomplete. Go on where it stopped, in smaller "
            "pieces. A tool call that was cut did not run as meant: make it again, with less content or in parts."
        )
        return Say(text=text, title="Output cut"), state


class CallCount(Trigger, frozen=True, kw_only=True):
    """A user notice after each `every` tool calls of a turn."""

    every: int = HINT_EVERY

    def check(self, moment: Moment, state: JSONObject) -> tuple[Say | None, JSONObject]:
        turn = [moment.conversation, moment.turn]
        told: int = state.get("told", 0) if state.get("turn") == turn else 0
        if moment.tool_calls // self.every <= told // self.every:
            return None, state
        text = (
            f"Tool calls: {moment.tool_calls} so far in this turn, step {moment.step}, context at "
            f"{percent(moment.share)}."
        )
        return Say(text=text, title="Tool calls", kind="hint"), {"turn": turn, "told": moment.tool_calls}


def limit_triggers() -> list[Trigger]:
    return [
        step_limit(),
        tool_call_limit(),
        cost_limit(),
        time_limit(),
        OutputCut(name="output_cut", priority=45),
        CallCount(name="call_count", priority=90, kind="hint", at=("mid_step",)),
    ]
