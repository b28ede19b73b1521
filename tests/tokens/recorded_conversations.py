"""Recorded requests that continue a conversation: earlier messages, the reply, and new input."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.messages import Message, Reasoning
from contextc.models.tokens import estimate_next_input
from tests.tokens.overhead_fitting import VENDORS, Sample, samples


class Step(NamedTuple):
    earlier: Sample
    later: Sample
    reply: tuple[Message, ...]
    new: tuple[Message, ...]


def steps(vendor: str) -> list[Step]:
    """The pairs of requests of a vendor of which one continues the other, as closely as there is one."""
    found = samples(vendor)
    kin: dict[tuple[str, str], list[Sample]] = {}
    for sample in found:
        kin.setdefault((sample.model, sample.family), []).append(sample)
    pairs: list[Step] = []
    for later in found:
        options = [step for earlier in kin[later.model, later.family] if (step := _step(earlier, later))]
        if options:
            pairs.append(max(options, key=lambda step: (_same_case(step), len(step.earlier.request.messages))))
    return pairs


def _same_case(step: Step) -> bool:
    return step.earlier.case.rpartition("#")[0] == step.later.case.rpartition("#")[0]


def _step(earlier: Sample, later: Sample) -> Step | None:
    before, after = earlier.request.messages, later.request.messages
    known = len(before)
    if len(after) <= known or [_message_key(each) for each in before] != [_message_key(each) for each in after[:known]]:
        return None
    if (earlier.request.system, earlier.request.tools) != (later.request.system, later.request.tools):
        return None
    end = known
    while end < len(after) and after[end].role == "assistant":
        end += 1
    reply = after[known:end]
    if _message_key(earlier.reply)[1:] != (_text(reply), _calls(reply)):
        return None
    return Step(earlier, later, reply, after[end:])


def _message_key(message: Message) -> tuple[object, ...]:
    if message.role == "tool":
        return (message.role, *[(result.call_id, result.text) for result in message.tool_results])
    return message.role, _text((message,)), _calls((message,))


def _text(messages: Sequence[Message]) -> str:
    return "".join(message.text for message in messages)


def _calls(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    return tuple((call.name, str(call.arguments)) for message in messages for call in message.tool_calls)


def expected(step: Step) -> int:
    """Return what the later request will cost by Guarantee 6.2."""
    counts = step.later.counter
    same_turn = all(message.role == "tool" for message in step.new)
    sent_back = any(isinstance(part, Reasoning) or part.extra for message in step.reply for part in message.parts)
    reply = step.earlier.reply if sent_back else _without_reasoning(step.earlier.reply)
    new = sum(counts.count_message(message) for message in step.new)
    return estimate_next_input(step.earlier.real, counts.count_replayed(reply, same_turn=same_turn), new)


def _without_reasoning(reply: Message) -> Message:
    return replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, Reasoning)))


def all_steps() -> list[Step]:
    return [step for vendor in VENDORS for step in steps(vendor)]
