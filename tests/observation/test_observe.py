"""Requests of other software become conversations, ledger rows and manifests, and their bytes can be rebuilt."""

import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.past_requests import explain, rebuild
from contextc.formats import formatter
from contextc.inspection.request_details import compute_distribution, load_request_details, page_lines
from contextc.inspection.request_timeline import load_timeline
from tests.conftest import some

Wire = dict[str, Any]
TRAFFIC = [json.loads(line) for line in (Path(__file__).parents[1] / "data/traffic.jsonl").read_text().splitlines()]
STYLES: list[Wire] = [{}, {"separators": (",", ":")}, {"indent": 3, "ensure_ascii": False}]


def chat(*texts: str, **fields: object) -> Wire:
    roles = ("user", "assistant")
    rows = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    return {"model": "gpt-5", "messages": [{"role": "system", "content": "Be brief."}, *rows], **fields}


def answer(text: str, *, input: int = 10, cached: int = 0) -> Wire:
    usage = {"prompt_tokens": input, "completion_tokens": 3, "total_tokens": input + 3}
    return {
        "id": "c1", "object": "chat.completion", "model": "gpt-5",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}},
    }  # fmt: skip


def test_an_attribution_line_of_the_client_is_no_change_of_the_system_prompt() -> None:
    """Claude Code begins each system prompt with another one. Its provider does not count it. The body stays exact."""
    messages: list[Wire] = [{"role": "user", "content": "a"}]
    with cc.open_store("memory:") as store:
        seen: list[cc.observation.ObservedRequest] = []
        for line, prompt in (("cch=1", "Be brief."), ("cch=2", "Be brief."), ("cch=2", "Be long.")):
            system = [{"type": "text", "text": text} for text in (f"x-anthropic-billing-header: {line};", prompt)]
            body = {"model": "claude-opus-5-5", "max_tokens": 9, "system": system, "messages": messages}
            raw = json.dumps(body).encode()
            reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "b"}]}
            seen.append(cc.observe(store, request=raw, reply=reply, format="anthropic", conversation="x"))
            assert rebuild(store, seen[-1].channel, formatter("anthropic"), seen[-1].request) == raw
            messages += [
                {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
                {"role": "user", "content": "c"},
            ]
        assert [each.record.why for each in seen] == ["first request", "", "system prompt changed"]


def texts(store: cc.Store, name: str) -> list[str]:
    return [message.text for message in store.load(name)]


@pytest.mark.parametrize("traffic", some(TRAFFIC, 30), ids=lambda each: each["case"].rpartition("/")[2])
def test_recorded_traffic(traffic: Wire) -> None:
    memory = cc.open_store("memory:")
    form = formatter(traffic["api"])
    reply: Any = traffic["reply"]
    for style in STYLES:
        body = json.dumps(traffic["request"], **style).encode()
        seen = cc.observe(memory, request=body, reply=reply, format=traffic["api"], status=traffic["status"])
        assert seen.body == body
        assert seen.record.mode == "observed"
        assert not seen.record.remarks
        if traffic["status"] != 200:
            assert seen.status == "error"
            assert seen.record.observed is not None
            assert seen.record.observed.error
        elif not isinstance(reply, str):
            assert seen.usage == form.decode_reply(reply).usage
        assert str(explain(memory, seen.channel, seen.request))


def test_a_growing_conversation(store: cc.Store) -> None:
    first = cc.observe(store, request=chat("a"), reply=answer("b"), format="openai_chat", time=1_000, ended=1_500)
    second = cc.observe(
        store, request=chat("a", "b", "c"), reply=answer("d", input=30, cached=10), format="openai_chat", time=2_000
    )
    assert (second.conversation, second.request) == (first.conversation, 2)
    assert texts(store, first.conversation) == ["a", "b", "c", "d"]
    assert [message.time for message in store.load(first.conversation)] == [1_000, 1_500, 2_000, 2_000]
    moments = load_timeline(store, first.conversation)
    assert [(each.record.why, each.record.epoch, each.record.added) for each in moments] == [
        ("first request", 1, 1),
        ("", 1, 1),
    ]
    assert moments[1].record.usage == cc.Usage(input=30, output=3, cache_read=10)
    assert moments[1].cost
    assert moments[1].record.shared_bytes == len(b'{"role":"user","content":"a"}')
    for seen in (first, second):
        assert rebuild(store, seen.channel, formatter("openai_chat"), seen.request) == seen.body


def test_the_inspector_shows_it(store: cc.Store) -> None:
    cc.observe(store, request=chat("a <system-reminder>x</system-reminder>"), reply=answer("b"), format="openai_chat")
    name = store.conversations()[0].name
    seen = cc.observe(store, request=chat("a <system-reminder>x</system-reminder>", "b", "c"), format="openai_chat")
    assert seen.conversation == name
    details = load_request_details(store, seen.channel)
    lines = page_lines(details).lines
    assert [each.text for each in lines] == ["a <system-reminder>x</system-reminder>", "b", "c"]
    assert [each.state == "shared" for each in lines] == [True, False, False]
    spent = compute_distribution(details)
    assert min(spent.system, spent.history, spent.new) > 0
    assert "c" in str(explain(store, seen.channel))


def test_an_unanswered_request_and_its_retry(store: cc.Store) -> None:
    lost = cc.observe(store, request=chat("a"), format="openai_chat")
    failed = cc.observe(
        store, request=chat("a"), reply={"error": {"message": "overloaded"}}, status=529, format="openai_chat"
    )
    done = cc.observe(store, request=chat("a"), reply=answer("b"), format="openai_chat", status=200)
    assert [each.status for each in (lost, failed, done)] == ["unanswered", "error", "ok"]
    assert [each.request for each in (lost, failed, done)] == [1, 2, 3]
    assert texts(store, done.conversation) == ["a", "b"]
    assert failed.record.observed is not None
    assert (failed.record.observed.code, failed.record.observed.error) == (529, "overloaded")


def test_a_reply_that_broke_off(store: cc.Store) -> None:
    chunks = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": each}}],
        }
        for each in ("par", "tial")
    ]
    seen = cc.observe(store, request=chat("a"), reply=chunks, format="openai_chat")
    assert seen.status == "unfinished"
    assert texts(store, seen.conversation) == ["a", "partial"]


