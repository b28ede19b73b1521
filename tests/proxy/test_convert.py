"""`--convert`: another provider behind the same client (Guarantee 16.17)."""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx2
import pytest

import contextc as cc
from contextc.errors import FailureKind
from contextc.formats import formatter
from contextc.proxy.access_checks import AccessRules
from contextc.proxy.acting_exchanges import ActingOptions
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.request_conversion import Conversion, count_request_tokens, encode_failure
from contextc.proxy.request_lint import fix_request
from contextc.proxy.upstreams import parse_upstream
from tests.fake_vendors import KEY, FakeVendors, Reply, faults, listed
from tests.fake_vendors.replies import ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest
from tests.proxy.test_sdk_clients import stored_bodies

SECONDS = 120.0
TOKEN = "a-token-of-the-proxy"
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-5.4",
    "openai-chat": "gpt-4.1",
    "gemini": "gemini-3.6-flash",
    "ollama": "llama3.1",
}
FORMATS = {
    "anthropic": "anthropic", "openai": "openai_responses", "openai-chat": "openai_chat", "gemini": "gemini",
    "ollama": "ollama",
}  # fmt: skip


def script(ask: AcceptedRequest) -> Reply:
    """Call two tools, then answer with their results."""
    found = [result.text for message in ask.request.messages for result in message.tool_results]
    if found:
        return Reply("It is " + " and ".join(found))
    return Reply("I look.", [ScriptedCall("look", {"at": "a"}), ScriptedCall("look", {"at": "b"})], reasoning="Hm.")


@contextmanager
def converting(tmp_path: Path, fake: FakeVendors, name: str) -> Generator[tuple[ProxyServer, str]]:
    provider = cc.provider(f"{name}:{MODELS[name]}", url=fake.url(FORMATS[name]), key="STANDIN_KEY")
    proxy = ProxyServer(
        f"sqlite:///{tmp_path}/store.db",
        {each: parse_upstream(each, "http://127.0.0.1:9") for each in ("anthropic", "openai", "gemini")},
        folder=tmp_path / "spool",
        access=AccessRules(token=TOKEN),
        acting=ActingOptions(lints=True, converts_to=provider),
    )
    try:
        with listen("127.0.0.1", 0) as listening, proxy.running(listening) as url:
            yield proxy, f"{url}/t/{TOKEN}"
    finally:
        proxy.close(0)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_KEY", KEY)


SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
ANTHROPIC_TOOL = {"name": "look", "description": "Look.", "input_schema": SCHEMA}
RESPONSES_TOOL = {"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA, "strict": False}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}


def mode(streams: bool) -> str:
    """Return a text for the first messages of a conversation, because they identify it."""
    return "as a stream" if streams else "as a whole"


def results(ids: Iterator[str]) -> list[tuple[str, str]]:
    return [(id, f"result {number}") for number, id in enumerate(ids, 1)]


def ask_as_anthropic(url: str, streams: bool) -> str:
    """Work through the tools with Anthropic's SDK, and return the final text."""
    import anthropic  # here, because every process of a test run collects this file

    client: Any = anthropic.Anthropic(base_url=f"{url}/anthropic", api_key="of-the-client", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": f"Look at both, {mode(streams)}."}]
    for _ in range(3):
        options: Any = {
            "model": "claude-opus-4-5", "max_tokens": 32_000, "system": f"Be brief, {mode(streams)}.",
            "tools": [ANTHROPIC_TOOL], "messages": messages,
        }  # fmt: skip
        if streams:
            with client.messages.stream(**options) as stream:
                reply = stream.get_final_message()
        else:
            reply = client.messages.create(**options, timeout=180)
        assert reply.model == "claude-opus-4-5"
        assert reply.usage.output_tokens > 0
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            assert reply.stop_reason == "end_turn"
            return "".join([block.text for block in reply.content if block.type == "text"])
        assert reply.stop_reason == "tool_use"
        assert [call.input for call in calls] == [{"at": "a"}, {"at": "b"}]
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]}
        )
        answers = [
            {"type": "tool_result", "tool_use_id": id, "content": text}
            for id, text in results(call.id for call in calls)
        ]
        messages.append({"role": "user", "content": answers})
    raise AssertionError


