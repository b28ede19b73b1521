"""One turn with a real local model. Its answer is not checked, only that it is shown and stored."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

import contextc as cc
from contextc.config import read_settings
from contextc.errors import InvalidSetting
from contextc.providers.local import check_installed, find_model_file
from contextc.web.app_state import ServerOptions
from tests.browser.page_driver import Person
from tests.conftest import give_up


@pytest.fixture
def options(options: ServerOptions, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerOptions]:
    """A server without a model of its own asks the local one; what that starts ends with the test."""
    try:
        check_installed()
        find_model_file(read_settings(environment={"HOME": os.devnull}))
    except InvalidSetting as error:
        give_up(str(error))
    monkeypatch.setenv("CONTEXTC_LOCAL_IDLE", "10s")
    yield replace(options, model=None, output=24)
    for state in home.rglob("server.json"):
        state.unlink(missing_ok=True)


@pytest.mark.thorough
def test_the_model_of_this_machine_answers(person: Person, store: cc.Store) -> None:
    """Guarantee 12.2: from nothing configured to an answer that can be looked at."""
    name = person.begins("Say hello.")
    expect(person.rows("assistant").locator(".prose")).to_be_visible(timeout=240_000)
    expect(person.page.get_by_test_id("stop")).to_have_count(0, timeout=240_000)
    person.sees_ended()
    asked, answered = store.load(name)
    assert (asked.text, answered.role) == ("Say hello.", "assistant")
    assert answered.text
    person.rows("assistant").hover()
    person.page.get_by_test_id("inspect-link").click()
    expect(person.page.get_by_test_id("lines")).to_contain_text("Say hello.")
