"""A store with every kind of part, event and row, made by real turns against a scripted endpoint.

The scenario has no sleeps and depends on no clock, network or machine: a repeated run stores and sends the same, except
for ids and times.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import DEFAULT_FIXES, ContextcError
from contextc.events import TextDelta, ToolProgress
from contextc.executor import Limits
from contextc.prompts import PromptBuilder, PromptFragment
from contextc.providers.client import ProviderCall
from contextc.store import session_transcripts
from contextc.store.session_transcripts import EntryBatch, TranscriptKey
from contextc.tools import ToolContext
from contextc.tools.builtin import todo_tool
from contextc.tools.todos import Todo
from contextc.triggers import ResourceUsage, default_triggers, resource_triggers
from tests.executor.scripted_provider import Scripted, add, call, fails, says, taken_over
from tests.executor.scripted_tool_provider import agent as codex_agent
from tests.executor.scripted_tool_provider import answered, asked, ended, said, used
from tests.golden.scenario_script import (
    DIRECTORY,
    LOOK,
    PICTURE,
    PROVIDERS,
    SONNET,
    SURROUNDINGS,
    TRIGGERS,
    approve,
    draw,
    fail,
    run,
    sign,
    sonnet,
    thoughtful,
    tools,
)


def play(store: cc.Store, file: Path) -> list[bytes]:
    """Make all conversations in a store whose SQLite file this is; return the requests that were sent, in order."""
    transient = "Nothing is wrong with the request; send it again."  # as it was recorded: error texts may change
    with patch("random.random", lambda: -0.5), patch.dict(DEFAULT_FIXES, transient=transient):  # a retry does not wait
        sent = asyncio.run(_turns(store))
    sent += _everything(store)
    _formats(store)
    _branches(store)
    _transcripts(store)
    sent += asyncio.run(_left_behind(store, file))
    return sent


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _turns(store: cc.Store) -> list[bytes]:
    sent: list[bytes] = []
    for each in (_small, _compacted, _work, _failures, _cancelled, _interrupted, _limits, _replaced, _program):
        sent += await each(store)
    return sent


async def _work(store: cc.Store) -> list[bytes]:
    """Tools, approvals, progress, a sub-agent, steering, a follow-up, triggers, prompt fragments, todos."""
    helper_line = Scripted(says("Seven reeds."))
    helper = cc.AgentExecutor(store, sonnet(), name="helper", endpoint=helper_line, run="count", triggers=())

    async def count(context: ToolContext) -> str:
        """Count slowly, and say how far it is."""
        await executor.steer("work", "Hurry a little.")
        context.progress("half of it")
        async with aclosing(executor.watch("work")) as events:
            async for event in events:
                if isinstance(event, ToolProgress):
                    break
        return "All counted."

    async def ask_helper(task: str) -> str:
        """Have the helper do something."""
        done = await helper.start("work/helper", cc.user(task, author="assistant")).wait()
        return done.message.text if done.message else ""

    line = Scripted(
        thoughtful(
            says(
                "I add.",
                call(1, "add", a=1, b=2),
                call(2, "fail", why="a reason"),
                call(3, "nothing", a=1, b=2),
                call(4, "sign", name="ann"),
                call(5, "sign", name="bob"),
            )
        ),
        fails("rate", "slow down", status=429, retry_after=0.001),
        says(("c6", "count", {}), call(7, "draw", thing="pond"), call(8, "ask_helper", task="Count the reeds.")),
        says(
            ("c9", "todos", {"todos": [{"text": "cut the reeds"}, {"text": "feed the fish", "state": "doing"}]}),
            call(10, "add", a=3, b=4),
            call(11, "add", a=5, b=6),
        ),
        says("It is done, asfar as", finish="max_tokens", input=3_000),  # as it was recorded
        says("And the fish are fed.", input=3_100),
        says("Good night."),
        says("Until tomorrow."),
    )
    executor = cc.AgentExecutor(
        store,
        sonnet(),
        tools=[*tools(add, fail, sign, count, draw, ask_helper), todo_tool()],
        triggers=[*default_triggers(), *resource_triggers(), *TRIGGERS],
        instructions=PromptBuilder([PromptFragment("weather", "It rains.", "dynamic")]).with_builtin(
            "behaviour", "identity", "project", "todos", "response", "delegations", "agents",
            system_prompt="You keep a garden.",
        ),
        context=SURROUNDINGS,
        approve=approve,
        endpoint=line,
        resources=lambda: ResourceUsage(memory=0.95, cpu=0.97),
        settings={"temperature": 0.5},
        limits=Limits(steps=6),
    )  # fmt: skip
    store.begin("work")
    await executor.follow_up("work", "And the fish?")
    await run(executor, "work", "Count everything.")
    store.add_todo("work", "sleep")
    await run(executor, "work", "Good night.")
    return [*line.bodies, *helper_line.bodies]


async def _failures(store: cc.Store) -> list[bytes]:
    """A reply that breaks off, a provider that refuses, and a malformed call."""
    line = Scripted(
        fails("transient", "a gateway", status=502),
        says("I was about to say").events()[:4],
        fails("auth", "no such key", status=401),
        says(call(1, "add"), malformed='{"a": 1,'),
        says("That was wrong."),
    )
    executor = cc.AgentExecutor(
        store, sonnet(), tools=tools(add), endpoint=line, compiler=cc.CompilerOptions(failed="annotate"), triggers=()
    )
    for given in ("Go on.", None, "Try again."):
        await run(executor, "failures", given)
    return line.bodies


async def _cancelled(store: cc.Store) -> list[bytes]:
    line = Scripted(says("One two three.", silent=4), says("Again from one.", input=1_500))
    executor = cc.AgentExecutor(store, sonnet(), endpoint=line, triggers=())
    turn = executor.start("cancelled", "Count.")
    async with aclosing(turn.events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                turn.cancel()
    await turn.wait()
    await run(executor, "cancelled", "Once more.")
    return line.bodies


async def _interrupted(store: cc.Store) -> list[bytes]:
    """The lease of a turn is lost while a tool runs, as after a crash; the turn is resumed."""

    def lose() -> str:
        """Lose everything."""
        taken_over(store)
        return "never stored"

    line = Scripted(says("I lose it.", ("c1", "lose", {})), says("Here I am again."))
    executor = cc.AgentExecutor(store, sonnet(), tools=tools(lose), endpoint=line, triggers=())
    await run(executor, "interrupted", "Lose it.")
    with suppress(ContextcError):
        await executor.resume("interrupted").wait()
    line.script.append(says("Once more.", ("c1", "lose", {})))
    await run(executor, "lost", "Lose it, too.")
    return line.bodies


async def _limits(store: cc.Store) -> list[bytes]:
    """A turn that ends at its limits, and one that makes no progress."""
    line = Scripted(*[says(call(number, "add", a=number, b=0)) for number in range(4)])
    limited = cc.AgentExecutor(
        store, sonnet(), tools=tools(add), triggers=default_triggers(), limits=Limits(steps=3), endpoint=line
    )
    await run(limited, "limits", "Add on.")
    same = Scripted(*[says(call(number, "fail", why="always")) for number in range(5)])
    stuck = cc.AgentExecutor(store, sonnet(), tools=tools(fail), triggers=default_triggers(), endpoint=same)
    await run(stuck, "stuck", "Fail.")
    return [*line.bodies, *same.bodies]


async def _compacted(store: cc.Store) -> list[bytes]:
    """Summaries: by the model, and a digest where the summarizer fails."""

    def refuse(messages: Sequence[cc.Message], previous: str | None) -> str:
        raise ValueError("no second summary")

    answers = [says(f"Answer {number}: " + "deep " * 60, input=0) for number in range(5)]
    line = Scripted(*answers[:3], says("The pond was measured."), *answers[3:])
    executor, failing = (
        cc.AgentExecutor(
            store, sonnet(), endpoint=line, summarize=each, max_input_tokens=1_200, triggers=default_triggers()
        )
        for each in ("model", refuse)
    )
    for number in range(3):
        await run(executor, "compacted", f"Question {number}: " + "how deep " * 20)
    await executor.compact("compacted")
    for number in range(3, 5):
        await run(failing, "compacted", f"Question {number}: " + "how deep " * 20)
    await failing.compact("compacted")
    return line.bodies


async def _replaced(store: cc.Store) -> list[bytes]:
    """A request that was changed between compiling and sending."""

    def changed(request: JSONObject, step: int) -> JSONObject:
        return {**request, "metadata": {"user_id": "golden"}}

    line = Scripted(says("Changed."), says("Changed again."))
    executor = cc.AgentExecutor(store, sonnet(), endpoint=line, on_prepare_messages=changed, triggers=())
    await run(executor, "replaced", "Change it.")
    await run(executor, "replaced", "And again.")
    return line.bodies


async def _program(store: cc.Store) -> list[bytes]:
    """A provider that keeps a session and runs tools by itself."""

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        yield asked(f"call-{number}")
        result = await call.host.run(cc.tool_call(f"call-{number}", "look", {"thing": "it"}))
        yield answered(f"call-{number}", result.text)
        yield said(f"It is round, {number}.")
        yield used(1_000 * number, 20)
        yield ended()

    def look(thing: str) -> str:
        """Look at a thing."""
        return f"{thing} is round."

    executor, program = codex_agent(
        store,
        script,
        tools=tools(look),
        instructions=PromptFragment("system_prompt", "You look at things."),
        directory=DIRECTORY,
    )
    for given in ("Look at it.", "Once more."):
        await run(executor, "program", given)
    return [call.body for call in program.calls]


async def _small(store: cc.Store) -> list[bytes]:
    """A context that fills: warnings, then a cut that leaves out and shortens."""

    def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + "word " * 250

    line = Scripted(*[says(call(page, "read", page=page), input=0) for page in range(1, 7)], says("All read.", input=0))
    executor = cc.AgentExecutor(
        store,
        cc.provider(SONNET, window=2_929, output=500),
        tools=tools(read),
        triggers=default_triggers(),
        endpoint=line,
        summarize=None,
    )
    await run(executor, "small", "Read six pages.")
    return line.bodies


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def messages() -> list[cc.Message]:
    """Every part, role, status and field of a message."""
    media = [
        cc.Media(mime_type="image/png", data=PICTURE, name="pond.png"),
        cc.Media(mime_type="application/pdf", url="https://example.org/pond.pdf"),
        cc.Media(mime_type="audio/wav", file_id="file-1", provider="openai"),
    ]
    signed = cc.Reasoning(text="Hm.", signature="c2ln", id="rs_1", provider="anthropic", model="claude-sonnet-4-5")
    return [
        cc.system("Be brief.", audience="assistant", author="trigger"),
        cc.user([cc.Text("What? <system>"), *media], author="ann", uid="given-by-a-client", time=1_700_000_000_000),
        cc.assistant(
            [cc.Text("A pond.", extra={"anthropic": {"citations": [{"cited_text": "pond"}]}})],
            reasoning=signed,
            tool_calls=[cc.tool_call("c1", "look", {"at": "pond"}), cc.tool_call("c2", "look", '{"at": ')],
            author="assistant",
            finish="tool_calls",
            usage=cc.Usage(input=100, output=20, cache_read=50, cache_write=10, reasoning=5),
            meta={"note": "kept"},
            extra={"anthropic": {"stop_sequence": None}},
            run="run-1",
            turn=1,
            step=1,
        ),
        cc.tool_result("c1", "look", [cc.Text("deep"), media[0]], author="assistant"),
        cc.tool_result("c2", "look", "no such argument", is_error=True, author="assistant"),
        cc.assistant([cc.Reasoning(text="unsigned"), cc.Reasoning(data="b3BhcXVl", provider="openai", id="rs_2"),
                      cc.messages.ProviderBlock(provider="gemini", data={"executableCode": {"code": "1+1"}}),
                      cc.Text("It is deep."), cc.messages.UserNotice("for people only")], author="assistant"),
        cc.user("And for me?", author="bob", recipients=("assistant",)),
        cc.assistant("I was counting.", author="helper", recipients=("assistant",)),
        cc.assistant("Half a", author="assistant", status="error", error="the connection was cut"),
        cc.assistant("Half b", author="assistant", status="cancelled", finish="cancelled"),
        cc.user("A note.", as_role="system"),
        cc.user("My key is hunter2."),
        cc.assistant(finish="stop", author="assistant"),
        cc.user("Go on."),
    ]  # fmt: skip


def _everything(store: cc.Store) -> list[bytes]:
    """All messages, on several channels: a session, a changed system prompt, an edit, a failure."""
    text = messages()
    store.append("everything", text[0], key="first")
    store.extend("everything", text[1:])
    store.redact("everything", 12)
    store.pin("everything", 2)
    store.replace_todos(
        "everything",
        [Todo(number=number, text=f"{state} thing", state=state)
         for number, state in enumerate(("open", "doing", "done", "dropped"), 1)],
    )  # fmt: skip
    for waiting in ("steer", "follow-up"):
        store.enqueue("everything", cc.user(f"This waits ({waiting})."), kind=waiting)
    sent: list[bytes] = []
    for name in PROVIDERS[:2] + PROVIDERS[3:4]:
        change = "update" if "session" in name else "new session"
        compiler = cc.MessageCompiler(store, cc.provider(name, window=50_000, output=4_000), static_change=change)
        for number in range(3):
            store.append("everything", cc.user(f"Question {number}."))
            prompt = "You look at ponds." if number < 2 else "You look at seas."
            compiled = compiler.compile("everything", tools=[LOOK], instructions=prompt, settings={"temperature": 0})
            compiler.begin(compiled)
            sent.append(compiled.body)
            if number == 1:
                compiler.abort(compiled, "the line was cut", usage=cc.Usage(input=90))
                continue
            compiler.commit(
                compiled,
                cc.assistant(f"Answer {number}."),
                usage=cc.Usage(input=120 + number, output=10),
                session_id=f"resp_{number}" if "session" in name else None,
                cursor=f"msg_{number}" if "session" in name else "",
                notes=["a note of the caller's"],
            )
    return sent


def _formats(store: cc.Store) -> None:
    """The same history once for each format, sent and answered, and a question that was not answered yet."""
    store.extend("formats", [each for each in messages() if each.status == "sent"])
    for name in PROVIDERS:
        conversation = store.fork("formats", f"format/{name}").name
        compiler = cc.MessageCompiler(store, cc.provider(name, window=50_000, output=4_000))
        options: dict[str, Any] = {"directory": DIRECTORY} if "co" in name[:3] or "claude-" in name[:7] else {}
        compiled = compiler.compile(conversation, tools=[LOOK], instructions="You look at ponds.", **options)
        compiler.commit(compiled, cc.assistant("Answered.", tool_calls=[cc.tool_call("n1", "look", {"at": "sky"})]))
        store.append(conversation, cc.tool_result("n1", "look", "blue", author="assistant"))
        store.append(conversation, cc.user("And now?"))


def _branches(store: cc.Store) -> None:
    """Forks, an edit, a rewind, an edge, and a conversation whose name has to be quoted in an address."""
    name = "a/b ü"
    store.extend(name, [cc.user("One."), cc.assistant("Two."), cc.user("Three."), cc.assistant("Four.")])
    compiler = cc.MessageCompiler(store, cc.provider(SONNET, window=50_000, output=4_000))
    compiled = compiler.compile(name, instructions="You count.", retry=True)
    compiler.commit(compiled, cc.assistant("Five."))
    store.edit(name, 3, cc.user("Three, edited."))
    compiled = compiler.compile(name, instructions="You count.")
    compiler.commit(compiled, cc.assistant("Four, on a branch."))
    store.rewind(name, 2)
    store.append(name, cc.user("Three, after a rewind."))
    store.fork(name, "fork", at=2)
    store.append("fork", cc.user("Elsewhere."))
    store.reset(name)
    store.append(name, cc.user("Anew."))
    compiled = compiler.compile(name, instructions="You count.")
    compiler.commit(compiled, cc.assistant("Anew it is."))
    store.begin("empty")


def _transcripts(store: cc.Store) -> None:
    def keep(tx: Any) -> None:  # a transaction
        key = TranscriptKey("garden", "session-1")
        entries: list[JSONObject] = [{"uuid": "u1", "text": "kept"}, {"text": "without a name"}]
        session_transcripts.append_entries(
            tx, key, EntryBatch(entries), "work", lambda before, new: {"count": len(new)}
        )
        session_transcripts.append_entries(
            tx, TranscriptKey("garden", "session-1", "side"), EntryBatch([{"uuid": "u2"}]), "work"
        )

    store.write(keep)


async def _left_behind(store: cc.Store, file: Path) -> list[bytes]:
    """What a killed process leaves: a turn in the middle of a reply, and content that is still to be erased.

    A connection that reads keeps the log from being emptied. The copy of the file is made at that moment.
    """
    line = Scripted(says("It was going to say", silent=4))
    executor = cc.AgentExecutor(store, sonnet(), endpoint=line, triggers=())
    turn = executor.start("killed", "Write on.")
    async with aclosing(turn.events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    store.append("killed/secret", cc.user("My other key is hunter3."))
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchall()
        with patch("contextc.store.sqlite.ERASE_WAIT_SECONDS", 0), patch("contextc.store.sqlite.log_warning"):
            store.redact("killed/secret", 1)
        copy_file(file, file.with_suffix(".copy"))
        reader.rollback()
    turn.cancel()
    await turn.wait()
    return line.bodies


def copy_file(source: Path, target: Path) -> None:
    """Write a compact copy of a SQLite file in use, with what is in its log."""
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
