"""Options that check or change requests: `--lint`, `--fix` and `--fit` (Guarantee 16.16)."""

import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.manifest import ProxyAction, record_from_json
from contextc.models.tokens import estimate_tokens
from contextc.proxy.acting_exchanges import ActingOptions
from contextc.proxy.request_lint import encode_with_original_bytes, fit_request, fix_request, lint_request
from contextc.store.ledger_schema import unpack_record
from tests.fake_vendors import KEY, FakeVendors, Reply, Scripted
from tests.proxy.test_recording import MODEL, SECONDS, running_proxy
from tests.proxy.test_sdk_clients import stored_bodies

URL = "https://api.anthropic.com/v1/messages"
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}
SECRET = "sk-ant-api03-abcdefghijklmnop0123456789"


def broken(id: str = "a") -> bytes:
    """Return a request with a call that has no result, which Anthropic refuses. Its spacing is unusual."""
    call = {"type": "tool_use", "id": id, "name": "look", "input": {"at": 1.0}}
    messages = [
        {"role": "user", "content": "Look."},
        {"content": [call], "role": "assistant"},
        {"role": "user", "content": "Never mind."},
    ]
    return json.dumps({"model": MODEL, "max_tokens": 100, "messages": messages}, indent=1).encode()


def valid() -> bytes:
    messages = [{"role": "user", "content": "Hello"}]
    return json.dumps({"model": MODEL, "max_tokens": 100, "messages": messages}, indent=1).encode()


def stored_actions(tmp_path: Path, name: str) -> tuple[ProxyAction, ...]:
    """Return what the manifests of a conversation say about options, in the order of the requests."""
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        rows = store.read(
            lambda tx: tx.rows(
                "SELECT m.body FROM main.manifest m JOIN main.channel c ON m.place / 4294967296 = c.number"
                " WHERE c.conversation = ? ORDER BY m.place",
                name,
            )
        )
    facts = [record_from_json(unpack_record(bytes(body))).observed for (body,) in rows]
    return tuple([action for each in facts if each is not None for action in each.actions])


def send(client: httpx2.Client, url: str, body: bytes | Iterator[bytes], **headers: str) -> httpx2.Response:
    return client.post(
        f"{url}/anthropic/v1/messages", content=body, headers={**HEADERS, "x-contextc-conversation": "talk", **headers}
    )


def test_lint_reports_and_changes_nothing(tmp_path: Path) -> None:
    """The request arrives as it was sent and is refused. Status and manifest name the rule."""
    with (
        FakeVendors(Scripted(["never"])) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url(), acting=ActingOptions(lints=True)) as (proxy, url),
    ):
        assert send(client, url, broken()).status_code == 400
        assert proxy.recorder.wait_for(1, SECONDS)
        status = client.get(f"{url}/contextc/status").json()
        assert status["actions"] == {"lint": {"requests": 1, "failed": 0, "codes": {"ANT006": 1}, "cache_tokens": 0}}
        assert proxy.close()
        assert [each.raw for each in fake.records] == [broken()]
    (action,) = stored_actions(tmp_path, "talk")
    assert (action.rule, action.codes, action.more) == ("lint", {"ANT006": 1}, 0)
    assert "messages[1].content[0]" in action.changes[0]


def test_lint_reports_nothing_about_an_answered_request(tmp_path: Path) -> None:
    """Guarantee 17.7: whatever the rules say, the provider accepted it."""
    body = valid().replace(b'"role": "user"', b'"role": "user", "new_field": 1')
    assert lint_request(body, "anthropic", URL) is not None
    with (
        FakeVendors(Scripted(["Fine."]), strict=False) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url(), acting=ActingOptions(lints=True, fixes=True)) as (proxy, url),
    ):
        assert send(client, url, body).status_code == 200
        assert proxy.recorder.wait_for(1, SECONDS)
        assert proxy.close()
        assert [each.raw for each in fake.records] == [body]
    assert stored_actions(tmp_path, "talk") == ()


ADDED: list[tuple[str, JSONObject]] = [
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "new": 1}]}]}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "hologram"}]}, {"role": "user"}]}),
    ("openai_responses", {"input": [{"role": "user", "content": "hi", "new": 1}]}),
    ("openai_responses", {"input": [{"type": "telescope"}, {"type": "function_call_output", "output": "1"}]}),
    ("openai_chat", {"messages": [{"role": "user", "content": "hi", "new": 1}]}),
    ("openai_chat", {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"hologram": {}}]}]}),
    ("bedrock", {"messages": [{"role": "user", "content": [{"text": "hi"}]}], "newConfig": {}}),
    ("mistral", {"messages": [{"role": "user", "content": "hi", "new": 1}]}),
]


@pytest.mark.parametrize(("format", "body"), ADDED)
def test_fix_leaves_what_the_provider_may_have_added(format: str, body: JSONObject) -> None:
    """Guarantee 16.16: the answer is not known yet, and a client knows its provider better than a list of names."""
    assert cc.lint(body, format=format) != []
    assert fix_request(json.dumps(body).encode(), format, URL) is None


