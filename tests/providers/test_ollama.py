"""The Ollama client, through its own SDK, with a local server."""

import asyncio
import json
from collections.abc import Iterable

import httpx
import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.providers import Provider, ProviderCall
from contextc.providers.http_client import MalformedEvent, NDJSONParser
from contextc.store.turn_records import join_deltas
from tests.providers.loopback_server import Answer, loopback, refused

KEY = "sk-test-0123456789abcdef"
SPEC = "ollama:qwen3:8b"
NDJSON = (("content-type", "application/x-ndjson"),)
BODY: JSONObject = {
    "model": "qwen3:8b",
    "stream": True,
    "messages": [{"role": "user", "content": "Grüß dich 🙂 \u2028"}],
}
EVENTS: list[JSONObject] = [
    {"model": "qwen3:8b", "message": {"role": "assistant", "content": "", "thinking": "Hm"}, "done": False},
    {"model": "qwen3:8b", "message": {"role": "assistant", "content": "Hel"}, "done": False},
    {"model": "qwen3:8b", "message": {"role": "assistant", "content": "lo\u2028"}, "done": False},
    {"model": "qwen3:8b", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
]


@pytest.fixture(autouse=True)
def no_host_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def streamed(events: Iterable[JSONObject]) -> Answer:
    return Answer(tuple(encode(event) + b"\n" for event in events), headers=NDJSON)


async def ask(provider: Provider) -> list[JSONObject]:
    async with cc.endpoint(provider) as line:
        return [event async for event in line.stream(ProviderCall(provider=provider, body=encode(BODY)))]


async def answered(answer: Answer) -> list[JSONObject]:
    async with loopback(answer) as server:
        return await ask(cc.provider(SPEC, url=server.url))


def test_thinking_and_odd_line_ends_in_a_text_come_through() -> None:
    """Guarantee 12.1: deltas, and the whole message. Only a newline ends a line."""
    events = asyncio.run(answered(streamed(EVENTS)))
    assert events == EVENTS
    reader = cc.provider(SPEC).formatter.create_reader()
    deltas = join_deltas([delta for event in events for delta in reader.read(event)])
    assert [part.text for part in deltas if isinstance(part, cc.Text | cc.Reasoning)] == ["Hm", "Hello\u2028"]
    assert (reader.message().text, reader.message().finish, reader.finished) == ("Hello\u2028", "stop", True)


def test_it_is_looked_for_where_its_own_client_would_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """OLLAMA_HOST may lack scheme and port, and OLLAMA_API_KEY is sent there."""
    monkeypatch.setenv("OLLAMA_API_KEY", KEY)

    async def sent() -> dict[str, str]:
        async with loopback(streamed(EVENTS)) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.url.removeprefix("http://"))
            assert await ask(cc.provider(SPEC)) == EVENTS
            return server.arrived[0].headers

    assert asyncio.run(sent())["authorization"] == f"Bearer {KEY}"


def test_a_missing_server_explains_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 15.1: the address that was asked, and the command."""
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    for provider in (cc.provider(SPEC), cc.provider(SPEC, url="http://127.0.0.1:9")):
        with pytest.raises(
            cc.errors.ProviderFailed, match=r"[Cc]onnect.*\(http://127\.0\.0\.1:9\).*`ollama serve`"
        ) as caught:
            asyncio.run(ask(provider))
        assert caught.value.kind == "transient"


def runner(error: JSONObject) -> JSONObject:
    """Return an error of the model runner, which is text in Ollama's own error."""
    return {"error": json.dumps({"error": error})}


SAID: list[tuple[int, JSONObject, str, str]] = [
    (404, {"error": 'model "qwen3:8b" not found, try pulling it first'}, "invalid", "`ollama pull qwen3:8b`"),
    (404, {"error": "model 'qwen3:8b' not found"}, "invalid", "`ollama pull qwen3:8b`"),
    (400, {"error": '"qwen3:8b" does not support tools'}, "invalid", "a model that supports tools"),
    (400, {"error": '"qwen3:8b" does not support thinking'}, "invalid", '"think": False'),
    (400, {"error": "the input length exceeds the context length"}, "context", ""),
    (400, {"error": "input length exceeds maximum context length"}, "context", ""),
    (400, {"error": "prompt too long; exceeded max context length by 65590 tokens (ref: 1)"}, "context", ""),
    (
        400,
        runner(
            {
                "code": 400,
                "message": "request (8889 tokens) exceeds the available context size (4096 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 8889,
                "n_ctx": 4096,
            }
        ),
        "context",
        "request (8889 tokens) exceeds the available context size",
    ),
    (
        400,
        {"error": "the prompt is longer than the context length currently available to the model; raise it"},
        "context",
        "",
    ),
    (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}, "transient", ""),
    (500, {"error": "model requires more system memory (21.5 GiB) than is available"}, "invalid", "window=8_192"),
    (500, {"error": 'option "num_ctx" must be of type integer'}, "invalid", ""),
    (500, {"error": "llama runner process has terminated: exit status 2"}, "transient", ""),
    (401, {"error": "unauthorized", "signin_url": "https://ollama.com/connect"}, "auth", ""),
    (429, {"error": "you (ada) have reached your session usage limit, upgrade for higher limits"}, "quota", ""),
    (429, {"error": "you've reached your hourly usage limit, please wait or upgrade to continue"}, "quota", ""),
    (429, {"error": "timed out waiting for a concurrent request slot"}, "rate", ""),
    (503, {"error": "Server overloaded, please retry shortly (ref: aaa65c70)"}, "transient", ""),
]