def test_a_stream_as_bytes(store: cc.Store) -> None:
    events: list[Wire] = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": "b"}}],
        },
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": {"prompt_tokens": 7, "completion_tokens": 1},
        },
    ]
    raw = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + b"data: [DONE]\n\n"
    seen = cc.observe(store, request=json.dumps(chat("a")).encode(), reply=raw, format="openai_chat")
    assert (seen.status, texts(store, seen.conversation)) == ("ok", ["a", "b"])
    assert seen.usage == cc.Usage(input=7, output=1)


def test_what_cannot_be_decoded_is_stored_as_bytes(store: cc.Store) -> None:
    for body in (
        b"no json",
        b'{"messages": 7}',
        b'{"model": "m", "messages": [{"role": "tool"}, 3]}',
        b'{"a": 1, "a": 2}',
    ):
        seen = cc.observe(store, request=body, format="openai_chat")
        assert seen.body == body


def test_a_failed_request_does_not_leave_half_a_record(store: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidInput, match="request: expected bytes"):
        cc.observe(store, request=3, format="openai_chat")  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match="reply: expected bytes"):
        cc.observe(store, request=chat("a"), reply=3, format="openai_chat")
    assert store.conversations() == []


def test_the_format_is_recognised(store: cc.Store) -> None:
    seen = cc.observe(store, request=chat("a"), reply=answer("b"), url="https://api.openai.com/v1/chat/completions")
    assert seen.record.mode == "observed"
    assert seen.channel.provider == "openai-chat"


def test_credentials_are_not_stored(tmp_path: Path) -> None:
    store = cc.open_store(f"sqlite:{tmp_path / 's.db'}")
    headers = {"Authorization": "Bearer sk-secret-1", "x-api-key": "sk-secret-2", "x-claude-code-session-id": "s1"}
    cc.observe(store, request=chat("a"), headers=headers, url="https://x.test/v1/chat/completions?key=sk-secret-3")
    store.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"sk-secret" not in stored


