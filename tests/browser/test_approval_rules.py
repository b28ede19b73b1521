"""Rules for approvals in the browser: made with Always…, named by the call, listed and revoked."""

import pytest
from playwright.sync_api import expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.page_driver import Person
from tests.browser.scripted_model import Model, calls, text_reply
from tests.conftest import some


def test_always_allow_answers_the_next_call_and_the_call_names_the_rule(
    person: Person, model: Model, options: ServerOptions, store: cc.Store
) -> None:
    """Guarantees 18.7 and 18.8: after *Revoke* the next call is asked for."""
    model.will(
        calls(("write_file", {"path": "a.txt", "content": "1"}), id="one"),
        calls(("write_file", {"path": "b.txt", "content": "2"}), id="two"),
        text_reply("Written."),
        calls(("write_file", {"path": "c.txt", "content": "3"}), id="three"),
        text_reply("As you wish."),
    )
    page = person.page
    person.begins("Write two files")
    asked = page.get_by_test_id("approval")
    asked.get_by_role("button", name="Always…").click()
    form = page.get_by_test_id("approval-rule")
    form.get_by_label("With").select_option("any")
    form.get_by_label("Called").select_option("agent")
    form.get_by_label("Ends").select_option("86400")
    asked.get_by_role("button", name="Always allow").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Written.")
    person.sees_ended()
    assert (options.root / "b.txt").read_text() == "2"
    (rule,) = store.approval_rules()
    assert (rule.tool, rule.scope, rule.arguments, rule.expires - rule.made) == (
        "write_file",
        "agent",
        None,
        86_400_000,
    )

    last = page.get_by_test_id("tool-call").last
    last.get_by_role("button").first.click()
    expect(last.get_by_test_id("call-answer")).to_contain_text(f"Allowed by rule {rule.id} (allow write_file with any")

    person.page.get_by_test_id("inspect").click()
    page.get_by_role("tab", name="Messages").click()
    line = page.locator("[data-line]").filter(has_text="b.txt").first
    line.get_by_role("button").first.click()
    expect(line.get_by_test_id("call-answer").first).to_contain_text(f"by rule {rule.id}")
    page.go_back()

    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Approval rules").click()
    listed = page.get_by_test_id("approval-rules")
    expect(listed).to_contain_text("allow write_file with any arguments, by agent assistant")
    listed.get_by_role("button", name="Revoke").click()
    expect(listed).to_contain_text("No rules.")
    listed.get_by_role("button", name="Close").click()
    assert store.approval_rules() == []
    person.says("Another one")
    expect(asked).to_contain_text("c.txt")
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("button", name="Deny").click()
    person.sees_ended()


@pytest.mark.parametrize("typed", some(["echo 1; rm", "echo 1"], 1))
def test_a_prefix_that_does_not_hold_for_the_call_leaves_it_pending(
    person: Person, model: Model, store: cc.Store, typed: str
) -> None:
    model.will(calls(("run_command", {"command": "echo 1 2"}), id="one"), text_reply("Done."))
    if ";" in typed:
        person.watch.expects("status of 400")
    page = person.page
    person.begins("Run it")
    asked = page.get_by_test_id("approval")
    asked.get_by_role("button", name="Always…").click()
    form = page.get_by_test_id("approval-rule")
    form.get_by_label("With").select_option("=command")
    form.get_by_label("command begins with").fill(typed)
    asked.get_by_role("button", name="Always allow").click()
    if ";" in typed:
        expect(page.get_by_text("the rule does not hold for the call itself")).to_be_visible()
        expect(asked).to_have_count(1)
        assert store.approval_rules() == []
        return
    person.sees_ended()
    assert [each.prefix for each in store.approval_rules()] == ["echo 1"]
