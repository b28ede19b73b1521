"""Sample conversations for the browser tests."""

import contextc as cc
from contextc.providers import Provider
from tests.web.sample_conversations import SONNET, Life, provider_of

DIG = cc.Tool(name="dig", description="Digs.", parameters={"type": "object", "properties": {}})


def busy(store: cc.Store, name: str = "demo", provider: Provider | None = None) -> Life:
    """A bit of everything: a tool, an edit, other tools, too little room. Requests 4, 5 and 6 begin epochs."""
    life = Life(store, provider or provider_of(window=3_600), name)
    call = cc.assistant("so", tool_calls=[cc.tool_call("a", "look", {})])
    life.turn("look", call, cc.Usage(input=900, output=20))
    store.append(name, cc.tool_result("a", "look", "line of output " * 20))
    life.answer(usage=cc.Usage(input=1_100, output=9, cache_read=800))
    life.turn("more", usage=cc.Usage(input=1_150, output=9, cache_read=1_100))
    store.edit(name, store.conversation(name).length - 1, cc.user("something else"))
    life.answer("changed", usage=cc.Usage(input=1_160, output=9, cache_read=900))
    life.tools = [*life.tools, DIG]
    life.turn("dig", usage=cc.Usage(input=1_300, output=9))
    for number in range(5):
        life.turn(f"{number} " + "so it goes " * 130, usage=cc.Usage(input=2_000 + 100 * number, output=9))
    return life


def two_models(store: cc.Store, name: str = "demo") -> tuple[Life, Life]:
    """Create two channels of one conversation, each with its own ledger."""
    one, two = Life(store, name=name), Life(store, provider_of(SONNET), name)
    one.turn("hi", usage=cc.Usage(input=500, output=9))
    two.turn("and you?", usage=cc.Usage(input=600, output=9))
    one.turn("back to the first", usage=cc.Usage(input=700, output=9, cache_read=500))
    return one, two
