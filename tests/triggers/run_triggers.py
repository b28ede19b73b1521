"""Evaluate triggers for several contexts in a row, with their states stored as JSON in between."""

from collections.abc import Iterable, Mapping

from contextc._json import JSONObject, decode, encode
from contextc.triggers import Trigger, TriggerContext, TriggerMessage, evaluate_triggers


class Play:
    """A conversation whose triggers are asked moment by moment."""

    def __init__(self, triggers: Iterable[Trigger], states: Mapping[str, JSONObject] | None = None) -> None:
        self.triggers = list(triggers)
        self.states: dict[str, JSONObject] = dict(states or {})
        self.failures: list[tuple[str, str]] = []
        self.written: list[dict[str, JSONObject]] = []

    def at(self, moment: TriggerContext) -> list[TriggerMessage]:
        verdict = evaluate_triggers(self.triggers, moment, self.states)
        self.states = decode(encode({**self.states, **verdict.states}))
        self.written.append(verdict.states)
        self.failures += verdict.failures
        return [message for _, message in verdict.messages]

    def lead(self, moment: TriggerContext) -> list[str]:
        """Return the leads of the messages: `Context warning`, …"""
        return [message.text.partition(":")[0] for message in self.at(moment)]


def filled(step: int, share: float, **more: object) -> TriggerContext:
    """A moment before a step, with so much of 1,000 tokens in use."""
    values: JSONObject = {"steps": step - 1, "used": round(share * 1000), "available": 1000, **more}
    return TriggerContext(step=step, share=share, **values)
