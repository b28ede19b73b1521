"""Costs with an unknown factor on the pages of the web UI."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.conftest import Visit
from tests.browser.scripted_model import SPEC, Model
from tests.browser.server import served
from tests.web.sample_conversations import Life


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bounded")
    with cc.open_store(f"sqlite:///{folder}/served.db") as store:
        life = Life(store)
        life.turn("hi", usage=cc.Usage(input=1_000, output=100))
        life.turn("more", usage=cc.Usage(input=1_000, output=100, tier="hyperdrive"))
        with served(store, ServerOptions(root=folder, model=SPEC)) as url:
            yield url


def test_every_page_says_that_it_cost_at_least_that(bounded: str, model: Model, visiting: Visit) -> None:
    """Guarantee 17.2: a cost that lacks an unknown part is a lower bound, and says so."""
    person = visiting(bounded)
    page = person.open("#/overview").page
    expect(page.get_by_test_id("totals")).to_contain_text("at least $")
    person.chat("demo")
    expect(page.locator(".gauge-more")).to_contain_text("at least $")
    person.inspects("demo")
    expect(page.get_by_test_id("totals")).to_contain_text("at least $")
    reply = person.tab("Reply")
    expect(reply).to_contain_text("at least $")
    expect(reply).to_contain_text("tier hyperdrive")
    expect(person.tab("Findings")).to_contain_text("at least $")
