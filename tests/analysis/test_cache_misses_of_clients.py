"""Cache misses as clients of several providers make them: implicit caches, compaction, sub-agents, side requests."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import contextc as cc
from contextc.analysis import Finding, load_conversation_view
from tests.analysis.observed_run import find_by_request
from tests.observation.recorded_sessions import load as load_recorded

MODEL = "gpt-5.2"
MINUTE = 60_000
SYSTEM = "You help with this project, and follow its rules. " * 200
FILE = "def main(): return run(parse(read(path)))  # of the project\n" * 120
SUMMARY = "The user asked for the bug in the parser. It was found in the second file, and is fixed there. " * 10
Body = dict[str, Any]


class ChatClient:
    """A client of Chat Completions, whose provider caches every prefix in blocks of 128 tokens."""

    def __init__(self, **settings: Any) -> None:
        self.store = cc.open_store("memory:")
        self.settings: Body = {"model": MODEL, **settings}
        self.messages: list[Body] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Find the bug."},
        ]
        self.tools: list[Body] = [
            {"type": "function", "function": {"name": name, "description": f"Run {name}. " * 60, "parameters": {}}}
            for name in ("read", "write", "search")
        ]
        self.time = 1_790_000_000_000
        self.previous = 0
        self.conversation = "c"

    def send(self, read: int | None = None, *, seconds: int = 4, headers: dict[str, str] | None = None) -> "ChatClient":
        body = {**self.settings, "tools": self.tools, "messages": self.messages}
        total = len(json.dumps(body)) // 4
        number = len(self.messages)
        function = {"name": "read", "arguments": json.dumps({"path": f"f{number}.py", "limit": 10})}
        call = {"id": f"call_{number:04}c0ffee", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        cached = (self.previous if read is None else read) // 128 * 128
        reply = {
            "id": f"c{number}", "object": "chat.completion", "created": 1, "model": MODEL,
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": {"prompt_tokens": total, "completion_tokens": 20, "total_tokens": total + 20,
                      "prompt_tokens_details": {"cached_tokens": cached}},
        }  # fmt: skip
        cc.observe(
            self.store, request=json.loads(json.dumps(body)), reply=reply, format="openai_chat", provider="openai",
            conversation=self.conversation, time=self.time, ended=self.time + seconds * 1_000, headers=headers,
        )  # fmt: skip
        self.previous = total
        self.time += 20_000
        result = {"role": "tool", "tool_call_id": call["id"], "content": f"# {number}\n{FILE}"}
        self.messages = [*self.messages, message, result]
        return self

    def work(self, count: int) -> "ChatClient":
        self.send(0)
        for _ in range(count - 1):
            self.send()
        return self

    def findings(self) -> list[Finding]:
        return [each for each in find_by_request(self.store, self.conversation) if each.code.startswith("CAC")]

    def last(self) -> Finding:
        first, *rest = self.findings()
        assert first.cause == "first_request"
        assert len(rest) == 1, [(each.cause, each.request) for each in rest]
        return rest[0]


def add_date(client: ChatClient) -> None:
    client.messages[0] = {"role": "system", "content": f"Today is 2026-11-17.\n{SYSTEM}"}


def change_effort(client: ChatClient) -> None:
    client.settings["reasoning_effort"] = "high"


def change_key(client: ChatClient) -> None:
    client.settings["prompt_cache_key"] = "other"


def truncate(client: ChatClient) -> None:
    client.messages[3] = {**client.messages[3], "content": FILE[:200] + "\n[truncated]"}


def reencode_arguments(client: ChatClient) -> None:
    call = json.loads(json.dumps(client.messages[2]))
    call["tool_calls"][0]["function"]["arguments"] = '{"path":"f2.py","limit":10}'
    client.messages[2] = call


def new_call_ids(client: ChatClient) -> None:
    call = json.loads(json.dumps(client.messages[2]))
    call["tool_calls"][0]["id"] = "call_a81f03bc9d"
    client.messages[2:4] = [call, {**client.messages[3], "tool_call_id": "call_a81f03bc9d"}]


def slide_window(client: ChatClient) -> None:
    del client.messages[2:6]


def slide_window_with_notice(client: ChatClient) -> None:
    client.messages[2:6] = [{"role": "user", "content": "[4 earlier messages were left out]"}]


def compact_with_tail(client: ChatClient) -> None:
    client.messages[1:-2] = [{"role": "user", "content": SUMMARY}]


def compact_to_system(client: ChatClient) -> None:
    client.messages[1:] = [
        {"role": "system", "content": f"Summary of the conversation so far: {SUMMARY}"},
        {"role": "user", "content": "Go on."},
    ]


def insert_example(client: ChatClient) -> None:
    client.messages[1:1] = [{"role": "user", "content": "Example?"}, {"role": "assistant", "content": "Example."}]


def drop_tools(client: ChatClient) -> None:
    client.tools = []


def wait(client: ChatClient) -> None:
    client.time += 20 * MINUTE


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (add_date, {"system_changed"}),
        (change_effort, {"settings_changed"}),
        (change_key, {"settings_changed"}),
        (truncate, {"message_changed"}),
        (reencode_arguments, {"message_changed"}),
        (new_call_ids, {"message_changed"}),
        (slide_window, {"message_removed"}),
        (slide_window_with_notice, {"message_removed", "message_changed"}),
        (compact_with_tail, {"compacted"}),
        (compact_to_system, {"compacted"}),
        (insert_example, {"message_inserted"}),
        (drop_tools, {"tools_changed"}),
        (wait, {"cache_expired"}),
    ],
)
def test_a_miss_of_an_implicit_cache(change: Callable[[ChatClient], None], causes: set[str]) -> None:
    client = ChatClient().work(5)
    change(client)
    client.send(0)
    assert client.last().cause in causes
    client.send()
    assert client.last().cause in causes


def test_titles_name_what_changed() -> None:
    for change, words in ((add_date, "date"), (truncate, "shortened"), (reencode_arguments, "encoded"),
                          (new_call_ids, "random id")):  # fmt: skip
        client = ChatClient().work(4)
        if change is add_date:
            client.messages[0] = {"role": "system", "content": f"Today is 2026-11-16.\n{SYSTEM}"}
            client.send(0)
        change(client)
        client.send(0)
        assert words in client.findings()[-1].title, client.findings()[-1]


def test_a_rewind_is_no_compaction() -> None:
    client = ChatClient().work(5)
    client.messages[4:] = [{"role": "user", "content": "Stop. Please summarize what you know, in three lines."}]
    kept = {**client.settings, "tools": client.tools, "messages": client.messages[:4]}
    client.send(len(json.dumps(kept)) // 4)
    assert [each.cause for each in client.findings()] == ["first_request"]


def test_side_requests_in_between_do_not_matter() -> None:
    client = ChatClient().work(3)
    main, tools, previous = client.messages, client.tools, client.previous
    client.messages, client.tools = [{"role": "user", "content": f"Title of this? {FILE}"}], []
    client.send(0)
    client.messages, client.tools, client.previous = main, tools, previous
    client.send()
    client.send()
    assert {each.cause for each in client.findings()} <= {"first_request"}


def test_another_model_for_a_side_request_is_no_change_of_the_model() -> None:
    client = ChatClient().work(3)
    main, previous = client.messages, client.previous
    client.settings["model"] = "gpt-5-mini"
    client.messages = [{"role": "system", "content": f"Name the topic. {FILE}"}, {"role": "user", "content": "Hi"}]
    client.send(0)
    client.settings["model"], client.messages, client.previous = MODEL, main, previous
    client.send()
    assert [each.cause for each in client.findings()] == ["first_request", "first_request"]


def test_figures_that_are_always_0_are_no_figures() -> None:
    client = ChatClient()
    for _ in range(8):
        client.send(0)
    assert [each.cause for each in client.findings()] == ["first_request"]


def test_an_unknown_setting_is_named_with_low_confidence() -> None:
    client = ChatClient().work(3)
    client.settings["web_search_options"] = {"search_context_size": "low"}
    client.send(0)
    found = client.last()
    assert (found.cause, found.evidence[0].path) == ("settings_changed", "web_search_options")
    assert found.confidence < 0.5


def test_prices_of_what_was_paid_decide_the_cost() -> None:
    client = ChatClient().work(3)
    add_date(client)
    client.send(0)
    found = client.last()
    price = cc.model(MODEL).price
    assert price is not None
    assert found.cost == pytest.approx(found.tokens * (price.input - price.cache_read) / 1e6)


def test_a_compaction_of_codex_is_one_cause() -> None:
    """Its request for a summary has no tools, and the next one has other instructions."""
    store, time = cc.open_store("memory:"), 1_790_000_000_000
    for number, each in enumerate(load_recorded("codex")):
        began = time + number * 20_000
        cc.observe(
            store, request=each.request, reply=each.response, headers=each.headers, url=each.path, status=each.status,
            time=began, ended=began + 5_000,
        )  # fmt: skip
    views = [load_conversation_view(store, each.name) for each in store.conversations()]
    (view,) = [each for each in views if any("compact" in request.record.why for request in each.requests)]
    reasons = [each.record.why for each in view.requests]
    assert reasons == ["first request", *["tools changed", "compacted by the client"] * 4]
    found = find_by_request(store, view.name)
    misses = [each for each in found if each.code.startswith("CAC")]
    expected = ["first_request", "compacted", "provider_missed", *["compacted"] * 6]  # request 3 extends request 1
    assert [each.cause for each in misses] == expected
    assert misses[1].title == "The request for a summary has another prefix than the conversation"
