"""Compare both request bodies for a conversation that is reduced to what both can express."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.messages import Message, Text, UserNotice, pair_tool_calls
from tests.sdk_comparison.ai_sdk_process import Sdk
from tests.sdk_comparison.known_differences import DIFFERENCES, Difference, apply_known_differences
from tests.sdk_comparison.request_pairs import TARGETS, VERCEL, Conversation, bodies
from tests.sdk_comparison.rewrites.bodies import RewriteContext
from tests.sdk_comparison.sdk_limits import LIMITS, Limit, within


class Compared(NamedTuple):
    """Our body, the SDK's body in our form, and the names of the differences found."""

    ours: JSONObject
    theirs: JSONObject
    met: list[str]


def compared(
    sdk: Sdk,
    format: str,
    conversation: Conversation,
    *,
    differences: Sequence[Difference] = DIFFERENCES,
    limits: Sequence[Limit] = LIMITS,
) -> Compared | None:
    """What both make of it; None where nothing is left that could be sent."""
    conversation = expressible(conversation, format, limits)
    if not all(form.encode_history(conversation.messages) for form in (VERCEL, TARGETS[format].form)):
        return None
    ours, theirs = bodies(sdk, format, conversation)
    known = RewriteContext(conversation, TARGETS[format].form)
    written, met = apply_known_differences(theirs, ours, known, differences)
    return Compared(ours, written, met)


def expressible(conversation: Conversation, format: str, limits: Sequence[Limit] = LIMITS) -> Conversation:
    """What both can say, with every call answered in its place: the SDK refuses a call that has no result."""
    conversation = within(conversation, format, limits)
    paired = pair_tool_calls(
        conversation.messages, unique_ids=True, encode_id=TARGETS[format].form.name_codec.encode_id
    )
    return replace(conversation, messages=tuple(message for message in paired.messages if has_content(message)))


def has_content(message: Message) -> bool:
    return any(part != Text("") and not isinstance(part, UserNotice) for part in message.parts)


def agrees(sdk: Sdk, format: str, conversation: Conversation) -> None:
    """Both say the same, as far as they can."""
    found = compared(sdk, format, conversation)
    if found is not None:
        assert found.theirs == found.ours