@pytest.mark.parametrize(("status", "body", "kind", "way_out"), SAID, ids=[str(body)[:60] for _, body, _, _ in SAID])
def test_its_refusals_are_understood(status: int, body: JSONObject, kind: str, way_out: str) -> None:
    """Guarantees 11.11, 15.1: the server's own sentences, and what helps."""
    with pytest.raises(cc.errors.ProviderFailed) as caught:
        asyncio.run(answered(refused(status, body)))
    assert (caught.value.kind, caught.value.status) == (kind, status)
    assert way_out in str(caught.value)


def test_a_client_of_ones_own_is_used_and_left_open() -> None:
    """For proxies, certificates and tests: `http_client`, of httpx as Ollama's own client has one."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://nowhere.invalid/api/chat"
        content = b"".join(encode(event) + b"\n" for event in EVENTS)
        return httpx.Response(200, headers=dict(NDJSON), content=content)

    async def asked_through() -> list[JSONObject]:
        provider = cc.provider(SPEC, url="http://nowhere.invalid")
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            async with cc.endpoint(provider, http_client=client) as line:
                call = ProviderCall(provider=provider, body=encode(BODY))
                events = [event async for event in line.stream(call)]
            assert not client.is_closed
            return events

    assert asyncio.run(asked_through()) == EVENTS


def test_every_request_states_its_window_and_that_nothing_is_cut(store: cc.Store) -> None:
    """Otherwise the server cuts the oldest messages away, silently."""
    store.append("c", cc.user("Hi"))

    def compiled(provider: Provider, **settings: object) -> JSONObject:
        return json.loads(cc.MessageCompiler(store, provider).compile("c", settings=settings).body)

    small = cc.provider(SPEC, window=8_192)
    assert compiled(small, **small.settings) == {
        "model": "qwen3:8b",
        "stream": False,
        "think": True,
        "truncate": False,
        "options": {"num_ctx": 8_192},
        "messages": [{"role": "user", "content": "Hi"}],
    }
    plain = cc.provider("ollama:llama3.1")
    assert (plain.settings, plain.stream_settings) == ({"stream": False}, {"stream": True})
    warm = compiled(plain, options={"temperature": 0.2})
    assert warm["options"] == {"num_ctx": plain.model.window, "temperature": 0.2}
    assert warm["truncate"] is False
    own = compiled(plain, options={"num_ctx": 4_096}, truncate=True)
    assert (own["options"], own["truncate"]) == ({"num_ctx": 4_096}, True)


def test_an_unknown_model_asks_for_its_window() -> None:
    """Guarantee 15.1: what to write."""
    with pytest.raises(cc.errors.UnknownModel, match="window="):
        cc.provider("ollama:my-own:latest")
    assert cc.provider("ollama:my-own:latest", window=9_000).model_id == "my-own:latest"


CUTS = [1, 2, 7, 10_000]


@pytest.mark.parametrize("size", CUTS)
def test_lines_come_in_any_pieces(size: int) -> None:
    whole = b"".join(encode(event) + b"\n" for event in EVENTS)
    lines = NDJSONParser()
    found = [event for at in range(0, len(whole), size) for event in lines.feed(whole[at : at + size])]
    assert (found, lines.end(), lines.done) == (EVENTS, [], True)


def test_the_last_line_may_lack_its_end_and_empty_ones_are_nothing() -> None:
    lines = NDJSONParser()
    assert lines.feed(b'{"a": 1}\r\n\r\n  \n{"done": fal') == [{"a": 1}]
    assert lines.feed(b"se}") == []
    assert (lines.end(), lines.done) == ([{"done": False}], False)
    assert lines.end() == []


def test_nothing_is_read_after_the_last_event() -> None:
    lines = NDJSONParser()
    assert lines.feed(b'{"done": true}\nnoise\n') == [{"done": True}]
    assert lines.feed(b"more noise\n") == []


@pytest.mark.parametrize("line", [b"words", b"[1]", b'{"a', b"\xff"])
def test_a_line_that_is_not_an_object_is_reported(line: bytes) -> None:
    with pytest.raises(MalformedEvent, match="expected a JSON object"):
        NDJSONParser().feed(line + b"\n")
