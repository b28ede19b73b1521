"""Calls that a cut shortened or left out are not in the requests of Google's ADK."""

import pytest

import contextc as cc
from contextc.adapters.google_adk import ContextcPlugin
from tests.fake_vendors.fake import FakeVendors
from tests.frameworks.google_adk.scripted_agents import MODELS, SESSION, ask, find_answer, make_agent, make_runner, run
from tests.frameworks.noted_report import ANSWER, QUESTION, WINDOW, check_requests, note_page, noting


@pytest.mark.parametrize("name", [*MODELS])
def test_each_request_has_the_calls_that_are_left(name: str) -> None:
    """Guarantees 5.4 and 21.4: a call without its result is refused by every provider."""
    with FakeVendors(noting(), window=WINDOW) as fake, cc.open_store("memory:") as store:

        async def work() -> str:
            plugin = ContextcPlugin(store, window=WINDOW, output=1_000)
            runner = make_runner(make_agent(MODELS[name](fake), tools=[note_page]), [plugin])
            return find_answer(await ask(runner, QUESTION))

        assert run(work()) == ANSWER
        check_requests(fake, store, SESSION, shortens=False)
