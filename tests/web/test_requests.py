"""All endpoints about a request, for conversations with every kind of content."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSON, JSONObject, encode
from tests.compiler.session_conversation import Talk, keeper
from tests.web.sample_conversations import GPT, SONNET, Asking, Life, provider_of

FORMATS = (GPT, SONNET, "openai:gpt-5.2", "gemini:gemini-2.5-pro")
KINDS = ("system", "tools", "overhead", "dynamic", "history", "new", "reserve", "margin", "free")


@pytest.fixture(params=FORMATS)
def busy(request: pytest.FixtureRequest, store: cc.Store) -> Life:
    """A store with a tool, an error, messages of another agent, an edit, other tools, and too small a window."""
    life = Life(store, provider_of(request.param, window=3_600))
    store.extend(
        "demo", [cc.assistant("half", status="error", error="overloaded"), cc.system("psst", audience="tester")]
    )
    life.turn("look", cc.assistant("so", tool_calls=[cc.tool_call("a", "look", {})]), cc.Usage(input=900, output=20))
    store.append("demo", cc.tool_result("a", "look", "line of output " * 20))
    life.answer(usage=cc.Usage(input=1_100, output=9, cache_read=800))
    life.turn("more")
    store.edit("demo", store.conversation("demo").length - 1, cc.user("something else"))
    life.answer()
    life.tools = [
        *life.tools,
        cc.Tool(name="dig", description="Digs.", parameters={"type": "object", "properties": {}}),
    ]
    life.turn("dig")
    for number in range(6):
        life.turn(f"{number} " + "so it goes " * 130)
    return life


def numbers(life: Life) -> Iterator[int]:
    return iter(range(1, len(life.store.read(lambda tx: tx.rows("SELECT 1 FROM main.manifest"))) + 1))


# ── the budget ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_budget_by_kind_is_the_whole_window(client: TestClient, busy: Life) -> None:
    """Guarantees 7.1, 13.1: static, tools, dynamic, history, new, reserve, margin and what is free add up, in every
    request.
    """
    ask = Asking(client, busy)
    for number in numbers(busy):
        answer = ask.request(number)
        budget = answer["budget"]
        assert sum(budget[kind] for kind in KINDS) == budget["window"] == 3_600
        assert budget["overhead"] + budget["dynamic"] + budget["history"] + budget["new"] == budget["used"]
        assert min(budget[kind] for kind in KINDS) >= 0
        assert budget["new"] > 0
        assert answer["counts"]["lines"] == answer["counts"]["shown"] + answer["counts"]["left"]


def test_a_budget_of_ones_own_is_what_it_adds_up_to(client: TestClient, store: cc.Store) -> None:
    """Guarantee 7.1: a limit below the window is the room there is."""
    life = Life(store)
    life.turn("hi", max_input_tokens=2_000)
    budget = Asking(client, life).request(1)["budget"]
    assert budget["limit"] == sum(budget[kind] for kind in KINDS) == 2_000


def test_history_is_what_was_sent_before_and_new_is_the_rest(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: the model's own reply and what came after it are new; what was sent before stays history in a
    cut.
    """
    life = Life(store, provider_of(window=2_600))
    life.turn("hi", "hello there")
    life.turn("more")
    ask = Asking(client, life)
    lines = {line["seq"]: line["tokens"] for line in ask.request(2, "/lines")["lines"] if line["kind"] == "message"}
    budget = ask.request(2)["budget"]
    assert (budget["history"], budget["new"]) == (lines[1], lines[2] + lines[3])
    assert budget["how"] == "exact"
    assert ask.request(1)["budget"]["history"] == 0
    number = 2
    while (answer := ask.request(number))["why"] != "over budget":
        life.turn("so it goes " * 60)
        number += 1
    last = max(line["seq"] for line in ask.request(number, "/lines", only="shown")["lines"])
    fresh = [line for line in ask.request(number, "/lines", only="shown")["lines"] if line["seq"] >= last - 1]
    assert answer["budget"]["new"] == sum(line["tokens"] for line in fresh if line["kind"] == "message")
    assert answer["budget"]["history"] > 0


# ── the prefix ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_that_continues_breaks_nothing(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.2: all of the request before is in it, to the byte."""
    life = Life(store)
    life.turn("hi")
    life.turn("more")
    shared = Asking(client, life).request(2)["shared"]
    assert shared["broke"] == {"where": "", "path": "", "why": "", "line": None}
    assert 0 < shared["bytes"] < shared["of_bytes"]
    first = Asking(client, life).request(1)["shared"]
    assert (first["tokens"], first["bytes"], first["broke"]["where"]) == (0, 0, "")
    assert first["broke"]["why"] == "This is the first request of its channel."


