"""The timeline of requests: in order, with the tokens of each, and the starts of epochs."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import export_archive, import_files
from contextc.interchange.request_import_export import ArchiveFormat
from contextc.store.ledger_schema import Channel, channel_id
from tests.compiler.session_conversation import Talk, keeper
from tests.executor.scripted_provider import Scripted, add, call, fails, run_turn, says
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of


def test_every_request_is_reported_with_what_it_took(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: tokens, cost and cache of each, in the order they were answered."""
    life = Life(store)
    life.turn("hi", usage=cc.Usage(input=1_000, output=100))
    life.turn("more", usage=cc.Usage(input=2_000, output=50, cache_read=1_500, reasoning=10))
    answer = Asking(client, life)("timeline")

    first, second = answer["requests"]
    assert (first["request"], first["epoch"], first["why"], first["mode"]) == (1, 1, "first request", "full")
    assert (second["request"], second["epoch"], second["why"]) == (2, 1, "")
    assert second["channel"] == answer["channels"][0]["id"] == life.channel
    assert (second["input"], second["output"], second["cache_read"], second["reasoning"]) == (2_000, 50, 1_500, 10)
    assert second["cache_share"] == 0.75
    assert second["model"] == "openai-chat:gpt-4o"
    assert (second["seq"], second["produced"], second["added"], second["left"]) == (3, [4], 1, 0)
    price = cc.model("gpt-4o").price
    assert price is not None
    dollars = (500 * price.input + 1_500 * price.cache_read + 50 * price.output) / 1_000_000
    assert second["cost"] == pytest.approx(dollars)
    totals = answer["totals"]
    assert (totals["requests"], totals["input"], totals["output"], totals["cache_read"]) == (2, 3_000, 150, 1_500)
    assert totals["cost"] == pytest.approx(first["cost"] + second["cost"])
    assert totals["epochs"] == 1


def test_a_request_names_what_it_produced_on_whichever_branch(client: TestClient, store: cc.Store) -> None:
    """Guarantees 3.4, 13.1: two branches have a message 4; its uid says which request it answers."""
    life = Life(store)
    for text in ("France", "Italy", "Greece"):
        life.turn(text, f"{text}!")
    old = store.load("demo")[3].uid
    store.edit("demo", 3, cc.user("Spain"))
    life.answer("Spain!")
    answer = Asking(client, life)("timeline")["requests"]
    assert [each["produced"] for each in answer] == [[2], [4], [6], [4]]
    assert answer[1]["uids"] == [old]
    assert answer[3]["uids"] == [store.load("demo")[3].uid]
    by_uid = {uid: each["request"] for each in answer for uid in each["uids"]}
    assert [by_uid.get(message.uid) for message in store.load("demo")] == [None, 1, None, 4]


def observe_timed(store: cc.Store) -> None:
    """Record a request whose reply took two seconds, and began after 0.4 seconds."""
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "1 + 1?"}]}
    reply = {"model": "gpt-4o", "choices": [{"index": 0, "message": {"role": "assistant", "content": "2"}}]}
    cc.observe(
        store, request=body, reply=reply, conversation="seen", time=1_000_000, first_chunk=1_000_400, ended=1_002_000
    )