def ask_as_responses(url: str, streams: bool) -> str:
    import openai

    client: Any = openai.OpenAI(base_url=f"{url}/openai/v1", api_key="of-the-client", max_retries=0)
    items: list[Any] = [{"role": "user", "content": f"Look at both, {mode(streams)}."}]
    for _ in range(3):
        options: Any = {
            "model": "gpt-5.6", "instructions": f"Be brief, {mode(streams)}.", "tools": [RESPONSES_TOOL],
            "input": items, "store": False,
        }  # fmt: skip
        if streams:
            with client.responses.stream(**options) as stream:
                reply = stream.get_final_response()
        else:
            reply = client.responses.create(**options)
        assert (reply.model, reply.status) == ("gpt-5.6", "completed")
        assert reply.usage is not None
        assert reply.usage.total_tokens > reply.usage.output_tokens > 0
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_text
        assert [json.loads(call.arguments) for call in calls] == [{"at": "a"}, {"at": "b"}]
        items += [
            item.model_dump(exclude_none=True, exclude={"id", "status", "parsed_arguments"}) for item in reply.output
        ]
        items += [
            {"type": "function_call_output", "call_id": id, "output": text}
            for id, text in results(call.call_id for call in calls)
        ]
    raise AssertionError


def ask_as_chat(url: str, streams: bool) -> str:
    import openai

    client: Any = openai.OpenAI(base_url=f"{url}/openai/v1", api_key="of-the-client", max_retries=0)
    messages: list[Any] = [
        {"role": "system", "content": f"Be brief, {mode(streams)}."},
        {"role": "user", "content": f"Look at both, {mode(streams)}."},
    ]
    for _ in range(3):
        options: Any = {"model": "gpt-4.1", "tools": [CHAT_TOOL], "messages": messages}
        if streams:
            with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
                reply = stream.get_final_completion()
        else:
            reply = client.chat.completions.create(**options)
        (choice,) = reply.choices
        assert reply.usage is not None
        assert reply.usage.completion_tokens > 0
        calls: list[Any] = choice.message.tool_calls or []
        if not calls:
            assert choice.finish_reason == "stop"
            return choice.message.content or ""
        assert choice.finish_reason == "tool_calls"
        assert [json.loads(call.function.arguments) for call in calls] == [{"at": "a"}, {"at": "b"}]
        written = [
            {"id": call.id, "type": "function", "function": {"name": "look", "arguments": call.function.arguments}}
            for call in calls
        ]
        messages.append({"role": "assistant", "content": choice.message.content, "tool_calls": written})
        messages += [
            {"role": "tool", "tool_call_id": id, "content": text} for id, text in results(call.id for call in calls)
        ]
    raise AssertionError


def ask_as_gemini(url: str, streams: bool) -> str:
    from google import genai

    client: Any = genai.Client(api_key="of-the-client", http_options={"base_url": f"{url}/gemini"})
    tools = [{"function_declarations": [{"name": "look", "description": "Look.", "parameters_json_schema": SCHEMA}]}]
    config: Any = {
        "system_instruction": f"Be brief, {mode(streams)}.",
        "tools": tools,
        "automatic_function_calling": {"disable": True},
    }
    contents: list[Any] = [{"role": "user", "parts": [{"text": f"Look at both, {mode(streams)}."}]}]
    for _ in range(3):
        options: Any = {"model": "gemini-2.5-pro", "config": config, "contents": contents}
        if streams:
            replies: list[Any] = list(client.models.generate_content_stream(**options))
        else:
            replies = [client.models.generate_content(**options)]
        parts: list[Any] = [
            part
            for reply in replies
            for candidate in list[Any](reply.candidates or [])
            for part in list[Any]((candidate.content.parts if candidate.content else None) or [])
        ]
        assert replies[-1].usage_metadata is not None
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            return "".join([part.text or "" for part in parts])
        assert [call.args for call in calls] == [{"at": "a"}, {"at": "b"}]
        contents.append(
            {"role": "model", "parts": [part.model_dump(exclude_none=True) for part in parts if part.text != ""]}
        )
        answers = [
            {"function_response": {"id": call.id, "name": "look", "response": {"output": f"result {number}"}}}
            for number, call in enumerate(calls, 1)
        ]
        contents.append({"role": "user", "parts": answers})
    raise AssertionError


