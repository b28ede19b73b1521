"""Comparison of any two requests in cache order, and of two conversations."""

import random
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc._sequence_comparison import align
from contextc.analysis.request_comparison import MAX_DIFFERENCES, ComparedItem, align_items
from contextc.inspection.diff import MAX_CHANGE, diff_texts
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of

DIG = cc.Tool(name="dig", description="Digs.\nDeep.", parameters={"type": "object", "properties": {}})


def shown(difference: dict[str, Any]) -> str:
    """The text of a difference with its marks."""
    marks = {"removed": "[-{}-]", "added": "[+{}+]", "same": "{}", "folded": "<{}>", "cut": "<cut {}>"}
    return "".join(
        [marks[each["kind"]].format(each.get("text") or each.get("count")) for each in difference["segments"]]
    )


def test_an_extended_request_breaks_nothing(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(SONNET))
    life.turn("hi")
    life.turn("more\nthan one line")
    found = Asking(client, life).request(2, "/comparison")
    assert found["before"]["request"] == 1
    assert found["after"]["request"] == 2
    assert found["break_index"] is None
    assert found["lost"] == 0
    assert found["shares_cache"]
    assert {each["kind"] for each in found["differences"]} == {
        "added"
    }  # cache breakpoints that moved are no difference
    assert "[+more\nthan one line+]" in [shown(each) for each in found["differences"]]
    assert found["differences"][0]["unchanged"] == found["unchanged"] > 0
    first = Asking(client, life).request(1, "/comparison")
    assert first["before"] is None
    assert first["differences"] == []


def test_the_first_difference_in_cache_order_is_the_break(client: TestClient, store: cc.Store) -> None:
    """The system prompt comes before the messages, wherever it is in the JSON."""
    life = Life(store, provider_of(SONNET))
    life.fragments = (cc.PromptFragment("identity", "You are a coder. It is 12:30 now.\nBe brief."),)
    life.turn("hi " * 500, usage=cc.Usage(input=800, output=5, cache_write=800))
    life.fragments = (cc.PromptFragment("identity", "You are a coder. It is 12:31 now.\nBe brief."),)
    life.turn("more", usage=cc.Usage(input=900, output=5, cache_write=900))
    found = Asking(client, life).request(2, "/comparison")
    culprit = found["differences"][found["break_index"]]
    assert found["break_index"] == 0
    assert (culprit["section"], culprit["kind"], culprit["is_break"]) == ("system", "changed", True)
    assert shown(culprit) == "You are a coder. It is 12:[-30-][+31+] now.\nBe brief."
    assert culprit["note"] == "it contains the time"
    assert found["reason"] == "The system prompt changed: it contains the time."
    assert found["fix"].startswith("Move the time")
    assert 300 < found["lost"] <= 900
    assert found["cost"] > 0
    assert found["readable"] == 0  # no breakpoint is before the system prompt


def test_tools_are_compared_by_name(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(SONNET))
    other = cc.Tool(name="ask", description="Asks.", parameters={"type": "object", "properties": {}})
    life.tools = [*life.tools, DIG, other]
    life.turn("hi")
    look = cc.Tool(name="look", description="Looks around.", parameters={"type": "object", "properties": {}})
    life.tools = [DIG, look]
    life.turn("more")
    found = Asking(client, life).request(2, "/comparison")
    tools = [each for each in found["differences"] if each["section"] == "tools"]
    assert {(each["kind"], each["name"]) for each in tools} == {("changed", "look"), ("removed", "ask")}
    (changed,) = [each for each in tools if each["kind"] == "changed"]
    assert "Looks[+ around+]" in shown(changed)
    assert found["differences"][found["break_index"]]["section"] == "tools"


