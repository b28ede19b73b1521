"""Lines of a request by state, role, tool, cause, error, text and size; the system prompt and the tools as lines."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.compiler.history import HISTORY_TOOL_NAMES
from contextc.inspection.line_details import LineDetails, describe_parts, format_call, pair_details
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of

READ = cc.Tool(name="read_file", description="Read a file.", parameters={"type": "object", "properties": {}})
DECLINED = "Not run: the user declined."
MANY = 10_000


@pytest.fixture
def life(store: cc.Store) -> Life:
    """Three calls: one with a result, one that failed, one that was denied. Request 4 has all of them."""
    life = Life(store, provider_of(SONNET, window=50_000))
    life.tools = [*life.tools, READ]
    life.turn("what is in a.py?", _call(1, path="a.py", limit=20))
    store.append("demo", cc.tool_result("c1", "read_file", "code " * 400))
    life.answer(_call(2, path="b.py"))
    store.append("demo", cc.tool_result("c2", "read_file", "not found", is_error=True))
    life.answer(cc.assistant("so", reasoning="Hm, a thought.", tool_calls=[cc.tool_call("c3", "look", {})]))
    store.append("demo", cc.tool_result("c3", "look", DECLINED, is_error=True))
    life.answer("done")
    return life


@pytest.fixture
def ask(client: TestClient, life: Life) -> Asking:
    return Asking(client, life)


def _call(number: int, **arguments: object) -> cc.Message:
    return cc.assistant(f"reading {number}", tool_calls=[cc.tool_call(f"c{number}", "read_file", {**arguments})])


def lines(ask: Asking, number: int = 4, **query: Any) -> list[dict[str, Any]]:
    return ask.request(number, "/lines", **{"detailed": True, **query})["lines"]


def selection(ask: Asking, number: int = 4, **query: Any) -> dict[str, Any]:
    return ask.request(number, "/lines", detailed=True, selection=True, **query)["selection"]


def test_system_prompt_and_tools_come_first(ask: Asking) -> None:
    """Their tokens are those of the budget; messages keep the indexes that they have without them."""
    found = lines(ask, parts=True)
    head = [line for line in found if line["index"] < 0]
    assert [(each["role"], each["kind"], each.get("tool")) for each in head] == [
        ("tool", "tool", "look"),
        ("tool", "tool", "read_file"),
        ("tool", "tool", "fetch_result"),
        ("tool", "tool", "search_history"),
        ("system", "system", None),
    ]
    assert [each["index"] for each in found] == list(range(-5, len(found) - 5))
    assert [each["causes"] for each in head] == [["tool"], ["tool"], ["tool"], ["tool"], ["system"]]
    assert head[4]["text"] == "You are a coder."
    assert head[1]["text"] == "read_file: Read a file."
    body = ask.raw(f"requests/{ask.life.channel}/4/body").json()
    sent = [{name: value for name, value in each.items() if name != "cache_control"} for each in body["tools"]]
    assert [each["definition"] for each in head[:4]] == sent
    budget = ask.request(4)["budget"]
    assert head[4]["tokens"] == budget["system"]
    assert sum(each["tokens"] for each in head[:4]) == budget["tools"]
    assert sum(each["tokens"] for each in found) == budget["input"]
    plain = ask.request(4, "/lines")["lines"]
    names = plain[0].keys()
    assert [{name: each[name] for name in names} for each in found[5:]] == [
        {**each, "parts": detailed["parts"], "original_parts": detailed["original_parts"]}
        for each, detailed in zip(plain, found[5:], strict=True)
    ]
    assert "causes" not in plain[0]


@pytest.mark.parametrize("spec", ["openai-chat:gpt-4o", "openai:gpt-5", SONNET, "google:gemini-2.5-pro"])
def test_the_head_is_read_in_every_format(client: TestClient, store: cc.Store, spec: str) -> None:
    """In the order of the provider's cache. What precedes the first change is unchanged."""
    life = Life(store, provider_of(spec))
    life.turn("hi")
    life.tools = [*life.tools, READ]
    life.turn("more")
    found = lines(Asking(client, life), 2)
    head = [(each["text"], each["state"], each.get("again", False)) for each in found if each["index"] < 0]
    tools = [("look: Looks.", "shared", False), ("read_file: Read a file.", "new", False)]
    system = ("You are a coder.", "shared" if spec.startswith("google") else "new", not spec.startswith("google"))
    assert [each for each in head if not each[0].startswith(HISTORY_TOOL_NAMES)] == (
        [system, *tools] if spec.startswith("google") else [*tools, system]
    )
    life.tools = [cc.Tool(name="look", description="Looks around.", parameters={}), READ]
    life.turn("more")
    changed = [each["tool"] for each in lines(Asking(client, life), 3, state="changed")]
    assert changed == ["look"]