def test_fix_repairs_beside_an_unknown_field() -> None:
    """Guarantee 16.16: what is certain to be refused is repaired, and the rest keeps its fields."""
    body = json.loads(broken())
    body["messages"][0] = {**body["messages"][0], "new_field": {"a": 1}}
    changed = fix_request(json.dumps(body).encode(), "anthropic", URL)
    assert changed is not None
    assert changed.action.codes == {"ANT006": 1}
    assert json.loads(changed.body)["messages"][0] == body["messages"][0]


def test_a_report_contains_no_redacted_text(tmp_path: Path) -> None:
    with (
        FakeVendors(Scripted(["never"])) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url(), acting=ActingOptions(lints=True), redact=("keys",)) as (proxy, url),
    ):
        send(client, url, broken(SECRET))
        assert proxy.recorder.wait_for(1, SECONDS)
        assert proxy.close()
    (action,) = stored_actions(tmp_path, "talk")
    assert "[redacted:" in action.changes[0]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_fix_repairs_what_would_be_refused(tmp_path: Path) -> None:
    """The provider accepts the request. What was not repaired keeps its bytes, and the manifest has the cost."""
    pieces = [broken()[:50], broken()[50:]]
    sends: dict[str, tuple[bytes | Iterator[bytes], dict[str, str]]] = {
        "plain": (broken(), {}),
        "gzip": (gzip.compress(broken()), {"content-encoding": "gzip"}),
        "chunked": (iter(pieces), {}),
    }
    with (
        FakeVendors(Scripted(["Fine."] * len(sends))) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url(), acting=ActingOptions(lints=True, fixes=True)) as (proxy, url),
    ):
        for name, (body, headers) in sends.items():
            answer = send(client, url, body, **{"x-contextc-conversation": name, **headers})
            assert answer.json()["content"][0]["text"] == "Fine."
        assert proxy.recorder.wait_for(len(sends), SECONDS)
        assert proxy.close()
        sent = [each.raw for each in fake.records]
    assert len(sent) == len(sends)
    call = broken()[
        broken().index(b'{\n   "content": [') : broken().index(b',\n  {\n   "role": "user",\n   "content": "Never')
    ]
    costs: list[int] = []
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        for name, raw in zip(sends, sent, strict=True):
            assert call in raw
            assert json.loads(raw)["messages"][2]["content"][0]["type"] == "tool_result"
            assert stored_bodies(store, name) == [raw]
            (action,) = stored_actions(tmp_path, name)
            assert (action.rule, action.codes) == ("fix", {"ANT006": 1})
            costs.append(action.cache_tokens)
    assert all([10 < cost < 100 for cost in costs])
    assert proxy.summary.actions["fix"].cache_tokens == sum(costs)


def test_fix_leaves_everything_else_as_it_is(tmp_path: Path) -> None:
    """Valid requests and requests that are not for a model pass to the byte. What cannot be parsed does, too."""
    with (
        FakeVendors(Scripted(["one", "two"]), strict=False) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url(), acting=ActingOptions(fixes=True)) as (proxy, url),
    ):
        assert send(client, url, valid()).status_code == 200
        assert send(client, url, valid(), expect="100-continue").status_code == 200
        assert client.get(f"{url}/anthropic/v1/models").status_code == 404
        send(client, url, b"{not json")
        assert proxy.recorder.wait_for(3, SECONDS)
        assert proxy.close()
        assert [each.raw for each in fake.records] == [valid(), valid(), b"", b"{not json"]
    assert proxy.summary.describe_actions() in (
        {},  # what is no JSON at all is not recorded
        {"fix": {"requests": 0, "failed": 1, "codes": {}, "cache_tokens": 0}},
    )


def test_token_counts_are_not_checked() -> None:
    body = json.dumps({"model": MODEL, "messages": []}).encode()
    assert lint_request(body, "anthropic", f"{URL}/count_tokens") is None
    assert fix_request(body, "anthropic", f"{URL}/count_tokens") is None
    assert lint_request(b"[1", "anthropic", URL) is not None


def test_unchanged_parts_of_a_changed_request_keep_their_bytes() -> None:
    body = b'{ "a" : 1.50, "messages": [ {"x" :  "\\u00e9"} , {"y": 2} ], "b": null}'
    changed = {"a": 1.5, "messages": [{"new": 1}, {"x": "\u00e9"}], "b": 3}
    assert encode_with_original_bytes(body, changed) == (b'{"a":1.50,"messages":[{"new":1},{"x" :  "\\u00e9"}],"b":3}')


# ── --fit ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def long_conversation(turns: int, size: int) -> list[JSONObject]:
    """Return turns with a tool call each, and words that are about one token long."""
    made: list[JSONObject] = []
    for number in range(turns):
        id = f"call_{number}"
        made += [
            {"role": "user", "content": f"Question {number}: " + "why " * 200},
            {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "look", "input": {"at": number}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": id, "content": f"{number} " + "word " * size}],
            },
            {"role": "assistant", "content": f"Answer {number}: " + "because " * 200},
        ]
    return [*made, {"role": "user", "content": "And now?"}]


