"""Cache points: never more than the provider takes, where the next request will look for them, and only where a cache
is kept at all.
"""

import pytest

import contextc as cc
from contextc._json import JSONObject, decode
from tests.compiler.recorded_replay import begins_with, blocks, recorded, replay

CLAUDE = "anthropic:claude-sonnet-4-5"  # caches from 1,024 tokens on
LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
LONG = "Be careful. " * 600


def marked(body: JSONObject) -> list[tuple[str, int]]:
    """Return the positions of marks: the section, and the index of the tool, the system block or the message."""
    found: list[tuple[str, int]] = []
    for section in ("tools", "system"):
        found += [(section, index) for index, each in enumerate(body.get(section) or ()) if "cache_control" in each]
    for index, message in enumerate(body["messages"]):
        found += [("messages", index) for block in message["content"] if "cache_control" in block]
    return found


def answered(compiler: cc.MessageCompiler, text: str, *, reply: str = "Yes.", instructions: str = LONG) -> cc.Compiled:
    compiler.store.append("c", cc.user(text))
    compiled = compiler.compile("c", instructions=instructions)
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(reply))
    return compiled


@pytest.mark.parametrize("points", [0, 1, 2, 3, 4])
def test_there_are_never_more_points_than_the_provider_takes(points: int) -> None:
    """Guarantee 10.4: at most four for Anthropic; here as many as the facts say."""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE, cache_points=points))
    for index in range(5):
        compiled = answered(compiler, f"Question {index}.")
        assert len(marked(compiled.params)) == min(points, 3 if index else 2)
        assert not cc.lint(compiled.params, format="anthropic")


def test_points_stand_behind_the_head_behind_the_request_before_and_at_the_end() -> None:
    """Guarantee 10.4: the next request finds what this one wrote."""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE))
    first = answered(compiler, "Question one.")
    assert marked(first.params) == [("system", 0), ("messages", 0)]
    second = answered(compiler, "Question two.")
    assert marked(second.params) == [("system", 0), ("messages", 0), ("messages", 2)]
    third = answered(compiler, "Question three.")
    assert marked(third.params) == [("system", 0), ("messages", 2), ("messages", 4)]


def test_without_a_system_prompt_the_point_of_the_head_is_on_the_last_tool() -> None:
    """Guarantee 10.4"""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE))
    compiler.store.append("c", cc.user("Look."))
    long = cc.Tool(name="look", description=LONG, parameters={"type": "object", "properties": {}})
    body = compiler.compile("c", tools=[long]).params
    assert marked(body) == [("tools", 2), ("messages", 0)]


def test_nothing_is_marked_below_the_size_from_which_a_provider_caches() -> None:
    """Guarantee 10.4: a point on less is of no use, and counts."""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE))
    assert compiler.provider.model.cache_minimum == 1_024
    short = answered(compiler, "Question one.", instructions="Be brief.")
    assert marked(short.params) == []
    long = answered(compiler, LONG, instructions="Be brief.")
    assert marked(long.params) == [("messages", 2)]  # neither the head nor the request before is large enough
    assert marked(answered(compiler, "Go on.", instructions="Be brief.").params) == [("messages", 2), ("messages", 4)]


def test_no_point_is_on_thinking() -> None:
    """Anthropic refuses it there. A reply that was broken off in its thoughts is asked to go on."""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE))
    answered(compiler, "Question one.")
    compiler.store.append("c", cc.user("Question two."))
    compiled = compiler.compile("c", instructions=LONG)
    compiler.begin(compiled)
    thought = cc.Reasoning(text="Hm.", signature="sig", provider="anthropic")
    compiler.commit(compiled, cc.assistant(reasoning=thought, finish="pause"))
    again = compiler.compile("c", instructions=LONG)
    assert again.is_new
    assert again.params["messages"][-1]["content"][-1]["type"] == "thinking"
    assert marked(again.params) == [("system", 0), ("messages", 2)]
    assert decode(again.body) == again.params


def test_points_do_not_change_the_prefix_nor_what_is_stored() -> None:
    """Guarantee 9.2: marks are no part of it; with and without them the blocks are the same."""
    long = recorded().of_length(120)
    found: dict[int, list[list[bytes]]] = {}
    for points in (0, 4):
        compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE, cache_points=points))
        requests = replay(compiler, long.messages, system_prompt=long.system_prompt, tools=long.tools)
        found[points] = []
        for compiled in requests:
            assert len(marked(compiled.params)) <= points
            found[points].append(blocks(decode(compiled.body)))
        assert b"cache_control" not in b"".join(each.chunk for each in compiler.compile("long").snapshot.cached.rows)
    assert found[0] == found[4]


def test_every_point_is_found_again_by_the_next_request() -> None:
    """Guarantees 7.4, 10.4: what was written into the cache at the end of one request is read by the next one."""
    long = recorded().of_length(200)
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE, window=9_000, output=1_000))
    before: cc.Compiled | None = None
    for compiled in replay(compiler, long.messages, system_prompt=long.system_prompt, tools=long.tools):
        places = marked(compiled.params)
        assert ("messages", len(compiled.params["messages"]) - 1) in places
        if before is not None and not compiled.manifest.why:
            end = len(before.params["messages"]) - 1
            assert ("messages", end) in places
            upto = {**compiled.params, "messages": compiled.params["messages"][: end + 1]}
            assert blocks(upto) == blocks(before.params)
            assert begins_with(blocks(compiled.params), blocks(before.params))
        assert not cc.lint(compiled.params, format="anthropic")
        before = compiled


def test_a_provider_that_caches_by_itself_gets_no_points() -> None:
    """OpenAI's and Gemini's caches are implicit here."""
    for name in ("openai-chat:gpt-5", "openai:gpt-5", "gemini:gemini-2.5-pro"):
        compiler = cc.MessageCompiler(cc.open_store("memory:"), name)
        answered(compiler, "Question one.")
        body = answered(compiler, "Question two.").body
        assert b"cache_control" not in body
        assert b"prompt_cache_breakpoint" not in body


def test_points_that_came_with_an_imported_request_do_not_add_up_to_too_many() -> None:
    """The API: "A maximum of 4 blocks with cache_control may be provided"."""
    mark: JSONObject = {"cache_control": {"type": "ephemeral"}}
    texts: list[JSONObject] = []
    for index in range(4):
        texts.append({"role": "user", "content": [{"type": "text", "text": f"Question {index}.", **mark}]})
        texts.append({"role": "assistant", "content": [{"type": "text", "text": "Yes."}]})
    texts.append({"role": "user", "content": [{"type": "text", "text": "And now?"}]})
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE))
    compiler.store.extend("c", compiler.provider.formatter.decode_request(texts).messages)
    compiled = compiler.compile("c", instructions=LONG)
    assert len(marked(compiled.params)) <= 4
    assert not cc.lint(compiled.params, format="anthropic")


def test_points_that_the_caller_set_are_counted_too() -> None:
    """Those on tools, and the automatic one of the whole request."""
    mark: JSONObject = {"cache_control": {"type": "ephemeral"}}
    tools = [
        cc.tools.NativeTool(provider="anthropic", data={"name": f"web_{n}", "type": f"web_{n}", **mark}) for n in (1, 2)
    ]
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(CLAUDE))
    for index in range(3):
        compiler.store.append("c", cc.user(f"Question {index}."))
        compiled = compiler.compile("c", instructions=LONG, tools=tools, settings=mark)
        assert len(marked(compiled.params)) == 3  # and one for the whole
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("Yes."))
