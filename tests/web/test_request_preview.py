"""The preview of the next request, and the cost of a change."""

import time
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

import contextc as cc
from contextc.store.ledger_schema import channel_id
from contextc.web.app_state import ServerOptions
from tests.compiler.session_conversation import Talk, keeper
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of

KINDS = ("system", "tools", "overhead", "dynamic", "history", "new", "reserve", "margin", "free")


@pytest.fixture
def options(options: ServerOptions) -> ServerOptions:
    return replace(options, model=SONNET)


def test_it_is_what_the_program_will_send(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2: with the system prompt, the tools and the window of the last request."""
    life = Life(store)
    life.fragments = life.fragments[:1]  # those that are rendered anew each time cannot be foretold
    life.turn("hi")
    store.append("demo", cc.user("more"))
    answer = Asking(client, life)("next")
    sent = life.compile()
    assert answer["request"] == 2
    assert answer["channel"] == life.channel
    assert answer["format"] == "openai_chat"
    assert answer["budget"]["window"] == sum(answer["budget"][kind] for kind in KINDS) == 10_000
    assert answer["budget"]["used"] == sent.budget.used
    assert (answer["budget"]["system"], answer["budget"]["tools"]) == (sent.budget.system, sent.budget.tools)
    assert (answer["shared"]["tokens"], answer["shared"]["bytes"]) == (sent.record.shared, sent.record.shared_bytes)
    cost = {name: value for name, value in answer["cost"].items() if name not in ("cache", "cost_is_lower_bound")}
    assert cost == {"cached_lost": 0, "cached_kept": sent.record.shared, "signed_lost": 0, "dollars": 0.0}
    assert answer["cost"]["cost_is_lower_bound"] is False
    assert answer["is_new"]
    assert [(line["seq"], line["state"]) for line in answer["lines"]] == [(1, "shared"), (2, "new"), (3, "new")]
    assert answer["time"] == 0
    assert store.conversation("demo").length == 3


def test_an_edit_and_a_rewind_report_what_they_would_lose(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2: and nothing happens."""
    life = Life(store, provider_of("anthropic:claude-opus-5-5", window=50_000))
    for number in range(1, 4):
        thought = cc.Reasoning(text="hm", signature=f"signature {number}", provider="anthropic")
        life.turn(f"question {number}", cc.assistant(f"answer {number}", reasoning=thought))
    before = store.conversation("demo")
    ask = Asking(client, life)
    edited = ask("next", edit=3, text="another question")
    assert edited["why"] == "edited or branched away"
    assert edited["cost"]["cached_lost"] > 0
    assert edited["cost"]["dollars"] > 0
    assert [each["text"] for each in edited["lines"] if each["kind"] == "message"][-1] == "another question"
    assert edited["shared"]["broke"]["where"].startswith("message ")
    late = ask("next", edit=5, text="another question")
    assert 0 < late["cost"]["cached_lost"] < edited["cost"]["cached_lost"]
    rewound = ask("next", rewind=2)
    assert [line["seq"] for line in rewound["lines"] if line["kind"] == "message"] == [1, 2]
    assert not rewound["is_new"]
    assert store.conversation("demo") == before


def test_a_model_without_requests_is_sent_what_this_servers_agent_reports(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2: its prompt and its tools take room in the first request too, and there need be no request
    before.
    """
    store.append("demo", cc.user("hi"))
    first = client.get("/api/conversations/demo/next").json()
    assert first["request"] == 1
    assert first["budget"]["system"] > 20
    assert first["budget"]["tools"] > 500
    life = Life(store, provider_of("openai-chat:gpt-4o"))
    life.answer("done")
    other = client.get("/api/conversations/demo/next", params={"model": SONNET}).json()
    assert other["budget"]["tools"] == first["budget"]["tools"]
    assert other["budget"]["used"] > first["budget"]["used"]  # the answer counts


def test_another_model_receives_everything(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2: what the first one had in its cache is of no use to it."""
    life = Life(store)
    life.turn("hi")
    answer = Asking(client, life)("next", model="openai:gpt-5.2")
    assert (answer["request"], answer["mode"], answer["shared"]["tokens"]) == (1, "full", 0)
    assert answer["provider"] == "openai"
    assert answer["cost"]["cached_lost"] > 0
    again = Asking(client, life)("next", model="openai-chat:gpt-4o")
    assert (again["request"], again["channel"], again["budget"]["window"]) == (2, life.channel, 10_000)


def test_it_is_foretold_for_every_agent_that_was_asked(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2: two agents with one model are two channels, and neither need be the server's own."""
    life = Life(store)
    life.turn("hi")
    life.turn("and you?", name="critic")
    life.turn("well then")
    ask = Asking(client, life)
    critic = channel_id(life.compiler.channel("demo", name="critic"))
    assert critic != life.channel
    assert [ask("next", channel=each)["request"] for each in (life.channel, critic)] == [3, 2]
    assert ask("next", channel=critic)["channel"] == critic
    assert ask("next", status=404, channel="nobody")["error"]["kind"] == "UnknownChannel"
    both = ask("next", status=400, channel=critic, model=SONNET)["error"]
    assert "channel and model cannot be combined" in both["message"]


def test_where_no_model_was_called_it_is_for_the_servers_own_model(client: TestClient, store: cc.Store) -> None:
    """A conversation that was only written so far can be looked at too."""
    store.append("demo", cc.user("hi"))
    answer = client.get("/api/conversations/demo/next").json()
    assert f"{answer['provider']}:{answer['model']}" == SONNET
    assert answer["budget"]["new"] > 0


def test_the_policy_is_that_of_the_servers_agent(
    client: TestClient, store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 7.4: configured, as for a turn. The longest answer is reserved as a whole, and there is no margin."""
    store.append("demo", cc.user("hi"))
    margins: list[int] = []
    for policy in ("default", "sliding_window"):
        monkeypatch.setenv("CONTEXTC_POLICY", policy)
        margins.append(client.get("/api/conversations/demo/next").json()["budget"]["margin"])
    assert margins[0] > margins[1] == 0


def test_a_session_would_receive_only_what_is_new(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.4: also where the program alone knows that its provider keeps sessions."""
    talk = Talk(store, keeper())
    store.append("demo", cc.user("hello"))
    talk.step(cc.assistant("fine"), directory="/tmp")
    store.append("demo", cc.user("more"))
    answer = client.get("/api/conversations/demo/next").json()
    assert (answer["mode"], answer["session"], answer["request"]) == ("resume", "session1", 2)
    assert [line["state"] for line in answer["lines"]] == ["shared", "new", "new"]


def test_what_cannot_be_foretold_is_refused_with_a_message(client: TestClient, store: cc.Store) -> None:
    """The asker's mistakes are the asker's, and what does not fit says by how much."""
    life = Life(store, provider_of(window=2_000))
    life.turn("hi")
    ask = Asking(client, life)
    assert "must be given together" in ask("next", status=400, edit=1)["error"]["message"]
    assert "must be given together" in ask("next", status=400, text="x")["error"]["message"]
    assert ask("next", status=404, edit=99, text="x")["error"]["kind"] == "UnknownMessage"
    assert ask("next", status=404, rewind=99)["error"]["kind"] == "UnknownMessage"
    for query in ({"edit": 0, "text": "x"}, {"rewind": -1}, {"limit": 0}, {"colour": "red"}, {"model": "nobody:x"}):
        assert ask.raw("next", **query).status_code == 400
    store.append("demo", cc.user("so it goes " * 4_000))
    assert ask("next", status=422)["error"]["kind"] == "ContextOverflow"
    assert client.get("/api/conversations/none/next").status_code == 404


def observe(store: cc.Store, *, clock: bool, minutes: float, read: bool = True) -> None:
    """Record three requests of a client with cache breakpoints; the last one some minutes ago."""
    now, size = time.time_ns() // 1_000_000, 0
    messages: list[Any] = []
    for number in range(3):
        text = f"It is 12:0{number if clock else 0}. " + "Be exact. " * 2_000
        mark = {"cache_control": {"type": "ephemeral"}}
        messages.append({"role": "user", "content": [{"type": "text", "text": f"Question {number}. " * 500, **mark}]})
        system = [{"type": "text", "text": text, **mark}]
        total = 6_000 + 1_500 * (number + 1)
        found = size if read and not clock else 0
        usage = {"input_tokens": 5, "cache_read_input_tokens": found, "output_tokens": 5,
                 "cache_creation_input_tokens": total - found - 5}  # fmt: skip
        reply = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn",
                 "usage": usage}  # fmt: skip
        began = now - round(minutes * 60_000) - (2 - number) * 10_000
        body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages}
        cc.observe(store, request=body, reply=reply, format="anthropic", conversation="demo", time=began, ended=began)
        messages[-1]["content"][0].pop("cache_control")
        messages.append({"role": "assistant", "content": reply["content"]})
        size = total


def test_lines_have_the_price_that_the_cache_rules_predict(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.2: what was sent before is read from the cache, and what is new is written to it. Nothing of it was
    measured.
    """
    observe(store, clock=False, minutes=1)
    store.append("demo", cc.user("And then? " * 300))
    answer = client.get("/api/conversations/demo/next", params={"detailed": True}).json()
    cache, lines = answer["cost"]["cache"], answer["lines"]
    assert (cache["expired"], cache["paid_again"], cache.get("missed")) == (False, 0, None)
    assert cache["read"] == pytest.approx(10_500, rel=0.02)
    assert cache["read"] + cache["written"] == pytest.approx(answer["budget"]["input"], abs=20)
    prices = {each["index"]: each["cost"] / each["tokens"] * 1e6 for each in lines}
    assert [prices[index] for index in (-1, 0, 4)] == pytest.approx([0.3] * 3)  # system prompt, and two of its messages
    assert prices[lines[-1]["index"]] == pytest.approx(3.75, rel=0.02)
    assert answer["budget"]["how"] == "estimated"


@pytest.mark.parametrize(("clock", "minutes"), [(False, 60), (True, 1)])
def test_a_cache_that_will_not_be_read_is_named(
    client: TestClient, store: cc.Store, clock: bool, minutes: float
) -> None:
    """Guarantee 13.2: it expired since the last request, or each of the last requests missed it."""
    observe(store, clock=clock, minutes=minutes)
    store.append("demo", cc.user("And then?"))
    answer = client.get("/api/conversations/demo/next").json()
    cache = answer["cost"]["cache"]
    assert cache["expired"] == (not clock)
    assert (cache["read"], cache["paid_again"]) == (0, pytest.approx(10_500, rel=0.02))
    assert cache["dollars"] == pytest.approx(cache["paid_again"] * (3.75 - 0.3) / 1e6)
    assert cache["life"] == 300_000
    assert cache["idle"] == pytest.approx(minutes * 60_000, rel=0.5)
    assert {round(each["cost"] / each["tokens"] * 1e6, 2) for each in answer["lines"]} == {3.75}
    if clock:
        missed = cache["missed"]
        assert (missed["count"], missed["code"]) == (2, "CAC006")
        assert missed["title"] == "The system prompt changed: it contains the time"
    edited = client.get("/api/conversations/demo/next", params={"edit": 1, "text": "No."}).json()
    assert edited["cost"]["cache"]["expired"] == (not clock)


def test_messages_that_were_not_read_make_the_size_before_trimming_a_lower_bound(
    client: TestClient, store: cc.Store
) -> None:
    """A long conversation is read from its end, as far as there may be room. The rest is not counted."""
    for number in range(600):
        text = " ".join([f"w{number:x}{each:x}" for each in range(60)])
        store.append("demo", cc.user(text) if number % 2 == 0 else cc.assistant(text))
    store.append("demo", cc.user("Go on."))
    found = {
        model: client.get("/api/conversations/demo/next", params={"model": model}).json()["budget"]
        for model in ("openai-chat:gpt-4", "openai-chat:gpt-4.1")
    }
    small, large = found.values()
    assert small["wanted_is_lower_bound"]
    assert small["used"] < small["wanted"] < large["used"]
    assert not large["wanted_is_lower_bound"]
    assert large["wanted"] == 0, "it was not trimmed"
