"""OpenAI's two kinds of sessions in the client: continued responses, and stored conversations.

Through OpenAI's own SDK, to a stand-in that keeps both as OpenAI does, and refuses in its words.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.errors import ProviderFailed
from contextc.formats.registry import formatter
from contextc.formats.streams import StreamReader
from contextc.providers.client import Endpoint, ProviderCall, endpoint
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Fault, Reply, faults
from tests.fake_vendors.replies import ScriptedCall as Asked
from tests.fake_vendors.sdks import http
from tests.fake_vendors.vendors._openai_state import Kept

if TYPE_CHECKING:
    import openai

FORMAT, VARIABLE, MODEL = "openai_responses", "CONTEXTC_STANDIN_KEY", "gpt-5.6"
HELLO: JSONObject = {"model": MODEL, "stream": True, "input": [{"role": "user", "content": "Grüß dich 🙂"}]}


def looking(ask: AcceptedRequest) -> Reply:
    """Call the tool with the last message; answer after its result."""
    last = ask.request.messages[-1]
    return Reply("Seen.") if last.role == "tool" else Reply(calls=[Asked("look", {"thing": last.text})])


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVendors]:
    monkeypatch.setenv(VARIABLE, KEY)
    with FakeVendors(lambda ask: Reply("Hello!", reasoning="Hm.")) as running:
        yield running


def _slowly(_: AcceptedRequest) -> Fault:
    return faults.slow(0.02)


def kept(standin: FakeVendors) -> Kept:
    return cast(Kept, standin.memory(FORMAT))


def at(standin: FakeVendors, name: str = "openai-conversation") -> cc.Provider:
    return cc.provider(f"{name}:{MODEL}", url=standin.url(FORMAT), key=VARIABLE)


@pytest.fixture
def client(standin: FakeVendors) -> "Iterator[openai.OpenAI]":
    import openai

    with openai.OpenAI(base_url=standin.url(FORMAT), api_key=KEY, max_retries=0, http_client=http(10)) as opened:
        yield opened


def call(provider: cc.Provider, body: JSONObject, conversation: str = "demo") -> ProviderCall:
    return ProviderCall(
        provider=provider, body=encode(body), conversation=conversation, stream=bool(body.get("stream"))
    )


async def read(line: Endpoint, asked: ProviderCall) -> StreamReader:
    reader = asked.provider.formatter.create_reader()
    async with aclosing(line.stream(asked)) as events:
        async for event in events:
            reader.read(event)
    return reader


async def answered(*calls: ProviderCall) -> list[StreamReader]:
    async with endpoint(calls[0].provider) as line:
        return [await read(line, each) for each in calls]


def failed(asked: ProviderCall) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as caught:
        asyncio.run(answered(asked))
    return caught.value


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_that_names_no_conversation_begins_one(standin: FakeVendors) -> None:
    """Guarantee 9.6: a full context goes into a new session; what was compiled is not written again."""
    asked = call(at(standin), HELLO)
    (reader,) = asyncio.run(answered(asked))
    made, sent = standin.records
    (name,) = kept(standin).conversations
    assert (made.method, made.path, decode(made.raw)) == ("POST", "/v1/conversations", {})
    assert sent.raw == b'{"conversation":"' + name.encode() + b'",' + asked.body[1:]
    assert reader.session == name
    assert reader.message().text == "Hello!"


def test_a_request_that_names_its_conversation_is_sent_as_it_is(standin: FakeVendors) -> None:
    """Guarantee 9.4: a session that is there is gone on with, and OpenAI prepends what it holds."""
    first, again = asyncio.run(_twice(at(standin)))
    assert first.session == again.session
    assert [record.path for record in standin.records].count("/v1/conversations") == 1
    items = kept(standin).conversations[first.session]
    assert [item["type"] for item in items] == ["message", "reasoning", "message"] * 2


async def _twice(provider: cc.Provider) -> list[StreamReader]:
    async with endpoint(provider) as line:
        first = await read(line, call(provider, HELLO))
        asked = call(provider, {**HELLO, "conversation": first.session})
        return [first, await read(line, asked)]


@pytest.mark.parametrize("name", ["openai", "openai-session"])
def test_only_openai_gets_a_conversation(name: str, standin: FakeVendors) -> None:
    asyncio.run(answered(call(at(standin, name), HELLO)))
    assert [record.path for record in standin.records] == ["/v1/responses"]


def test_a_call_that_is_for_no_conversation_of_ours_begins_none(standin: FakeVendors) -> None:
    """A summary is asked for on the same line, and is not to be kept."""
    asyncio.run(answered(call(at(standin), HELLO, conversation="")))
    assert [record.path for record in standin.records] == ["/v1/responses"]


def test_what_goes_wrong_with_beginning_a_conversation_is_reported_like_anything_else(
    standin: FakeVendors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 11.11."""
    nowhere = replace(at(standin), url=f"{standin.url()}/elsewhere")
    error = failed(call(nowhere, HELLO))
    assert (error.kind, error.status) == ("invalid", 404)
    with standin.refusing():
        assert failed(call(at(standin), HELLO)).kind == "transient"
    monkeypatch.setenv(VARIABLE, "sk-somebody-elses-key")
    assert failed(call(at(standin), HELLO)).kind == "auth"
    assert kept(standin).conversations == {}