@pytest.mark.parametrize("spec", FORMATS)
def test_what_is_shared_is_reported_alike_in_tokens_bytes_lines_and_changes(
    client: TestClient, store: cc.Store, spec: str
) -> None:
    """Guarantee 13.1: after an edit too, where the last answer before it is the same and what was asked is not."""
    life = Life(store, provider_of(spec))
    life.fragments = life.fragments[:1]
    for text in ("hi", "more", "and then?"):
        life.turn(text)
    store.edit("demo", 5, cc.user("something else"))
    life.answer()
    life.turn("bye")
    ask = Asking(client, life)
    for number, same in ((2, 1), (3, 3), (4, 4), (5, 5)):
        answer = ask.request(number)
        lines = ask.request(number, "/lines")["lines"]
        shared = [line for line in lines if line["state"] == "shared"]
        assert [line["seq"] for line in shared] == list(range(1, same + 1))
        above = answer["budget"]["system"] + answer["budget"]["tools"]
        assert answer["shared"]["tokens"] == above + sum(line["tokens"] for line in shared)
        if number == 4:
            body = ask.raw(f"requests/{life.channel}/{number}/body").json()
            key, _, index = answer["shared"]["broke"]["path"].rstrip("]").partition("[")
            alike = body[key][int(index) - same : int(index)]
            assert answer["shared"]["bytes"] == sum(len(encode(each)) for each in map(unmarked, alike))
            (folded,) = [hunk for hunk in ask.request(number, "/diff")["hunks"] if hunk["path"].startswith(f"{key}[0")]
            assert (folded["kind"], folded["count"]) == ("same", int(index))


@pytest.mark.parametrize("spec", FORMATS)
def test_what_broke_the_prefix_is_named_where_it_broke(client: TestClient, store: cc.Store, spec: str) -> None:
    """Guarantee 13.1: the system prompt, the tools, or a message, with the reason as a sentence."""
    life = Life(store, provider_of(spec))
    life.turn("hi")
    life.turn("more")
    store.edit("demo", 3, cc.user("something else"))
    life.answer()
    life.fragments = (cc.PromptFragment("identity", "You are a poet."),)
    life.turn("and?")
    life.tools = []
    life.turn("and now?")
    ask = Asking(client, life)
    edited, prompted, tooled = (ask.request(number)["shared"]["broke"] for number in (3, 4, 5))
    assert edited["where"].startswith("message ")
    assert edited["why"] == "The conversation was edited, or continued from an earlier message."
    body = ask.raw(f"requests/{life.channel}/3/body").json()
    key, _, index = edited["path"].rstrip("]").partition("[")
    assert edited["where"] == f"message {index}"
    before = ask.raw(f"requests/{life.channel}/2/body").json()[key]
    assert "something else" in json.dumps(body[key][int(index)])
    assert unmarked(before[: int(index)]) == unmarked(body[key][: int(index)])
    assert prompted["where"] == "system"
    assert prompted["why"] == "The system prompt changed."
    assert "poet" in json.dumps(at(ask.raw(f"requests/{life.channel}/4/body").json(), prompted["path"]))
    assert tooled["where"] == "tools"
    assert tooled["line"] == 0


def unmarked(value: JSON) -> JSON:
    """Without cache points, which move with every request."""
    text = json.dumps(value).replace(', "cache_control": {"type": "ephemeral"}', "")
    return json.loads(text)


def at(body: JSONObject, path: str) -> object:
    name, _, index = path.rstrip("]").partition("[")
    return body[name][int(index)] if index else body[name]


