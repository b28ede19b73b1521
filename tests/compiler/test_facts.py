"""What counts as a fact: words that natural language does not have, in any language, and never a credential."""

import pytest

import contextc as cc
from contextc.compiler.facts import Fact, find_facts, find_message_facts, rank_facts


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("The deploy of ORD-5512 failed.", ["ORD-5512"]),
        ("See src/pay/api.py, /etc/hosts and C:\\temp\\a.txt!", ["src/pay/api.py", "/etc/hosts", "C:\\temp\\a.txt"]),
        ("It is at https://example.org/a?b=1.", ["https://example.org/a?b=1"]),
        ("Port 8443, version v2.3.1, commit deadbeef01", ["8443", "v2.3.1", "deadbeef01"]),
        ("after 30 s it cost $4,500.50 or 12%", ["30 s", "$4,500.50", "12%"]),
        ("call parseRequest or max_size in app.config", ["parseRequest", "max_size", "app.config"]),
        ("端口是8443。请看 config.yaml", ["8443", "config.yaml"]),
        ("KeyError: no such 'x'\nnext", ["KeyError: no such 'x'", "KeyError"]),
        ("He or she and/or it. That is all; e.g. nothing, at 12 or 5.", []),
        ("Über den Wolken muss die Freiheit grenzenlos sein.", []),
    ],
)
def test_facts_are_found_in_text(text: str, facts: list[str]) -> None:
    assert find_facts(text) == facts


@pytest.mark.parametrize(
    "text",
    [
        "password: hunter22secret",
        '{"api_key" : "Zx81abcd"}',
        "Authorization: Bearer abcd1234efgh5678ijkl",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "postgres://user:hunter2@db.example.org/x",
        "sk-proj-abcdefgh12345678",
    ],
)
def test_what_looks_like_a_credential_is_not_a_fact(text: str) -> None:
    """An index and a receipt are shown and stored in more places than the message."""
    found = find_facts(f"Use {text} for ORD-1")
    assert found == ["ORD-1"] or all(fact in ("ORD-1", "api_key") for fact in found)


def test_facts_of_a_message_include_arguments_and_results() -> None:
    message = cc.assistant(
        "Reading it_now.", tool_calls=[cc.tool_call("1", "read", {"path": "notes of may", "n": [3]})]
    )
    assert find_message_facts(message) == ["notes of may", "it_now"]
    assert find_message_facts(cc.tool_result("1", "read", "total 941 EUR")) == ["941 EUR", "941"]


def test_facts_in_more_messages_rank_before_later_ones() -> None:
    messages = [(1, cc.user("a-1 b-2")), (2, cc.user("b-2")), (3, cc.user("c-3 d-4"))]
    assert rank_facts(messages, most=1) == [Fact("c-3", 1, 3), Fact("b-2", 1, 2), Fact("a-1", 1, 1)]
    assert rank_facts(messages, most=9)[0] == Fact("b-2", 2, 2)
