"""Chat session: one store, one current conversation, one event loop, and one client at a time.

All state is in the store, and output is stored before it is shown. So a session may end at any time, by Ctrl-C or by a
power failure, and another one continues it.
"""

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from contextc._sequence_comparison import find_near_names
from contextc._worker_threads import run_blocking
from contextc.app.agent_factory import (
    ModelChoice,
    build_agent,
    choose_tools,
    describe_instruction_files,
    describe_mcp_servers,
    resolve_model,
    time_based_names,
)
from contextc.app.display_text import sanitize
from contextc.cli.chat import ChatOptions
from contextc.cli.chat.questions import TerminalQuestions
from contextc.cli.chat.terminal import (
    JSONRenderer,
    TerminalApproval,
    TerminalInput,
    TerminalRenderer,
    on_interrupt,
    read_line,
)
from contextc.cli.compact import describe_compaction, describe_undo
from contextc.cli.console import err, escape_markup, format_dollars, format_error, out, pluralize, to_one_line
from contextc.cli.explain import print_manifest, print_overflow
from contextc.compiler.ledger import SessionManager
from contextc.config import mask_secrets
from contextc.errors import (
    AlreadyAnswered,
    ContextcError,
    ContextOverflow,
    InvalidInput,
    InvalidSetting,
    UnknownApproval,
    UnknownConversation,
)
from contextc.events import ErrorOccurred, StreamEvent
from contextc.executor import AgentExecutor, Turn, TurnResult
from contextc.executor.agent_config import Approve
from contextc.executor.turn import WAITING
from contextc.providers import Endpoint
from contextc.providers.registry import provider_names
from contextc.store import Approval, Store
from contextc.tools.todos import format_todos


def pick_conversation(store: Store, name: str | None, *, resume_last: bool) -> str:
    """Return the first conversation of a chat: the named one, the last one, or a new one named after the time."""
    if name is not None:
        return name
    found = store.conversations()
    if resume_last:
        if not found:
            raise InvalidSetting("--continue: the store has no conversation.")
        return max([each.name for each in found], key=lambda name: _last_time(store, name))
    names = {each.name for each in found}
    return next(name for name in time_based_names() if name not in names)


def _last_time(store: Store, conversation: str) -> int:
    """Return the time of the last message."""
    last = store.load(conversation, last=1)
    return last[0].time if last else store.conversation(conversation).created


