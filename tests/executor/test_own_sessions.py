"""A user's own provider with memory: its client returns the session, and gets what the session does not have."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.compiler.manifest import RequestRecord
from contextc.errors import InvalidInput, InvalidSetting, ProviderFailed
from contextc.providers.client import Endpoint, ProviderCall
from tests.executor.scripted_provider import Scripted, run_turn

MINE = cc.provider("mine:big", window=32_000, session_resumption=True, session_field="session_id")


class Service(Endpoint):
    """A service in OpenAI's chat format that remembers each session, and returns its id and position."""

    def __init__(self, *, names: tuple[str, ...] = ("session_id",), failures: int = 0, number: bool = False) -> None:
        self.sessions: dict[str, list[JSONObject]] = {}
        self.calls: list[tuple[str, list[str]]] = []
        """Of each call: the session in the request, and its texts."""
        self.names, self.failures, self.opened, self.number = names, failures, 0, number

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        request = decode(call.body)
        assert request.get("session_id", "") == call.session
        self.calls.append((call.session, [message["content"] for message in request["messages"]]))
        memory = self.sessions.get(call.session, [])
        if call.revert:
            del memory[int(call.cursor) :]
        if call.session and call.cursor != str(len(memory)):
            raise ProviderFailed("mine", "session", "The session ends elsewhere.")
        self.opened += not call.session
        name = call.session or ("" if self.number else "s") + str(self.opened)
        self.sessions[name] = memory = [*memory, *request["messages"]]
        if self.failures:
            self.failures -= 1
            raise ProviderFailed("mine", "quota", "Nothing is left.")
        memory.append({"role": "assistant", "content": "ok"})
        own = int if self.number else str
        where = {field: own(name) for field in self.names}
        yield {**where, "cursor": own(len(memory)), "choices": [{"index": 0, "delta": {"content": "ok"}}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


REPLIES: dict[str, JSONObject] = {
    "anthropic": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}]},
    "openai_chat": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]},
    "openai_responses": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}],
    },
}


def own_compiler(format: str) -> cc.MessageCompiler:
    provider = cc.provider(
        "mine:big", format=format, window=32_000, session_resumption=True, session_field="session_id"
    )
    return cc.MessageCompiler(cc.open_store("memory:"), provider)


