"""Threads of one Codex program: started, resumed, reverted or forked, and unloaded so that others can resume them.

A thread that is at the call's cursor is used unchanged. A thread that is beyond it must be brought back exactly.
`thread/revert` removes turns, but not history that was injected before them, because it belongs to no turn. A fork at
the cursor contains nothing later. So a thread is reverted in place only if all turns to remove have failed, and the
name of the first shows that no history was injected before it. In all other cases the thread is forked. Forking also
works if another process holds the thread, or a user continued it in the Codex program.

Only one process at a time holds a thread. It is unloaded after an idle time.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, encode_canonical, parse_object
from contextc._worker_threads import run_in_thread
from contextc.errors import ProviderFailed
from contextc.providers.codex.app_server import HELD_THREAD, AppServer, ProgramEnded, RequestRejected
from contextc.providers.codex.call_options import PROMPT_PREFIX, CodexCallOptions

PAGE = 4
MAX_LOADED = 32
OTHER_TOOLS = "has other tools than the request, and its tools cannot change"
UNLOAD_SECONDS = 2.0
USAGE_SECONDS = 2.0
USAGE = "thread/tokenUsage/updated"


class LoadedThread(Struct):
    """A loaded thread: its cursor, options and tools. `is_clean` is False if a prompt was sent after the cursor."""

    cursor: str
    options: JSONObject
    tools: list[JSONObject] | None
    path: str = ""
    is_clean: bool = True
    unload_timer: asyncio.TimerHandle | None = None


class OpenedThread(Struct):
    """A thread that is ready.

    `recorded_turn` is a turn that already answered this prompt, and `usage` its token usage.
    """

    id: str
    notes: list[str] = []
    recorded_turn: JSONObject | None = None
    usage: JSONObject | None = None


class ThreadManager:
    """The loaded threads of one program. An idle thread is unloaded after `idle` seconds."""

    def __init__(self, provider: str, server: AppServer, idle: float) -> None:
        self.provider, self.server, self.idle = provider, server, idle
        self.loaded: dict[str, LoadedThread] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}

    async def open(self, asked: CodexCallOptions) -> OpenedThread:
        """Return a thread that is at the call's cursor. Raise `ProviderFailed` if it cannot be resumed."""
        if not asked.session:
            return OpenedThread(await self._begin("thread/start", asked, asked.new_thread_params))
        try:
            return await self._known(asked)
        except RequestRejected as refused:  # a new thread may succeed
            problem = f"thread {asked.session} cannot be resumed: {refused}"
            raise ProviderFailed(self.provider, "session", problem) from None

    def mark_sending(self, thread: str) -> None:
        """Record that a prompt is about to be sent, which may have to be reverted."""
        if (live := self.loaded.get(thread)) is not None:
            live.is_clean = False

    def mark_complete(self, thread: str, turn: str) -> None:
        """Record that a turn is complete."""
        if (live := self.loaded.get(thread)) is not None:
            live.cursor, live.is_clean = turn, True

    async def schedule_unload(self, thread: str) -> None:
        """Schedule the unloading of a thread after a call. Unload it now if its turn is incomplete.

        If too many threads are loaded, the oldest idle one is unloaded too. Unloading ends the thread's background
        commands.
        """
        live = self.loaded.get(thread)
        if live is None or not self.server.is_alive:
            return
        self._stay(live)
        self.loaded[thread] = self.loaded.pop(thread)  # ordered by last use
        if self.idle <= 0 or not live.is_clean:
            await self.unload(thread)
            return
        live.unload_timer = asyncio.get_running_loop().call_later(self.idle, self._leave_soon, thread)
        if len(self.loaded) > MAX_LOADED:
            oldest = next((name for name, each in self.loaded.items() if each.unload_timer is not None), thread)
            self._leave_soon(oldest)

    async def unload(self, thread: str) -> None:
        """Unload a thread. This ends all commands that it started."""
        live = self.loaded.pop(thread, None)
        if live is None:
            return
        self._stay(live)
        try:
            with self.server.listen(thread) as messages:
                found = await self.server.request("thread/unsubscribe", {"threadId": thread})
                async with asyncio.timeout(UNLOAD_SECONDS):
                    while found.get("status") == "unsubscribed":
                        message = await messages.get()
                        if message is None or message["method"] == "thread/closed":
                            break
        except (RequestRejected, ProgramEnded, TimeoutError):
            return

    def clear(self) -> None:
        """Forget all threads, because the program has ended or is about to."""
        for live in self.loaded.values():
            self._stay(live)
        self.loaded.clear()

    async def _known(self, asked: CodexCallOptions) -> OpenedThread:
        if (leaving := self._leaving.get(asked.session)) is not None:
            await asyncio.wait([leaving])
        live = self.loaded.get(asked.session)
        if live is not None and not same_tools(asked.new_thread_params.get("dynamicTools"), live.tools):
            raise ProviderFailed(self.provider, "session", f"the thread {asked.session} {OTHER_TOOLS}")
        if live is not None and live.is_clean and live.cursor == asked.cursor and live.options == asked.thread_params:
            self._stay(live)
            return OpenedThread(asked.session)
        after = await self._after(asked)
        if len(after) == 1 and after[0]["status"] == "completed" and _client_name(after[0]) == asked.turn_name:
            return await self._recorded(asked, after[0])
        if asked.revert and _can_revert(after):
            opened = await self._resumed(asked)
            if opened.id != asked.session:  # already a fork
                return opened
            try:
                await self.server.request("thread/revert", {"threadId": opened.id, "beforeTurnId": after[0]["id"]})
            except RequestRejected:  # a thread of an older version cannot be changed in place
                return await self._forked(asked, "")
            return opened
        if after or asked.revert or (live is not None and not live.is_clean):
            return await self._forked(asked, "was continued elsewhere" if after and not asked.revert else "")
        return await self._resumed(asked)

    def _stay(self, live: LoadedThread) -> None:
        if live.unload_timer is not None:
            live.unload_timer.cancel()
            live.unload_timer = None

    def _leave_soon(self, thread: str) -> None:
        task = self._leaving[thread] = asyncio.get_running_loop().create_task(self.unload(thread))
        task.add_done_callback(lambda _: self._leaving.pop(thread, None))

    async def _begin(self, method: str, asked: CodexCallOptions, params: JSONObject) -> str:
        """Load a thread and return its id."""
        found = await self.server.request(method, {**params, **asked.thread_params})
        thread = cast(str, found["thread"]["id"])
        tools = (
            await load_thread_tools(found["thread"])
            if asked.session
            else asked.new_thread_params.get("dynamicTools", [])
        )
        self.loaded[thread] = LoadedThread(
            asked.cursor, asked.thread_params, tools, str(found["thread"].get("path") or "")
        )
        if not same_tools(asked.new_thread_params.get("dynamicTools"), tools):
            await self.unload(thread)
            raise ProviderFailed(self.provider, "session", f"the thread {asked.session} {OTHER_TOOLS}")
        return thread

    async def _after(self, asked: CodexCallOptions) -> list[JSONObject]:
        """Return the turns after the cursor, in order."""
        found: list[JSONObject] = []
        params: JSONObject = {"threadId": asked.session, "itemsView": "full", "limit": PAGE}
        while True:
            page = await self.server.request("thread/turns/list", params)
            for turn in page["data"]:
                if turn["id"] == asked.cursor:
                    return found
                found.insert(0, turn)
            if not (following := page.get("nextCursor")):
                break
            params = {**params, "cursor": following, "limit": 8 * PAGE}
        where = f"turn {asked.cursor}" if asked.cursor else "an acknowledged turn"
        raise ProviderFailed(self.provider, "session", f"thread {asked.session} does not contain {where}")

    async def _resumed(self, asked: CodexCallOptions) -> OpenedThread:
        if (live := self.loaded.get(asked.session)) is not None and live.options == asked.thread_params:
            self._stay(live)
            live.cursor, live.is_clean = asked.cursor, True
            return OpenedThread(asked.session)
        await self.unload(asked.session)
        params = {"threadId": asked.session, "excludeTurns": True}
        try:
            thread = await self._begin("thread/resume", asked, params)
        except RequestRejected as refused:
            if not HELD_THREAD.search(str(refused)):
                raise
            return await self._forked(asked, "is held by another process")
        if thread != asked.session:
            await self.unload(thread)
            problem = f"Codex resumed thread {thread}, expected {asked.session}"
            raise ProviderFailed(self.provider, "session", problem)
        return OpenedThread(thread)

    async def _forked(self, asked: CodexCallOptions, why: str) -> OpenedThread:
        await self.unload(asked.session)
        params = {"threadId": asked.session, "lastTurnId": asked.cursor, "excludeTurns": True}
        thread = await self._begin("thread/fork", asked, params)
        notes = [f"Codex thread {asked.session} {why}: continued in a fork of it, {thread}."] if why else []
        return OpenedThread(thread, notes)

    async def _recorded(self, asked: CodexCallOptions, turn: JSONObject) -> OpenedThread:
        """Return the thread with the turn that already answered, and its token usage if the thread can be loaded."""
        await self.unload(asked.session)
        usage = None
        with self.server.listen(asked.session) as messages, suppress(RequestRejected):
            params = {"threadId": asked.session, "excludeTurns": True}
            if await self._begin("thread/resume", asked, params) == asked.session:
                usage = await _usage(messages, turn["id"])
                self.mark_complete(asked.session, turn["id"])
        note = f"Codex had already answered this prompt (turn {turn['id']}): that answer is used, and nothing was sent."
        return OpenedThread(asked.session, [note], turn, usage)


