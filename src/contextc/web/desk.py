"""What the server works with: a store, whom it talks to unless told otherwise, and the turns that run."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from contextc.agents.made import Choice, made
from contextc.agents.whom import Whom, find
from contextc.errors import ContextcError
from contextc.executor import AgentExecutor, Limits
from contextc.executor.threads import durable
from contextc.executor.watching import hub
from contextc.providers import Endpoint
from contextc.store import Store
from contextc.store.base import DEFAULT_AGENT
from contextc.store.holder import described
from contextc.store.leases import holder_of
from contextc.store.turns import TurnRecord
from contextc.web.problems import Refused
from contextc.web.running import RECORDED, Running
from contextc.web.watchers import Watchers

log = logging.getLogger(__name__)
LARGEST = 32 << 20
RECOVER_SECONDS = 2.0


class Options(Struct, frozen=True, kw_only=True):
    """How a server is wanted."""

    model: str | None = None
    agent: str = DEFAULT_AGENT
    root: Path = Path(".")
    tools: Choice | None = None
    system: str | None = None
    budget: int | None = None
    output: int | None = None
    steps: int | None = None
    token: str = ""
    """Who asks has to say it; empty where only this machine can ask."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """The names this server answers to: a page of somebody else's that points its own name here gets nothing."""
    origins: tuple[str, ...] = ()
    """Other pages that may ask too, such as http://localhost:3000."""
    largest: int = LARGEST
    """The most bytes that a request may have."""
    recordings: Path | None = None
    """The folder of the recordings that may be asked for by name (`replay:FILE`), for tests and demonstrations. Without
    it there is only the one that is the server's own `model`: who names another has the server read a file.
    """


class Desk:
    def __init__(self, store: Store, options: Options) -> None:
        self.store, self.options = store, options
        self.running = Running(store, self._made, agent=options.agent, model=options.model, root=options.root)
        self.watchers = Watchers(store)
        self.ending = asyncio.Event()
        """Set when the server is about to stop: whoever waits for something to happen need not any longer."""

    def recover(self) -> None:
        """Close the turns of other processes that have ended, and have their watchers see it. It reads the store."""
        for each in self.store.recover():
            hub(self.store).look(each.conversation)

    async def keep_recovering(self) -> None:
        """Look again and again for turns whose process has ended."""
        while True:
            await asyncio.sleep(RECOVER_SECONDS)
            try:
                await durable(self.recover)
            except ContextcError as error:
                log.warning("Turns of ended processes could not be closed: %s", error)

    def last_turn(self, conversation: str) -> TurnRecord | None:
        """The last turn, wherever it ran. One whose process has ended is closed first. It reads the store.

        Raises `UnknownConversation`.
        """
        turns = self.store.turns(conversation, last=1)
        if turns and turns[0].state == "running" and self.running.turn(conversation) is None:
            self.recover()
            turns = self.store.turns(conversation, last=1)
        return turns[0] if turns else None

    def process_of(self, conversation: str, agent: str) -> str:
        """Name the process that runs a turn."""
        return described(self.store.read(lambda tx: holder_of(tx, conversation, agent)))

    def end(self) -> None:
        """Have every stream end: the server is about to stop."""
        self.ending.set()
        hub(self.store).look()

    def _made(self, whom: Whom) -> tuple[AgentExecutor, Endpoint]:
        """An agent as this server is wanted, and the line it speaks on."""
        options = self.options
        self._check_recording(whom)
        return made(
            self.store,
            whom,
            options.root,
            agent=options.agent,
            tools=options.tools,
            system=options.system,
            budget=options.budget,
            output=options.output,
            limits=Limits() if options.steps is None else Limits(steps=options.steps),
        )

    def _check_recording(self, whom: Whom) -> None:
        """Refuse recordings that this server was not started with: over HTTP nobody may have it read any file."""
        folder = self.options.recordings
        if whom.provider.name != RECORDED or whom == find(self.options.model):
            return
        with suppress(ValueError, OSError, RuntimeError):  # no name of a file, or links that lead in a circle
            if folder is not None and Path(whom.provider.url.removeprefix("file://")).resolve().is_relative_to(
                folder.resolve()
            ):
                return
        raise Refused(
            403,
            "This server does not answer from recordings that somebody names, except from its own: start it with them, "
            "as in contextc serve --model replay:FILE.",
            "ForeignRecording",
        )
