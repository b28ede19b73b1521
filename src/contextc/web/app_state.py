"""State of the server: its store, its options, and its running turns."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from contextc._credential_mask import get_logger
from contextc._worker_threads import run_blocking
from contextc.analysis.conversation_loader import AnalysedConversations
from contextc.app.agent_choices import AgentChoices
from contextc.app.agent_factory import ModelChoice, build_agent, resolve_model
from contextc.errors import ContextcError
from contextc.executor import AgentExecutor, Suspend
from contextc.executor.event_hub import event_hub
from contextc.inspection.request_timeline import RecentConversations, Timeline
from contextc.providers import Endpoint
from contextc.store import Store
from contextc.store.leases import describe_process, load_holder
from contextc.store.turn_records import TurnRecord
from contextc.web.change_feed import ChangeFeed, DeletionEvents
from contextc.web.http_errors import HTTPError
from contextc.web.opened_files import OpenedFile, OpenedFiles
from contextc.web.store_overview import StoreOverview
from contextc.web.turn_manager import REPLAY_PROVIDER, TurnManager

log = get_logger(__name__)
MAX_BODY_BYTES = 32 << 20
MAX_FILE_BYTES = 2 << 30
RECOVERY_INTERVAL = 2.0
MAX_TIMELINES = 16
"""The number of conversations whose requests are kept. One of 1,000 requests takes some MB."""
EXPIRED_REASON = "no answer came in time"
"""The reason of a denial after the time-out of an approval, which the model gets."""


class ServerOptions(AgentChoices, frozen=True, kw_only=True):
    """Options of a server."""

    model: str | None = None
    approval_timeout: float | None = None
    """Seconds after which a pending approval is denied; None: never."""
    queue: str = ""
    """The queue of the workers that run the turns; empty: turns run in this process."""
    token: str = ""
    """The token that clients must send; empty disables authentication."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Accepted values of the Host header. This prevents DNS rebinding."""
    origins: tuple[str, ...] = ()
    """Additional allowed origins, such as http://localhost:3000."""
    max_body_bytes: int = MAX_BODY_BYTES
    """Maximum size of a request body in bytes."""
    max_file_bytes: int = MAX_FILE_BYTES
    """Maximum size of a file that is opened in the web UI, in bytes."""
    recordings: Path | None = None
    """Folder of recordings that clients may select (`replay:FILE`), for tests and demonstrations.

    Without it, only the server's own `model` may be a recording, because a recording is a file that the server reads.
    """


class AppState:
    """Everything that endpoints need: store, options, running turns, and open streams."""

    def __init__(self, store: Store, options: ServerOptions) -> None:
        self.store, self.options = store, options
        self.turns = self._create_turn_manager()
        self.deletions = DeletionEvents(store)
        self.changes = ChangeFeed(store, self.turns.waiting_conversations, self.turns.parked_conversations)
        self.analysed = AnalysedConversations(store)
        self.timelines = RecentConversations(lambda name: Timeline(store, name), MAX_TIMELINES)
        self.overview = StoreOverview(store)
        self.files = OpenedFiles(lambda opened: AppState(opened, options))
        self.stopping = asyncio.Event()
        """Set when the server is about to stop, so that streams end."""

    def _create_turn_manager(self) -> TurnManager:
        options = self.options
        if options.queue:
            from contextc.web.queued_turns import QueuedTurnManager  # most servers run turns themselves

            return QueuedTurnManager(
                self.store,
                self._create_executor,
                agent=options.agent,
                model=options.model,
                root=options.root,
                queue=options.queue,
            )
        return TurnManager(
            self.store,
            self._create_executor,
            agent=options.agent,
            model=options.model,
            root=options.root,
            suspend=Suspend(seconds=options.approval_timeout, default=EXPIRED_REASON),
        )

    def recover_turns(self) -> None:
        """Close the turns of processes that have ended, and wake their watchers. Blocking: reads the store."""
        for each in self.store.recover():
            event_hub(self.store).refresh(each.conversation)

    async def recover_turns_periodically(self) -> None:
        """Call `recover_turns` periodically, and continue answered turns that wait, until cancelled."""
        while True:
            await asyncio.sleep(RECOVERY_INTERVAL)
            try:
                await run_blocking(self.recover_turns)
                await self.turns.resume_abandoned()
            except ContextcError as error:
                log.warning("recover: turns could not be closed or continued: %s", error)

    def last_turn(self, conversation: str) -> TurnRecord | None:
        """Return the last turn of any process. It is closed first if its process has ended. Blocking: reads the store.

        Raises `UnknownConversation`.
        """
        turns = self.store.turns(conversation, last=1)
        if turns and turns[0].state == "running" and self.turns.running_turn(conversation) is None:
            self.recover_turns()
            turns = self.store.turns(conversation, last=1)
        return turns[0] if turns else None

    def describe_process(self, conversation: str, agent: str) -> str:
        """Return a description of the process that runs a turn."""
        return describe_process(self.store.read(lambda tx: load_holder(tx, conversation, agent)))

    async def close_files(self, files: Iterable[OpenedFile]) -> None:
        """Close opened files: first the streams about them, then their stores."""
        for each in files:
            if each.app_state is not None:
                each.app_state.stop_streams()
            await run_blocking(each.close)

    def stop_streams(self) -> None:
        """End every stream, because the server is about to stop."""
        for each in self.files.all():
            if each.app_state is not None:
                each.app_state.stop_streams()
        self.stopping.set()
        self.changes.wake()
        self.changes.stop()
        event_hub(self.store).refresh()

    def _create_executor(self, choice: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        """Return an executor with this server's options, and its provider client."""
        self._check_recording(choice)
        return build_agent(self.store, choice, self.options)

    def _check_recording(self, choice: ModelChoice) -> None:
        """Reject recordings that are not allowed, because HTTP clients must not choose files for the server to read."""
        folder = self.options.recordings
        if choice.provider.name != REPLAY_PROVIDER or choice == resolve_model(self.options.model):
            return
        with suppress(ValueError, OSError, RuntimeError):  # invalid file name, or a loop of symbolic links
            if folder is not None and Path(choice.provider.url.removeprefix("file://")).resolve().is_relative_to(
                folder.resolve()
            ):
                return
        raise HTTPError(
            403,
            "model: recordings are not allowed over HTTP, except the server's own. Start the server with this "
            "recording as its model, or with a recordings folder.",
            "ForeignRecording",
        )
