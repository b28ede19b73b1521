"""The stand-ins, asked by the vendors' own SDKs: what they answer, and what they refuse."""

import asyncio

import httpx2
import pytest

from contextc._json import JSONObject, decode
from contextc.formats.base import as_json
from contextc.formats.named import formatter
from contextc.messages import Message, Reasoning, user
from tests.standin import KEY, Scripted, Standin, Wanderer
from tests.standin.answer import Head
from tests.standin.asking import FULL, ask, refusal
from tests.standin.clients import CLIENTS, Client
from tests.standin.vendor import vendor

CALLS = [("look", {"thing": "a"}), ("look", {"thing": "b"})]


def thought(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, Reasoning)]


def test_a_whole_reply_is_one_to_the_sdk_and_to_our_decoder(client: Client, standin: Standin) -> None:
    """SPEC 10.5: what the SDK returns is read back as what the model said."""
    message = formatter(client.format).decode_reply(client.whole(standin.url(client.format), ask(client)))
    assert message.text == FULL.text
    assert [(call.name, call.arguments) for call in message.tool_calls] == CALLS
    assert message.finish == "tool_calls"
    assert message.usage is not None
    assert message.usage.input > 20
    assert message.usage.output > 10
    assert message.usage.reasoning > 3
    assert standin.records[0].completed


def test_a_stream_says_the_same_as_the_whole_reply(client: Client, standin: Standin) -> None:
    """SPEC 10.5: the events are those of the vendor, field by field, and add up to the same message."""
    events = client.events(standin.url(client.format), ask(client))
    whole = client.whole(standin.url(client.format), ask(client))
    streamed, at_once = (
        formatter(client.format).decode_stream(events),
        formatter(client.format).decode_reply(whole),
    )
    assert len(events) > 5
    assert (streamed.text, streamed.finish, thought(streamed)) == (at_once.text, at_once.finish, thought(at_once))
    assert [(call.name, call.arguments) for call in streamed.tool_calls] == CALLS


def test_every_event_has_what_the_sdk_declares(client: Client, standin: Standin) -> None:
    """The SDKs take events without looking; here each is held against its type."""
    for line in raw_events(standin, client):
        client.is_event(line)


def raw_events(standin: Standin, client: Client) -> list[JSONObject]:
    client.events(standin.url(client.format), ask(client))
    record = standin.records[-1]
    head = Head("POST", record.path, {"alt": "sse"}, {**record.headers, vendor(client.format).key_headers[0]: KEY})
    answer, _ = standin.desk.answer(head, record.raw)
    lines = [step.partition(b"data: ")[2].strip() for step in answer.steps if isinstance(step, bytes)]
    return [decode(line) for line in lines if line != b"[DONE]"]


UNKNOWN_KEY = {
    "anthropic": ("AuthenticationError", "invalid x-api-key"),
    "openai_chat": ("AuthenticationError", "Incorrect API key provided: sk-w****"),
    "openai_responses": ("AuthenticationError", "Incorrect API key provided: sk-w****"),
    "gemini": ("ClientError", "API key not valid. Please pass a valid API key."),
}


def test_a_wrong_key_is_refused_and_no_key_is_kept(client: Client, standin: Standin) -> None:
    """SPEC 13.3: the vendor's own words; keys are never recorded."""
    kind, text = refusal(client, standin, ask(client), key="sk-wrong-0000")
    assert (kind, UNKNOWN_KEY[client.format][1] in text) == (UNKNOWN_KEY[client.format][0], True)
    client.whole(standin.url(client.format), ask(client))
    assert [record.status == 200 for record in standin.records] == [False, True]
    kept = repr(standin.records)
    assert "sk-wrong-0000" not in kept
    assert KEY not in kept


ORPHANS: dict[str, tuple[JSONObject, str, str]] = {
    "anthropic": (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_x", "content": "1"}]},
        "BadRequestError",
        "unexpected `tool_use_id` found in `tool_result` blocks: toolu_x.",
    ),
    "openai_chat": (
        {"role": "tool", "tool_call_id": "call_x", "content": "1"},
        "BadRequestError",
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
    ),
    "openai_responses": (
        {"type": "function_call_output", "call_id": "call_x", "output": "1"},
        "BadRequestError",
        "No tool call found for function call output with call_id call_x.",
    ),
    "gemini": (
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]},
        "ClientError",
        "Please ensure that function response turn comes immediately after a function call turn.",
    ),
}


def test_an_orphaned_result_is_refused_in_the_vendors_words(client: Client, standin: Standin) -> None:
    """SPEC 10.5: the rule checker is the first judge."""
    item, kind, said = ORPHANS[client.format]
    body = ask(client)
    body[formatter(client.format).messages_key].append(item)
    assert refusal(client, standin, body)[0] == kind
    assert said in standin.refused[0].refused


