"""The threads of one program: begun, gone on with, or brought back; and let go of, so that others can go on with them.

A thread that stands where the call says is used as it is. One that has gone on is brought back, exactly:
`thread/revert` takes turns away, but not what was taken in before them, because that belongs to no turn; a fork at the
last turn that counts has nothing that came after it. So a thread is reverted in place where all that goes is turns that
failed, and the name of the first says that nothing was taken in before it; everywhere else it is forked. A fork can be
made of a thread that another process holds, too, and of one that somebody went on with by hand.

A thread is held by one process at a time. It is let go of after a while without a turn.
"""

import asyncio
from contextlib import suppress
from typing import cast

from msgspec import Struct

from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.providers.codex.asked import PLAIN, Asked
from contextc.providers.codex.failing import HELD
from contextc.providers.codex.kept import are_the_same, tools_of
from contextc.providers.codex.server import AppServer, Ended, Refused

PAGE = 4
MOST_LOADED = 32
OTHER_TOOLS = "has other tools than the request, and keeps those it began with"
LEAVE_SECONDS = 2.0
USAGE_SECONDS = 2.0
USAGE = "thread/tokenUsage/updated"


class Live(Struct):
    """A thread that is loaded: where it stands, as what, and whether anything was sent to it since."""

    cursor: str
    options: JSONObject
    tools: list[JSONObject] | None
    path: str = ""
    clean: bool = True
    leaving: asyncio.TimerHandle | None = None


class Opened(Struct):
    """A thread that is ready; or, `recorded`, the turn in it that answered this very prompt, and what it took."""

    id: str
    notes: list[str] = []
    recorded: JSONObject | None = None
    usage: JSONObject | None = None


