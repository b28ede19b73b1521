"""Composition by cause: of one request, and of all requests of a conversation."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.analysis.cost_by_content import conversation_costs
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.traces import Trace, load
from tests.analysis.traces.measure import record
from tests.conftest import some
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of

OUTPUT = ("answer", "answer_reasoning")


def get(client: TestClient, path: str) -> Any:
    answered = client.get(f"/api{path}")
    assert answered.status_code == 200, answered.text
    return answered.json()


def compositions(client: TestClient, name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each request of a conversation with its composition."""
    for step in get(client, f"/conversations/{name}/timeline")["requests"]:
        at = f"/conversations/{name}/requests/{step['channel']}/{step['request']}"
        yield get(client, at), get(client, f"{at}/composition")


def check_tree(node: dict[str, Any]) -> None:
    """Children add up to their parent, and charged tokens to all tokens."""
    if node["cached"] is not None:
        assert node["cached"] + node["written"] + node["uncached"] == node["tokens"]
        assert min(node["cached"], node["written"], node["uncached"]) >= 0
    if "children" in node:
        assert sum(each["tokens"] for each in node["children"]) == node["tokens"]
        if node["cost"] is not None:
            assert sum(each["cost"] for each in node["children"]) == pytest.approx(node["cost"])
        for each in node["children"]:
            assert each["cause"] == node["cause"]
            check_tree(each)


def check(client: TestClient, store: cc.Store, conversation: str) -> None:
    """The sums are those of the budget and of the findings, for each request and for all."""
    costs = {(each.channel, each.request): each for each in conversation_costs(store, conversation).requests}
    name = quote(conversation, safe="")
    whole = get(client, f"/conversations/{name}/composition")
    rows = {(each["channel"], each["number"]): each for each in whole["requests"]}
    for request, found in compositions(client, name):
        key, budget = (request["channel"], request["number"]), request["budget"]
        tokens = {each["cause"]: each["tokens"] for each in found["causes"]}
        assert sum(tokens.values()) == found["tokens"] == budget["input"], key
        assert found["how"] == budget["how"]
        for cause, kind in (("system", "system"), ("tool", "tools")):
            assert tokens.get(cause, budget[kind]) == budget[kind]
        assert dict(zip(whole["causes"], rows[key]["tokens"], strict=True)) == {
            cause: tokens.get(cause, 0) for cause in whole["causes"]
        }
        for each in found["causes"]:
            check_tree(each)
        own, sums = costs[key], dict[str, float]()
        for line in own.lines:
            if line.kind not in OUTPUT:
                sums[line.kind] = sums.get(line.kind, 0.0) + line.tokens
        for cause, sum_ in sums.items():
            assert tokens.get(cause, 0) == pytest.approx(sum_, abs=5), cause
        assert (found["cost"] is None) == (own.cost is None)
        if own.cost is not None:
            assert found["cost"] == pytest.approx(own.cost)
            for each in found["causes"]:
                lines = [line.cost or 0.0 for line in own.lines if line.kind == each["cause"]]
                assert each["cost"] == pytest.approx(sum(lines))
    assert whole["costs"] == get(client, f"/conversations/{name}/findings")["costs"]


def observed(store: cc.Store) -> ObservedRun:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 300)], system=words(500, "s"), store=store)
    run.ask("Look.")
    run.call("read", words(3_000), path="a.txt")
    run.call("read", words(200, "b"), path="b.txt")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    run.call("draw", [picture, {"type": "text", "text": "a picture"}])
    run.send({"type": "thinking", "thinking": words(80, "t"), "signature": "s"}, {"type": "text", "text": "So."})
    run.ask("And now?")
    run.fail(529, "Overloaded")
    run.send()
    return run