def _client_name(turn: JSONObject) -> str:
    """Return the name that the client gave a turn when it started it."""
    return next((str(item.get("clientId") or "") for item in turn["items"] if item["type"] == "userMessage"), "")


def _can_revert(turns: list[JSONObject]) -> bool:
    """Return True if these turns can be reverted: none completed, and no history was injected before them."""
    is_complete = any(turn["status"] == "completed" for turn in turns)
    return bool(turns) and not is_complete and _client_name(turns[0]).startswith(PROMPT_PREFIX)


async def _usage(messages: "asyncio.Queue[JSONObject | None]", turn: str) -> JSONObject | None:
    try:
        async with asyncio.timeout(USAGE_SECONDS):
            while (message := await messages.get()) is not None:
                if message["method"] == USAGE and message["params"].get("turnId") == turn:
                    return message
    except TimeoutError:
        pass
    return None


# ── rollout files ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Calls that Codex does not report, read from the rollout file of the thread; and the tools of the thread.
#
# The file contains all calls with their results. Calls that the sandbox denied, unknown tools and plan updates are not
# reported as items. The file is read whenever a new item starts, and a call without an item gets a synthetic one.
#
# The tools of a thread cannot change after its start. They are in the first line of the file, so that any process can
# compare them with those of a request.


CALLS, RESULTS = ("function_call", "custom_tool_call"), ("function_call_output", "custom_tool_call_output")
TRIGGERING_METHODS = ("thread/tokenUsage/updated", "item/started", "turn/completed")
"""Messages before which the file is read. It then contains all results so far, unless the API answered at once. Such
results are reported before the next message."""