def request_of(messages: list[JSONObject]) -> JSONObject:
    tools: list[JSONObject] = [
        {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
    ]
    return {"model": MODEL, "max_tokens": 20_000, "system": "Be brief.", "tools": tools, "messages": messages}


def fitted(messages: list[JSONObject]) -> tuple[JSONObject, ProxyAction | None]:
    body = request_of(messages)
    made = fit_request(json.dumps(body).encode(), "anthropic", URL)
    return (json.loads(made.body), made.action) if made is not None else (body, None)


def test_fit_cuts_to_the_window_and_keeps_the_prefix() -> None:
    """A conversation grows beyond the window. It is cut now and then, and its prefix is equal in between."""
    cuts, action = 0, None
    before: list[JSONObject] = []
    everything = long_conversation(26, 16_000)
    for turns in range(8, 26):
        messages = [*everything[: 4 * turns], everything[-1]]
        made, action = fitted(messages)
        assert cc.lint(made, format="anthropic") == []
        assert made["messages"][-1] == everything[-1]
        size = sum([estimate_tokens(json.dumps(each)) for each in made["messages"]])
        assert size < 190_000
        assert (action is not None) == (turns > 11) or abs(turns - 11) < 2
        cuts += bool(before) and made["messages"][: len(before) - 1] != before[:-1]
        before = made["messages"]
    assert 2 <= cuts <= 12
    assert action is not None
    assert action.cache_tokens > 1_000
    assert "results" in " ".join(action.changes)


def test_fit_leaves_out_turns_if_stubs_are_not_enough() -> None:
    made, action = fitted([{**each, "content": "x " * 9_000} if isinstance(each["content"], str) else each
                           for each in long_conversation(30, 10)])  # fmt: skip
    assert action is not None
    assert "messages were left out" in action.changes[0]
    assert cc.lint(made, format="anthropic") == []
    assert made["messages"][0]["role"] == "user"


def test_fit_changes_nothing_that_fits() -> None:
    assert fitted(long_conversation(3, 100))[1] is None
    unknown = {"model": "no-such-model", "max_tokens": 10, "messages": long_conversation(90, 8_000)}
    assert fit_request(json.dumps(unknown).encode(), "anthropic", URL) is None


def test_a_provider_accepts_what_fit_has_cut(tmp_path: Path) -> None:
    """It refuses the same request as it was sent. Consecutive requests keep their prefix, and the rest its bytes."""
    everything = long_conversation(14, 16_000)
    bodies = [
        json.dumps(request_of([*everything[: 4 * turns], everything[-1]]), indent=1).encode() for turns in (3, 13, 14)
    ]
    with FakeVendors(lambda ask: Reply(f"Answer {ask.number}.")) as fake, httpx2.Client(timeout=SECONDS) as client:
        refused = client.post(f"{fake.url()}/v1/messages", content=bodies[-1], headers=HEADERS)
        assert (refused.status_code, "too long" in refused.text) == (400, True)
        with running_proxy(tmp_path, fake.url(), acting=ActingOptions(fits=True)) as (proxy, url):
            for body in bodies:
                assert send(client, url, body).json()["content"][0]["text"].startswith("Answer ")
            assert proxy.recorder.wait_for(len(bodies), SECONDS)
            actions = client.get(f"{url}/contextc/status").json()["actions"]
            assert proxy.close()
        short, *cut = [each.raw for each in fake.records[1:]]
    assert short == bodies[0]
    first, second = [json.loads(each)["messages"] for each in cut]
    assert second[: len(first) - 1] == first[:-1]
    last = bodies[-1][bodies[-1].rindex(b'"role": "assistant"') :].partition(b"}")[0]
    assert last in cut[-1]
    figures = actions.pop("fit")
    assert (figures["requests"], figures["failed"], actions) == (2, 0, {})
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        assert stored_bodies(store, "talk") == [short, *cut]
    costs = [action.cache_tokens for action in stored_actions(tmp_path, "talk")]
    assert sum(costs) == figures["cache_tokens"]


def test_requests_in_a_row_are_each_changed_once(tmp_path: Path) -> None:
    """A client sends its next request before the response to the first. Both are repaired, in their order."""
    head = (
        f"POST /anthropic/v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {KEY}\r\n"
        f"anthropic-version: 2023-06-01\r\nContent-Type: application/json\r\nContent-Length: {len(broken())}\r\n\r\n"
    ).encode()
    with (
        FakeVendors(lambda ask: Reply(f"Answer {ask.number}.")) as fake,
        running_proxy(tmp_path, fake.url(), acting=ActingOptions(fixes=True)) as (_, url),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=SECONDS) as connection,
    ):
        connection.sendall(head + broken())
        time.sleep(0.05)
        connection.sendall(head + broken("b"))
        received = b""
        while b"Answer 1." not in received:
            data = connection.recv(65_536)
            assert data
            received += data
        assert received.count(b"HTTP/1.1 200 ") == 2
        assert len(fake.records) == 2
        assert not fake.refused
