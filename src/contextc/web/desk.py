"""State of the server: its store, its options, and its running turns."""

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
    """Options of a server."""

    model: str | None = None
    agent: str = DEFAULT_AGENT
    root: Path = Path(".")
    tools: Choice | None = None
    system: str | None = None
    budget: int | None = None
    output: int | None = None
    steps: int | None = None
    token: str = ""
    """The token that clients must send; empty disables authentication."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Accepted values of the Host header. This prevents DNS rebinding."""
    origins: tuple[str, ...] = ()
    """Additional allowed origins, such as http://localhost:3000."""
    largest: int = LARGEST
    """Maximum size of a request body in bytes."""
    recordings: Path | None = None
    """Folder of recordings that clients may select (`replay:FILE`), for tests and demonstrations.

    Without it, only the server's own `model` may be a recording, because a recording is a file that the server reads.
    """


class Desk:
    """Everything that endpoints need: store, options, running turns, and open streams."""

    def __init__(self, store: Store, options: Options) -> None:
        self.store, self.options = store, options
        self.running = Running(store, self._made, agent=options.agent, model=options.model, root=options.root)
        self.watchers = Watchers(store)
        self.ending = asyncio.Event()
        """Set when the server is about to stop, so that streams end."""

    def recover(self) -> None:
        """Close the turns of processes that have ended, and wake their watchers. Blocking: reads the store."""
        for each in self.store.recover():
            hub(self.store).look(each.conversation)

    async def keep_recovering(self) -> None:
        """Call `recover` periodically, until cancelled."""
        while True:
            await asyncio.sleep(RECOVER_SECONDS)
            try:
                await durable(self.recover)
            except ContextcError as error:
                log.warning("recover: turns of ended processes could not be closed: %s", error)

    def last_turn(self, conversation: str) -> TurnRecord | None:
        """Return the last turn of any process. It is closed first if its process has ended. Blocking: reads the store.

        Raises `UnknownConversation`.
        """
        turns = self.store.turns(conversation, last=1)
        if turns and turns[0].state == "running" and self.running.turn(conversation) is None:
            self.recover()
            turns = self.store.turns(conversation, last=1)
        return turns[0] if turns else None

    def process_of(self, conversation: str, agent: str) -> str:
        """Return a description of the process that runs a turn."""
        return described(self.store.read(lambda tx: holder_of(tx, conversation, agent)))

    def end(self) -> None:
        """End every stream, because the server is about to stop."""
        self.ending.set()
        hub(self.store).look()

    def _made(self, whom: Whom) -> tuple[AgentExecutor, Endpoint]:
        """Return an executor with this server's options, and its provider client."""
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
        """Reject recordings that are not allowed, because HTTP clients must not choose files for the server to read."""
        folder = self.options.recordings
        if whom.provider.name != RECORDED or whom == find(self.options.model):
            return
        with suppress(ValueError, OSError, RuntimeError):  # invalid file name, or a loop of symbolic links
            if folder is not None and Path(whom.provider.url.removeprefix("file://")).resolve().is_relative_to(
                folder.resolve()
            ):
                return
        raise Refused(
            403,
            "model: recordings are not allowed over HTTP, except the server's own. Start the server with this "
            "recording as its model, or with a recordings folder.",
            "ForeignRecording",
        )