def test_calls_and_results_are_paired(ask: Asking) -> None:
    found = {line["index"]: line for line in lines(ask)}
    calls = [(index, each["calls"][0]) for index, each in found.items() if "calls" in each]
    assert [each["text"] for _, each in calls] == [
        'read_file(path="a.py",limit=20)'.replace(",", ", "),
        'read_file(path="b.py")',
        "look()",
    ]
    for index, each in calls:
        result = found[each["result"]]["results"][0]
        assert result["call"] == index
        assert result["name"] == each["name"]
        assert found[each["result"]]["tool"] == found[index]["tool"] == each["name"]
    statuses = [each["results"][0]["status"] for each in found.values() if "results" in each]
    assert statuses == ["ok", "error", "denied"]


def test_filters_are_combined(ask: Asking) -> None:
    def found(**query: Any) -> list[str]:
        return [each["text"] for each in lines(ask, **query)]

    assert len(found(tool="read_file")) == 5
    assert found(tool="read_file", error=True) == ["read_file: not found"]
    assert found(error=True, tool="look") == [f"look: {DECLINED}"]
    assert found(cause="reasoning") == ["so calls look({})"]
    assert found(cause="system") == ["You are a coder."]
    assert [each["role"] for each in lines(ask, role="user")] == ["user"]
    assert {each["state"] for each in lines(ask, state="unchanged")} == {"shared"}
    assert found(state="new", role="tool") == [f"look: {DECLINED}"]
    assert found(state="left") == []
    assert found(search="a thought") == ["so calls look({})"]
    assert found(search='PATH="a.py"') == ['reading 1 calls read_file({"path":"a.py","limit":20})']
    assert len(ask.request(4, "/lines", role="tool")["lines"]) == 3  # without the head
    assert len(lines(ask, role="tool")) == 7
    ask(f"requests/{ask.life.channel}/4/lines", 400, state="shiny")
    ask(f"requests/{ask.life.channel}/4/lines", 400, cause="luck")


def test_counts_are_of_the_lines_that_match_the_other_fields(ask: Asking) -> None:
    everything = selection(ask)
    assert everything["total"] == everything["selected"] == 13
    assert everything["head"] == 5
    assert "indexes" not in everything
    assert everything["tools"] == {"look": 3, "read_file": 5, "fetch_result": 1, "search_history": 1}
    assert everything["errors"] == 2
    assert everything["causes"]["result"] == 3
    assert sum(everything["states"].values()) == 13
    assert everything["prefix_end"] == next(each["index"] for each in lines(ask) if each["state"] == "new")
    chosen = selection(ask, tool="read_file", cause="result")
    assert chosen["indexes"] == [each["index"] for each in lines(ask, tool="read_file", cause="result")]
    assert chosen["tools"] == {"look": 1, "read_file": 2}
    assert chosen["causes"] == {"tool": 1, "history": 2, "result": 2}
    assert chosen["errors"] == 1


def test_the_largest_come_first(ask: Asking) -> None:
    sizes = [each["tokens"] for each in lines(ask, sort="size")]
    assert sizes == sorted(sizes, reverse=True)
    assert selection(ask, sort="size")["indexes"] == [each["index"] for each in lines(ask, sort="size")]


def test_lines_are_loaded_by_their_indexes(ask: Asking) -> None:
    found = lines(ask, at="3,-2..1,99")
    assert [each["index"] for each in found] == [3, -2, -1, 0, 1]
    assert [each["index"] for each in ask.request(4, "/lines", at="-2..1")["lines"]] == [0, 1]
    assert found[0] == lines(ask)[8]
    for wrong in ("a", "1..b", "0..1000", "0..999,1000"):
        assert "at" in ask(f"requests/{ask.life.channel}/4/lines", 400, at=wrong)["error"]["message"]


def test_shortened_and_left_out_are_apart(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(window=6_000))
    life.turn("look", cc.assistant(tool_calls=[cc.tool_call("a", "look", {})]))
    store.append("demo", cc.tool_result("a", "look", "x " * 6_000 + "a needle " + "x " * 6_000))
    life.answer()
    ask = Asking(client, life)
    (shortened,) = lines(ask, 2, state="shortened")
    assert shortened["reduction"] == "shortened"
    assert selection(ask, 2)["states"]["shortened"] == 1
    assert "needle" not in shortened["text"]
    assert selection(ask, 2, search="needle")["indexes"] == [
        shortened["index"]
    ]  # what was left out of it is found, too
    assert [each["index"] for each in ask.request(2, "/lines", search="Needle")["lines"]] == [shortened["index"]]
    for number in range(30):
        life.turn(f"{number} " + "so it goes " * 100)
    last = selection(ask, 32, state="left")
    assert last["selected"] == ask.request(32)["counts"]["left"] > 0
    assert {each["state"] for each in lines(ask, 32, state="left")} == {"left"}


def test_what_is_sent_again_is_not_new(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(SONNET, window=50_000))
    life.turn("hi")
    life.tools = [*life.tools, READ]
    life.turn("more")
    ask = Asking(client, life)
    assert [each["text"] for each in lines(ask, 2, state="again") if each["index"] >= 0] == ["hi"]
    assert "more" in [each["text"] for each in lines(ask, 2, state="new")]
    assert selection(ask, 2)["prefix_end"] == -4  # the added tool