class UnreportedCalls:
    """Reader of a thread's rollout file, from its current end. `known` are the ids of calls in the injected history."""

    def __init__(self, path: str, known: Collection[str]) -> None:
        self._path, self._known = Path(path) if path else None, known
        self._end = self._path.stat().st_size if self._path is not None and self._path.exists() else 0
        self._asked: dict[str, JSONObject] = {}

    def messages_before(self, message: JSONObject, reported: Collection[str]) -> Iterator[JSONObject]:
        """Yield messages for unreported calls that precede this message. `reported` are the ids of the items so far."""
        if message["method"] not in TRIGGERING_METHODS:
            return
        place = {name: message["params"].get(name) for name in ("threadId", "turnId")}
        for item in self._new():
            name = str(item.get("call_id"))
            if item["type"] in CALLS:
                self._asked[name] = item
            elif name not in reported and name not in self._known and (asked := self._asked.pop(name, None)):
                made = {"type": "dynamicToolCall", "id": name, "tool": asked["name"], "arguments": _arguments_of(asked)}
                content = {"contentItems": [{"type": "inputText", "text": _text(item.get("output"))}]}
                yield {"method": "item/started", "params": {**place, "item": {**made, "status": "inProgress"}}}
                yield {
                    "method": "item/completed",
                    "params": {**place, "item": {**made, "status": "completed", **content}},
                }

    def _new(self) -> Iterator[JSONObject]:
        """Yield the calls and results that were written since the last read."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                written = file.read()
        except OSError:
            return
        whole = written[: written.rfind(b"\n") + 1]
        self._end += len(whole)
        for line in whole.splitlines():
            entry = (parse_object(line.decode("utf-8", "replace")) or {}) if b"_call" in line else {}
            item: JSON = entry.get("payload")
            if entry.get("type") == "response_item" and isinstance(item, dict):
                found = cast(JSONObject, item)
                if found.get("type") in (*CALLS, *RESULTS):
                    yield found


def _arguments_of(asked: JSONObject) -> JSONObject:
    if "input" in asked:
        return {"input": asked["input"]}
    written = str(asked.get("arguments") or "{}")
    return parse_object(written) or {"arguments": written}


def _text(output: JSON) -> str:
    if isinstance(output, list):
        blocks = [cast(JSONObject, block) for block in cast(list[JSON], output) if isinstance(block, dict)]
        return "\n".join(str(block.get("text") or "") for block in blocks)
    return output if isinstance(output, str) else ""


MAX_LINE_BYTES = 1 << 24


async def load_thread_tools(thread: JSONObject) -> list[JSONObject] | None:
    """Return the tools that a thread was started with, or None if its rollout file does not contain them."""
    path = thread.get("path")
    return await run_in_thread(_read, Path(path)) if isinstance(path, str) else None


def same_tools(tools: Sequence[JSONObject] | None, others: Sequence[JSONObject] | None) -> bool:
    """Return True if both lists have the same tools, or if one of them is unknown (None)."""
    return tools is None or others is None or _definitions(tools) == _definitions(others)


def _read(path: Path) -> list[JSONObject] | None:
    try:
        with path.open("rb") as file:
            first = parse_object(file.readline(MAX_LINE_BYTES).decode("utf-8", "replace")) or {}
    except OSError:
        return None
    if first.get("type") != "session_meta":
        return None
    return cast(list[JSONObject], first["payload"].get("dynamic_tools") or [])


def _definitions(tools: Sequence[JSONObject]) -> list[bytes]:
    """Return the tools without empty and false fields, in sorted order."""
    bare = [{name: value for name, value in tool.items() if value not in (None, False)} for tool in tools]
    return sorted(encode_canonical(tool) for tool in bare)
