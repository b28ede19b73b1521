"""What becomes of a model's reasoning when a history is sent again.

`native` gives each provider exactly what it demands of its own, and nothing of anybody else's. `inline` joins reasoning
into the text around it, in the order of the parts, for whoever reads it. `drop` leaves it out.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from contextc.messages import AnyPart, Message, Reasoning, Text

Policy: TypeAlias = Literal["native", "inline", "drop"]


def replayed(
    segment: Sequence[Message], policy: Policy, instead: Callable[[Reasoning], tuple[AnyPart, ...]]
) -> Sequence[Message]:
    """The segment by a policy; `instead` is what stands in the place of reasoning that is no longer sent as such."""
    return segment if policy == "native" else [_replayed(message, policy, instead) for message in segment]


def _replayed(message: Message, policy: Policy, instead: Callable[[Reasoning], tuple[AnyPart, ...]]) -> Message:
    if not any(isinstance(part, Reasoning) for part in message.parts):
        return message
    parts: list[AnyPart] = []
    for part in message.parts:
        if isinstance(part, Reasoning):
            parts += instead(part)
        if policy == "inline" and isinstance(part, Reasoning | Text):
            _join(parts, part.text)
        elif not isinstance(part, Reasoning):
            parts.append(part)
    return replace(message, parts=tuple(parts))


def _join(parts: list[AnyPart], words: str) -> None:
    if parts and isinstance(parts[-1], Text):
        parts[-1] = Text(parts[-1].text + words)
    elif words:
        parts.append(Text(words))
