"""Agents that were called as tools: a call leads to the conversation of its agent, and that one back to its caller."""

from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

import contextc as cc
from tests.browser.page_driver import Person
from tests.web.test_called_agents import make_boss


def test_a_call_leads_to_the_conversation_of_its_agent_and_back(person: Person, store: cc.Store) -> None:
    """Guarantee 20.11: with the state of the agent, in the chat and in the tree of the inspector."""
    boss = make_boss(store)
    with ThreadPoolExecutor() as threads:  # the browser has an event loop in this one
        threads.submit(boss.run_sync, "Pay, please.", conversation="demo").result()
    page = person.open("#/c/demo").page
    call = page.get_by_test_id("tool-call")
    expect(call).to_contain_text("payer · needs approval")
    expect(call.get_by_test_id("call-state")).to_have_text("needs approval")
    (asked,) = store.approvals("demo")
    store.answer_approval(asked.id, True)
    with ThreadPoolExecutor() as threads:
        threads.submit(make_boss(store, begins=False).resume_sync, "demo").result()
    expect(call).to_contain_text("payer · done")
    call.get_by_test_id("called-agent").click()
    expect(page.get_by_test_id("caller")).to_be_visible()
    expect(page.get_by_text("Paid.")).to_be_visible()
    page.get_by_test_id("inspect").click()
    page.get_by_test_id("agents-button").click()
    tree = page.get_by_test_id("sub-agents")
    expect(tree.get_by_test_id("agent-state")).to_have_text(["done", "done"])
    person.open(f"#/c/{asked.conversation}")
    page.get_by_test_id("caller").click()
    expect(page.get_by_text("Pay, please.").first).to_be_visible()
