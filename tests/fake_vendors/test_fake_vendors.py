"""The fake vendors, called with the vendors' SDKs: their replies and their errors."""

import asyncio

import httpx2
import pytest

from contextc._json import JSONObject, encode
from contextc.formats.base import as_json
from contextc.formats.registry import formatter
from contextc.messages import Message, Reasoning, user
from tests.fake_vendors import KEY, FakeVendors, RandomScript, Scripted
from tests.fake_vendors.responses import RequestHead
from tests.fake_vendors.sample_requests import FULL, ask, refusal
from tests.fake_vendors.sdks import SDKClient, client_of, clients
from tests.fake_vendors.vendor import vendor, vendors

ASKED_FOR_A_KEY = [client for client in clients() if client.unknown_key]
UNCHECKED = [client for client in clients() if client.strange]
CALLS = [("look", {"thing": "a"}), ("look", {"thing": "b"})]


def test_every_vendor_is_asked_by_a_client() -> None:
    """What follows is about each of them."""
    assert {vendor.name for vendor in vendors()} == {client.name for client in clients()}


def thought(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, Reasoning)]


def test_a_whole_reply_is_one_to_the_sdk_and_to_our_decoder(client: SDKClient, standin: FakeVendors) -> None:
    """Guarantee 10.5: what the SDK returns is read back as what the model said."""
    message = formatter(client.format).decode_reply(client.whole(standin.url(client.name), ask(client)))
    assert message.text == FULL.text
    assert [(call.name, call.arguments) for call in message.tool_calls] == CALLS
    assert message.finish == "tool_calls"
    assert message.usage is not None
    assert message.usage.input > 20
    assert message.usage.output > 10
    assert (message.usage.reasoning > 3) is client.counts_reasoning
    assert standin.records[0].completed


def test_a_stream_has_the_same_content_as_the_whole_reply(client: SDKClient, standin: FakeVendors) -> None:
    """Guarantee 10.5: the events are those of the vendor, field by field, and add up to the same message."""
    events = client.events(standin.url(client.name), ask(client))
    whole = client.whole(standin.url(client.name), ask(client))
    streamed, at_once = (
        formatter(client.format).decode_stream(events),
        formatter(client.format).decode_reply(whole),
    )
    assert len(events) > 5
    assert (streamed.text, streamed.finish, thought(streamed)) == (at_once.text, at_once.finish, thought(at_once))
    assert [(call.name, call.arguments) for call in streamed.tool_calls] == CALLS


def test_every_event_has_what_the_sdk_declares(client: SDKClient, standin: FakeVendors) -> None:
    """The SDKs take events without looking; here each is held against its type."""
    for line in raw_events(standin, client):
        client.is_event(line)


def raw_events(standin: FakeVendors, client: SDKClient) -> list[JSONObject]:
    client.events(standin.url(client.name), ask(client))
    record = standin.records[-1]
    keys = dict.fromkeys(vendor(client.name).key_headers[:1], KEY)
    head = RequestHead("POST", record.path, {"alt": "sse"}, {**record.headers, **keys})
    answer, _ = standin.desk.answer(head, record.raw)
    return [event.data for event in answer.events if event.data != vendor(client.name).ends]


@pytest.mark.parametrize("client", ASKED_FOR_A_KEY, ids=lambda client: client.name)
def test_a_wrong_key_is_refused_and_no_key_is_kept(client: SDKClient, standin: FakeVendors) -> None:
    """Guarantee 13.3: the vendor's own message; keys are never recorded."""
    assert client.unknown_key is not None
    kind, text = refusal(client, standin, ask(client), key="sk-wrong-0000")
    assert (kind, client.unknown_key.said in text) == (client.unknown_key.kind, True)
    client.whole(standin.url(client.name), ask(client))
    assert [record.status == 200 for record in standin.records] == [False, True]
    kept = repr(standin.records)
    assert "sk-wrong-0000" not in kept
    assert KEY not in kept


def test_an_orphaned_result_is_refused_with_the_vendors_text(client: SDKClient, standin: FakeVendors) -> None:
    """Guarantee 10.5: the rule checker is the first judge."""
    item, text = client.orphan
    body = ask(client)
    body[formatter(client.format).messages_key].append(item)
    assert refusal(client, standin, body)[0] == client.refused
    assert text in standin.refused[0].refused


EPHEMERAL: JSONObject = {"type": "ephemeral"}
EXCLUSIONS: list[tuple[str, JSONObject, str]] = [
    ("anthropic", {"nonsense": 1}, "nonsense: Extra inputs are not permitted"),
    ("anthropic", {"betas": ["a"]}, "betas: Extra inputs are not permitted"),
    (
        "anthropic",
        {
            "system": [{"type": "text", "text": "S", "cache_control": EPHEMERAL}],
            "cache_control": {**EPHEMERAL, "ttl": "1h"},
        },
        "cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block",
    ),
    (
        "anthropic",
        {"thread": {"type": "continue", "previous_message_id": "msg_1"}, "system": "S"},
        "`system` is set in a request that continues a thread",
    ),
    (
        "anthropic",
        {"compaction": {"type": "summarize"}, "context_management": {"edits": []}},
        "`compaction` and `context_management` cannot be combined",
    ),
    (
        "gemini",
        {"cachedContent": "cachedContents/1", "systemInstruction": {"parts": [{"text": "S"}]}},
        "CachedContent can not be used with GenerateContent request setting system_instruction",
    ),
]