def test_the_times_of_a_reply_and_the_tools_that_it_calls_are_known(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: of a request that an executor sent, and of one that other software sent."""
    provider = Scripted(says("Let me add.", call(1, a=1, b=2)), says("3"))
    run_turn(cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=()))
    own = client.get("/api/conversations/demo/timeline").json()["requests"]
    assert [each["tools"] for each in own] == [["add"], []]
    assert all(0 <= each["first_chunk"] <= each["latency"] for each in own)

    observe_timed(store)
    (seen,) = client.get("/api/conversations/seen/timeline").json()["requests"]
    assert (seen["latency"], seen["first_chunk"], seen["tools"]) == (2_000, 400, [])
    (channel,) = {each["channel"] for each in client.get("/api/conversations/seen/timeline").json()["requests"]}
    answer = client.get(f"/api/conversations/seen/requests/{channel}/1/reply").json()
    assert (answer["latency"], answer["first_chunk"]) == (2_000, 400)


def test_a_request_outside_of_a_turn_has_a_latency_if_it_began(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: from `begin` to `commit`. Of one that was only committed, the end alone is known."""
    life = Life(store)
    life.turn("One?")
    store.append("demo", cc.user("Two?"))
    compiled = life.compile()
    with life.compiler.attempt(compiled) as attempt:
        (said,) = attempt.commit(cc.assistant("Two."))
    asking = Asking(client, life)
    replies = [asking.request(number, "/reply") for number in (1, 2)]
    assert [(each["began"], each["latency"]) for each in replies] == [
        (None, None), (compiled.began, said.time - compiled.began)
    ]  # fmt: skip
    assert replies[1]["ended"] == said.time >= compiled.began > 0
    assert [each["latency"] for each in asking("timeline")["requests"]] == [each["latency"] for each in replies]


@pytest.mark.parametrize("format", ["har", "lhar"])
def test_the_times_of_a_reply_survive_an_export(store: cc.Store, tmp_path: Path, format: ArchiveFormat) -> None:
    observe_timed(store)
    file = tmp_path / f"seen.{format}"
    file.write_bytes(export_archive(store, "seen", format).data)
    with cc.open_store("memory:") as other:
        (name,) = [each.name for each in import_files(other, [file]).conversations]
        (request,) = load_timeline(other, name)
        assert (request.latency, request.first_chunk) == (2_000, 400)


def test_what_is_unknown_is_null(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: neither the tokens of a provider that reports none, nor the price of a model that is in no
    table.
    """
    life = Life(store, provider_of("nobody:secret-model", format="openai_chat"))
    life.turn("hi")
    answer = Asking(client, life)("timeline")
    (only,) = answer["requests"]
    unknown = ("turn", "step", "input", "output", "cache_read", "cache_write", "reasoning", "cost", "cache_share")
    assert {name: only[name] for name in unknown} == dict.fromkeys(unknown)
    assert answer["totals"]["cost"] is None


def test_epochs_give_the_reason_they_began(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.3: an edit, another system prompt, and too little room each begin one."""
    life = Life(store, provider_of(window=2_600))
    life.turn("hi")
    life.turn("more")
    store.edit("demo", 3, cc.user("something else"))
    life.answer()
    life.fragments = (cc.PromptFragment("identity", "You are a poet."),)
    life.turn("and now?")
    for number in range(8):
        life.turn(f"{number} " + "so it goes " * 120)
    answer = Asking(client, life)("timeline")["requests"]
    why = [each["why"] for each in answer if each["why"]]
    assert why[:3] == ["first request", "edited or branched away", "system prompt changed"]
    assert set(why[3:]) == {"over budget"}
    epochs = [each["epoch"] for each in answer]
    assert epochs == sorted(epochs)
    assert epochs[-1] == len(why)
    assert sum(each["left"] for each in answer) > 0


def test_several_channels_are_reported_together_or_one_by_one(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.1: another model is another channel; a person may ask for one of them."""
    one = Life(store)
    one.turn("hi")
    two = Life(store, provider_of(SONNET))
    two.turn("and you?")
    one.turn("back to the first")
    ask = Asking(client, one)
    answer = ask("timeline")
    assert [each["channel"] for each in answer["requests"]] == [one.channel, two.channel, one.channel]
    assert [each["model"] for each in answer["channels"]] == ["gpt-4o", "claude-sonnet-4-5"]
    assert [each["mode"] for each in answer["channels"]] == ["stateless", "stateless"]
    alone = ask("timeline", channel=two.channel)
    assert [each["channel"] for each in alone["requests"]] == [two.channel]
    assert len(alone["channels"]) == 2
    assert ask("timeline", status=404, channel="nobody")["error"]["kind"] == "UnknownChannel"
    assert client.get("/api/conversations/none/timeline").status_code == 404


def test_a_session_is_reported_with_its_mode(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.4: what went into a session is only what is new."""
    talk = Talk(store, keeper())
    for text in ("hello", "more"):
        store.append("demo", cc.user(text))
        talk.step(cc.assistant("fine"), directory="/tmp")
    answer = client.get("/api/conversations/demo/timeline").json()
    assert [each["mode"] for each in answer["requests"]] == ["full", "resume"]
    (channel,) = answer["channels"]
    assert (channel["mode"], channel["session"], channel["requests"]) == ("stateful", "session1", 2)


def test_a_program_keeps_sessions_also_before_it_has_one(client: TestClient, store: cc.Store) -> None:
    """The provider's facts state it; and an unanswered request is in progress."""
    compiler = cc.MessageCompiler(store, cc.provider("claude-code"))
    store.append("demo", cc.user("hello"))
    compiler.begin(compiler.compile("demo", directory="/tmp"))
    (channel,) = client.get("/api/conversations/demo/timeline").json()["channels"]
    assert (channel["mode"], channel["session"]) == ("stateful", "")
    assert (channel["unanswered"], channel["requests"]) == (True, 0)


def test_a_request_has_its_turn_and_its_step(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: also where a step was tried twice, under the same number."""
    failed = fails("transient", "overloaded")
    asks = says("Let me add.", call(1, a=2, b=3))
    provider = Scripted(asks, failed, says("It is 5."), says("Bye."))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=())
    run_turn(executor, "What is 2 + 3?")
    run_turn(executor, "Thanks.")
    answer = client.get("/api/conversations/demo/timeline").json()["requests"]
    assert [(each["turn"], each["step"], each["request"]) for each in answer] == [(1, 1, 1), (1, 2, 2), (2, 1, 3)]


def test_the_name_of_a_channel_fits_into_an_address_and_stays() -> None:
    """A link to a request may be stored: the name depends only on the channel."""
    names = {
        channel_id(Channel(conversation, agent, provider, "m/1:x", directory))
        for conversation in ("one", "two")
        for agent in ("a", "b")
        for provider in ("p", "q")
        for directory in ("", "/home/somebody")
    }
    assert len(names) == 8
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{12}", name) for name in names)
    assert channel_id(Channel("x", "assistant", "openai", "gpt-5.2")) == "ZeDkSbPslBxu"
