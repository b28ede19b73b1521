"""What the server works with: a store, whom it talks to unless told otherwise, and the turns that run."""

import asyncio
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from contextc.agents.made import Choice, made
from contextc.agents.whom import Whom, find
from contextc.executor import AgentExecutor, Limits
from contextc.providers import Endpoint
from contextc.store import Store
from contextc.store.base import DEFAULT_AGENT
from contextc.web.problems import Refused
from contextc.web.running import RECORDED, Running
from contextc.web.watchers import Watchers

LARGEST = 32 << 20


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
        self.watchers = Watchers()
        self.ending = asyncio.Event()
        """Set when the server is about to stop: whoever waits for something to happen need not any longer."""

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