def test_another_order_of_tools_is_one_difference(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(SONNET))
    life.tools = [*life.tools, DIG]
    life.turn("hi")
    store.append("demo", cc.user("more"))
    compiled = life.compile()
    compiled.replace({**compiled.params, "tools": [*reversed(compiled.params["tools"])]})
    life.compiler.commit(compiled, cc.assistant("done"))
    found = Asking(client, life).request(2, "/comparison")
    (order,) = [each for each in found["differences"] if each["section"] == "tools"]
    assert (order["kind"], order["is_break"]) == ("reordered", True)
    assert found["reason"] == "The tools have another order."
    assert found["break_index"] == 0


def test_any_other_request_can_be_compared(client: TestClient, store: cc.Store) -> None:
    life, other = Life(store), Life(store, name="other")
    for one, text in ((life, "one"), (other, "two")):
        one.turn("hi")
        one.turn(text)
    ask = Asking(client, life)
    back = ask.request(1, "/comparison", to_request=2)
    assert {each["kind"] for each in back["differences"]} == {"removed"}
    assert back["break_index"] is None
    assert (back["readable"], back["lost"], back["cost"]) == (None, None, None), "a later request left no cache for it"
    there = ask.request(2, "/comparison", to_conversation="other", to_channel=other.channel, to_request=2)
    assert there["before"]["conversation"] == "other"
    key, word = there["differences"]
    assert "prompt_cache_key" in key["before"], "each conversation has its own"
    assert shown(word) == "[-two-][+one+]"
    lines = ask.request(2, "/diff", to_conversation="other", to_channel=other.channel, to_request=2)
    assert lines["before"] == 2
    assert any('"two"' in line for hunk in lines["hunks"] if hunk["kind"] == "removed" for line in hunk["lines"])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"to_channel": "nobody", "to_request": 1}, 404),
        ({"to_conversation": "nowhere", "to_channel": "x", "to_request": 1}, 404),
        ({"to_conversation": "nowhere", "to_request": 1}, 400),
        ({"to_request": 99}, 404),
        ({"to_request": -1}, 400),
        ({"to_conversation": "demo"}, 400),
    ],
)
def test_a_wrong_other_request_is_an_error(
    client: TestClient, store: cc.Store, query: dict[str, object], status: int
) -> None:
    life = Life(store)
    life.turn("hi")
    for rest in ("/comparison", "/diff"):
        assert Asking(client, life).request(1, rest, status=status, **query)["error"]["message"]


def test_requests_of_different_formats_are_compared_as_messages(client: TestClient, store: cc.Store) -> None:
    one = Life(store)
    two = Life(store, provider_of(SONNET), "other")
    for life, word in ((one, "north"), (two, "south")):
        life.fragments = life.fragments[:1]
        call = cc.assistant("so", tool_calls=[cc.tool_call(f"call-{word}", "look", {"where": "here"})])
        life.turn("look", call)
        store.append(life.name, cc.tool_result(f"call-{word}", "look", f"a tree\nto the {word}"))
        life.answer()
    found = Asking(client, one).request(2, "/comparison", to_conversation="other", to_channel=two.channel, to_request=2)
    assert found["as_messages"]
    assert not found["shares_cache"]
    assert found["lost"] is None
    content = [each for each in found["differences"] if each["section"] != "settings"]
    assert [(each["type"], shown(each)) for each in content] == [("tool_result", "a tree\nto the [-south-][+north+]")]
    assert content[0]["is_break"]


def test_settings_say_whether_they_matter_to_the_cache(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(SONNET))
    life.turn("hi")
    store.append("demo", cc.user("more"))
    compiled = life.compile()
    compiled.replace({**compiled.params, "max_tokens": 7, "tool_choice": {"type": "any"}})
    life.compiler.commit(compiled, cc.assistant("done"))
    found = Asking(client, life).request(2, "/comparison")
    settings = {each["name"]: each["note"] for each in found["differences"] if each["section"] == "settings"}
    assert settings["max_tokens"] == "does not affect the cache"
    assert settings["tool_choice"] == "invalidates the messages"
    assert "cache_control" not in settings