class Threads:
    def __init__(self, provider: str, server: AppServer, idle: float) -> None:
        self.provider, self.server, self.idle = provider, server, idle
        self.live: dict[str, Live] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}

    async def open(self, asked: Asked) -> Opened:
        if not asked.session:
            return Opened(await self._begin("thread/start", asked, asked.begins))
        try:
            return await self._known(asked)
        except Refused as refused:  # whatever it is that this thread cannot do, a new one may
            said = f"the thread {asked.session} cannot be gone on with: {refused}"
            raise ProviderFailed(self.provider, "session", said) from None

    def sending(self, thread: str) -> None:
        """Something is about to be sent that may have to be taken back."""
        if (live := self.live.get(thread)) is not None:
            live.clean = False

    def stands(self, thread: str, turn: str) -> None:
        """A turn is complete."""
        if (live := self.live.get(thread)) is not None:
            live.cursor, live.clean = turn, True

    async def rest(self, thread: str) -> None:
        """A call is over. The thread is let go of later; now, if its turn is not complete or there are many.

        With a thread end the commands that it left running.
        """
        live = self.live.get(thread)
        if live is None or not self.server.alive:
            return
        self._stay(live)
        self.live[thread] = self.live.pop(thread)  # the latest is the last
        if self.idle <= 0 or not live.clean:
            await self.leave(thread)
            return
        live.leaving = asyncio.get_running_loop().call_later(self.idle, self._leave_soon, thread)
        if len(self.live) > MOST_LOADED:
            oldest = next((name for name, each in self.live.items() if each.leaving is not None), thread)
            self._leave_soon(oldest)

    async def leave(self, thread: str) -> None:
        """Let go of a thread: it is closed, and nothing that it started runs on."""
        live = self.live.pop(thread, None)
        if live is None:
            return
        self._stay(live)
        try:
            with self.server.listen(thread) as heard:
                found = await self.server.request("thread/unsubscribe", {"threadId": thread})
                async with asyncio.timeout(LEAVE_SECONDS):
                    while found.get("status") == "unsubscribed":
                        message = await heard.get()
                        if message is None or message["method"] == "thread/closed":
                            break
        except (Refused, Ended, TimeoutError):
            return

    def forget(self) -> None:
        """The program is gone, or about to be."""
        for live in self.live.values():
            self._stay(live)
        self.live.clear()

    async def _known(self, asked: Asked) -> Opened:
        if (leaving := self._leaving.get(asked.session)) is not None:
            await asyncio.wait([leaving])
        live = self.live.get(asked.session)
        if live is not None and not are_the_same(asked.begins.get("dynamicTools"), live.tools):
            raise ProviderFailed(self.provider, "session", f"the thread {asked.session} {OTHER_TOOLS}")
        if live is not None and live.clean and live.cursor == asked.cursor and live.options == asked.thread:
            self._stay(live)
            return Opened(asked.session)
        after = await self._after(asked)
        if len(after) == 1 and _answers(after[0], asked):
            return await self._recorded(asked, after[0])
        if asked.revert and _may_go(after):
            return await self._reverted(asked, after[0])
        if after or asked.revert or (live is not None and not live.clean):
            return await self._forked(asked, "had gone on by itself" if after and not asked.revert else "")
        return await self._resumed(asked)

    def _stay(self, live: Live) -> None:
        if live.leaving is not None:
            live.leaving.cancel()
            live.leaving = None

    def _leave_soon(self, thread: str) -> None:
        task = self._leaving[thread] = asyncio.get_running_loop().create_task(self.leave(thread))
        task.add_done_callback(lambda _: self._leaving.pop(thread, None))

    async def _begin(self, method: str, asked: Asked, params: JSONObject) -> str:
        """Have a thread loaded; its id."""
        found = await self.server.request(method, {**params, **asked.thread})
        thread = cast(str, found["thread"]["id"])
        tools = await tools_of(found["thread"]) if asked.session else asked.begins.get("dynamicTools", [])
        self.live[thread] = Live(asked.cursor, asked.thread, tools, str(found["thread"].get("path") or ""))
        if not are_the_same(asked.begins.get("dynamicTools"), tools):
            await self.leave(thread)
            raise ProviderFailed(self.provider, "session", f"the thread {asked.session} {OTHER_TOOLS}")
        return thread

    async def _after(self, asked: Asked) -> list[JSONObject]:
        """The turns after the one that counts, in order."""
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
        where = f"the turn {asked.cursor}" if asked.cursor else "anything that was acknowledged"
        raise ProviderFailed(self.provider, "session", f"the thread {asked.session} does not hold {where}")

    async def _resumed(self, asked: Asked) -> Opened:
        if (live := self.live.get(asked.session)) is not None and live.options == asked.thread:
            self._stay(live)
            live.cursor, live.clean = asked.cursor, True
            return Opened(asked.session)
        await self.leave(asked.session)
        params = {"threadId": asked.session, "excludeTurns": True}
        try:
            thread = await self._begin("thread/resume", asked, params)
        except Refused as refused:
            if not HELD.search(str(refused)):
                raise
            return await self._forked(asked, "is held by another process")
        if thread != asked.session:
            await self.leave(thread)
            said = f"Codex went on with the thread {thread} in place of {asked.session}"
            raise ProviderFailed(self.provider, "session", said)
        return Opened(thread)

    async def _reverted(self, asked: Asked, turn: JSONObject) -> Opened:
        opened = await self._resumed(asked)
        if opened.id != asked.session:  # a fork already
            return opened
        try:
            await self.server.request("thread/revert", {"threadId": opened.id, "beforeTurnId": turn["id"]})
        except Refused:  # a thread of an older version cannot be changed in place
            return await self._forked(asked, "")
        return opened

    async def _forked(self, asked: Asked, why: str) -> Opened:
        await self.leave(asked.session)
        params = {"threadId": asked.session, "lastTurnId": asked.cursor, "excludeTurns": True}
        thread = await self._begin("thread/fork", asked, params)
        notes = [f"The Codex thread {asked.session} {why}: this went on in a fork of it, {thread}."] if why else []
        return Opened(thread, notes)

    async def _recorded(self, asked: Asked, turn: JSONObject) -> Opened:
        """The thread, with the turn that is in it. If it can be loaded, it tells what that turn took."""
        await self.leave(asked.session)
        usage = None
        with self.server.listen(asked.session) as heard, suppress(Refused):
            params = {"threadId": asked.session, "excludeTurns": True}
            if await self._begin("thread/resume", asked, params) == asked.session:
                usage = await _usage(heard, turn["id"])
                self.stands(asked.session, turn["id"])
        note = f"Codex had answered this already (turn {turn['id']}): that answer was taken, and nothing was sent."
        return Opened(asked.session, [note], turn, usage)


def _client_name(turn: JSONObject) -> str:
    """The name that whoever began a turn gave it."""
    return next((str(item.get("clientId") or "") for item in turn["items"] if item["type"] == "userMessage"), "")


def _may_go(turns: list[JSONObject]) -> bool:
    """Whether these turns can be taken away: none came to an answer, and nothing was taken in before them."""
    is_complete = any(turn["status"] == "completed" for turn in turns)
    return bool(turns) and not is_complete and _client_name(turns[0]).startswith(PLAIN)


def _answers(turn: JSONObject, asked: Asked) -> bool:
    return turn["status"] == "completed" and _client_name(turn) == asked.name


async def _usage(heard: "asyncio.Queue[JSONObject | None]", turn: str) -> JSONObject | None:
    try:
        async with asyncio.timeout(USAGE_SECONDS):
            while (message := await heard.get()) is not None:
                if message["method"] == USAGE and message["params"].get("turnId") == turn:
                    return message
    except TimeoutError:
        pass
    return None
