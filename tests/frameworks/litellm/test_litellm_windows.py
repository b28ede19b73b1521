"""Windows from tiny to full, and several processes on one conversation."""

from collections.abc import Sequence
from typing import Any

import litellm
import pytest

import contextc as cc
from contextc.adapters.litellm import Completions
from tests.conftest import often
from tests.frameworks.litellm.report_agent import MODELS, SYSTEM, options
from tests.frameworks.random_histories import CallIds, check_windows, make_history
from tests.frameworks.shared_conversation import CONVERSATION, Ask, check_writers


def list_call_ids(messages: Sequence[Any]) -> CallIds:
    calls = [call["id"] for each in messages for call in each.get("tool_calls") or ()]
    return calls, [each["tool_call_id"] for each in messages if each["role"] == "tool"]


@pytest.mark.parametrize("seed", range(often(4, 40)))
@pytest.mark.parametrize("name", [*MODELS])
def test_no_window_separates_a_call_from_its_result(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantees 5.4 and 21.4; litellm#10696: every window from tiny to full, no orphan in any."""
    history = [SYSTEM, *make_history(seed)]
    sent: list[Any] = []

    def complete(*, messages: list[Any], **arguments: Any) -> Any:
        sent[:] = messages
        return litellm.ModelResponse(choices=[{"message": {"role": "assistant", "content": "Fine."}}])

    monkeypatch.setattr(litellm, "completion", complete)
    with cc.open_store("memory:") as store:

        def send(window: int) -> list[Any]:
            completions = Completions(store, window=window)
            completions.completion(
                conversation=f"{name} {window}", model=MODELS[name], messages=history, max_tokens=100
            )
            assert sent[0] is SYSTEM
            assert sent[-1]["role"] in ("user", "tool")
            return [*sent]

        check_windows(send, list_call_ids, len(history))


def make_writer(store: cc.Store, fake: Any) -> Ask:
    completions, messages = Completions(store), list[Any]()

    def ask(text: str) -> None:
        messages.append({"role": "user", "content": text})
        response = completions.completion(conversation=CONVERSATION, messages=messages, **options(fake))
        messages.append({"role": "assistant", "content": response.choices[0].message.content})

    return ask


def test_eight_processes_on_one_conversation_lose_nothing(shared_address: str) -> None:
    """Guarantees 3.2 and 21.3: each process has a list of its own, so each is a branch."""
    check_writers(shared_address, "openai_chat", make_writer)