def test_settings_that_a_cache_does_not_outlive_are_named(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.3: another way to reason is another prefix; a longer answer is not."""
    life = Life(store, provider_of("anthropic:claude-sonnet-4-5", window=50_000))
    life.turn("hi")
    life.turn("more", settings={"thinking": {"type": "enabled", "budget_tokens": 1_024}}, max_output_tokens=4_000)
    life.turn("again", settings={"thinking": {"type": "enabled", "budget_tokens": 1_024}}, max_output_tokens=5_000)
    ask = Asking(client, life)
    broke = ask.request(2)["shared"]["broke"]
    assert (broke["where"], broke["path"]) == ("settings", "thinking")
    assert ask.request(3)["shared"]["broke"]["where"] == ""


def test_a_cut_and_a_removed_message_are_described(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.3: causes of a new epoch other than an edit."""
    life = Life(store, provider_of(window=2_600))
    number = 0
    ask = Asking(client, life)
    content: JSONObject = {"why": ""}
    while content["why"] != "over budget":
        life.turn(f"{number} " + "so it goes " * 150)
        number += 1
        content = ask.request(number)
    assert content["shared"]["broke"]["where"].startswith("message ")
    assert content["shared"]["broke"]["why"].startswith("The context was trimmed to fit")
    assert content["counts"]["left"] > 0
    store.redact("demo", store.conversation("demo").length - 1)
    life.turn("go on")
    removed = ask.request(number + 1)
    assert removed["why"] == "redacted"
    assert removed["shared"]["broke"]["why"] == "Content that was sent before has been redacted."


# ── its lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pages_of_lines_are_the_whole_account(client: TestClient, busy: Life) -> None:
    """Guarantee 13.1: in or out, in order, each with its reason; a page at a time it is the same."""
    ask = Asking(client, busy)
    for number in numbers(busy):
        whole = busy.compiler.explain("demo", number).lines
        paged: list[JSONObject] = []
        more = True
        while more:
            answer = ask.request(number, "/lines", after=len(paged), limit=3)
            paged, more = [*paged, *answer["lines"]], answer["more"]
            assert len(answer["lines"]) == 3 or not more
        names = ("seq", "kind", "role", "shown", "tokens", "why", "text")
        assert [{name: line[name] for name in names} for line in paged] == [
            {name: getattr(line, name) for name in names} for line in whole
        ]
        assert [line["index"] for line in paged] == list(range(len(paged)))
        shown = ask.request(number, "/lines", only="shown")["lines"]
        left = ask.request(number, "/lines", only="left")["lines"]
        assert [line["index"] for line in shown + left] == list(range(len(paged)))
        assert {line["state"] for line in left} <= {"left"}
        uids = {message.uid for message in busy.store.load("demo")}
        assert all((line["uid"] in uids) or line["kind"] != "message" or number < 6 for line in paged)


def test_what_was_there_before_is_reported_from_what_is_new(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.2: the prefix is drawn as one."""
    life = Life(store)
    life.turn("hi")
    life.turn("more")
    lines = Asking(client, life).request(2, "/lines")["lines"]
    assert [(line["seq"], line["state"]) for line in lines if line["kind"] == "message"] == [
        (1, "shared"),
        (2, "new"),
        (3, "new"),
    ]


def test_a_line_costs_what_its_tokens_cost_from_the_cache_or_not(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: what the provider says it read from its cache is a prefix, and cheaper."""
    life = Life(store)
    read = life.turn("hi " * 400).budget.input
    store.append("demo", cc.user("more"))
    life.answer(usage=cc.Usage(input=life.compile().budget.input, output=5, cache_read=read))
    unknown = Life(store, provider_of("nobody:secret-model", format="openai_chat"), name="other")
    unknown.turn("hi")
    lines = {line["seq"]: line for line in Asking(client, life).request(2, "/lines")["lines"]}
    price = cc.model("gpt-4o").price
    assert price is not None
    assert lines[1]["cost"] == pytest.approx(lines[1]["tokens"] * price.cache_read / 1_000_000)
    assert lines[3]["cost"] == pytest.approx(lines[3]["tokens"] * price.input / 1_000_000)
    assert {line["cost"] for line in Asking(client, unknown).request(1, "/lines")["lines"]} == {None}


def test_what_is_removed_stays_removed(client: TestClient, store: cc.Store) -> None:
    """Guarantee 2.8: a redacted message is listed, and its content is nowhere."""
    life = Life(store)
    life.turn("the secret is Rumpelstiltskin")
    life.turn("more")
    store.redact("demo", 1)
    ask = Asking(client, life)
    for number in (1, 2):
        assert ask.request(number)["counts"]["shown"] > 0
        assert ask.request(number, "/lines")["lines"][0]["text"] == "[removed]"
        for rest in ("/body", "/diff", "/lint"):
            refused = ask.raw(f"requests/{life.channel}/{number}{rest}")
            assert refused.status_code == 400
            assert "redacted" in refused.json()["error"]["message"]
    assert "Rumpel" not in ask.raw(f"requests/{life.channel}/2/lines").text


# ── its bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_body_is_what_went_out_to_the_byte(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2."""
    for name, spec in enumerate((*FORMATS, "openrouter:anthropic/claude-sonnet-4.5", "ollama:qwen3:8b")):
        life = Life(store, provider_of(spec), name=str(name))
        sent = [life.turn(text).body for text in ("hi", 'it\'s "more" $HOME `x` \\ 🙂\n', "and more")]
        ask = Asking(client, life)
        for number, body in enumerate(sent, 1):
            answer = ask.raw(f"requests/{life.channel}/{number}/body")
            assert answer.content == body
            assert answer.headers["content-type"] == "application/json"
            pretty = ask.raw(f"requests/{life.channel}/{number}/body", pretty=1)
            assert pretty.json() == json.loads(body)
            assert b"\n  " in pretty.content


def test_a_command_and_a_program_hold_no_key(
    client: TestClient, store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is copied is to be shared: keys are only the names of variables."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    life = Life(store)
    life.turn('it\'s "quoted"')
    ask = Asking(client, life)
    curl = ask.raw(f"requests/{life.channel}/1/body", as_="curl")
    python = ask.raw(f"requests/{life.channel}/1/body", as_="python")
    assert curl.headers["content-type"] == python.headers["content-type"] == "text/plain; charset=utf-8"
    assert '"Authorization: Bearer ${OPENAI_API_KEY}"' in curl.text
    assert 'os.environ["OPENAI_API_KEY"]' in python.text
    assert "sk-very-secret" not in curl.text + python.text
    compile(python.text, "copied.py", "exec")
    assert subprocess.run(["sh", "-n"], input=curl.text, text=True, check=False).returncode == 0
    assert ask("requests/" + life.channel + "/1/body", status=400, as_="perl")["error"]["kind"] == "InvalidRequest"


# ── what is new in it, and what is wrong ──────────────────────────────────────────────────────────────────────────────


def test_the_difference_is_what_came_to_it(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: what is the same is folded."""
    life = Life(store)
    life.turn("hi")
    life.turn("more")
    answer = Asking(client, life).request(2, "/diff")
    assert answer["before"] == 1
    assert not answer["cut"]
    changed = [hunk for hunk in answer["hunks"] if hunk["kind"] != "same"]
    assert [(hunk["kind"], hunk["path"]) for hunk in changed] == [
        ("added", f"messages[{index}]") for index in range(3, 3 + len(changed))
    ]
    assert any('"more"' in line for hunk in changed for line in hunk["lines"])
    first = Asking(client, life).request(1, "/diff")
    assert first["before"] is None
    assert {hunk["kind"] for hunk in first["hunks"]} == {"added"}


def test_of_a_session_the_difference_is_to_what_it_held(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.4: only news went out, and nothing was taken away."""
    talk = Talk(store, keeper())
    for text in ("hello", "more"):
        store.append("demo", cc.user(text))
        talk.step(cc.assistant("fine"), directory="/tmp")
    (channel,) = client.get("/api/conversations/demo/timeline").json()["channels"]
    answer = client.get(f"/api/conversations/demo/requests/{channel['id']}/2/diff").json()
    assert [hunk["kind"] for hunk in answer["hunks"] if hunk["kind"] != "same"] == ["added"]
    body = client.get(f"/api/conversations/demo/requests/{channel['id']}/2/body").json()
    assert len(body["messages"]) == 1


def test_what_the_provider_would_refuse_is_found_in_what_was_sent(client: TestClient, store: cc.Store) -> None:
    """Guarantee 11.8: also if the sent request differs from the compiled one."""
    life = Life(store)
    life.turn("hi")
    store.append("demo", cc.user("more"))
    compiled = life.compile()
    compiled.replace({**compiled.params, "messages": [{"role": "tool", "tool_call_id": "x", "content": "1"}]})
    life.compiler.commit(compiled, cc.assistant("done"))
    ask = Asking(client, life)
    assert ask.request(1, "/lint") == {"format": "openai_chat", "violations": []}
    (found,) = ask.request(2, "/lint")["violations"]
    assert found["path"] == "messages[0]"
    assert found["docs"] == f"/api/rules/{found['code']}"
    assert client.get(found["docs"]).json()["code"] == found["code"]


def test_missing_objects_return_404(client: TestClient, store: cc.Store) -> None:
    """A wrong address is the asker's fault, and says what there is."""
    life = Life(store)
    life.turn("hi")
    ask = Asking(client, life)
    for rest in ("", "/lines", "/body", "/diff", "/lint"):
        assert ask(f"requests/{life.channel}/2{rest}", status=404)["error"]["kind"] == "UnknownRequest"
        assert ask(f"requests/nobody/1{rest}", status=404)["error"]["kind"] == "UnknownChannel"
        for strange in ("0", "-1", str(1 << 70)):
            assert ask(f"requests/{life.channel}/{strange}{rest}", status=404)["error"]["kind"] == "UnknownRequest"
        assert ask(f"requests/{life.channel}/x{rest}", status=400)["error"]["kind"] == "InvalidRequest"
    for query in ({"after": -1}, {"limit": 0}, {"limit": 5_000}, {"only": "both"}, {"colour": "red"}):
        assert ask.raw(f"requests/{life.channel}/1/lines", **query).status_code == 400