def test_the_next_request_is_selected_alike(ask: Asking) -> None:
    answer = ask("next", detailed=True, selection=True, cause="tool")
    assert [each["tool"] for each in answer["lines"]] == ["look", "read_file", "fetch_result", "search_history"]
    assert {each["state"] for each in answer["lines"]} == {"shared"}
    assert answer["selection"]["indexes"] == [-5, -4, -3, -2]
    assert [each["index"] for each in ask("next", detailed=True, at="0..1")["lines"]] == [0, 1]
    assert "selection" not in ask("next")


def test_an_opened_file_has_the_same_fields(client: TestClient) -> None:
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    body: dict[str, Any] = {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look"},
            {"role": "assistant", "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}],
    }
    answer = client.post("/api/open", json={"text": json.dumps(body), "detailed": True}).json()
    found = answer["lines"]
    assert [(each["index"], each["role"], each["causes"]) for each in found] == [
        (0, "tool", ["tool"]),
        (1, "system", ["system"]),
        (2, "user", ["history"]),
        (3, "assistant", ["history"]),
        (4, "tool", ["result"]),
    ]
    assert found[0]["definition"] == body["tools"][0]
    assert found[3]["calls"] == [{"id": "c1", "name": "look", "text": 'look(at="x")', "result": 4}]
    assert found[4]["results"] == [{"call_id": "c1", "name": "look", "status": "ok", "call": 3}]
    assert sum(each["tokens"] for each in found) == answer["tokens"]
    plain = client.post("/api/open", json={"text": json.dumps(body)}).json()["lines"]
    assert len(plain) == 4
    assert "causes" not in plain[0]


def test_reused_call_ids_are_paired_in_order() -> None:
    """A result belongs to the last call before it that has its id; a result in the same message is paired too."""
    first = describe_parts([cc.tool_call("a", "one", {}), cc.ToolResult(call_id="a", name="", content="1")])
    second = describe_parts([cc.tool_call("a", "two", {})])
    later = describe_parts([cc.ToolResult(call_id="a", name="", is_error=True), cc.ToolResult(call_id="b", name="x")])
    found = pair_details([(0, first), (1, second), (2, later)])
    assert (found[0].calls[0].result, found[0].results[0].call) == (0, 0)
    assert found[1].calls[0].result == 2
    assert [(each.call, each.name) for each in found[2].results] == [(1, "two"), (None, "x")]
    assert found[2].is_error
    assert LineDetails(("history",)).tools == ()
    assert format_call(cc.tool_call("a", "run", "not json")) == "run(not json)"


@pytest.mark.thorough
def test_ten_thousand_lines_are_read_once_per_selection(client: TestClient, store: cc.Store) -> None:
    """A page of a filter loads its own lines and those near them, whatever the filter selects."""
    life = Life(store, provider_of(SONNET, window=10_000_000))
    some: list[cc.Message] = []
    for number in range(MANY // 4):
        some += [cc.user(f"question {number}"), _call(number, path="a.py")]
        some += [cc.tool_result(f"c{number}", "read_file", "code"), cc.assistant("so it goes")]
    store.extend("demo", some)
    life.turn("last")
    ask = Asking(client, life)
    found = selection(ask, 1, cause="result")
    assert found["selected"] == MANY // 4
    some_lines = lines(ask, 1, at=",".join(map(str, found["indexes"][::13][:190])), width=50)
    assert len(some_lines) == 190
    assert all(each["results"][0]["call"] == each["index"] - 1 for each in some_lines)


def test_unchanged_lines_that_were_not_read_from_the_cache_are_paid_again(client: TestClient, store: cc.Store) -> None:
    """The prefix is the same in all requests. The usage tells what of it the provider read."""
    life = Life(store, provider_of(SONNET, window=50_000))
    life.turn("one " * 2_000, "two " * 2_000, usage=cc.Usage(input=2_100, output=2_000, cache_write=2_100))
    ask = Asking(client, life)

    def next_request(read: int) -> tuple[list[str], dict[str, int], int | None]:
        usage = cc.Usage(input=4_500, output=5, cache_read=read, cache_write=4_500 - read)
        life.turn("more", usage=usage)
        number = ask("timeline")["requests"][-1]["request"]
        found = lines(ask, number)
        assert all(each["state"] == "shared" for each in found if each.get("paid_again"))
        paid = [each["text"][:3] for each in found if each.get("paid_again")]
        selected = selection(ask, number)
        assert [each["text"][:3] for each in lines(ask, number, state="paid_again")] == paid
        return paid, selected["states"], ask.request(number)["shared"]["read"]

    paid, states, read = next_request(4_300)
    assert (paid, "paid_again" in states) == ([], False)
    assert read == ask.request(2)["shared"]["tokens"]
    paid, states, read = next_request(2_300)  # the cache of the second half expired
    assert "two" in paid
    assert "one" not in paid
    assert read is not None
    assert 0 < read < ask.request(3)["shared"]["tokens"]
    paid, states, read = next_request(0)
    assert {"You", "one", "two"} <= {*paid}
    assert (states["paid_again"], read) == (states["unchanged"], 0)
    life.turn("unknown", usage=None)
    assert ask.request(5)["shared"]["read"] is None
    assert [each for each in lines(ask, 5) if each.get("paid_again")] == []
