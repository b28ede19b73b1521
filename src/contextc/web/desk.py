"""What the server works with: a store, whom it talks to unless told otherwise, and the turns that run."""

from pathlib import Path

from msgspec import Struct

from contextc.agents.made import Choice
from contextc.store import Store
from contextc.store.base import DEFAULT_AGENT
from contextc.web.running import Running

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


class Desk:
    def __init__(self, store: Store, options: Options) -> None:
        self.store, self.options = store, options
        self.running = Running(store, options.agent)