def test_two_conversations_are_compared(client: TestClient, store: cc.Store) -> None:
    one, two = Life(store, provider_of(SONNET)), Life(store, provider_of(SONNET), "other")
    for life in (one, two):
        life.turn("hi", usage=cc.Usage(input=500, output=9))
    one.turn("left", usage=cc.Usage(input=600, output=9, cache_read=500))
    two.turn("right", usage=cc.Usage(input=600, output=9))
    two.turn("more", usage=cc.Usage(input=700, output=9))
    found = client.get("/api/compare", params={"a": "demo", "b": "other"}).json()
    assert (found["a"]["requests"], found["b"]["requests"]) == (2, 3)
    assert (found["a"]["input"], found["b"]["input"]) == (1_100, 1_800)
    assert found["a"]["cache_share"] > found["b"]["cache_share"]
    assert found["b"]["cost"] > found["a"]["cost"] > 0
    assert found["first"]["position"] == 2
    assert (found["first"]["a"]["request"], found["first"]["b"]["request"]) == (2, 2)
    assert found["first"]["reason"] == "The user message changed: its text changed."
    assert found["costs"]
    same = client.get("/api/compare", params={"a": "demo", "b": "demo"}).json()
    assert same["first"] is None
    assert client.get("/api/compare", params={"a": "demo", "b": "nowhere"}).status_code == 404
    assert client.get("/api/compare", params={"a": "demo"}).status_code == 400


def test_what_costs_most_is_named_and_not_only_what_differs_first(client: TestClient, store: cc.Store) -> None:
    """Both runs differ first by a tool, which costs little. The time in the system prompt of one costs the money."""
    clocked, other = Life(store, provider_of(SONNET), "clocked"), Life(store, provider_of(SONNET), "other")
    clocked.tools = [cc.Tool(name="dig", description="Dig."), *clocked.tools]
    for minute in (30, 31, 32):
        text = f"It is 12:{minute} now. " + "Look twice before you change a file. " * 700
        clocked.fragments = (cc.PromptFragment("identity", text),)
        other.fragments = (cc.PromptFragment("identity", text.partition("now.")[2]),)
        read = 5_900 if minute > 30 else 0
        clocked.turn(f"question {minute}", usage=cc.Usage(input=6_000, output=5, cache_write=6_000))
        other.turn(
            f"question {minute}", usage=cc.Usage(input=6_000, output=5, cache_read=read, cache_write=6_000 - read)
        )
    for names in (("clocked", "other"), ("other", "clocked")):
        found = client.get("/api/compare", params=dict(zip("ab", names, strict=True))).json()
        assert "dig" in found["first"]["reason"]
        most = found["costliest"]
        assert most["title"] == "The system prompt changed: it contains the time"
        side = names.index("clocked")
        assert most["cost_" + "ab"[side]] > most["cost_" + "ba"[side]] == 0
        cause = next(each for each in found["causes"] if each["code"] == most["code"])
        assert cause["ab"[side]]["cost"] == most["cost_" + "ab"[side]]
    same = client.get("/api/compare", params={"a": "other", "b": "other"}).json()
    assert same["costliest"] is None


def test_ids_of_calls_are_no_difference_between_two_runs(client: TestClient, store: cc.Store) -> None:
    """Models choose them, so they are others in each run."""
    for provider in (provider_of(SONNET), provider_of()):
        name = provider.name
        lives = [Life(store, provider, f"{name} {each}") for each in ("one", "two")]
        for number, life in enumerate(lives):
            for step in range(2):
                call = cc.tool_call(f"call_{number}{step}", "look", {"path": "a.py"})
                life.turn("look", cc.assistant("so", tool_calls=[call]))
                store.append(life.name, cc.tool_result(call.id, "look", "print(1)"))
                life.answer("it prints 1")
        asked = {"a": lives[0].name, "b": lives[1].name}
        only_ids = client.get("/api/compare", params=asked).json()["first"]
        assert only_ids["position"] == 2
        assert only_ids["reason"] == "The tool call look changed: only the id of the call differs."
        lives[0].turn("and b.py?")
        lives[1].turn("and c.py?")
        later = client.get("/api/compare", params=asked).json()["first"]
        assert later["position"] == 5
        assert later["reason"] == "The user message changed: its text changed."