def finish(compiler: cc.MessageCompiler, reply: JSONObject, *, whole: bool) -> None:
    """Commit a reply as a caller does, or let an executor receive it as the first event of a stream."""
    if whole:
        compiler.commit(compiler.compile("demo"), reply)
        return
    events: dict[str, list[JSONObject]] = {
        "anthropic": [
            {"type": "message_start", "message": {**reply, "content": []}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ],
        "openai_chat": [{**reply, "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}],
        "openai_responses": [{"type": "response.completed", "response": reply}],
    }
    endpoint = Scripted(events[compiler.provider.format])
    executor = cc.AgentExecutor(compiler.store, compiler.provider, endpoint=endpoint, triggers=())
    run_turn(executor, None)


def requests(compiler: cc.MessageCompiler) -> list[RequestRecord]:
    last = compiler.explain("demo").record.request
    return [compiler.explain("demo", number).record for number in range(1, last + 1)]


def ask(executor: cc.AgentExecutor, *texts: str) -> None:
    for text in texts:
        run_turn(executor, text)


def test_an_own_provider_gets_only_what_its_session_does_not_have() -> None:
    """The client returns the id of its session in the field that names it in a request."""
    service = Service()
    executor = cc.AgentExecutor(cc.open_store("memory:"), MINE, endpoint=service, instructions="Be brief.", triggers=())

    ask(executor, "one", "two", "three")

    assert service.calls == [("", ["Be brief.", "one"]), ("s1", ["two"]), ("s1", ["three"])]
    (known,) = cc.SessionManager(executor.store).sessions("demo")
    assert (known.id, known.shown, known.cursor) == ("s1", 6, "7")


def test_a_session_may_be_named_by_the_id_of_an_event() -> None:
    """Where an event has no such field, as with a commit."""
    service = Service(names=("id",))
    executor = cc.AgentExecutor(cc.open_store("memory:"), MINE, endpoint=service, triggers=())

    ask(executor, "one", "two")

    assert [session for session, _ in service.calls] == ["", "s1"]


def test_the_named_field_is_the_session_and_the_id_is_not() -> None:
    """Servers of OpenAI's chat format also give each reply an id of its own."""
    service = Service(names=("id", "session_id"))
    executor = cc.AgentExecutor(cc.open_store("memory:"), MINE, endpoint=service, triggers=())
    reader = MINE.formatter.create_reader()
    reader.read({"id": "r1", "session_id": "s1", "choices": []})
    reader.read({"id": "r2", "choices": []})

    ask(executor, "one", "two")

    assert reader.find_session("session_id") == "s1"
    assert service.calls[1] == ("s1", ["two"])


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("format", ["anthropic", "openai_chat", "openai_responses"])
def test_a_reply_that_names_no_session_belongs_to_the_resumed_one(format: str, whole: bool) -> None:
    """The id of a reply is not the session, whether the reply is streamed or not."""
    compiler = own_compiler(format)
    for text, named in (("one", {"session_id": "s1"}), ("two", {}), ("three", {"session_id": 7})):
        compiler.store.append("demo", cc.user(text))
        finish(compiler, REPLIES[format] | {"id": f"id {text}"} | named, whole=whole)

    assert [record.session for record in requests(compiler)] == ["", "s1", "s1"]
    assert [record.gave for record in requests(compiler)] == ["s1", "s1", "7"]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize(("format", "session"), [("anthropic", ""), ("openai_chat", "r1"), ("openai_responses", "r1")])
def test_the_id_of_a_first_reply_is_a_session_in_some_formats(format: str, session: str, whole: bool) -> None:
    """Not in Anthropic's, where it names the message. Without a session, the manifest says so."""
    compiler = own_compiler(format)
    compiler.store.append("demo", cc.user("one"))
    finish(compiler, REPLIES[format] | {"id": "r1"}, whole=whole)

    (record,) = requests(compiler)
    assert record.gave == session
    assert any("returned no session" in remark for remark in record.remarks) is not bool(session)


def test_a_provider_without_a_session_field_is_told_so() -> None:
    """Every request is a full one; the manifest names the setting."""
    store = cc.open_store("memory:")
    provider = cc.provider("mine:big", window=32_000, session_resumption=True)
    compiler = cc.MessageCompiler(store, provider)
    store.append("demo", cc.user("one"))
    compiler.commit(compiler.compile("demo"), REPLIES["openai_chat"])

    assert any("set session_field" in remark for remark in compiler.explain("demo").record.remarks)
    store.append("demo", cc.user("two"))
    compiler.commit(compiler.compile("demo"), cc.assistant("ok"), session_id="s1")
    assert compiler.explain("demo").record.remarks == ()


def test_a_lost_session_of_an_own_provider_is_replaced_by_a_new_one() -> None:
    """The client raises an error of the kind `session`; the user notices nothing."""
    service = Service()
    executor = cc.AgentExecutor(cc.open_store("memory:"), MINE, endpoint=service, triggers=())

    ask(executor, "one")
    service.sessions.clear()
    ask(executor, "two", "three")

    assert service.calls[1:] == [("s1", ["two"]), ("", ["one", "ok", "two"]), ("s2", ["three"])]


def test_a_session_that_ends_elsewhere_than_its_cursor_is_replaced() -> None:
    """A service that was restored from a backup has the session, but not all of it."""
    service = Service()
    executor = cc.AgentExecutor(cc.open_store("memory:"), MINE, endpoint=service, triggers=())

    ask(executor, "one", "two")
    del service.sessions["s1"][2:]
    ask(executor, "three")

    assert service.calls[2:] == [("s1", ["three"]), ("", ["one", "ok", "two", "ok", "three"])]


def test_an_own_provider_resumes_its_session_after_a_restart(tmp_path: Path) -> None:
    """Session and cursor are in the store, not in the executor."""
    service = Service()
    with cc.open_store(tmp_path / "store.db") as store:
        ask(cc.AgentExecutor(store, MINE, endpoint=service, triggers=()), "one")
    with cc.open_store(tmp_path / "store.db") as store:
        ask(cc.AgentExecutor(store, MINE, endpoint=service, triggers=()), "two")

    assert service.calls == [("", ["one"]), ("s1", ["two"])]


def test_a_failed_call_leaves_nothing_twice_in_an_own_session() -> None:
    """A provider that can revert goes back to the cursor; with another, a new session begins."""
    for reverts, last in ((True, ("s1", ["two", "three"])), (False, ("", ["one", "ok", "two", "three"]))):
        service = Service()
        provider = cc.provider(
            "mine:big", window=32_000, session_resumption=True, session_field="session_id", reverts=reverts
        )
        executor = cc.AgentExecutor(cc.open_store("memory:"), provider, endpoint=service, triggers=())
        ask(executor, "one")
        service.failures = 1
        with pytest.raises(ProviderFailed):
            ask(executor, "two")
        ask(executor, "three")

        assert service.calls[-1] == last
        contents = [message["content"] for message in service.sessions["s1" if reverts else "s2"]]
        assert contents == ["one", "ok", "two", "three", "ok"]


def test_an_executor_continues_a_session_that_it_did_not_begin() -> None:
    """A conversation that was answered elsewhere, whose session is still there."""
    service, store = Service(), cc.open_store("memory:")
    store.extend("demo", [cc.user("one"), cc.assistant("ok")])
    service.sessions["theirs"] = [{"content": "one"}, {"content": "ok"}]
    executor = cc.AgentExecutor(store, MINE, endpoint=service, instructions="Be brief.", triggers=())
    sessions = cc.SessionManager(store)

    sessions.set_cursor(executor.channel("demo"), 2, session_id="theirs", cursor="2")
    ask(executor, "two", "three")

    assert service.calls == [("theirs", ["two"]), ("theirs", ["three"])]
    (known,) = sessions.sessions("demo")
    assert (known.id, known.shown, known.cursor) == ("theirs", 6, "6")


def test_the_session_stands_in_the_request_and_is_read_from_the_reply() -> None:
    """Also for who compiles and sends requests without an executor."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, MINE)
    reply: JSONObject = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]}
    store.append("demo", cc.user("one"))
    compiled = compiler.compile("demo")
    assert "session_id" not in compiled.params

    compiler.commit(compiled, {**reply, "id": "r1", "session_id": "s1"})
    store.append("demo", cc.user("two"))

    compiled = compiler.compile("demo")
    assert compiled.params["session_id"] == "s1"
    assert [message.text for message in compiled.messages] == ["two"]


def test_another_format_takes_an_own_session_field_too() -> None:
    """Not only the one of the Responses API itself."""
    provider = cc.provider(
        "mine:big", format="openai_responses", window=32_000, session_resumption=True, session_field="thread"
    )
    item: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
    reply: JSONObject = {"id": "r1", "thread": "t1", "status": "completed", "output": [item]}
    store = cc.open_store("memory:")
    compiler, reader = cc.MessageCompiler(store, provider), provider.formatter.create_reader()
    store.append("demo", cc.user("one"))

    compiler.commit(compiler.compile("demo"), reply)
    reader.read(reply)
    store.append("demo", cc.user("two"))

    assert compiler.compile("demo").params["thread"] == "t1"
    assert reader.find_session("thread") == "t1"
    assert reader.find_session("previous_response_id") == "r1"


def test_a_session_field_of_a_provider_without_sessions_is_refused() -> None:
    """It would have no effect."""
    with pytest.raises(InvalidSetting, match="session_resumption=True"):
        cc.provider("mine:big", window=32_000, session_field="session_id")
    with pytest.raises(InvalidSetting, match="session_field: must be a string"):
        cc.provider("mine:big", window=32_000, session_resumption=True, session_field=3)  # type: ignore[arg-type]


def test_a_cursor_beyond_the_conversation_is_refused() -> None:
    """And so is one for a channel without a session."""
    store = cc.open_store("memory:")
    store.extend("demo", [cc.user("one"), cc.assistant("ok")])
    channel, sessions = cc.MessageCompiler(store, MINE).channel("demo"), cc.SessionManager(store)

    for shown in (0, 3, -1, True, "2"):
        with pytest.raises(InvalidInput, match="from 1 to 2"):
            sessions.set_cursor(channel, shown, session_id="s1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="has no session"):
        sessions.set_cursor(channel, 2)
    with pytest.raises(InvalidInput, match="session_id must be a non-empty string"):
        sessions.set_cursor(channel, 2, session_id="")
    with pytest.raises(cc.errors.UnknownConversation):
        sessions.set_cursor(channel._replace(conversation="other"), 1, session_id="s1")
    assert sessions.sessions("demo") == []


def test_an_invalid_session_is_refused_before_anything_is_stored() -> None:
    """What was stored of it could not be read again."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("one"))
    compiler, sessions = cc.MessageCompiler(store, MINE), cc.SessionManager(store)
    compiled = compiler.compile("demo")
    channel: Any = compiled.channel
    compiler.begin(compiled)
    wrong: list[tuple[str, JSONObject]] = [
        ("cursor must be a string, got 2", {"cursor": 2}),
        ("cursor must be a string, got None", {"cursor": None}),
        ("cursor must be a string, got ", {"cursor": "\ud800"}),
        ("session_id must be a string, got 7", {"session_id": 7}),
        ("notes must be a list of strings", {"notes": ["\ud800"]}),
        ("notes must be a list of strings", {"notes": [5]}),
        ("notes must be a list of strings", {"notes": "text"}),
        ("shortened must be True or False", {"shortened": 1}),
        ("usage: input must be a number", {"usage": cc.Usage(input=1.5)}),  # type: ignore[arg-type]
    ]
    for problem, arguments in wrong:
        with pytest.raises(InvalidInput, match=problem):
            compiler.commit(compiled, cc.assistant("ok"), **arguments)
    with pytest.raises(InvalidInput, match="usage: output must be"):
        compiler.abort(compiled, usage=cc.Usage(output="9"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cursor must be a string, got 2"):
        sessions.set_cursor(channel, 1, session_id="s1", cursor=2)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="channel must be a Channel"):
        sessions.set_cursor(channel._replace(model=None), 1, session_id="s1")
    with pytest.raises(InvalidInput, match="agent name must be"):
        sessions.set_cursor(channel._replace(agent="a\nb"), 1, session_id="s1")
    with pytest.raises(InvalidInput, match="why must be a non-empty string"):
        sessions.invalidate(channel, None)  # type: ignore[arg-type]
    compiler.commit(compiled, cc.assistant("ok"), session_id="s1", cursor="2")
    assert [known.id for known in sessions.sessions("demo")] == ["s1"]


def test_numbers_of_a_service_are_taken_as_text() -> None:
    """JSON services number their sessions and messages."""
    service = Service(names=("session_id",), number=True)
    executor = cc.AgentExecutor(cc.open_store("memory:"), MINE, endpoint=service, triggers=())

    ask(executor, "one", "two")

    assert [session for session, _ in service.calls] == ["", "1"]
    (known,) = cc.SessionManager(executor.store).sessions("demo")
    assert (known.id, known.cursor) == ("1", "4")


def test_a_cursor_that_is_set_back_sends_what_the_session_lost() -> None:
    """The same session gets the messages after the cursor, once; the account says which it had."""
    store = cc.open_store("memory:")
    compiler, sessions = cc.MessageCompiler(store, MINE), cc.SessionManager(store)
    for text in ("one", "two"):
        store.append("demo", cc.user(text))
        compiler.commit(compiler.compile("demo"), cc.assistant(f"re {text}"), session_id="s1", cursor="x")
    store.append("demo", cc.user("three"))

    sessions.set_cursor(compiler.channel("demo"), 2, cursor="y")

    compiled = compiler.compile("demo")
    assert (compiled.mode, compiled.session_id, compiled.cursor) == ("resume", "s1", "y")
    assert [message.text for message in compiled.messages] == ["two", "re two", "three"]
    sent = [(line.seq, line.sent) for line in compiled.manifest.lines]
    assert sent == [(1, False), (2, False), (3, True), (4, True), (5, True)]
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant("re three"), session_id="s1")
    assert [(line.seq, line.sent) for line in compiler.explain("demo").lines] == sent
    assert compiler.rebuild("demo") == compiled.body
    store.append("demo", cc.user("four"))
    assert [message.text for message in compiler.compile("demo").messages] == ["four"]
    sessions.invalidate(compiled.channel, "lost")
    whole = compiler.compile("demo")
    assert [message.text for message in whole.messages] == [
        *("one", "re one", "two", "re two", "three", "re three", "four")
    ]


def test_a_set_cursor_is_void_after_an_edit_before_it() -> None:
    """The session has other messages then than the conversation."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, MINE)
    store.extend("demo", [cc.user("one"), cc.assistant("ok"), cc.user("two")])
    cc.SessionManager(store).set_cursor(compiler.channel("demo"), 2, session_id="s1")
    assert compiler.compile("demo").mode == "resume"

    store.edit("demo", 1, cc.user("other"))

    compiled = compiler.compile("demo")
    assert (compiled.mode, compiled.session_id) == ("full", None)
    assert [message.text for message in compiled.messages] == ["other"]


def test_a_session_without_news_is_not_called() -> None:
    """All of the log is in the session, up to its answer."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, MINE)
    store.extend("demo", [cc.user("one"), cc.assistant("ok")])
    cc.SessionManager(store).set_cursor(compiler.channel("demo"), 2, session_id="s1")

    assert not compiler.compile("demo").is_new


@pytest.mark.parametrize("begins", [True, False])
def test_a_commit_after_an_abort_leaves_a_usable_session(begins: bool) -> None:
    """Also without `begin`: the request was compiled with the failed one in view."""
    store = cc.open_store("memory:")
    compiler, sessions = cc.MessageCompiler(store, "claude-code:claude-opus-5-5"), cc.SessionManager(store)
    for text in ("one", "two"):
        store.append("demo", cc.user(text))
        if text == "two":
            failed = compiler.compile("demo", directory="/w")
            compiler.begin(failed)
            compiler.abort(failed, "the line was cut")
        compiled = compiler.compile("demo", directory="/w")
        if begins:
            compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("ok"), session_id="s1")

    (known,) = sessions.sessions("demo")
    assert (known.unanswered, known.error) == (False, "")
    store.append("demo", cc.user("three"))
    compiled = compiler.compile("demo", directory="/w")
    assert (compiled.mode, compiled.revert_to) == ("resume", None)
