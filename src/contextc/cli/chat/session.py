"""Chat session: one store, one current conversation, one event loop, and one client at a time.

All state is in the store, and output is stored before it is shown. So a session may end at any time, by Ctrl-C or by a
power failure, and another one continues it.
"""

import asyncio
import logging
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, suppress

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from contextc.app.agent_factory import ModelChoice, build_agent, choose_tools, resolve_model
from contextc.app.sanitize import sanitize
from contextc.cli.chat import commands
from contextc.cli.chat.approval import TerminalApproval
from contextc.cli.chat.formatting import to_one_line
from contextc.cli.chat.options import ChatOptions, pick_conversation, read_system_prompt
from contextc.cli.chat.renderer import JSONRenderer, TerminalRenderer
from contextc.cli.chat.terminal_input import TerminalInput, on_interrupt, read_line
from contextc.cli.console import err, out, pluralize
from contextc.cli.error_text import format_error
from contextc.config import mask_secrets
from contextc.errors import ContextcError, InvalidSetting, UnknownConversation
from contextc.events import AnyEvent, ErrorOccurred
from contextc.executor import AgentExecutor, Limits, Turn, TurnResult
from contextc.executor.agent_config import Approve
from contextc.executor.turn_loop import WAITING
from contextc.providers import Endpoint
from contextc.store import Store

FAILED_FINISHES = ("error", "cancelled")
SUCCESSFUL_FINISHES = ("stop", "refusal", "nothing to do")


