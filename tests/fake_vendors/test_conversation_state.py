"""State that a fake vendor keeps of a conversation: signatures, calls and earlier messages."""

import httpx2
import pytest

from contextc._json import JSONObject, encode
from contextc.formats.registry import formatter
from contextc.messages import Message, assistant, tool_call, tool_result, user
from tests.conftest import often, some
from tests.fake_vendors import KEY, FakeVendors, RandomFaults, RandomScript, Reply, Scripted
from tests.fake_vendors.sample_requests import FULL, answered, ask, refusal
from tests.fake_vendors.sdks import SDKClient, client_of, clients
from tests.fake_vendors.vendor import vendor


def test_reasoning_is_bound_to_what_came_before_it() -> None:
    """An edit anywhere before a signed block is refused; the same history without one is taken."""
    client = client_of("anthropic")
    with FakeVendors(lambda ask: FULL) as standin:
        first, *rest = answered(client, standin, [user("What is there?")])
        client.whole(standin.url("anthropic"), ask(client, first, *rest))
        refusal(client, standin, ask(client, user("What was there?"), *rest))
        assert "messages.1.content.0: Invalid `signature` in `thinking` block" in standin.refused[0].refused


def test_a_signature_belongs_to_the_call_it_came_on() -> None:
    """Google's signatures are not carried over to another call."""
    client = client_of("gemini")
    with FakeVendors(lambda ask: FULL) as standin:
        body = ask(client, *answered(client, standin, [user("What is there?")]))
        client.whole(standin.url("gemini"), body)
        signed = next(part for part in body["contents"][1]["parts"] if "functionCall" in part)
        signed["functionCall"]["args"] = {"thing": "z"}
        refusal(client, standin, body)
        assert "Corrupted thought signature." in standin.refused[0].refused


def test_encrypted_reasoning_belongs_to_its_item() -> None:
    """What only the vendor can read comes back as it was."""
    client = client_of("openai_responses")
    with FakeVendors(lambda ask: FULL) as standin:
        body = ask(client, *answered(client, standin, [user("What is there?")]))
        client.whole(standin.url("openai_responses"), body)
        item = next(each for each in body["input"] if each.get("type") == "reasoning")
        item["id"] = "rs_" + "0" * 48
        refusal(client, standin, body)
        assert "could not be verified" in standin.refused[0].refused


def test_a_changed_call_is_noticed_where_no_vendor_would_refuse_it() -> None:
    """Guarantee 9.2: a model must not read what it never said."""
    client = client_of("openai_chat")
    with FakeVendors(lambda ask: FULL) as standin:
        history = answered(client, standin, [user("What is there?")])
        client.whole(standin.url(client.name), ask(client, *history))
        assert standin.defects == []
        call = history[1].tool_calls[0]
        edited = assistant(history[1].text, tool_calls=[tool_call(call.id, call.name, {"thing": "z"})])
        client.whole(standin.url(client.name), ask(client, history[0], edited, history[2]))
        assert len(standin.defects) == 1
        assert call.id in standin.defects[0]


def test_an_edited_past_is_seen_as_a_break(client: SDKClient) -> None:
    """Guarantee 9.2: consecutive requests extend the same prefix."""
    with FakeVendors(lambda ask: Reply("Fine.")) as standin:
        history = [user("One"), assistant("Fine."), user("Two"), assistant("Fine."), user("Three")]
        for end in (1, 3, 5):
            client.whole(standin.url(client.name), client.body(history[:end]))
        assert standin.breaks() == []
        history[2] = user("Zwei")
        client.whole(standin.url(client.name), client.body(history))
        (found,) = standin.breaks()
        assert found.later is standin.records[-1]
        assert found.at >= 2


def test_the_cache_serves_what_an_earlier_request_began_with(client: SDKClient) -> None:
    """Guarantee 9.2: a kept prefix shows in the figures, and a broken one too."""
    long = [user("Remember this. " * 4000)]
    marked = bool(vendor(client.name).cache_mark)
    with FakeVendors(lambda ask: Reply("Fine.")) as standin:
        for messages in (long, [*long, assistant("Fine."), user("More.")], [user("X"), assistant("Y"), *long]):
            client.whole(standin.url(client.name), client.cached(client.body(messages)))
        first, second, third = (record.tokens for record in standin.records)
        assert first is not None
        assert second is not None
        assert third is not None
        assert first.read == third.read == 0
        assert second.read > 0.9 * first.input
        assert first.written or not marked


@pytest.mark.parametrize(
    "weather", some([RandomFaults(7, share=0.5), None], 1), ids=lambda weather: "foul" if weather else "fair"
)
def test_a_random_script_is_followed_without_a_refused_request(client: SDKClient, weather: RandomFaults | None) -> None:
    """Guarantees 10.5, 11.11: turns of tool use in all shapes, sent again after each fault, as our formatter writes
    them.
    """
    with FakeVendors(RandomScript(3, odd=0.2), faults=weather) as standin:
        history: list[Message] = []
        for turn in range(often(2, 3)):
            history.append(user(f"Question {turn}"))
            while history[-1].role != "assistant":
                reply = insist(client, standin, ask(client, *history))
                history += [reply, *(tool_result(call.id, call.name, "seen") for call in reply.tool_calls)]
        assert [record.refused for record in standin.refused] == []
        assert standin.defects == []
        assert standin.breaks() == []
        assert any(len(message.tool_calls) > 1 for message in history)
        assert bool(weather) == any(record.fault for record in standin.records)


def insist(client: SDKClient, standin: FakeVendors, body: JSONObject) -> Message:
    """The reply to a stream that came through."""
    for _ in range(5):
        try:
            events = client.events(standin.url(client.name), body)
        except Exception:
            continue
        message = formatter(client.format).decode_stream(events)
        if message.finish and message.status == "sent":
            return message
    raise AssertionError("No attempt came through.")


def test_a_record_has_the_bytes_and_the_line_they_came_on() -> None:
    """Guarantee 11.1: what was sent is compared byte for byte, so it is kept as it came."""
    client = client_of("anthropic")
    headers = {"x-api-key": KEY, "anthropic-version": "2026-10-21", "content-type": "application/json"}
    sent = [encode(client.body([user(text)])) for text in ("a", "b")]
    with FakeVendors(Scripted(["One", "Two"])) as standin:
        with httpx2.Client(verify=False) as http:
            for each in sent:
                http.post(f"{standin.url()}/v1/messages", headers=headers, content=each)
        httpx2.post(f"{standin.url()}/v1/messages", headers=headers, content=sent[0])
        first, second, third = standin.records
    assert [record.raw for record in standin.records] == [*sent, sent[0]]
    assert first.connection == second.connection != third.connection
    assert first.time <= second.time <= third.time
    assert (first.attempt, second.attempt, third.attempt) == (0, 0, 1)
    assert first.reply == third.reply == Reply("One")


@pytest.mark.parametrize("client", [each for each in clients() if each.keeps_ids], ids=lambda client: client.name)
def test_a_call_that_comes_back_twice_does_not_pass(client: SDKClient, standin: FakeVendors) -> None:
    """Guarantee 5.1: one id names one call, at every vendor."""
    first, reply, *results = answered(client, standin, [user("What is there?")])
    body = ask(client, first, reply, *results)
    key = formatter(client.format).messages_key
    body[key] += [item for item in body[key][1:] if item.get("type") != "reasoning"]
    try:
        client.whole(standin.url(client.name), body)
    except Exception:
        assert standin.refused
    else:
        assert "is there twice" in standin.defects[0]
