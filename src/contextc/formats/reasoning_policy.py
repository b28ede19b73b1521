"""The treatment of a model's reasoning when a history is sent again.

`native` sends each provider its own reasoning as it requires, and no other. `inline` joins reasoning into the text
around it, in the order of the parts. `drop` leaves it out.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from contextc.messages import AnyPart, Message, Reasoning, Text

ReasoningPolicy: TypeAlias = Literal["native", "inline", "drop"]
REASONING_FIELDS = {"reasoning_content", "reasoning", "reasoning_details"}


def apply_policy(
    segment: Sequence[Message], policy: ReasoningPolicy, replacement: Callable[[Reasoning], tuple[AnyPart, ...]]
) -> Sequence[Message]:
    """Return the segment with a policy applied. `replacement` returns the parts that replace a reasoning part."""
    return segment if policy == "native" else [_replayed(message, policy, replacement) for message in segment]


def apply_policy_to_message(message: Message, policy: ReasoningPolicy) -> Message:
    """Return one message with a policy applied, for any provider.

    Reasoning with an id leaves an empty part, so that the items after it stay valid.
    """
    return _replayed(message, policy, lambda part: (Reasoning(provider=part.provider),) if part.id else ())


def contains_reasoning(message: Message) -> bool:
    """Return True if a policy changes this message."""
    fields = any(REASONING_FIELDS & said.keys() for said in message.extra.values()) if message.extra else False
    return fields or any(type(part) is Reasoning for part in message.parts)


def _replayed(
    message: Message, policy: ReasoningPolicy, instead: Callable[[Reasoning], tuple[AnyPart, ...]]
) -> Message:
    message = _without_fields(message)
    if not any(isinstance(part, Reasoning) for part in message.parts):
        return message
    parts: list[AnyPart] = []
    words: list[str] = []  # pieces of the next text
    for part in message.parts:
        if isinstance(part, Reasoning) and (others := instead(part)):
            _flush_text(parts, words)
            parts += others
        if policy == "inline" and isinstance(part, Reasoning | Text):
            words.append(part.text)
        elif not isinstance(part, Reasoning):
            _flush_text(parts, words)
            parts.append(part)
    _flush_text(parts, words)
    return replace(message, parts=tuple(parts))


def _without_fields(message: Message) -> Message:
    """Return the message without reasoning that its endpoint sends in fields next to the content."""
    if not any(REASONING_FIELDS & said.keys() for said in (message.extra or {}).values()):
        return message
    extra = {
        provider: {name: value for name, value in said.items() if name not in REASONING_FIELDS}
        for provider, said in (message.extra or {}).items()
    }
    return replace(message, extra={provider: said for provider, said in extra.items() if said} or None)


def _flush_text(parts: list[AnyPart], words: list[str]) -> None:
    """Append the collected text as one part."""
    if text := "".join(words):
        parts.append(Text(text))
    words.clear()
