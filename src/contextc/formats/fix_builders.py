"""Fixes that several formats use. A function that returns a `Fix` makes one from the names of a format."""

from collections.abc import Callable
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.lint_engine import Fix, RuleSet

EMPTY_CONVERSATION = "(Nothing has been said yet.)"


def insert_first_message(rules: RuleSet) -> Fix:
    """Return a fix for a request without messages: insert one which states that nothing has been said yet."""
    return lambda body: {**body, rules.messages_key: [rules.message(EMPTY_CONVERSATION)]}


def remove_settings(*names: str) -> Fix:
    return lambda body: without_fields(body, *names)


def set_setting(name: str, value: JSON) -> Fix:
    return lambda body: {**body, name: value}


def limit_list(name: str, max_length: int) -> Fix:
    """Return a fix that keeps the first entries of a list."""
    return lambda body: {**body, name: body[name][:max_length]}


def without_fields(wire: JSONObject, *names: str) -> JSONObject:
    return {name: value for name, value in wire.items() if name not in names}


def change_messages(body: JSONObject, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """Return the body with each of its `messages` changed."""
    return {**body, "messages": [change(message) for message in messages_of(body)]}


def keep_messages(body: JSONObject, keep: Callable[[JSONObject], bool]) -> JSONObject:
    """Return the body with only the `messages` for which `keep` is true."""
    return {**body, "messages": [message for message in messages_of(body) if keep(message)]}


def messages_of(body: JSONObject) -> list[JSONObject]:
    return cast(list[JSONObject], body["messages"])