def test_an_observed_request_by_cause(client: TestClient, store: cc.Store) -> None:
    run = observed(store)
    check(client, store, run.conversation)
    *_, (request, found) = compositions(client, run.conversation)
    causes = {each["cause"]: each for each in found["causes"]}
    assert [*causes] == ["system", "tool", "result", "history", "reasoning", "media"]
    assert {each["name"] for each in causes["tool"]["children"]} == {"read", "draw"}
    results = causes["result"]
    assert (results["tool"], [each["name"] for each in results["children"]]) == ("read", ["read"])
    large, small = results["children"][0]["children"]
    assert (large["name"], small["name"]) == ("a.txt", "b.txt")
    assert large["tokens"] > 10 * small["tokens"]
    parts = {each["name"]: each for each in causes["history"]["children"]}
    assert {*parts} == {"user", "assistant", "calls"}
    assert {each["name"] for each in parts["calls"]["children"]} == {"read", "draw"}
    at = f"/conversations/{run.conversation}/requests/{request['channel']}/{request['number']}"
    lines = get(client, f"{at}/lines")["lines"]
    assert words(3_000)[:40] in lines[large["line"]]["text"]
    assert words(200, "b")[:40] in lines[small["line"]]["text"]
    assert lines[causes["reasoning"]["line"]]["role"] == "assistant"


def test_a_failed_request_is_estimated(client: TestClient, store: cc.Store) -> None:
    run = observed(store)
    (failed,) = [found for _, found in compositions(client, run.conversation) if found["cost"] is None]
    assert failed["how"] == "estimated"
    assert {each["cached"] for each in failed["causes"]} == {None}
    assert failed["answer"] == []
    rows = get(client, f"/conversations/{run.conversation}/composition")["requests"]
    assert [each["number"] for each in rows if each.get("estimated")] == [failed["number"]]


@pytest.mark.parametrize("spec", ["openai-chat:gpt-4o", SONNET, "gemini:gemini-2.5-pro", "openai:gpt-5"])
def test_a_compiled_request_by_cause(client: TestClient, store: cc.Store, spec: str) -> None:
    """The provider counts differently, so budgets are calibrated. Several results are sent at once."""
    life = Life(store, provider_of(spec, window=60_000))
    calls = [cc.tool_call("a", "look", {"path": "x.txt"}), cc.tool_call("b", "dig", {})]
    life.turn("look " * 50, cc.assistant("so", tool_calls=calls), cc.Usage(input=900, output=20))
    store.extend("demo", [cc.tool_result("a", "look", "first " * 300), cc.tool_result("b", "dig", "second " * 40)])
    life.answer(usage=cc.Usage(input=3_000, output=9, cache_read=700, cache_write=100))
    life.turn("more", usage=cc.Usage(input=3_400, output=9, cache_read=2_900))
    check(client, store, "demo")
    ask = Asking(client, life)
    lines = ask.request(3, "/lines")["lines"]
    causes = {each["cause"]: each for each in ask.request(3, "/composition")["causes"]}
    assert {each["name"]: lines[each["line"]]["text"].split()[-1] for each in causes["result"]["children"]} == {
        "look": "first", "dig": "second",
    }  # fmt: skip
    assert causes["history"]["children"][0]["name"] == "user"


def test_fragments_of_the_system_prompt(client: TestClient, store: cc.Store) -> None:
    life = Life(store)
    life.fragments = (cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("rules", "Be brief. " * 90))
    life.turn("hi", usage=cc.Usage(input=900, output=9))
    check(client, store, "demo")
    system = Asking(client, life).request(1, "/composition")["causes"][0]
    assert [each["name"] for each in system["children"]] == ["rules", "identity"]