@pytest.mark.parametrize("shape", ["bytes", "text", "json", "events"])
def test_a_credential_in_a_reply_is_not_stored(shape: str) -> None:
    """Guarantee 16.5: some servers quote the key in their error."""
    store, key = cc.open_store("memory:"), "sk-" + "K9x" * 9
    error = {"error": {"type": "authentication_error", "message": f"Incorrect key: {key}"}}
    reply: Any = {
        "bytes": json.dumps(error).encode(), "text": json.dumps(error), "json": error,
        "events": [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": f"{key}!"}}]}],
    }[shape]  # fmt: skip
    seen = cc.observe(
        store, request=chat("a"), reply=reply, format="openai_chat", headers={"Authorization": f"Bearer {key}"}
    )
    assert seen.record.observed is not None
    shown = seen.record.observed.error + "".join(texts(store, seen.conversation))
    assert key not in shown
    assert "*" * len(key) in shown


def test_redaction_removes_what_was_sent(store: cc.Store) -> None:
    seen = cc.observe(store, request=chat("a secret"), reply=answer("b"), format="openai_chat")
    store.redact(seen.conversation, 1)
    with pytest.raises(cc.errors.InvalidInput, match="redacted"):
        _ = seen.body
    store.delete(seen.conversation)
    assert store.read(lambda tx: tx.rows("SELECT 1 FROM main.observed_key")) == []


def test_our_own_executor_goes_on(store: cc.Store) -> None:
    seen = cc.observe(store, request=chat("a"), reply=answer("b"), format="openai_chat")
    store.append(seen.conversation, cc.user("c"))
    compiled = cc.MessageCompiler(store, "openai-chat:gpt-5").compile(seen.conversation)
    sent = [message["content"] for message in compiled.params["messages"]]
    assert sent[-3:] == ["a", "b", "c"]


def test_space_follows_what_is_new(tmp_path: Path) -> None:
    store = cc.open_store(f"sqlite:{tmp_path / 's.db'}")
    said: list[str] = []
    sizes: list[tuple[int, int]] = []
    for index in range(200):
        said.append(f"question {index} " + " ".join(str(each * index) for each in range(60)))
        body = json.dumps(chat(*said)).encode()
        reply = f"answer {index} " + " ".join(str(each + index) for each in range(40))
        cc.observe(store, request=body, reply=answer(reply), format="openai_chat")
        said.append(reply)
        if index in (100, 199):
            pages = store.read(lambda tx: tx.row("SELECT sum(pgsize) FROM dbstat"))
            assert pages is not None
            sizes.append((pages[0], len(body)))
    assert len(store.conversations()) == 1
    (before, small), (after, large) = sizes
    assert after - before < 3 * (large - small)


def test_an_aws_event_stream(store: cc.Store) -> None:
    """Its frames are binary; a log may have damaged them, and the events are readable nevertheless."""

    def frame(kind: str, payload: Wire) -> bytes:
        names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
        headers = b"".join(
            bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
            for name, value in names.items()
        )
        return (
            b"\x00\x00\x00\x9a\x00\x00\x00R\xff\xfe\x00\x01"
            + headers
            + json.dumps(payload).encode()
            + b"\xf0\x91\x02\x88"
        )

    raw = b"".join(
        [
            frame("messageStart", {"p": "abc", "role": "assistant"}),
            frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello"}, "p": "ab"}),
            frame("contentBlockStop", {"contentBlockIndex": 0}),
            frame("messageStop", {"stopReason": "end_turn"}),
            frame("metadata", {"usage": {"inputTokens": 9, "outputTokens": 1, "totalTokens": 10}}),
        ]
    )
    body = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    url = "https://bedrock-runtime.test/model/anthropic.claude-opus-5-5/converse-stream"
    seen = cc.observe(store, request=body, reply=raw, format="bedrock", url=url)
    assert (seen.status, texts(store, seen.conversation)) == ("ok", ["hi", "Hello"])
    assert seen.usage == cc.Usage(input=9, output=1)
    assert seen.channel.model == "anthropic.claude-opus-5-5"


def test_the_model_of_a_reply(store: cc.Store) -> None:
    """Gemini has the model in its URL. Without one, the reply names it."""
    reply = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
        "modelVersion": "gemini-2.5-flash",
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
    }
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    seen = cc.observe(store, request=body, reply=reply, format="gemini")
    assert seen.channel.model == "gemini-2.5-flash"
    assert seen.cost


def test_an_exchange_with_an_id_is_recorded_once(store: cc.Store) -> None:
    """A recorder that does not know whether its last transaction was committed records it again (Guarantee 16.13)."""
    first = cc.observe(store, request=chat("one"), reply=answer("two"), exchange_id="run/1")
    again = cc.observe(store, request=chat("one"), reply=answer("two"), exchange_id="run/1")
    assert (again.channel, again.record) == (first.channel, first.record)
    assert again.body == first.body
    other = cc.observe(store, request=chat("one", "two", "three"), reply=answer("four"), exchange_id="run/2")
    assert (other.conversation, other.request) == (first.conversation, 2)
    assert texts(store, first.conversation)[-4:] == ["one", "two", "three", "four"]
    store.delete(first.conversation)
    assert cc.observe(store, request=chat("one"), reply=answer("two"), exchange_id="run/1").request == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"conversation": "\ud800"}, "conversation: contains a lone surrogate"),
        ({"exchange_id": "\udc00"}, "exchange_id: contains a lone surrogate"),
        ({"parent": "\ud800"}, "parent: contains a lone surrogate"),
        ({"model": "\ud800"}, "model: contains a lone surrogate"),
        ({"provider": "\ud800"}, "provider: contains a lone surrogate"),
        ({"url": "http://[::1"}, "url: not a valid URL"),
        ({"request": {"messages": [10**5000]}}, "more than 4,300 digits"),
        ({"reply": {"x": float("nan")}}, "is not a number JSON can hold"),
    ],
)
def test_arguments_that_cannot_be_stored_are_refused_with_their_name(options: dict[str, Any], problem: str) -> None:
    """A program that observes its own requests catches errors of this package only."""
    given: dict[str, Any] = {"request": {"messages": [{"role": "user", "content": "hi"}]}, **options}
    with cc.open_store("memory:") as store, pytest.raises(cc.errors.InvalidInput, match=problem):
        cc.observe(store, **given)


def test_lone_surrogates_in_what_was_sent_are_replaced() -> None:
    """Programs cut emoji in two. The rest of the request is worth keeping."""
    request: JSONObject = {"model": "m", "messages": [{"role": "user", "content": "a\ud83db"}]}
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "c\ud83d"}, "finish_reason": "stop"}]}
    with cc.open_store("memory:") as store:
        for given in (request, json.dumps(request, ensure_ascii=False)):
            seen = cc.observe(store, request=given, reply=reply, headers={"session-id": "\udc80"}, redact=True)
            assert [each.text for each in store.load(seen.conversation)][-2:] == ["a\ufffdb", "c\ufffd"]
