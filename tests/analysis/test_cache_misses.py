"""The causes of cache misses, with small exchanges."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.analysis import Finding, all_codes
from contextc.analysis.cache_miss_causes import all_causes
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.interchange import import_files
from contextc.interchange.input_files import InputFile
from tests.analysis.observed_run import find_by_request
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, played

MODEL = "claude-sonnet-4-5"
MARK = {"type": "ephemeral"}
MINUTE = 60_000
SYSTEM = "You help with this project, and follow its rules. " * 300
FILE = "def main(): return run(parse(read(path)))  # of the project\n" * 150
CAUSES = [
    *("first_request", "below_minimum", "model_changed", "tools_changed", "tools_reordered", "system_changed"),
    *("message_changed", "message_removed", "message_inserted", "settings_changed", "cache_expired"),
    *("breakpoint_missing", "lookback_exceeded", "compacted", "parallel_request", "provider_missed"),
]
Body = dict[str, Any]


def tool(name: str, text: str = "") -> Body:
    return {"name": name, "description": text or f"Run {name}. " * 40, "input_schema": {"type": "object"}}


class Client:
    """A client of the Messages API. By default, the provider reads from its cache what the request before sent."""

    def __init__(self, **settings: Any) -> None:
        self.store = cc.open_store("memory:")
        self.settings: Body = {"model": MODEL, "max_tokens": 500, **settings}
        self.system: list[str] = [SYSTEM]
        self.tools = [tool("read"), tool("write"), tool("search")]
        self.messages: list[Body] = [{"role": "user", "content": [{"type": "text", "text": "Find the bug."}]}]
        self.time = 1_790_000_000_000
        self.marks = True
        self.previous = 0
        self.conversation = "c"

    def body(self) -> Body:
        messages: list[Body] = json.loads(json.dumps(self.messages))
        system: list[Body] = [{"type": "text", "text": text} for text in self.system]
        if self.marks:
            messages[-1]["content"][-1]["cache_control"] = MARK
            system[-1]["cache_control"] = MARK
        return {**self.settings, "system": system, "tools": self.tools, "messages": messages}

    def send(self, read: int | None = None, *, seconds: int = 5, status: int = 200) -> "Client":
        """Send a request; the model then calls a tool. Without `read`, the cache hits."""
        body = self.body()
        total = len(json.dumps(body)) // 4
        read = self.previous if read is None else read
        number = len(self.messages)
        call = {"type": "tool_use", "id": f"toolu_{number:04}", "name": "read", "input": {"path": f"f{number}.py"}}
        usage = {
            "input_tokens": 5, "output_tokens": 20, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(0, total - read - 5),
        }  # fmt: skip
        reply = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": [call],
            "stop_reason": "tool_use", "usage": usage,
        }  # fmt: skip
        cc.observe(
            self.store, request=body, reply=reply, conversation=self.conversation, time=self.time,
            ended=self.time + seconds * 1_000, status=status,
        )  # fmt: skip
        self.previous = total
        self.time += 20_000
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"# {number}\n{FILE}"}
        self.messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        return self

    def work(self, count: int) -> "Client":
        self.send(0)
        for _ in range(count - 1):
            self.send()
        return self

    def findings(self) -> list[Finding]:
        return [each for each in find_by_request(self.store, "c") if each.code.startswith("CAC")]

    def last(self) -> Finding:
        """Return the only finding after that of the first request."""
        first, *rest = self.findings()
        assert first.cause == "first_request"
        assert first.request == 1
        assert len(rest) == 1, [each.cause for each in rest]
        return rest[0]


def test_each_cause_has_a_code() -> None:
    codes = [each for each in all_codes() if each.group == "cache"]
    assert [each.cause for each in codes] == CAUSES
    assert [each.code for each in codes] == [f"CAC{number:03}" for number in range(1, 17)]
    assert sorted(all_causes()) == sorted(CAUSES)
    assert all(each.description and each.title and each.fix for each in codes)


def test_a_conversation_that_only_grows_has_no_finding() -> None:
    found = Client().work(6).findings()
    assert [(each.code, each.tokens, each.cost) for each in found] == [("CAC001", 0, 0.0)]


def test_a_clock_in_the_system_prompt_is_named() -> None:
    client = Client()
    client.system = ["You are an agent.", f"Time: 10:31:02\n{SYSTEM}"]
    client.work(3)
    client.system = ["You are an agent.", f"Time: 10:32:17\n{SYSTEM}"]
    client.send(0)
    found = client.last()
    assert (found.code, found.cause, found.request) == ("CAC006", "system_changed", 4)
    assert found.evidence[0].path == "system[1].text"
    assert "10:31:02" in found.evidence[0].before
    assert "10:32:17" in found.evidence[0].after
    assert "time" in found.title
    assert found.cost
    assert found.also == ()
    assert found.tokens > 8_000


def test_a_change_and_a_pause_are_both_named() -> None:
    client = Client().work(3)
    client.system = [f"{SYSTEM} Be brief."]
    client.time += 10 * MINUTE
    client.send(0)
    assert (client.last().cause, client.last().also) == ("system_changed", ("cache_expired",))


def test_an_attribution_line_that_the_provider_ignores_is_no_finding() -> None:
    client = Client()
    client.system = ["x-anthropic-billing-header: cc_version=2.1.70; cch=00000;", SYSTEM]
    client.work(1)
    for number in range(4):
        client.system[0] = f"x-anthropic-billing-header: cc_version=2.1.70; cch={number}f{number}a7;"
        client.send()
    client.time += 10 * MINUTE
    client.system[0] = "x-anthropic-billing-header: cc_version=2.1.70; cch=fffff;"
    client.send(0)
    assert client.last().cause == "cache_expired"


def test_an_attribution_line_that_breaks_the_cache_is_named() -> None:
    client = Client()
    client.system = ["x-anthropic-billing-header: cc_version=2.1.70; cch=00000;", SYSTEM]
    client.work(2)
    client.system[0] = "x-anthropic-billing-header: cc_version=2.1.70; cch=3fa91;"
    client.send(0)
    found = client.last()
    assert found.cause == "system_changed"
    assert "attribution" in found.title


def change_tool(client: Client) -> None:
    client.tools[1] = tool("write", "Write a file to the disk. " * 30)


def add_tool(client: Client) -> None:
    client.tools.append(tool("fetch"))


def reorder_keys(client: Client) -> None:
    client.tools[0] = dict(reversed(client.tools[0].items()))


def reorder_tools(client: Client) -> None:
    client.tools.reverse()


def shorten_result(client: Client) -> None:
    client.messages[2]["content"][0]["content"] = "[Old tool result content cleared]"


def change_arguments(client: Client) -> None:
    call = client.messages[1]["content"][0]
    call["input"] = {"path": call["input"]["path"], "limit": 10}


def remove_messages(client: Client) -> None:
    del client.messages[1:3]


def insert_message(client: Client) -> None:
    client.messages.insert(1, {"role": "user", "content": [{"type": "text", "text": "Remember the tests."}]})


def insert_block(client: Client) -> None:
    client.messages[0]["content"].append({"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"})


def set_effort(client: Client) -> None:
    client.settings["thinking"] = {"type": "enabled", "budget_tokens": 2_000}


def choose_tool(client: Client) -> None:
    client.settings["tool_choice"] = {"type": "any"}


def compact(client: Client) -> None:
    summary = "This session is being continued from a previous conversation. Summary: " + "the bug is in a file. " * 30
    client.messages = [{"role": "user", "content": [{"type": "text", "text": summary}]}]


def wait(client: Client) -> None:
    client.time += 6 * MINUTE


def change_nothing(client: Client) -> None:
    pass


def no_marks(client: Client) -> None:
    client.marks = False


@pytest.mark.parametrize(
    ("change", "cause", "path"),
    [
        (change_tool, "tools_changed", "tools[1].description"),
        (add_tool, "tools_changed", "tools[3]"),
        (reorder_keys, "tools_changed", "tools[0]"),
        (reorder_tools, "tools_reordered", "tools[0].name"),
        (shorten_result, "message_changed", "messages[2].content[0].content"),
        (change_arguments, "message_changed", "messages[1].content[0].input.limit"),
        (remove_messages, "message_removed", "messages[1].content[0]"),
        (insert_message, "message_inserted", "messages[1].content[0]"),
        (insert_block, "message_changed", "messages[0].content[1]"),
        (set_effort, "settings_changed", "thinking"),
        (choose_tool, "settings_changed", "tool_choice"),
        (compact, "compacted", "messages[0].content[0]"),
        (wait, "cache_expired", ""),
        (no_marks, "breakpoint_missing", ""),
        (change_nothing, "provider_missed", ""),
    ],
)
def test_a_miss_has_one_cause(change: Callable[[Client], None], cause: str, path: str) -> None:
    client = Client().work(4)
    change(client)
    client.send(0)
    found = client.last()
    assert (found.cause, found.evidence[0].path) == (cause, path)
    assert found.tokens > 1_000
    assert found.cost is not None
    assert found.cost > 0
    assert 0.4 < found.confidence <= 1


@pytest.mark.parametrize("change", [change_tool, reorder_tools, shorten_result, remove_messages, set_effort, wait])
def test_a_difference_that_the_provider_reports_as_harmless_is_no_finding(change: Callable[[Client], None]) -> None:
    client = Client().work(4)
    change(client)
    client.send()
    assert [each.cause for each in client.findings()] == ["first_request"]


def test_json_with_another_spacing_is_a_cause_only_if_the_provider_missed() -> None:
    for read, wanted in ((None, []), (0, ["message_changed"])):
        client = Client().work(3)
        call = client.messages[1]["content"][0]
        call["input"] = {"path": "f1.py"}
        body = json.dumps(client.body(), separators=(",", ":")).replace('{"path":"f1.py"}', '{ "path" : "f1.py" }')
        total, hit = len(body) // 4, client.previous if read is None else 0
        usage = {
            "input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": hit,
            "cache_creation_input_tokens": total - hit,
        }  # fmt: skip
        reply = {
            "id": "msg_x", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Done."}], "usage": usage,
        }  # fmt: skip
        cc.observe(client.store, request=body, reply=reply, conversation="c", time=client.time, ended=client.time + 9)
        assert [each.cause for each in client.findings()[1:]] == wanted


def test_another_model() -> None:
    client = Client().work(3)
    client.settings["model"] = "claude-opus-4-8"
    client.send(0)
    client.send()
    found = client.last()
    assert (found.cause, found.request, found.evidence[0].after) == ("model_changed", 1, "anthropic:claude-opus-4-8")
    client.settings["model"] = MODEL
    client.previous = 0
    client.send(7_000)
    assert [each.cause for each in client.findings()] == ["first_request", "model_changed", "model_changed"]


def test_a_short_conversation_is_below_the_minimum() -> None:
    client = Client()
    client.system, client.tools = ["You help."], []
    client.send(0)
    client.messages = [*client.messages[:1], {"role": "assistant", "content": [{"type": "text", "text": "Which?"}]},
                       {"role": "user", "content": [{"type": "text", "text": "The last."}]}]  # fmt: skip
    client.send(0)
    assert client.last().cause == "below_minimum"


def test_more_blocks_than_the_lookback() -> None:
    client = Client().work(3)
    note = [{"type": "text", "text": f"Note {number}"} for number in range(30)]
    client.messages[-1]["content"] += note
    client.send(4_500)
    assert client.last().cause == "lookback_exceeded"


def test_parallel_requests() -> None:
    client = Client().work(2)
    client.time += 1_000
    began, messages = client.time, [*client.messages]
    client.send(seconds=60)
    client.time, client.messages = began + 500, messages
    client.send(4_500)
    assert client.last().cause == "parallel_request"


def test_variants_that_are_sent_at_once_are_parallel() -> None:
    """They differ at the end, and all of what both have was still being written."""
    client = Client().work(2)
    client.marks = False
    client.messages[-1]["content"] += [{"type": "text", "text": f"{FILE} {FILE}", "cache_control": MARK}]
    began, messages = client.time, [*client.messages]
    for number in range(2):
        client.time = began + 50 * number
        client.messages = [*messages, {"role": "user", "content": [{"type": "text", "text": f"Variant {number}"}]}]
        client.send(4_500, seconds=60)
    *_, found = client.findings()
    assert (found.request, found.cause) == (4, "parallel_request")


def test_a_rewind_is_no_miss() -> None:
    client = Client().work(5)
    client.messages = [*client.messages[:4], {"role": "user", "content": [{"type": "text", "text": "Stop. Why?"}]}]
    client.send(6_000)
    assert [each.cause for each in client.findings()] == ["first_request"]


def test_failed_requests_write_no_cache() -> None:
    client = Client()
    body = client.body()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    cc.observe(client.store, request=body, reply=error, conversation="c", time=client.time - 9_000, status=529)
    client.work(3)
    found = client.findings()
    assert [(each.cause, each.request) for each in found] == [("first_request", 2)]


def test_without_usage_the_expected_read_counts() -> None:
    client = Client()
    for number in range(3):
        if number == 2:
            client.system = [f"{SYSTEM} Changed."]
        reply = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
                 "content": [{"type": "text", "text": f"Answer {number}"}]}  # fmt: skip
        cc.observe(client.store, request=client.body(), reply=reply, conversation="c", time=client.time)
        client.time += 9_000
        client.messages += [
            {"role": "assistant", "content": reply["content"]},
            {"role": "user", "content": [{"type": "text", "text": FILE}]},
        ]
    found = client.findings()
    assert [each.cause for each in found] == ["first_request", "system_changed"]
    assert found[1].confidence < 0.9


def test_own_conversations_have_findings_too() -> None:
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5")
    for number in range(4):
        store.append("c", cc.user(f"Question {number}: {FILE}"))
        compiled = compiler.compile("c", system_prompt=SYSTEM if number < 3 else f"{SYSTEM} It is 10:3{number}.")
        total = compiled.estimated_input
        read = 0 if number in (0, 3) else total - 2_500
        usage = cc.Usage(input=total, output=10, cache_read=read, cache_write=total - read)
        compiler.commit(compiled, cc.assistant(f"Answer {number}"), usage=usage)
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [(each.cause, each.request) for each in found] == [("first_request", 1), ("system_changed", 4)]
    assert found[1].evidence[0].path == "system[0].text"


def test_an_unknown_conversation_is_an_error() -> None:
    with pytest.raises(cc.errors.UnknownConversation):
        find_by_request(cc.open_store("memory:"), "nope")


def test_turns_of_an_executor_hit_the_cache() -> None:
    store = cc.open_store("memory:")

    @cc.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def run(system_prompt: str, text: str) -> None:
        script = Scripted([Say(calls=(call(text),), input=4_000), Say(text="Done.", input=4_200)])
        agent = cc.AgentExecutor(store, SONNET, tools=[add], system_prompt=system_prompt, endpoint=script)
        asyncio.run(played(agent, "c", text))

    for number in range(3):
        run(SYSTEM, f"q{number}")
    assert [each.cause for each in find_by_request(store, "c") if each.code.startswith("CAC")] == ["first_request"]
    run(f"{SYSTEM} Today is Monday.", "q3")
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [(each.cause, each.request) for each in found] == [("first_request", 1), ("system_changed", 7)]


def test_a_summary_of_the_compiler_is_a_compaction() -> None:
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(SONNET, window=26_000, output=500))
    for number in range(6):
        store.append("c", cc.user(f"Question {number}: {FILE}"))
        if number == 5:
            made = compiler.compact("c", lambda messages, previous: "The user asked questions.", system_prompt=SYSTEM)
            assert made is not None
        compiled = compiler.compile("c", system_prompt=SYSTEM)
        compiler.commit(compiled, cc.assistant(f"Answer {number}"))
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [(each.cause, each.request) for each in found] == [("first_request", 1), ("compacted", 6)]


@pytest.mark.parametrize("session", ["0a1b2c3d-0000-4000-8000-123456789abc", ""], ids=["session", "no session"])
@pytest.mark.parametrize("pause", [200, 0], ids=["one after the other", "at the same time"])
def test_conversations_that_begin_together_cannot_read_each_others_prefix(
    store: cc.Store, session: str, pause: int
) -> None:
    client = Client()
    body = client.body()
    names: list[str] = []
    for number, began in enumerate((0, pause, 2 * pause, 60_000)):
        content = [{"type": "text", "text": f"Task {number}", "cache_control": MARK}]
        read = 4_500 if began == 60_000 else 0
        usage = {
            "input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": 4_700 - read,
        }  # fmt: skip
        reply = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Done."}], "usage": usage,
        }  # fmt: skip
        seen = cc.observe(
            store,
            request={**body, "messages": [{"role": "user", "content": content}]},
            reply=reply,
            headers={"x-claude-code-session-id": session, "x-claude-code-agent-id": f"agent-{number}"}
            if session
            else {},
            conversation=None if session else f"task-{number}",
            time=client.time + began,
            ended=client.time + began + 9_000,
        )
        names.append(seen.conversation)
    assert len(set(names)) == 4
    causes = [[each.cause for each in find_by_request(store, name) if each.code.startswith("CAC")] for name in names]
    assert causes == [["first_request"], ["parallel_request"], ["parallel_request"], []]
    evidence = find_by_request(store, names[1])[0].evidence[0]
    assert evidence.before == f"request 1 of {names[0]} was still being answered"
    assert evidence.after == f"began {9 - pause / 1_000:.1f} s before its reply ended"


def test_no_more_is_missed_than_the_provider_counted(tmp_path: Path) -> None:
    """Sizes of media can only be guessed. The model is in the reply, where the address is not logged."""
    contents: list[Body] = [{"role": "user", "parts": [{"text": SYSTEM * 4}]}]
    lines: list[str] = []
    for number in range(3):
        answer = {"role": "model", "parts": [{"text": f"Answer {number}."}]}
        usage = {"promptTokenCount": 700 + number, "candidatesTokenCount": 5, "totalTokenCount": 705 + number}
        reply = {"candidates": [{"content": answer, "finishReason": "STOP"}], "usageMetadata": usage}
        body = {"contents": list(contents)}
        lines.append(json.dumps({"request": body, "response": {**reply, "modelVersion": "gemini-2.5-flash"}}))
        contents += [answer, {"role": "user", "parts": [{"text": f"More {number}."}]}]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    store = cc.open_store("memory:")
    import_files(store, [InputFile(tmp_path / "log.jsonl")])
    (conversation,) = store.conversations()
    view = load_conversation_view(store, conversation.name)
    assert {each.channel.model for each in view.requests} == {"gemini-2.5-flash"}
    assert [each.estimated > 5 * each.input for each in view.requests] == [True] * 3
    found = find_by_request(store, conversation.name)
    assert [each.cause for each in found if each.code.startswith("CAC")] == ["first_request", *["below_minimum"] * 2]
    assert all(each.tokens <= 702 for each in found if each.code.startswith("CAC"))