def test_a_shorter_run_differs_where_it_ends(client: TestClient, store: cc.Store) -> None:
    one, two = Life(store), Life(store, name="other")
    one.turn("hi")
    two.turn("hi")
    two.turn("more")
    found = client.get("/api/compare", params={"a": "demo", "b": "other"}).json()["first"]
    assert (found["position"], found["a"], found["b"]["request"]) == (2, None, 2)


def test_unrelated_conversations_are_recognised(client: TestClient, store: cc.Store) -> None:
    def first(name: str, text: str) -> dict[str, Any]:
        cc.observe(
            store, format="anthropic", conversation=name, reply=claude_answer("ok"),
            request=claude(text, system="You are an agent."),
        )  # fmt: skip
        return client.get("/api/compare", params={"a": "trip", "b": name}).json()["first"]

    first("trip", "Plan a trip to Lisbon for three days in May.")
    other = first("logs", "Why does the log contain so many errors?")
    assert (other["position"], other["related"], other["equal"]) == (1, False, 2)  # the tool and the system prompt
    assert other["equal_tokens"] > 0
    alike = first("trip later", "Plan a trip to Lisbon for three days in June.")
    assert (alike["related"], alike["equal"]) == (True, 2)


# ── size ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def item(text: str) -> ComparedItem:
    return ComparedItem(
        section="messages", type="text", role="user", name="", call="", key=text.encode(), path="", tokens=1, shown=text
    )


def test_ten_thousand_items_are_aligned() -> None:
    chance = random.Random(8)
    before = [f"message {number}" if number % 3 else "ok" for number in range(10_000)]
    after = [f"{text}!" if chance.random() < 0.5 else text for text in before]
    found = align_items([item(each) for each in before], [item(each) for each in after])
    assert found.unchanged > 3_000
    assert found.unchanged + len(found.changes) >= 10_000


def test_many_differences_are_bounded(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(window=2_000_000))
    life.turn("hi")
    for number in range(700):
        store.append("demo", cc.user(f"{number}"))
        store.append("demo", cc.assistant(f"answer {number}"))
    store.append("demo", cc.user("x" * 2 * MAX_CHANGE))
    life.answer()
    found = Asking(client, life).request(2, "/comparison")
    assert len(found["differences"]) == MAX_DIFFERENCES
    assert found["omitted"] > 900
    assert found["cut"]


def test_a_long_text_is_cut_and_folded() -> None:
    (text, cut) = diff_texts("", "y" * 3 * MAX_CHANGE)
    assert (len(text.text), cut.kind, cut.count) == (MAX_CHANGE, "cut", 2 * MAX_CHANGE)
    before = "start " + "word " * 500_000 + "old end"
    found = diff_texts(before, before.replace("old", "new"))
    assert [each.kind for each in found] == ["folded", "same", "removed", "added", "same"]
    assert [each.text for each in found[2:4]] == ["old", "new"]


def test_segments_are_both_texts() -> None:
    """What is same and removed is the first text, what is same and added is the second one."""
    chance = random.Random(5)
    for _ in range(300):
        before, after = (
            "".join(
                [chance.choice(["a ", "b ", "c\n", "d", ".", " ", "é", "\n"]) for _ in range(chance.randint(0, 30))]
            )
            for _ in range(2)
        )
        found = diff_texts(before, after)
        assert "".join([each.text for each in found if each.kind in ("same", "removed")]) == before
        assert "".join([each.text for each in found if each.kind in ("same", "added")]) == after


