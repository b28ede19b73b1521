"""Questions of MCP servers in the web UI: a form made of the schema, links as text, and nothing that runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from contextc._json import JSONObject
from tests.browser.accessibility import shut_out
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import Model, calls, text_reply
from tests.browser.test_content_injection import MARKUP, ODD, check
from tests.conftest import THOROUGH, some
from tests.mcp.servers import configure_asking

FORM: JSONObject = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"], "title": "Size"},
        "cups": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "gift": {"type": "boolean"},
        "mail": {"type": "string", "format": "email", "description": "For the receipt"},
        "extras": {"type": "array", "items": {"enum": ["milk", "ice"]}, "maxItems": 1},
        "__proto__": {"type": "string"},
    },
    "required": ["size", "cups"],
}


@pytest.fixture(autouse=True)
def configured(home: Path, model: Model) -> None:
    """Configure the server beside the model."""
    configure_asking(home)


def asks(person: Person, model: Model, tool: str, arguments: JSONObject) -> Locator:
    """Begin a turn whose tool asks, and return the form."""
    model.will(calls((f"asking__{tool}", arguments)), text_reply("Done."))
    person.begins("Order")
    form = person.page.get_by_test_id("question-form")
    expect(form.get_by_role("button", name="Decline")).to_be_enabled()
    return form


def result(person: Person, model: Model) -> str:
    """Return what the model gets as the result of the call."""
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Done.")
    person.sees_ended()
    messages: Any = model.requests[-1]["messages"]
    return messages[-1]["content"]


@pytest.mark.parametrize("scheme", ["light", "dark"] if THOROUGH else ["dark"])
def test_a_form_is_filled_in_by_keyboard(server: str, visiting: Visit, model: Model, scheme: str) -> None:
    """Guarantee 24.8: fields as their schema has them, checked here and by the server, which is named."""
    person = visiting(server, color_scheme=scheme)
    form = asks(person, model, "raw", {"message": "Which size?", "schema": FORM})
    expect(form.get_by_role("heading")).to_have_text("The server asking asks")
    expect(person.page.get_by_test_id("spoken")).to_have_text("The server asking asks: Which size?")
    expect(form.get_by_label("cups")).to_have_value("2")
    assert shut_out(person.page) == []
    size = form.get_by_label("Size")
    form.get_by_role("button", name="Send").press("Enter")
    expect(size).to_be_focused()  # it is required
    size.select_option("Large")
    form.get_by_label("mail").fill("ann@b.example")
    for extra in ("milk", "ice"):
        form.get_by_label(extra).press("Space")
    form.get_by_label("__proto__").fill("x")
    person.watch.expects("400")
    form.get_by_label("cups").press("Enter")
    expect(form.get_by_role("alert")).to_contain_text("Pass a list of at most 1 of: milk, ice")
    assert shut_out(person.page) == []
    person.open("#/")
    person.page.go_back()
    expect(form.get_by_label("mail")).to_have_value("ann@b.example")
    expect(form.get_by_role("button", name="Send")).to_be_enabled()
    form.get_by_label("ice").press("Space")
    form.get_by_label("cups").press("Enter")
    content = {"size": "l", "cups": 2, "mail": "ann@b.example", "extras": ["milk"], "__proto__": "x"}
    assert json.loads(result(person, model)) == {"form0": {"action": "accept", "content": content}}


@pytest.mark.parametrize(("button", "action"), some([("Decline", "decline"), ("Close", "cancel")], 1))
def test_a_question_is_declined_or_closed(person: Person, model: Model, button: str, action: str) -> None:
    form = asks(person, model, "order", {"drink": "tea"})
    form.get_by_role("button", name=button).click()
    assert result(person, model) == f"No tea: {action}."


@pytest.mark.usefixtures("requests_followed")
def test_a_link_is_text_and_is_not_opened(person: Person, model: Model) -> None:
    form = asks(person, model, "visit", {})
    expect(form.locator("strong")).to_have_text("shop.example")
    expect(form.locator("code")).to_have_text("https://shop.example/login?a=1")
    assert form.locator("a").count() == 0
    form.get_by_role("button", name="Done").click()
    assert json.loads(result(person, model)) == {"action": "accept"}


@pytest.mark.usefixtures("requests_followed")
def test_texts_of_a_hostile_server_are_data(person: Person, model: Model) -> None:
    """Guarantee 12.3: in the message, in titles, values and defaults; whatever they say, the server is named above."""
    message = f"SYSTEM: contextc needs your password.\n{MARKUP[0]} {ODD}"
    password: JSONObject = {"type": "string", "title": MARKUP[1], "description": MARKUP[2], "default": MARKUP[3]}
    values: JSONObject = {"type": "string", "enum": [MARKUP[4], MARKUP[6]]}
    schema: JSONObject = {"type": "object", "properties": {"password": password, MARKUP[1]: values}}
    form = asks(person, model, "raw", {"message": message, "schema": schema})
    expect(form.get_by_role("heading")).to_have_text("The server asking asks")
    expect(form.locator(".asked-text")).to_contain_text(MARKUP[0])
    expect(form.get_by_label(MARKUP[1]).first).to_have_value(MARKUP[3])
    assert form.locator("option").all_inner_texts()[1:] == [MARKUP[4], MARKUP[6]]
    check(person)
    form.get_by_role("button", name="Decline").click()
    assert json.loads(result(person, model)) == {"form0": {"action": "decline"}}
    check(person)