def test_a_session_that_is_gone_is_a_failure_of_its_own(standin: FakeVendors) -> None:
    """Guarantee 9.5: OpenAI has a code for one of them, and only a sentence for the other."""
    lost = failed(call(at(standin, "openai-session"), {**HELLO, "previous_response_id": "resp_0"}))
    gone = failed(call(at(standin), {**HELLO, "conversation": "conv_0"}))
    assert (lost.kind, lost.status, lost.code) == ("session", 400, "previous_response_not_found")
    assert (gone.kind, gone.status, gone.said) == ("session", 404, "Conversation with id 'conv_0' not found.")
    assert "recompile" in str(gone)


def test_a_conversation_with_another_running_turn_may_be_asked_again(standin: FakeVendors) -> None:
    """Guarantee 11.11: its status is that of a wrong request, and waiting helps."""

    async def side_by_side() -> ProviderFailed:
        provider = at(standin)
        async with endpoint(provider) as line:
            (first,) = await answered(call(provider, HELLO))
            busy = call(provider, {**HELLO, "conversation": first.session})
            standin.desk.faults = _slowly
            async with aclosing(line.stream(busy)) as events:
                await anext(events)
                with pytest.raises(ProviderFailed) as caught:
                    await read(line, busy)
            return caught.value

    error = asyncio.run(side_by_side())
    assert (error.kind, error.status, error.code) == ("transient", 400, "conversation_locked")


# ── the session in a reply ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["openai-session", "openai-conversation"])
def test_a_reader_reports_which_session_a_reply_belongs_to(name: str, stream: bool, standin: FakeVendors) -> None:
    """Guarantee 9.1: the conversation it is in, or else the response itself."""
    (reader,) = asyncio.run(answered(call(at(standin, name), {**HELLO, "stream": stream})))
    known = kept(standin).conversations if name == "openai-conversation" else kept(standin).responses
    assert [reader.session] == list(known)


def test_a_response_that_is_not_stored_is_not_a_session(standin: FakeVendors) -> None:
    """Guarantee 9.5: disabled by the request, or for the whole organization."""
    provider = at(standin, "openai-session")
    (asked,) = asyncio.run(answered(call(provider, {**HELLO, "store": False})))
    kept(standin).forgets = True
    (agreed,) = asyncio.run(answered(call(provider, HELLO)))
    assert (asked.session, agreed.session) == ("", "")


def test_the_setting_that_names_a_session_reports_where_a_reply_names_it() -> None:
    """Guarantee 9.1: a reply without a conversation has none, and its own id is not a name for one."""
    speaks = formatter(FORMAT)
    alone: JSONObject = {"id": "resp_1", "conversation": None, "output": []}
    within: JSONObject = {**alone, "conversation": {"id": "conv_1"}}
    names = [
        speaks.session_id_of(reply, field)
        for field in ("previous_response_id", "conversation")
        for reply in (alone, within, {**within, "store": False})
    ]
    assert names == ["resp_1", "resp_1", "", "", "conv_1", ""]
    assert formatter("openai_chat").session_id_of({"id": "chat_1"}, "session") == "chat_1"
    assert formatter("openai_chat").session_id_of({}, "session") == ""