def test_alignment_finds_runs_that_are_unique_only_between_others() -> None:
    assert list(align("xaxbx", "xbxax")) != []
    runs = list(align(["k", "m", "1", "k", "n", "1"], ["k", "m", "2", "k", "n", "2"]))
    assert runs == [(0, 0, 2), (3, 3, 2)]


def anthropic_request(system: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    mark = {"cache_control": {"type": "ephemeral"}}
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "tools": [tool],
        "system": [{"type": "text", "text": system, **mark}],
        "messages": [*messages[:-1], {**messages[-1], "content": [{**messages[-1]["content"][0], **mark}]}],
    }


def anthropic_reply(read: int, written: int) -> dict[str, Any]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "done"}], "usage": {**usage, "output_tokens": 5},
    }  # fmt: skip


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def test_a_comparison_has_the_figures_of_the_finding(client: TestClient, store: cc.Store) -> None:
    """Without a breakpoint after the tools, nothing of them can be read: the whole prefix is lost."""
    messages = [said("user", "hi")]
    for minute in (30, 31):
        system = f"It is 12:{minute} now. " + "Answer in few words. " * 900
        request = anthropic_request(system, messages)
        began = minute * 60_000
        cc.observe(
            store, request=request, reply=anthropic_reply(0, 4_600), format="anthropic", conversation="x",
            time=began, ended=began + 900,
        )  # fmt: skip
        messages = [*messages, said("assistant", "done"), said("user", "more")]
    (finding,) = [
        each
        for each in client.get("/api/conversations/x/findings").json()["findings"]
        if each["cause"] == "system_changed"
    ]
    channel = finding["evidence"][0]["channel"]
    found = client.get(f"/api/conversations/x/requests/{channel}/2/comparison").json()
    assert (found["lost"], found["cost"]) == (finding["tokens"], finding["cost"])
    assert found["readable"] == 0
    lines = client.get(f"/api/conversations/x/requests/{channel}/2/lines?detailed=true").json()["lines"]
    assert [(each["role"], each.get("paid_again"), each.get("changed")) for each in lines[:2]] == [
        ("tool", True, None),
        ("system", None, True),
    ]


def test_a_corrected_retry_is_compared_with_the_answered_request(client: TestClient, store: cc.Store) -> None:
    """A refused request was not cached, so its correction loses nothing."""
    system = "Answer in few words. " * 900
    messages = [said("user", "hi"), said("assistant", "done"), said("user", "more")]
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "tool_use without tool_result"}}
    wrong = [*messages[:1], said("assistant", "done"), said("user", "wrong")]
    tries = [
        (messages[:1], anthropic_reply(0, 4_600), 200),
        (wrong, error, 400),
        (messages, anthropic_reply(4_600, 20), 200),
    ]  # fmt: skip
    for number, (sent, reply, status) in enumerate(tries):
        cc.observe(
            store, request=anthropic_request(system, sent), reply=reply, format="anthropic", conversation="x",
            time=number * 10_000 + 1, ended=number * 10_000 + 900, status=status,
        )  # fmt: skip
    steps = client.get("/api/conversations/x/timeline").json()["requests"]
    assert [(each["reset"], each.get("retry_of"), each.get("corrected")) for each in steps] == [
        (True, None, None),
        (False, None, None),
        (False, 2, True),
    ]
    base = f"/api/conversations/x/requests/{steps[0]['channel']}"
    found = client.get(f"{base}/3/comparison").json()
    assert (found["before"]["request"], found["break_index"], found["lost"]) == (1, None, 0)
    shared = client.get(f"{base}/3").json()["shared"]
    assert (shared["broke"]["where"], shared["broke"]["why"]) == ("", "")
    refused = client.get(f"{base}/2/reply").json()["attempts"]
    assert [(each["number"], each["corrected"], each["status"]) for each in refused] == [(3, True, "ok")]