STRANGE: dict[str, JSONObject] = {
    "anthropic": {"tool_choice": {"type": "auto", "colour": "red"}},
    "openai_chat": {"tool_choice": {"type": "function", "function": {"name": "look", "colour": "red"}}},
    "openai_responses": {"reasoning": {"colour": "red"}},
}


@pytest.mark.parametrize("client", CLIENTS[:3], ids=lambda client: client.format)
def test_what_only_the_sdks_types_know_is_refused(client: Client, standin: Standin) -> None:
    """SPEC 10.5: the vendor's types are the second judge. Google's SDK checks its own before it sends anything."""
    kind, _ = refusal(client, standin, {**ask(client), **STRANGE[client.format]})
    assert kind == "BadRequestError"
    assert "the SDK's types" in standin.refused[0].refused
    assert "colour" in standin.refused[0].refused


def test_what_codex_adds_is_taken_and_nothing_else(standin: Standin) -> None:
    """Codex sends fields that the SDK does not know; they are let in where and as Codex sends them."""
    (client,) = [each for each in CLIENTS if each.format == "openai_responses"]
    told: JSONObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    body = ask(client) | {"client_metadata": {"thread_id": "1"}, "input": [{**told, "id": "msg_1"}]}
    client.whole(standin.url(client.format), body)
    assert not standin.refused
    others: list[JSONObject] = [{"client_metadata": {"n": 1}}, {"of_ours": {}}, {"input": [{**told, "name": "msg_1"}]}]
    for other in others:
        assert refusal(client, standin, {**body, **other})[0] == "BadRequestError"


@pytest.mark.parametrize("version", [None, "2031-01-01"])
def test_a_request_says_which_version_of_the_api_it_is_for(standin: Standin, version: str | None) -> None:
    """WIRE 4: `anthropic-version` is required."""
    headers = {"x-api-key": KEY, "content-type": "application/json"}
    headers |= {"anthropic-version": version} if version else {}
    reply = httpx2.post(f"{standin.url()}/v1/messages", headers=headers, content=b"{}")
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "anthropic-version" in reply.json()["error"]["message"]


LONG = {
    "anthropic": "prompt is too long: ",
    "openai_chat": "This model's maximum context length is 100 tokens. However, your messages resulted in ",
    "openai_responses": "Your input exceeds the context window of this model.",
    "gemini": "exceeds the maximum number of tokens allowed (100).",
}


def test_an_input_beyond_the_window_is_refused(client: Client) -> None:
    """SPEC 7.6: an overflow looks like the vendor's."""
    with Standin(lambda ask: FULL, window=100) as standin:
        client.whole(standin.url(client.format), client.body([user("short")]))
        kind, text = refusal(client, standin, client.body([user("long " * 200)]))
        assert kind in ("BadRequestError", "ClientError")
        assert LONG[client.format] in text


def test_a_request_that_comes_again_has_the_same_answer(client: Client) -> None:
    """Nobody can tell a retry from the first attempt; so a killed client may go on where it was."""
    bodies: list[JSONObject] = []
    for _ in range(2):
        with Standin(Wanderer(5)) as standin:
            bodies.append(as_json(client.whole(standin.url(client.format), ask(client))))
    assert bodies[0] == bodies[1]


def test_a_script_that_ends_says_so() -> None:
    client = CLIENTS[0]
    with Standin(Scripted(["One"])) as standin:
        assert client.whole(standin.url("anthropic"), client.body([user("a")])).content[0].text == "One"
        assert client.whole(standin.url("anthropic"), client.body([user("a")])).content[0].text == "One"
        assert refusal(client, standin, client.body([user("b")]))[0] == "InternalServerError"
        assert "no more replies" in standin.refused[0].refused


def test_the_transport_answers_as_the_server_does() -> None:
    """For benchmarks: the same bytes, without a line."""
    import anthropic

    client = CLIENTS[0]
    with Standin(Wanderer(1)) as standin:
        expected = client.events(standin.url("anthropic"), ask(client))

    async def stream() -> list[object]:
        http = httpx2.AsyncClient(transport=Standin(Wanderer(1)).transport())
        sdk = anthropic.AsyncAnthropic(api_key=KEY, base_url="http://standin", max_retries=0, http_client=http)
        async with sdk:
            return [event async for event in await sdk.messages.create(**ask(client), stream=True)]

    assert asyncio.run(stream()) == expected


def test_it_serves_from_a_running_loop_as_well() -> None:
    async def status() -> int:
        async with Standin(Scripted([])) as standin, httpx2.AsyncClient() as http:
            return (await http.get(f"{standin.url()}/v1/nothing")).status_code

    assert asyncio.run(status()) == 404
