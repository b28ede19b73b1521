"""Recorded requests and transcripts, sent by the AI SDK and by contextc."""

from collections.abc import Sequence

import pytest

from tests.conftest import some
from tests.sdk_comparison.ai_sdk_process import Refused, Sdk
from tests.sdk_comparison.compare import agrees
from tests.sdk_comparison.recorded_conversations import agents, recorded
from tests.sdk_comparison.request_pairs import TARGETS, Conversation


@pytest.mark.parametrize("format", TARGETS)
def test_recorded_conversations_agree(sdk: Sdk, format: str) -> None:
    """Guarantee 10.5: requests that providers really got, sent to each of them."""
    all_agree(sdk, format, some(recorded(), 4))


@pytest.mark.parametrize("format", some([*TARGETS], 3))
def test_transcripts_of_agents_agree(sdk: Sdk, format: str) -> None:
    """Guarantee 10.5: long conversations with many calls."""
    all_agree(sdk, format, agents())


def all_agree(sdk: Sdk, format: str, conversations: Sequence[tuple[str, Conversation]]) -> None:
    assert conversations
    for name, expected in conversations:
        try:
            agrees(sdk, format, expected)
        except (AssertionError, Refused) as error:
            error.add_note(f"in {name}")
            raise