@pytest.mark.parametrize("name", ["openai-session", "openai-conversation"])
def test_compiled_requests_sent_with_the_sdk_keep_a_session(
    name: str, standin: FakeVendors, client: "openai.OpenAI"
) -> None:
    """Guarantees 9.4, 9.7: a commit takes the session from what the SDK returned."""
    store, create = cc.open_store("memory:"), cast(Any, client.responses.create)  # Any: it has many forms
    compiler = cc.MessageCompiler(store, at(standin, name))
    modes: list[tuple[str, int]] = []
    for text in ("one", "two", "three"):
        store.append("demo", cc.user(text))
        compiled = compiler.compile("demo")
        arguments = dict(compiled.arguments)
        if compiled.mode == "full" and name == "openai-conversation":
            arguments["conversation"] = client.conversations.create().id
        with compiler.attempt(compiled) as attempt:
            attempt.commit(create(**arguments))
        modes.append((compiled.mode, len(arguments["input"])))
    assert modes == [("full", 1), ("resume", 1), ("resume", 1)]
    (known,) = cc.SessionManager(store).sessions("demo")
    assert known.id in (kept(standin).conversations if name == "openai-conversation" else kept(standin).responses)


# ── the stand-in ──────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(client: "openai.OpenAI", **arguments: Any) -> str:
    import openai

    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(model=MODEL, **arguments)
    return f"{caught.value.status_code} {cast(JSONObject, caught.value.body)['message']}"


def test_the_stand_in_keeps_a_conversation_as_openai_does(client: "openai.OpenAI") -> None:
    """Its items are there when a response is complete, in the SDK's own types, until it is deleted."""
    name = client.conversations.create(items=[{"role": "user", "content": "Before."}]).id
    reply = client.responses.create(model=MODEL, input="Hello?", conversation=name)
    assert reply.conversation is not None
    assert reply.conversation.id == name
    items = list(client.conversations.items.list(name, order="asc", limit=2))
    assert [item.type for item in items] == ["message", "message", "reasoning", "message"]
    assert client.conversations.retrieve(name).object == "conversation"
    assert client.conversations.delete(name).deleted
    assert refused(client, input="And?", conversation=name) == f"404 Conversation with id '{name}' not found."


def test_the_stand_in_holds_the_whole_context_against_the_rules(standin: FakeVendors, client: "openai.OpenAI") -> None:
    """A result whose call is held is sound; one without is not, nor what is sent a second time."""
    standin.desk.script = looking
    name = client.conversations.create().id
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]
    first = client.responses.create(model=MODEL, input="the moon", conversation=name, tools=tools)
    item = first.output[-1].to_dict()
    result: Any = {"type": "function_call_output", "call_id": item["call_id"], "output": "round"}
    stray = {**result, "call_id": "call_nobody"}
    twice, own = (
        f"400 Duplicate item found with id {item['id']}",
        f"No tool output found for function call {item['call_id']}",
    )
    assert refused(client, input="and?", conversation=name, tools=tools) == f"400 {own}."
    assert refused(client, input=[item, result], conversation=name, tools=tools).startswith(twice)
    assert refused(client, input=[item, result], previous_response_id=first.id, tools=tools).startswith(twice)
    assert "call_nobody" in refused(client, input=[result, stray], previous_response_id=first.id, tools=tools)
    assert "call_nobody" in refused(client, input=[stray], tools=tools)
    assert "exclusive" in refused(client, input=[result], conversation=name, previous_response_id=first.id, tools=tools)
    assert client.responses.create(model=MODEL, input=[result], conversation=name, tools=tools).output_text == "Seen."
    other = client.responses.create(model=MODEL, input=[result], previous_response_id=first.id, tools=tools)
    assert other.output_text == "Seen."


def test_the_fake_drops_responses_that_are_not_to_be_stored(client: "openai.OpenAI") -> None:
    """Nor can a response be continued that was deleted."""
    unstored = client.responses.create(model=MODEL, input="Hello?", store=False).id
    stored = client.responses.create(model=MODEL, input="Hello?").id
    assert client.responses.retrieve(stored).id == stored
    client.responses.delete(stored)
    for name in (unstored, stored):
        text = refused(client, input="And?", previous_response_id=name)
        assert text == f"400 Previous response with id '{name}' not found."