CLIENTS = {
    "anthropic": ask_as_anthropic,
    "openai_responses": ask_as_responses,
    "openai_chat": ask_as_chat,
    "gemini": ask_as_gemini,
}
PAIRS = [(client, target) for client in CLIENTS for target in MODELS]
QUICK = (
    ("anthropic", "openai"),
    ("openai_responses", "anthropic"),
    ("gemini", "anthropic"),
    ("openai_chat", "ollama"),
)


@pytest.mark.parametrize(
    ("client", "target"),
    [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.thorough) for pair in PAIRS],
)
def test_a_client_works_with_tools_on_another_provider(tmp_path: Path, client: str, target: str) -> None:
    """Two calls at once and their results, streamed and whole. The strict provider refuses nothing.

    It gets its reasoning back.
    """
    with FakeVendors(script) as fake:
        with converting(tmp_path, fake, target) as (proxy, url):
            for streams in (True, False):
                assert CLIENTS[client](url, streams) == "It is result 1 and result 2"
            assert proxy.close()
        assert not fake.refused
        assert not fake.defects
        assert not fake.breaks()
        sent = [each.raw for each in fake.records]
    assert proxy.gaps.count == 0
    assert proxy.summary.failed == 0
    assert proxy.summary.actions.keys() == {"convert"}
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        names = [row[0] for row in store.read(lambda tx: tx.rows("SELECT name FROM main.conversation ORDER BY number"))]
        assert [stored_bodies(store, name) for name in names] == [sent[:2], sent[2:]]
        for name in names:
            roles = [role for role, _ in groupby([message.role for message in store.load(name)])]
            assert roles == ["user", "assistant", "tool", "assistant"]
    assert len(sent) == 4
    if target == "openai":
        for each in (sent[1], sent[3]):
            assert "reasoning" in [item.get("type") for item in json.loads(each)["input"]]


def test_converting_needs_a_token(tmp_path: Path) -> None:
    provider = cc.provider("openai:gpt-5.4")
    with pytest.raises(cc.errors.InvalidSetting, match="token"):
        ProxyServer(
            f"sqlite:///{tmp_path}/store.db", {}, folder=tmp_path / "spool", acting=ActingOptions(converts_to=provider)
        )
    with FakeVendors(script) as fake, converting(tmp_path, fake, "openai") as (_, url):
        bare = url.replace(f"/t/{TOKEN}", "")
        assert httpx2.post(f"{bare}/anthropic/v1/messages", json={}, timeout=180).status_code == 401
        assert not fake.records


def test_only_providers_of_an_api_can_answer(tmp_path: Path) -> None:
    with pytest.raises(cc.errors.InvalidSetting, match="stateless API"):
        ProxyServer(
            f"sqlite:///{tmp_path}/store.db",
            {},
            folder=tmp_path / "spool",
            access=AccessRules(token=TOKEN),
            acting=ActingOptions(converts_to=cc.provider("claude-code")),
        )