def run_chat(store: Store, options: ChatOptions) -> int:
    """Run a session, and return the exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return asyncio.run(_chat(store, options))


async def _chat(store: Store, options: ChatOptions) -> int:
    async with ChatSession(store, options) as session:
        return await session.run()


class ChatSession:
    def __init__(self, store: Store, options: ChatOptions) -> None:
        self.store, self.options, self.agent = store, options, options.agent
        self.root = options.root.expanduser().resolve()
        self.at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
        self.terminal_input = TerminalInput() if self.at_terminal else None
        self.renderer = JSONRenderer(err) if options.json else TerminalRenderer(out, out if self.at_terminal else err)
        self.is_exiting = False
        self.exit_code = 0
        """The exit code of a pipe or a question: 1 if a turn had no complete answer."""
        self._exit_requested = False
        self._typed: list[str] = []
        self._queueing: set[asyncio.Task[None]] = set()
        self._failed_finish = ""
        self._stack = AsyncExitStack()
        self.conversation = pick_conversation(store, options.conversation, resume_last=options.resume_last)
        self._unnamed = self.conversation if options.conversation is None and not options.resume_last else None
        choice = resolve_model(options.model, url=options.url, window=options.window, key=options.key)
        if choice.remark:
            err.print(Text(choice.remark, "dim"), soft_wrap=True)
        self.executor, self._client = self._build_agent(choice)

    async def __aenter__(self) -> "ChatSession":
        handler = _NoticeHandler(self.renderer)
        log = logging.getLogger("contextc")
        log.addHandler(handler)
        self._stack.callback(log.removeHandler, handler)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.executor.close()
        await self._client.close()
        await self._stack.aclose()

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> int:
        provider = self.executor.provider
        if self.options.yes and (provider.runs_tools or choose_tools(provider, self.options.tools) == "all"):
            self.renderer.warn(f"--yes: commands and file changes in {self.root} run without confirmation.")
        if self.options.question is not None:
            await self._run_question(self.options.question)
            return self.exit_code
        if not self.at_terminal:
            await self._run_piped()
            return self.exit_code
        self._greet()
        while not self.is_exiting:
            if (line := self._typed.pop(0) if self._typed else self._read_line()) is not None:
                await self._run_line(line)
        return 0

    async def _run_question(self, question: str) -> None:
        """Run one question or one command. Text from standard input is always a question."""
        command = commands.parse_command(question) if question != "-" and not self.options.json else None
        question = sys.stdin.read() if question == "-" else question
        if not question.strip():
            raise InvalidSetting("The question must not be blank.")
        self._announce()
        await (
            self.run_turn(question) if command is None else self.run_interruptible(command.run(self, command.argument))
        )
        self._delete_unanswered()

    async def _run_piped(self) -> None:
        """Run a turn for each line, up to the first one that fails."""
        self._announce()
        while not self.is_exiting and (line := read_line()) is not None:
            if not line.strip():
                continue
            command = commands.parse_command(line) if not self.options.json else None
            await (
                self.run_turn(line) if command is None else self.run_interruptible(command.run(self, command.argument))
            )
            if self._failed_finish:
                self._delete_unanswered()
                return

    def _delete_unanswered(self) -> None:
        """Delete an unnamed conversation of this session without an answer.

        The question is still in the history of the shell, or in the piped input.
        """
        if self._unnamed != self.conversation:
            return
        with suppress(UnknownConversation):
            roles = [message.role for message in self.store.load(self.conversation)]
            if not roles or (self._failed_finish == "error" and "assistant" not in roles):
                self.store.delete(self.conversation)
                if roles:
                    self.renderer.note("There was no answer, so the conversation is not kept.")

    def _read_line(self) -> str | None:
        """Read a line at the prompt; None if there is none."""
        assert self.terminal_input is not None, "there is a terminal"
        try:
            line = self.terminal_input.read_prompt()
        except EOFError:
            out.print()
            self.is_exiting = True
            return None
        except KeyboardInterrupt:
            out.print()
            self.is_exiting = self._exit_requested
            if not self.is_exiting:
                self.renderer.note("Press Ctrl-C again to exit. Ctrl-D and /quit exit too.")
            self._exit_requested = True
            return None
        self._exit_requested = False
        return line if line.strip() else None

    async def _run_line(self, line: str) -> None:
        """Run a line as a command or a turn. An error is printed, and the chat continues."""
        try:
            if (command := commands.parse_command(line)) is not None:
                await self.run_interruptible(command.run(self, command.argument))
            else:
                await self.run_turn(line)
        except ContextcError as error:
            self.renderer.error(format_error(error))

    async def run_interruptible(self, work: "asyncio.Future[None] | commands.CommandCoroutine") -> None:
        """Run work that Ctrl-C stops."""
        task = asyncio.ensure_future(work)
        with on_interrupt(task.cancel):
            await asyncio.wait({task})
        if task.cancelled():
            self.exit_code, self._failed_finish = 1, "cancelled"
            self.renderer.warn("stopped")
        else:
            task.result()

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run_turn(self, text: str | None, *, resume: bool = False) -> None:
        """Run a turn, and further turns for input that was typed during it."""
        result = await self._run(self._start_turn(text, resume))
        while result.finish not in (*FAILED_FINISHES, WAITING) and self._count_queued():
            result = await self._run(self._start_turn(None, False))
        if result.finish == "nothing to do":
            self.renderer.note("There is nothing to answer.")
        if result.finish == WAITING:
            self.renderer.warn(
                "A turn waits for approval, so your input is queued. /continue asks for the approval here."
            )
        if result.finish in FAILED_FINISHES and (waiting := self._count_queued()):
            self.renderer.note(f"{pluralize(waiting, 'line')} of your input queued; /continue sends it.")
        self._exit_requested = result.finish == "cancelled"
        self._failed_finish = result.finish if result.finish in FAILED_FINISHES else ""

    def _start_turn(self, given: str | None, resume: bool) -> Turn:
        return self.executor.resume(self.conversation) if resume else self.executor.start(self.conversation, given)

    async def _run(self, turn: Turn) -> TurnResult:
        self.renderer.error_shown = False
        async with AsyncExitStack() as stack:
            stack.enter_context(on_interrupt(turn.cancel))
            if self.terminal_input is not None:
                stack.enter_context(self.terminal_input.reading_lines(self._on_line))
            failure = None
            ending: list[AnyEvent] = []  # from a failure on, until its exception is known
            try:
                async for event in turn.events():
                    if ending or (isinstance(event, ErrorOccurred) and isinstance(self.renderer, TerminalRenderer)):
                        ending.append(event)
                    else:
                        self.renderer.show(event)
            except Exception as error:
                failure = error
                turn.cancel()
            await turn.wait()
            result = turn.results[-1]
            if self._queueing:
                await asyncio.gather(*self._queueing)
        for event in ending:
            if isinstance(event, ErrorOccurred) and isinstance(result.error, ContextcError):
                self.renderer.error_shown = True
                self.renderer.error(format_error(result.error))
            else:
                self.renderer.show(event)
        if failure is not None and failure is not result.error:
            raise failure
        if result.error is not None and not self.renderer.error_shown:
            self.renderer.error(format_error(result.error))
        if result.finish not in SUCCESSFUL_FINISHES:
            self.exit_code = 1
        return result

    def _on_line(self, line: str) -> None:
        """Handle a line typed during a turn: a command waits, other input goes to the next step."""
        if commands.parse_command(line) is not None:
            self._queue_line(line)
            return

        async def queue() -> None:
            await self.executor.steer(self.conversation, line)

        task = asyncio.get_running_loop().create_task(queue())
        self._queueing.add(task)
        task.add_done_callback(self._queueing.discard)

    def _queue_line(self, line: str) -> None:
        """Queue a line until the current work ends."""
        self._typed.append(line)
        self.renderer.note(f"… queued: {to_one_line(line)}")

    @contextmanager
    def show_progress(self, what: str) -> Generator[None]:
        """Show a spinner with the elapsed time. Lines typed in the meantime are queued."""
        if self.terminal_input is None:
            self.renderer.note(f"{what} …")
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn())
        with (
            Progress(*columns, console=out, transient=True) as bar,
            self.terminal_input.reading_lines(self._queue_line),
        ):
            bar.add_task(what, total=None)
            yield

    def _count_queued(self) -> int:
        try:
            return len(self.store.queued(self.conversation, self.agent))
        except UnknownConversation:
            return 0

    # ── conversation and model ────────────────────────────────────────────────────────────────────────────────────────

    async def switch_model(self, model: str) -> None:
        """Switch to another model, in the same conversation."""
        executor, client = self.executor, self._client
        self.executor, self._client = self._build_agent(resolve_model(model))
        await executor.close()
        await client.close()

    def open_conversation(self, conversation: str) -> None:
        """Switch to another conversation."""
        self.store.conversation(conversation)  # raises if it does not exist
        self.conversation = conversation
        self.report_state()

    def report_if_empty(self) -> bool:
        """Return True if the conversation has no message, and print that."""
        with suppress(UnknownConversation):
            if self.store.conversation(self.conversation).length:
                return False
        self.renderer.note(f"{self.conversation} has no messages yet.")
        return True

    def report_state(self) -> None:
        """Print the length of the conversation, and the state of its last turn."""
        try:
            found = self.store.conversation(self.conversation)
        except UnknownConversation:
            return
        if not found.length:
            return
        self.renderer.note(f"continuing {self.conversation}: {pluralize(found.length, 'message')}")
        last = [turn for turn in self.store.turns(self.conversation, last=8) if turn.agent == self.agent][-1:]
        if last and last[0].state == "interrupted":
            self.renderer.warn("The last turn was interrupted: its process ended. Its partial answer is kept.")
            self.renderer.warn("/continue resumes it. Any other input leaves it as it is.")
        elif last and last[0].state == "waiting":
            names = ", ".join([each.name for each in self.store.approvals(self.conversation)])
            self.renderer.warn(f"The last turn waits for approval{f' of {names}' if names else ''}.")
            self.renderer.warn("/continue asks for it here. Any other input is queued.")
        elif waiting := self._count_queued():
            self.renderer.warn(f"{pluralize(waiting, 'line')} queued: /continue sends it.")

    def _build_agent(self, choice: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        """Return an agent on this store, and its client."""
        options = self.options
        if isinstance(self.renderer, TerminalRenderer):
            self.renderer.provider_runs_tools = choice.provider.runs_tools
        return build_agent(
            self.store,
            choice,
            self.root,
            agent=self.agent,
            tools=options.tools,
            system=read_system_prompt(options.system),
            budget=options.budget,
            output=options.output,
            policy=options.policy,
            limits=Limits() if options.steps is None else Limits(steps=options.steps),
            approve=self._approve(),
            progress=self.renderer.note,
        )

    def _approve(self) -> Approve | None:
        if self.options.yes:
            return lambda call, tool: True
        if self.terminal_input is None or not isinstance(self.renderer, TerminalRenderer):
            return None
        return TerminalApproval(self.renderer, self.terminal_input, self.root)

    def describe(self) -> str:
        provider, found = self.executor.provider, self.executor.tools
        tools = f"{pluralize(len(found), 'tool')} in {self.root}" if found else "no tools"
        if provider.runs_tools:
            tools = f"its own tools in {self.root}" + (
                f", and {pluralize(len(found), 'tool')} of ours" if found else ""
            )
        at = f" at {mask_secrets(provider.url)}" if provider.url and provider.client != "replay" else ""
        return f"{provider.name}:{provider.model_id}{at} · {self.conversation} · {tools}"

    def _greet(self) -> None:
        self.renderer.note(f"contextc chat · {self.describe()}")
        self.renderer.note("/help lists the commands. Ctrl-C stops a turn, Ctrl-D exits.")
        self.report_state()

    def _announce(self) -> None:
        """Print the name of the conversation, so that it can be continued."""
        self.renderer.note(f"contextc chat · {self.describe()}")
        if self.options.conversation is not None or self.options.resume_last:
            self.report_state()


class _NoticeHandler(logging.Handler):
    """Log handler that prints records as notices, without control characters."""

    def __init__(self, screen: TerminalRenderer | JSONRenderer) -> None:
        super().__init__(logging.WARNING)
        self.screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self.screen.note(sanitize(self.format(record)))