WHO = "chat"
"""The value of `who` for answers of a person at the terminal."""
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
        chosen = options.chosen()
        lines = [*describe_instruction_files(choice.provider, chosen), *describe_mcp_servers(choice.provider, chosen)]
        for line in lines:
            err.print(Text(sanitize(line), "dim"), soft_wrap=True)
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
        if self.options.question is not None or not self.at_terminal:
            await (self._run_piped() if self.options.question is None else self._run_question(self.options.question))
            await self.executor.config.background.wait(self.conversation)
            return self.exit_code
        self.renderer.note(f"contextc chat · {self.describe()}")
        self.renderer.note("/help lists the commands. Ctrl-C stops a turn, Ctrl-D exits.")
        self.report_state()
        while not self.is_exiting:
            if (line := self._typed.pop(0) if self._typed else self._read_line()) is not None:
                await self._run_line(line)
        return 0

    async def _run_question(self, question: str) -> None:
        """Run one question or one command. Text from standard input is always a question."""
        command = parse_command(question) if question != "-" and not self.options.json else None
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
            command = parse_command(line) if not self.options.json else None
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
            if (command := parse_command(line)) is not None:
                await self.run_interruptible(command.run(self, command.argument))
            else:
                await self.run_turn(line)
        except ContextcError as error:
            self.renderer.error(format_error(error))

    async def run_interruptible(self, work: "asyncio.Future[None] | CommandCoroutine") -> None:
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
        if resume and await self._answer_questions() is False:
            return
        result = await self._run(self._start_turn(text, resume))
        while True:
            answered = await self._answer_questions() if result.finish == WAITING else None
            if answered is False:
                return
            if answered:
                result = await self._run(self._start_turn(None, True))
            elif result.finish not in (*FAILED_FINISHES, WAITING) and self._count_queued():
                result = await self._run(self._start_turn(None, False))
            else:
                break
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

    async def _answer_questions(self) -> bool | None:
        """Ask the open questions of MCP servers. Return False if one stays open, and None if there is none."""
        if self.terminal_input is None or not isinstance(self.renderer, TerminalRenderer):
            return None
        with suppress(UnknownConversation):
            asked = [each for each in self.store.approvals(self.conversation) if each.question is not None]
            if not asked:
                return None
            questions = TerminalQuestions(self.renderer, self.terminal_input)
            task = asyncio.ensure_future(self._ask(questions, asked))
            with on_interrupt(task.cancel), self.terminal_input.reading_lines(self._queue_line):
                await asyncio.wait({task})
            if not task.cancelled() and task.result():
                return True
            self.renderer.warn("The question stays open. /continue asks it again.")
            return False
        return None

    async def _ask(self, questions: TerminalQuestions, asked: Sequence[Approval]) -> bool:
        """Ask questions, and store the answers. Return False as soon as one stays open."""
        for each in asked:
            assert each.question is not None
            answer = await questions.ask(each.question)
            if answer is None:
                return False
            try:
                self.store.answer_approval(each.id, answer.allow, content=answer.content, who=WHO)
            except (AlreadyAnswered, UnknownApproval) as error:  # elsewhere
                self.renderer.warn(format_error(error))
        return True

    def _start_turn(self, given: str | None, resume: bool) -> Turn:
        if resume:
            return self.executor.resume(self.conversation, wait=0)
        return self.executor.start(self.conversation, given, wait=0)

    async def _run(self, turn: Turn) -> TurnResult:
        self.renderer.error_shown = False
        async with AsyncExitStack() as stack:
            stack.enter_context(on_interrupt(turn.cancel))
            if self.terminal_input is not None:
                stack.enter_context(self.terminal_input.reading_lines(self._on_line))
            failure = None
            ending: list[StreamEvent] = []  # from a failure on, until its exception is known
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
        if parse_command(line) is not None:
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
            asked = self.store.approvals(self.conversation)
            names = ", ".join([each.name for each in asked])
            what = "an answer" if any(each.question is not None for each in asked) else "approval"
            self.renderer.warn(f"The last turn waits for {what}{f' of {names}' if names else ''}.")
            self.renderer.warn("/continue asks for it here. Any other input is queued.")
        elif waiting := self._count_queued():
            self.renderer.warn(f"{pluralize(waiting, 'line')} queued: /continue sends it.")

    def _build_agent(self, choice: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        """Return an agent on this store, and its client."""
        if isinstance(self.renderer, TerminalRenderer):
            self.renderer.provider_runs_tools = choice.provider.runs_tools
        return build_agent(
            self.store, choice, self.options.chosen(), approve=self._approve(), progress=self.renderer.note
        )

    def _approve(self) -> Approve | None:
        yes = self.options.yes
        if self.terminal_input is not None and isinstance(self.renderer, TerminalRenderer):
            return TerminalApproval(self.renderer, self.terminal_input, self.root, allows_all=yes)
        return (lambda call, tool: True) if yes else None

    def describe(self) -> str:
        provider, found = self.executor.provider, self.executor.tools
        tools = f"{pluralize(len(found), 'tool')} in {self.root}" if found else "no tools"
        if provider.runs_tools:
            tools = f"its own tools in {self.root}" + (
                f", and {pluralize(len(found), 'tool')} of ours" if found else ""
            )
        at = f" at {mask_secrets(provider.url)}" if provider.url and provider.client != "replay" else ""
        return f"{provider.name}:{provider.model_id}{at} · {self.conversation} · {tools}"

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


# ── slash commands ────────────────────────────────────────────────────────────────────────────────────────────────────
# Commands of the chat: lines that begin with a slash. One function per command.


CommandCoroutine: TypeAlias = Coroutine[Any, Any, None]  # the type of every coroutine
COMMAND_LINE = re.compile(r"/([a-z]*)(?:\s+(.*))?", re.DOTALL)


class ParsedCommand(NamedTuple):
    """A command that was typed, with its argument."""

    run: Callable[[ChatSession, str], CommandCoroutine]
    argument: str


class CommandSpec(NamedTuple):
    run: Callable[[ChatSession, str], CommandCoroutine]
    usage: str
    description: str


def parse_command(line: str) -> ParsedCommand | None:
    """Return the command of a line; None if it is not one, as `/etc/hosts`. An unknown one raises when it is run."""
    found = COMMAND_LINE.fullmatch(line.strip())
    if found is None:
        return None
    name, given = found[1], (found[2] or "").strip()
    known = SLASH_COMMANDS.get(name)
    if known is None:
        return ParsedCommand(_unknown(name), given)
    if known.usage and not known.usage.startswith("[") and not given:
        return ParsedCommand(_missing_argument(name, known), given)
    return ParsedCommand(known.run, given)


def _unknown(name: str) -> Callable[[ChatSession, str], CommandCoroutine]:
    async def refuse(session: ChatSession, given: str) -> None:
        close = find_near_names(name, SLASH_COMMANDS)
        meant = f" Did you mean /{close[0]}?" if close else ""
        there = ", ".join(f"/{each}" for each in SLASH_COMMANDS)
        raise InvalidInput(f"Command /{name} not found.{meant} Commands: {there}.")

    return refuse


def _missing_argument(name: str, known: CommandSpec) -> Callable[[ChatSession, str], CommandCoroutine]:
    async def refuse(session: ChatSession, given: str) -> None:
        raise InvalidInput(f"/{name} needs an argument: /{name} {known.usage} {known.description}.")

    return refuse


async def _help(session: ChatSession, given: str) -> None:
    table = Table(box=None, show_header=False)
    for name, known in SLASH_COMMANDS.items():
        table.add_row(f"[bold]/{name}[/] {escape_markup(known.usage)}", known.description)
    out.print(table)
    out.print(
        "A line typed during a turn is sent to the model with its next step. A line that ends with \\ continues. "
        "Ctrl-C stops a turn.",
        soft_wrap=True,
    )


async def _model(session: ChatSession, given: str) -> None:
    if given:
        await session.switch_model(given)
    provider = session.executor.provider
    room = f"window {provider.model.window:,}"
    out.print(
        f"[bold]{escape_markup(provider.name)}:{escape_markup(provider.model_id)}[/], {provider.format}, {room}",
        soft_wrap=True,
    )


async def _models(session: ChatSession, given: str) -> None:
    with suppress(UnknownConversation):
        for each in SessionManager(session.store).sessions(session.conversation):
            if each.requests:
                channel = each.channel
                asked = pluralize(each.requests, "request")
                out.print(
                    f"[bold]{escape_markup(channel.provider)}:{escape_markup(channel.model)}[/], {asked} here",
                    soft_wrap=True,
                )
    out.print(f"providers: {', '.join(provider_names())}", soft_wrap=True)
    out.print("Switch with /model provider:model, as in /model anthropic:claude-opus-5-5", soft_wrap=True)


async def _context(session: ChatSession, given: str) -> None:
    executor = session.executor
    if session.report_if_empty():
        return
    try:
        compiled = await run_blocking(
            lambda: executor.compiler.compile(
                session.conversation,
                max_input_tokens=executor.max_input_tokens,
                dry_run=True,
                **executor.compile_arguments,
            )
        )
    except ContextOverflow as error:
        print_overflow(error, out)
        return
    print_manifest(compiled.manifest)


async def _explain(session: ChatSession, given: str) -> None:
    if given and not given.isdecimal():
        raise InvalidInput(
            "/explain needs the number of a request", got=given, fix="Leave it out for the last request."
        )
    if session.report_if_empty():
        return
    request = int(given) if given else None
    print_manifest(session.executor.compiler.explain(session.conversation, request, name=session.agent))


async def _todos(session: ChatSession, given: str) -> None:
    text = ""
    with suppress(UnknownConversation):
        text = format_todos(session.store.todos(session.conversation, session.agent))
    out.print(escape_markup(text) or "The todo list is empty.", soft_wrap=True)


async def _compact(session: ChatSession, given: str) -> None:
    """Compact the context as the executor does near its limit. The current model writes the summary."""
    if session.report_if_empty():
        return
    with session.show_progress("summarizing"):
        done = await session.executor.compact(session.conversation, instructions=given)
    out.print(describe_compaction(done), soft_wrap=True)


async def _undo_compaction(session: ChatSession, given: str) -> None:
    if session.report_if_empty():
        return
    out.print(describe_undo(session.executor.undo_compaction(session.conversation)), soft_wrap=True)


async def _fork(session: ChatSession, given: str) -> None:
    if session.report_if_empty():
        return
    found = session.store.fork(session.conversation, given)
    before, session.conversation = session.conversation, found.name
    out.print(
        f"[bold]{escape_markup(found.name)}[/] shares {pluralize(found.length, 'message')} with "
        f"{escape_markup(before)} and is now current",
        soft_wrap=True,
    )


async def _list(session: ChatSession, given: str) -> None:
    table = Table("", "conversation", "messages", "created", box=None, header_style="bold")
    for each in session.store.conversations():
        begun = datetime.fromtimestamp(each.created / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        here = "[green]>[/]" if each.name == session.conversation else ""
        table.add_row(here, escape_markup(each.name), f"{each.length:,}", begun)
    out.print(table)


async def _resume(session: ChatSession, given: str) -> None:
    session.open_conversation(given)


async def _continue(session: ChatSession, given: str) -> None:
    await session.run_turn(None, resume=True)


async def _clear(session: ChatSession, given: str) -> None:
    if session.report_if_empty():
        return
    found = session.store.reset(session.conversation)
    cleared = pluralize(found.context_start, "message")
    out.print(f"The model no longer sees the {cleared} before this. They stay in the store.")


async def _cost(session: ChatSession, given: str) -> None:
    turns = []
    with suppress(UnknownConversation):
        turns = session.store.turns(session.conversation)
    used = [turn.usage for turn in turns if turn.usage is not None]
    figures = f"{sum(each.input for each in used):,} tokens in, {sum(each.output for each in used):,} out"
    known = [turn.cost for turn in turns if turn.cost is not None]
    is_lower_bound = any([turn.cost_is_lower_bound for turn in turns])
    cost = format_dollars(sum(known), is_lower_bound=is_lower_bound)
    cost += "" if len(known) == len(turns) else " as far as prices are known"
    out.print(f"{pluralize(len(turns), 'turn')}: {figures}, {cost}", soft_wrap=True)


async def _quit(session: ChatSession, given: str) -> None:
    session.is_exiting = True


SLASH_COMMANDS = {
    "help": CommandSpec(_help, "", "shows this list"),
    "model": CommandSpec(_model, "[provider:model]", "switches to another model; alone, shows the current one"),
    "models": CommandSpec(_models, "", "lists the used models and the providers"),
    "context": CommandSpec(_context, "", "shows the next request, and how full the context is"),
    "explain": CommandSpec(_explain, "[request]", "shows the content of a request (default: the last), and why"),
    "todos": CommandSpec(_todos, "", "shows the todo list of the agent"),
    "compact": CommandSpec(_compact, "[what to keep]", "summarizes old messages"),
    "uncompact": CommandSpec(_undo_compaction, "", "takes the last summary back"),
    "clear": CommandSpec(_clear, "", "clears the context: messages stay stored, but are no longer sent"),
    "fork": CommandSpec(_fork, "NAME", "continues in a new conversation that shares this history"),
    "list": CommandSpec(_list, "", "lists the conversations"),
    "resume": CommandSpec(_resume, "NAME", "continues another conversation"),
    "continue": CommandSpec(_continue, "", "continues after a stop or a crash"),
    "cost": CommandSpec(_cost, "", "shows tokens and cost of this conversation"),
    "quit": CommandSpec(_quit, "", "exits"),
}