def body(text: str = "Hello", **more: object) -> dict[str, object]:
    return {"model": "claude-opus-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


def test_a_client_whose_format_has_no_stream_of_replies_is_refused() -> None:
    """Bedrock's clients read another kind of stream than Anthropic's, although requests are joined alike."""
    request: dict[str, object] = {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}
    with pytest.raises(cc.errors.InvalidSetting, match="cannot be converted to the format of this client"):
        Conversion(cc.provider("openai:gpt-5.4")).convert(
            json.dumps(request).encode(), "bedrock", "https://bedrock.test/model/nova/converse-stream"
        )


def test_a_change_that_fails_does_not_stop_a_converted_request() -> None:
    def fail(body: bytes, format: str, url: str) -> None:
        raise ZeroDivisionError

    conversion = Conversion(cc.provider("openai:gpt-5.4"), (("fit", fail), ("fix", fix_request)))
    made = conversion.convert(json.dumps(body()).encode(), "anthropic", "https://api.anthropic.com/v1/messages")
    assert json.loads(made.body)["model"] == "gpt-5.4"
    assert [(each.rule, each.failed) for each in made.actions] == [("convert", False), ("fit", True)]


def test_tokens_are_estimated_here(tmp_path: Path) -> None:
    with FakeVendors(script) as fake, converting(tmp_path, fake, "openai") as (_, url):
        answer = httpx2.post(f"{url}/anthropic/v1/messages/count_tokens", json=body(), timeout=180)
        assert 5 < answer.json()["input_tokens"] < 100
        assert not fake.records


@pytest.mark.parametrize(
    ("format", "url", "field"),
    [
        ("anthropic", "https://api.anthropic.com/v1/messages/count_tokens", "input_tokens"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:countTokens", "totalTokens"),
        ("", "https://other.test/v1/messages/count_tokens", "input_tokens"),
    ],
)
def test_a_count_of_tokens_has_the_field_that_the_client_reads(format: str, url: str, field: str) -> None:
    counted = count_request_tokens(json.dumps(body()).encode(), format, url)
    assert counted is not None
    assert list(json.loads(counted)) == [field]


@pytest.mark.parametrize(
    ("format", "kind", "status", "error"),
    [
        ("anthropic", "transient", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "No."}}),
        ("anthropic", "auth", 403, {"type": "error", "error": {"type": "permission_error", "message": "No."}}),
        ("gemini", "rate", 429, {"error": {"code": 429, "message": "No.", "status": "RESOURCE_EXHAUSTED"}}),
        ("gemini", "invalid", 400, {"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}}),
        (
            "openai_responses",
            "quota",
            402,
            {"error": {"message": "No.", "type": "insufficient_quota", "code": "insufficient_quota"}},
        ),
        ("bedrock", "auth", 403, {"error": {"message": "No.", "type": "invalid_request_error", "code": None}}),
    ],
)
def test_an_error_is_encoded_as_the_clients_sdk_expects_it(
    format: str, kind: FailureKind, status: int, error: dict[str, object]
) -> None:
    """Also for a format that no reply can be converted to: it has the form that most clients read."""
    failed = cc.errors.ProviderFailed("openai", kind, "No.")
    made, found = encode_failure(formatter(format), failed)
    text = f"{failed.problem}. {failed.fix}" if failed.fix else failed.problem
    assert (made, found) == (status, json.loads(json.dumps(error).replace('"No."', json.dumps(text))))


def test_errors_have_the_form_of_the_clients_provider(tmp_path: Path) -> None:
    """A request that is too long, one that is no JSON, a rate limit, a reply that breaks off, and a closed port."""
    plan = listed(None, None, faults.rate(2), faults.ended(), faults.error_inside())
    with (
        FakeVendors(lambda ask: Reply("Hello there."), window=200, faults=plan) as fake,
        converting(tmp_path, fake, "openai") as (proxy, url),
    ):
        address = f"{url}/anthropic/v1/messages"

        def send(**options: Any) -> tuple[int, str, str]:
            answer = httpx2.post(address, timeout=180, **options)
            error = answer.json()["error"]
            return answer.status_code, error["type"], error["message"]

        assert httpx2.post(address, json=body(), timeout=180).json()["content"][0]["text"] == "Hello there."
        status, type, text = send(json=body("word " * 2_000))
        assert (status, type) == (400, "invalid_request_error")
        assert "prompt is too long" in text
        assert send(content=b"{no json")[:2] == (400, "invalid_request_error")
        assert send(json=body("Again"))[:2] == (429, "rate_limit_error")
        assert send(json=body("And again"))[:2] == (529, "overloaded_error")
        streamed = httpx2.post(address, json=body("Once more", stream=True), timeout=180)
        assert streamed.status_code == 200
        assert "event: error" in streamed.text
        assert "message_stop" not in streamed.text
        with fake.refusing():
            status, type, text = send(json=body("The last one"))
        assert (status, type) == (529, "overloaded_error")
        assert KEY not in text
        assert proxy.close()
    assert proxy.summary.failed == 5


def test_a_client_that_disconnects_cancels_the_request(tmp_path: Path) -> None:
    with (
        FakeVendors(lambda ask: Reply("word " * 200), faults=lambda ask: faults.slow(0.05)) as fake,
        converting(tmp_path, fake, "openai") as (proxy, url),
    ):
        address = f"{url}/anthropic/v1/messages"
        with httpx2.stream("POST", address, json=body(stream=True), timeout=180) as answer:
            next(answer.iter_bytes())
        end = time.monotonic() + SECONDS
        while fake.records[0].then is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert not fake.records[0].completed
        assert proxy.close()
    assert proxy.summary.failed == 1
