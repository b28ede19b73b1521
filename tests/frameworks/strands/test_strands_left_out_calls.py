"""Calls that a cut shortened or left out are not in the requests of Strands."""

import pytest

import contextc as cc
from contextc.adapters.strands import ContextcPlugin
from tests.fake_vendors.fake import FakeVendors
from tests.frameworks.noted_report import ANSWER, QUESTION, WINDOW, check_requests, note_page, noting
from tests.frameworks.strands.report_agent import MODELS, make_agent


@pytest.mark.parametrize("name", [*MODELS])
def test_each_request_has_the_calls_that_are_left(name: str) -> None:
    """Guarantees 5.4 and 21.4: a call without its result is refused by every provider."""
    with FakeVendors(noting(), window=WINDOW) as fake, cc.open_store("memory:") as store:
        plugin = ContextcPlugin(store, "report", window=WINDOW, output=1_000)
        agent = make_agent(MODELS[name](fake), plugin, tools=[note_page])
        assert str(agent(QUESTION)).strip() == ANSWER
        check_requests(fake, store, "report")