@pytest.mark.parametrize(("name", "settings", "text"), EXCLUSIONS)
def test_settings_that_exclude_each_other_are_refused(
    name: str, settings: JSONObject, text: str, standin: FakeVendors
) -> None:
    """Guarantee 10.5: an agent that is tested against a stand-in must fail where it would fail in production."""
    client = client_of(name)
    url = standin.url(name)
    client.whole(url, ask(client))
    record = standin.records[-1]
    head = RequestHead("POST", record.path, {}, {**record.headers, **dict.fromkeys(vendor(name).key_headers[:1], KEY)})
    answer, _ = standin.desk.answer(head, encode({**ask(client), **settings}))
    assert answer.status == 400
    assert text in standin.refused[-1].refused


@pytest.mark.parametrize("client", UNCHECKED, ids=lambda client: client.name)
def test_what_only_the_sdks_types_know_is_refused(client: SDKClient, standin: FakeVendors) -> None:
    """Guarantee 10.5: the vendor's types are the second judge. Some SDKs check their own before they send anything."""
    kind, _ = refusal(client, standin, {**ask(client), **client.strange})
    assert kind == client.refused
    assert "the SDK's types" in standin.refused[0].refused
    assert "colour" in standin.refused[0].refused


def test_what_codex_adds_is_taken_and_nothing_else(standin: FakeVendors) -> None:
    """Codex sends fields that the SDK does not know; they are let in where and as Codex sends them."""
    client = client_of("openai_responses")
    message: JSONObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    body = ask(client) | {"client_metadata": {"thread_id": "1"}, "input": [{**message, "id": "msg_1"}]}
    client.whole(standin.url(client.name), body)
    assert not standin.refused
    others: list[JSONObject] = [
        {"client_metadata": {"n": 1}},
        {"of_ours": {}},
        {"input": [{**message, "name": "msg_1"}]},
    ]
    for other in others:
        assert refusal(client, standin, {**body, **other})[0] == "BadRequestError"


@pytest.mark.parametrize("version", [None, "2031-01-01"])
def test_a_request_reports_which_version_of_the_api_it_is_for(standin: FakeVendors, version: str | None) -> None:
    """`anthropic-version` is required."""
    headers = {"x-api-key": KEY, "content-type": "application/json"}
    headers |= {"anthropic-version": version} if version else {}
    reply = httpx2.post(f"{standin.url()}/v1/messages", headers=headers, content=b"{}")
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "anthropic-version" in reply.json()["error"]["message"]


def test_an_input_beyond_the_window_is_refused(client: SDKClient) -> None:
    """Guarantee 7.6: an overflow looks like the vendor's."""
    with FakeVendors(lambda ask: FULL, window=100) as standin:
        client.whole(standin.url(client.name), client.body([user("short")]))
        kind, text = refusal(client, standin, client.body([user("long " * 200)]))
        assert kind == client.refused
        assert client.too_long in text


def test_a_request_that_comes_again_has_the_same_answer(client: SDKClient) -> None:
    """A retry looks like the first attempt, so a killed client can continue."""
    bodies: list[JSONObject] = []
    for _ in range(2):
        with FakeVendors(RandomScript(5)) as standin:
            bodies.append(as_json(client.whole(standin.url(client.name), ask(client))))
    assert bodies[0] == bodies[1]


def test_a_script_that_ends_is_reported() -> None:
    client = client_of("anthropic")
    with FakeVendors(Scripted(["One"])) as standin:
        assert client.whole(standin.url("anthropic"), client.body([user("a")])).content[0].text == "One"
        assert client.whole(standin.url("anthropic"), client.body([user("a")])).content[0].text == "One"
        assert refusal(client, standin, client.body([user("b")]))[0] == "InternalServerError"
        assert "no more replies" in standin.refused[0].refused


def test_the_transport_answers_as_the_server_does() -> None:
    """For benchmarks: the same bytes, without a line."""
    import anthropic

    client = client_of("anthropic")
    with FakeVendors(RandomScript(1)) as standin:
        expected = client.events(standin.url("anthropic"), ask(client))

    async def stream() -> list[object]:
        http = httpx2.AsyncClient(transport=FakeVendors(RandomScript(1)).transport())
        sdk = anthropic.AsyncAnthropic(api_key=KEY, base_url="http://standin", max_retries=0, http_client=http)
        async with sdk:
            return [event async for event in await sdk.messages.create(**ask(client), stream=True)]

    assert asyncio.run(stream()) == expected


def test_it_serves_from_a_running_loop_as_well() -> None:
    async def status() -> int:
        async with FakeVendors(Scripted([])) as standin, httpx2.AsyncClient() as http:
            return (await http.get(f"{standin.url()}/v1/nothing")).status_code

    assert asyncio.run(status()) == 404
