"""Signed reasoning of one model in requests to another model of the same vendor."""

import pytest

import contextc as cc
from tests.compiler.sized_conversations import texts

OPUS, SONNET = "anthropic:claude-opus-5-5", "anthropic:claude-sonnet-4-5"


def answered(compiler: cc.MessageCompiler, text: str, model: str) -> cc.Compiled:
    """Ask something, and have it answered with reasoning that this model has signed."""
    compiler.store.append("c", cc.user(text))
    compiled = compiler.compile("c")
    compiler.begin(compiled)
    reasoning = cc.Reasoning(text="Hm.", signature=f"signed by {model}", provider="anthropic", model=model)
    compiler.commit(compiled, cc.assistant("So it is.", reasoning=reasoning))
    return compiled


@pytest.mark.parametrize("binds", [True, False])
def test_reasoning_of_another_model_is_left_out_where_signatures_hold_what_came_before(binds: bool) -> None:
    """Guarantees 9.3, 9.10: the other model was shown the past in its own way (results shortened by its window, other
    messages left out), and has signed that."""
    store = cc.open_store("memory:")
    opus = cc.MessageCompiler(store, cc.provider(OPUS, binds_reasoning=binds))
    sonnet = cc.MessageCompiler(store, SONNET)
    answered(opus, "One?", "claude-opus-5-5-20261001")
    answered(sonnet, "Two?", "claude-sonnet-4-5-20250929")
    compiled = answered(opus, "Three?", "claude-opus-5-5-20261001")

    assert "signed by claude-opus" in texts(compiled)
    assert ("signed by claude-sonnet" in texts(compiled)) == (not binds)
    assert texts(compiled).count("So it is.") == 2
    assert compiled.manifest.why == ""


def test_an_imported_reply_of_the_same_model_keeps_its_reasoning() -> None:
    """Guarantee 3.8: a history that comes from elsewhere is the same history."""
    store = cc.open_store("memory:")
    reasoning = cc.Reasoning(text="Hm.", signature="signed", provider="anthropic", model="claude-opus-5-5-20261001")
    store.extend("c", [cc.user("One?"), cc.assistant("So it is.", reasoning=reasoning), cc.user("Two?")])
    assert '"signed"' in texts(cc.MessageCompiler(store, OPUS).compile("c"))
