"""Random lives of a `MessageManager`: whatever is added between two requests, each has all messages once, and is valid.

Results come late or never, people interrupt, the formatter and the system prompt change, and the history is reset.
"""

import json
import random

import pytest

import contextc as cc
from contextc.formats.registry import formatter
from contextc.formats.request_settings import RequestSettings
from contextc.manager import MessageManager
from tests.conftest import often

LIVES = often(24, 600)
PARTS = often(2, 8)
FORMATS = ("openai_chat", "openai_responses", "anthropic", "gemini", "bedrock", "mistral", "ollama")
LEFT_TO_CALLER = ("BED014",)
"""Rules about the tools of a request, which a manager does not have."""
LATE = ("still missing", "was interrupted", "No result")
"""What was sent in place of a result that was still missing stays, so that the prefix does not change."""


class Life:
    """One history, with a mark in each text, argument and result."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.manager = MessageManager(formatter(self.chance.choice(FORMATS)), self.chance.choice((None, "Be brief.")))
        self.marks: list[str] = []
        self.open: list[cc.ToolCall] = []
        self.count = 0

    def mark(self) -> str:
        self.count += 1
        self.marks.append(f"mark{self.count:04}x")
        return self.marks[-1]

    def add(self) -> None:
        chance, manager, kind = self.chance, self.manager, self.chance.random()
        if kind < 0.3:
            manager.add_user_message(f"say {self.mark()}")
        elif kind < 0.6:
            number = chance.choice((0, 0, 1, 2))
            calls = [
                cc.tool_call(f"id{self.count}_{at}", chance.choice(("read", "write")), {"at": self.mark()})
                for at in range(number)
            ]
            has_text = not calls or chance.random() < 0.7
            manager.add_assistant_message(f"reply {self.mark()}" if has_text else None, calls)
            self.open += calls
        elif kind < 0.85 and self.open:
            call = self.open.pop(chance.randrange(len(self.open)) if chance.random() < 0.3 else 0)
            manager.add_tool_result(call.id, call.name, f"result {self.mark()}", is_error=chance.random() < 0.1)
        elif kind < 0.9:
            manager.set_system_prompt(chance.choice((None, "Be brief.", "Be kind.")))
        elif kind < 0.96:
            manager.formatter = formatter(chance.choice(FORMATS))
        elif kind > 0.985:
            manager.reset()
            self.marks, self.open = [], []

    def check(self) -> None:
        manager = self.manager
        form = manager.formatter
        assert isinstance(form, cc.formats.Formatter)
        sent = manager.get_formatted_messages()
        text = json.dumps(sent)
        assert {mark: text.count(mark) for mark in self.marks} == dict.fromkeys(self.marks, 1)
        if not sent:
            return
        settings = form.settings.write(RequestSettings(model="m", max_output_tokens=9)).body
        found = cc.lint({**settings, form.messages_key: sent}, format=form.name)
        assert not [each for each in found if each.code not in LEFT_TO_CALLER]
        fresh = MessageManager(form, manager.system_prompt)
        for message in manager.messages:
            fresh.add_message(message)
        assert any(each in text for each in LATE) or fresh.get_formatted_messages() == sent


@pytest.mark.parametrize("part", range(PARTS))
def test_each_request_has_all_messages_once_and_is_what_a_new_manager_sends(part: int) -> None:
    for seed in range(part, LIVES, PARTS):
        life = Life(seed)
        for _ in range(life.chance.randint(3, 25)):
            life.add()
            if life.chance.random() < 0.6:
                life.check()
        life.check()