def test_small_parts_are_merged(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(window=200_000))
    for number in range(120):
        store.extend("demo", [cc.user(f"question {number}"), cc.assistant("answer " * (number + 1))])
    life.turn("last", usage=cc.Usage(input=20_000, output=9))
    check(client, store, "demo")
    history = Asking(client, life).request(1, "/composition")["causes"][-1]
    answers = next(each for each in history["children"] if each["name"] == "assistant")["children"]
    assert len(answers) == 51
    assert answers[-1]["merged"] == 70
    assert "line" not in answers[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("share", some([0, 1, 2], 1))
def test_traces_of_all_clients(client: TestClient, store: cc.Store, share: int) -> None:
    for trace in some(load("tune")[share * 9 :: 27], 4):
        _check_trace(client, store, trace)


def _check_trace(client: TestClient, store: cc.Store, trace: Trace) -> None:
    for name in dict.fromkeys([each.conversation for each in record(store, trace)]):
        check(client, store, name)


def test_unknown_requests_are_not_found(client: TestClient, store: cc.Store) -> None:
    assert client.get("/api/conversations/nope/composition").status_code == 404
    life = Life(store)
    life.turn("hi")
    assert Asking(client, life).raw(f"requests/{life.channel}/7/composition").status_code == 404
    assert Asking(client, life).raw("requests/none/1/composition").status_code == 404
    store.append("empty", cc.user("hi"))
    assert get(client, "/conversations/empty/composition")["requests"] == []


@pytest.mark.thorough
def test_two_thousand_requests(client: TestClient, store: cc.Store) -> None:
    """Small enough for a page, also when it is analysed again."""
    life = Life(store, provider_of(SONNET, window=1_000_000))
    store.append("demo", cc.user("begin"))
    for number in range(2_000):
        call = cc.tool_call(f"c{number}", "look", {})
        life.answer(cc.assistant(tool_calls=[call]), cc.Usage(input=1_000 + 60 * number, output=9))
        store.append("demo", cc.tool_result(f"c{number}", "look", "so it goes " * 8))
    assert len(get(client, "/conversations/demo/composition")["requests"]) == 2_000
    answered = client.get("/api/conversations/demo/composition")
    assert len(answered.content) < 250_000


def test_one_result_has_one_size(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: in the bar, the treemap, the rows, the finding and the session; also beside other messages of one
    ledger row.
    """
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 300)], system=words(500, "s"), store=store)
    run.ask("Look.")
    run.send({"type": "text", "text": words(70, "x")}, *[_use(name, "read") for name in "ab"], stop="tool_use")
    contents = {"a": words(9_000, "ä") + "{}[]" * 900, "b": "well " * 90}
    results = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in contents.items()]
    run.messages.append({"role": "user", "content": [*results, {"type": "text", "text": "And?"}]})
    for _ in range(3):
        run.send()
        run.ask("More.")
    run.send()
    *_, (request, found) = compositions(client, run.conversation)
    causes = {each["cause"]: each for each in found["causes"]}
    at = f"/conversations/{run.conversation}/requests/{request['channel']}/{request['number']}"
    lines = get(client, f"{at}/lines?detailed=true")["lines"]
    messages = [each for each in lines if each["index"] >= 0]
    for cause in ("system", "tool", "result", "history"):
        own = [each["tokens"] for each in lines if cause in each["causes"]]
        assert sum(own) == causes[cause]["tokens"], cause
    tools = {each["name"]: each["tokens"] for each in causes["tool"]["children"]}
    assert tools == {each["tool"]: each["tokens"] for each in lines if each["kind"] == "tool"}
    parts = causes["result"]["children"][0]["children"]
    large = parts[0]
    assert {each["line"] for each in parts} == {2}  # one message has both results
    assert messages[2]["tokens"] == sum([each["tokens"] for each in parts])
    (finding,) = [each for each in get(client, f"/conversations/{run.conversation}/findings")["findings"]
                  if each["cause"] == "large_result"]  # fmt: skip
    assert finding["tokens"] == large["tokens"]
    assert f"{large['tokens']:,} tokens in request {request['number']}," in finding["title"]
    ledger = get(client, f"/conversations/{run.conversation}/channels/{request['channel']}/ledger")
    assert ledger["request"] == request["number"]
    assert [each.get("counted") for each in ledger["known"]] == [*[each["tokens"] for each in messages], None]


def _use(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"path": f"{id}.txt"}}
