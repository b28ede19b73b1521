"""The processes and connections of MCP servers, and calls of their tools.

A connection belongs to the event loop that it was opened on, and is owned by one task there: the package `mcp` requires
that a connection is closed by the task that opened it. It is opened on first use and shared by all turns. A server that
has ended is started again when it is needed, after a pause, and only so often.

Nothing that a server does raises here. `refresh` keeps the last list of tools that was read, and `call` returns an
error result, which the model reads.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from importlib import import_module
from inspect import signature
from math import ceil, inf
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from contextc._credential_mask import get_logger, mask_secrets
from contextc._installed_packages import check_package, importing, installed_version
from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError, InvalidInput, describe_error
from contextc.mcp.declaration import SEPARATOR, MCPServer, check_servers
from contextc.mcp.questions import input_responses, read_question
from contextc.mcp.results import read_content, read_definition
from contextc.messages import ToolResult
from contextc.tools.context import ToolContext
from contextc.tools.definitions import Tool
from contextc.tools.function_tool import FunctionTool, tool

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client import Client, IncomingMessage, Transport

log = get_logger("contextc.mcp")
for _name in ("mcp.client.stdio", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher", "httpx2"):
    get_logger(_name)  # those of the package log what servers send: credentials in it are masked, too
EXTRA = "mcp"
MAX_PAGES, MAX_TOOLS = 100, 2_000
"""The largest list of tools that is read from a server."""
REFRESH_SECONDS = 5.0
"""The time that a step waits for a changed list. Then it uses the one before, and asks again after that time."""
MAX_FAILURES, MAX_PAUSE = 5, 60.0
"""A server is not started again after so many failures in a row; the longest pause before a start, in seconds."""
MAX_EVENT_BYTES = 32 << 20
"""The largest message of an HTTP server that is sent as an event."""
CLOSE_SECONDS = 8.0
"""The longest time for the end of a process or a connection. The package takes up to 6 seconds to kill a process."""
END_SECONDS = 1.0
"""The time that an HTTP server has to answer the end of its session."""
HTTP_TIMEOUT = 300.0
"""The longest silence of an HTTP server, in seconds."""
STDERR_BYTES = 2_000
MAX_ERROR_CHARACTERS = 2_000
ENDED_PROBLEM = "it has ended"
MAX_ROUNDS = 10
"""A call is given up when its server has answered so often that it is not complete."""
ROUND_SECONDS = 0.25
"""The pause before a server that asks nothing is called again."""
INPUT_REQUIRED_RESULT = "Not completed: nobody is there to answer a question. {}"
INVALID_QUESTION_RESULT = "Not completed: the server {} asks for something that cannot be asked a person: {}"
TOO_MANY_ROUNDS_RESULT = "Not completed: the server {} has asked for more than {} times."
OLD_QUESTION_ERROR = (
    "The question was not asked: with this version of the protocol it would end with the connection. Ask the user in "
    "the conversation."
)


class ServerConnection:
    """The connection to one server on one event loop, and the tools that it offers."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.tools: dict[str, FunctionTool] = {}
        """The tools of the server that an agent may use, by the names that models call them by."""
        self.problem = ""
        """The reason why the server does not run, for people."""
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._opening: asyncio.Timeout | None = None
        """The time limit of a start that goes on. Nothing else may cancel the owner while it ends the process."""
        self._opened = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_closing = self._was_tried = self._is_listening = False
        self._is_stale, self._fresh_until = True, 0.0
        self._failures, self._not_before = 0, 0.0
        self._takes_questions = False
        self._loading = asyncio.Lock()

    async def refresh(self, *, takes_questions: bool = False) -> None:
        """Start the server if it does not run, and load its list of tools if that may have changed.

        Only the first start is waited for. The tools of a server that is slow appear in a later step. A server that is
        started is told if it may ask questions.
        """
        self._takes_questions = takes_questions
        if self._client is not None:
            await self._refresh_list(self._client)
        elif not self._was_tried:
            await self._run()
        else:
            self._start()

    async def call(self, name: str, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Call a tool by the server's name of it. Whatever goes wrong becomes an error result."""
        if (client := self._client or await self._run()) is None:
            return _error(self._stopped_text())
        return await self._call(client, name, arguments, context)

    def stop(self) -> None:
        """Let the process or the connection end."""
        if self._owner is not None:
            self._is_closing = True
            self._stop.set()
            if self._opening is not None and not self._opening.expired():
                self._opening.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """End the process or the connection, and wait until it has ended."""
        self.stop()
        if (owner := self._owner) is not None:
            await asyncio.wait({owner}, timeout=CLOSE_SECONDS)
            if not owner.done():  # an HTTP server that does not answer the end of its session
                owner.cancel()
                await asyncio.wait({owner}, timeout=CLOSE_SECONDS)

    def _stopped_text(self) -> str:
        if self._failures >= MAX_FAILURES:
            return f"The server {self.server.name} does not run and is not started again: {self.problem}."
        wait = self._not_before - asyncio.get_running_loop().time()
        again = f"in {ceil(wait)} seconds" if wait > 0 else "with the next call"
        problem = self.problem or "it was not ready in time"
        return f"The server {self.server.name} does not run: {problem}. It is started again {again}."

    # ── the task that owns the connection ─────────────────────────────────────────────────────────────────────────────

    def _start(self) -> bool:
        """Start the server, unless it is being started. Return False if it may not be started now."""
        if self._owner is None:
            if self._failures >= MAX_FAILURES or asyncio.get_running_loop().time() < self._not_before:
                return False
            self._opened, self._stop = asyncio.Event(), asyncio.Event()
            self._owner = asyncio.create_task(self._own(), name=f"MCP server {self.server.name}")
        return True

    async def _run(self) -> "Client | None":
        """Start the server, and wait until it runs. Return None if it cannot run now."""
        if self._opened.is_set() and (ending := self._owner) is not None:
            await asyncio.wait({ending}, timeout=CLOSE_SECONDS)
        if self._start():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.server.start_timeout + CLOSE_SECONDS):
                    await self._opened.wait()
            self._was_tried = True
        return self._client

    async def _own(self) -> None:
        """Open the connection, keep it until it ends, and close it."""
        problem, stderr = ENDED_PROBLEM, _StderrTail()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.server.start_timeout) as self._opening:
                    client = await self._open(stack, stderr)
                    await self._load_tools(client)
                self._client, self._opening, self.problem = client, None, ""
                self._opened.set()
                listening = asyncio.create_task(self._listen(client))
                try:
                    await self._stop.wait()
                finally:
                    self._client = None
                    listening.cancel()
                    await asyncio.wait({listening})
        except TimeoutError:
            problem = f"it did not answer within {self.server.start_timeout:g} seconds"
        except ContextcError as error:
            problem = str(error)
        except Exception as error:  # whatever the package raises
            problem = ENDED_PROBLEM if self._opened.is_set() else _one_line(error)
            log.debug("MCP server %s", self.server.name, exc_info=error)
        except asyncio.CancelledError:  # the event loop ends, or `close` was called
            problem = ""
            raise
        finally:
            self._client = self._owner = self._opening = None
            if problem and not self._is_closing:
                self._note_failure(problem, stderr.text)
            self._opened.set()

    def _note_failure(self, problem: str, stderr: str) -> None:
        """Count a failure, and pause before the next start, but not before the first two after a success."""
        self._failures += 1
        pause = 0.0 if self._failures <= 2 else min(2.0 ** (self._failures - 3), MAX_PAUSE)
        self._not_before = asyncio.get_running_loop().time() + pause
        secrets = [*self.server.env.values(), *self.server.headers.values()]
        secrets += [value for name in self.server.variables() if (value := os.environ.get(name))]
        self.problem = mask_secrets(problem.rstrip("."), secrets)[:MAX_ERROR_CHARACTERS]
        output = f". It wrote: {mask_secrets(stderr, secrets)}" if stderr else ""
        log.warning("MCP server %s does not run: %s%s", self.server.name, self.problem, output)

    async def _open(self, stack: AsyncExitStack, stderr: "_StderrTail") -> "Client":
        with importing("mcp", extra=EXTRA, needed_by="MCP servers"):
            await run_blocking(import_module, "mcp.client.stdio")  # it takes a second
        from mcp.client import Client
        from mcp_types import Implementation

        server = self.server.expanded()
        transport = await _open_http(server, stack) if server.url else await _start_program(server, stack, stderr)
        client = Client(
            _watched(transport, self._stop.set),
            client_info=Implementation(name="contextc", version=installed_version("contextc") or "0"),
            message_handler=self._on_message,
            elicitation_callback=self._refuse_question if self._takes_questions else None,
            cache=None,  # the list is kept here
        )
        return await stack.enter_async_context(client)

    # ── the list of tools ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _refresh_list(self, client: "Client") -> None:
        loop = asyncio.get_running_loop()
        if not self._is_stale and (self._is_listening or loop.time() < self._fresh_until):
            return
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await self._load_tools(client)
        except Exception as error:  # the list before stays in use
            self._is_stale, self._fresh_until = False, loop.time() + REFRESH_SECONDS
            log.debug("MCP server %s: its tools were not listed again", self.server.name, exc_info=error)

    async def _load_tools(self, client: "Client") -> None:
        async with self._loading:
            self._is_stale = False  # a change from now on makes it stale again
            found, seconds = await self._list_tools(client)
            self._fresh_until = asyncio.get_running_loop().time() + seconds
            tools: dict[str, FunctionTool] = {}
            for each in found:
                name = f"{self.server.name}{SEPARATOR}{each.name}"
                if not self.server.offers(each.name) or name in tools:
                    continue
                # A schema may take a second to check. Between two of them, a time limit can end this.
                spec = await run_blocking(read_definition, name, each)
                if isinstance(spec, str):
                    log.warning("MCP server %s: the tool %.100s is not offered: %s", self.server.name, each.name, spec)
                else:
                    before = self.tools.get(name)
                    is_same = before is not None and before.tool == spec
                    tools[name] = before if before is not None and is_same else self._make_tool(spec, each.name)
            self.tools = tools

    async def _list_tools(self, client: "Client") -> "tuple[list[types.Tool], float]":
        """Return the tools that the server lists, and the seconds for which it says that the list holds."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        found: list[types.Tool] = []
        if client.server_capabilities.tools is None:
            return found, inf
        cursor, seconds = None, inf
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                seconds = min(seconds, page.ttl_ms / 1000)
            cursor = page.next_cursor
            if not cursor or len(found) >= MAX_TOOLS:
                break
        return sorted(found[:MAX_TOOLS], key=lambda each: each.name), seconds

    def _make_tool(self, spec: Tool, name: str) -> FunctionTool:
        async def call(contextc_context: ToolContext, /, **arguments: object) -> ToolResult:
            return await self.call(name, arguments, contextc_context)

        return tool(spec, call, timeout=self.server.timeout, approval=self.server.requires_approval(name))

    async def _on_message(self, message: "IncomingMessage") -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._is_stale = True

    async def _listen(self, client: "Client") -> None:
        """Listen for changes of the list, which servers of the newer protocol announce only on request."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or client.server_capabilities.tools is None:
            return
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                self._is_stale = True  # it may have changed before
                self._is_listening = bool(subscription.honored.tools_list_changed)
                async for _ in subscription:
                    self._is_stale = True
        except Exception as error:
            log.debug("MCP server %s announces no changes", self.server.name, exc_info=error)
        finally:
            self._is_listening = False

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _call(
        self, client: "Client", name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolResult:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, CallToolResult

        async def report(progress: float, total: float | None, message: str | None) -> None:
            figures = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            context.progress(f"{message} ({figures})" if message else figures)

        asking = context.questions
        answered = None if asking is None else asking.answered
        responses, state, rounds = None, None, 0
        if answered is not None:
            responses, state = input_responses(answered), answered.question.state
            rounds = answered.question.round
        is_new = False
        try:
            while True:
                rounds += 1
                try:
                    result = await _send_call(client, name, arguments, report, responses, state)
                except MCPError as error:
                    if error.code == INVALID_PARAMS and state is not None and not is_new:
                        responses, state, is_new = None, None, True  # it no longer knows its state: it asks anew
                        continue
                    if error.code != HEADER_MISMATCH:
                        raise
                    await self._load_tools(client)  # the headers of a call follow from the listed schema
                    result = await _send_call(client, name, arguments, report, responses, state)
                self._failures = 0
                if isinstance(result, CallToolResult):
                    content: Any = read_content(result)  # ToolResult converts lists; its field has the type after that
                    return ToolResult(call_id="", name="", content=content, is_error=result.is_error)
                if rounds >= MAX_ROUNDS:
                    return _error(TOO_MANY_ROUNDS_RESULT.format(self.server.name, MAX_ROUNDS))
                question = read_question(self.server.name, result, rounds)
                if is_new and answered is not None and question.requests == answered.question.requests:
                    responses, state, answered = input_responses(answered), question.state, None
                elif question.requests:
                    break
                else:  # it asks nothing, and wants to be called again
                    await asyncio.sleep(ROUND_SECONDS)
                    responses, state = None, question.state
        except InvalidInput as error:
            return _error(INVALID_QUESTION_RESULT.format(self.server.name, error))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or (self.server.url and error.code == INVALID_REQUEST):
                self._stop.set()  # of an HTTP server: the session is gone
                return _error(
                    f"The server {self.server.name} ended the connection. What the call had done by then stays done."
                )
            return _error(f"The server {self.server.name} answered with an error: {_shortened(error.message)}")
        except Exception as error:  # an answer that does not follow the protocol, or a connection that broke
            log.debug("MCP server %s: call of %s failed", self.server.name, name, exc_info=error)
            return _error(f"The answer of the server {self.server.name} could not be read: {_one_line(error)}")
        if asking is None:
            return _error(INPUT_REQUIRED_RESULT.format(_shortened(question.text)))
        asking.asked = question
        return _error(question.text)  # not the result: the call goes on with the answer

    async def _refuse_question(self, context: object, params: "types.ElicitRequestParams") -> "types.ErrorData":
        """Refuse a question of the older protocols: it ends with its connection, and an answer may come much later."""
        from mcp_types import INVALID_REQUEST, ErrorData

        return ErrorData(code=INVALID_REQUEST, message=OLD_QUESTION_ERROR)


class ServerConnections:
    """The MCP servers of an agent, each with one connection for each event loop."""

    def __init__(self, servers: Sequence[MCPServer]) -> None:
        self.servers = check_servers(servers)
        if self.servers:
            check_package("mcp", extra=EXTRA, needed_by="MCP servers")
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, list[ServerConnection]] = WeakKeyDictionary()

    def on_this_loop(self) -> list[ServerConnection]:
        """Return the connections of the running event loop. They are not opened by this."""
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            self._connections[loop] = [ServerConnection(each) for each in self.servers]
        return self._connections[loop]

    async def load_tools(self, *, takes_questions: bool = False) -> dict[str, FunctionTool]:
        """Return the tools of all servers as they are now, by name. Servers that do not run yet are started."""
        connections = self.on_this_loop()
        await asyncio.gather(*[each.refresh(takes_questions=takes_questions) for each in connections])
        return {name: each for connection in connections for name, each in connection.tools.items()}

    def problems(self) -> dict[str, str]:
        """Return the reasons why servers do not run on this event loop, by their names."""
        return {each.server.name: each.problem for each in self.on_this_loop() if each.problem}

    async def close(self) -> None:
        """End the processes and connections of this event loop."""
        connections = self._connections.pop(asyncio.get_running_loop(), [])
        for each in connections:  # all end, even if the wait is cancelled
            each.stop()
        await asyncio.gather(*[each.close() for each in connections])


# ── transports ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _StderrTail(asyncio.Protocol):
    """The last bytes that a program wrote to its standard error."""

    def __init__(self) -> None:
        self._tail = b""

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-STDERR_BYTES:]

    @property
    def text(self) -> str:
        return " ".join(self._tail.decode(errors="replace").split())


async def _start_program(server: MCPServer, stack: AsyncExitStack, stderr: _StderrTail) -> "Transport":
    """Return the transport of a program. What it writes to its standard error is read, and its last part kept."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=server.command,
        args=list(server.args),
        env=server.environment(),
        cwd=server.cwd or None,
        encoding_error_handler="replace",
    )
    if sys.platform == "win32":
        return stdio_client(parameters, errlog=stack.enter_context(open(os.devnull, "w", encoding="utf-8")))
    read, write = os.pipe()
    source, target = os.fdopen(read, "rb"), os.fdopen(write, "w")
    stack.callback(target.close)
    reader, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: stderr, source)
    stack.callback(reader.close)
    return stdio_client(parameters, errlog=target)


async def _open_http(server: MCPServer, stack: AsyncExitStack) -> "Transport":
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def shorten_farewell(request: httpx2.Request) -> None:
        if request.method == "DELETE":  # the end of a session: a server that hangs must not hold up ours
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), END_SECONDS)

    hooks = {"request": [shorten_farewell]}
    auth = cast(httpx2.Auth | None, server.auth)
    client = httpx2.AsyncClient(headers=dict(server.headers), auth=auth, timeout=HTTP_TIMEOUT, event_hooks=hooks)
    await stack.enter_async_context(client)
    has_limit = "max_sse_event_size" in signature(streamable_http_client).parameters  # not in the oldest versions
    limit: dict[str, Any] = {"max_sse_event_size": MAX_EVENT_BYTES} if has_limit else {}
    return streamable_http_client(server.url, http_client=client, **limit)


@asynccontextmanager
async def _watched(transport: "Transport", on_end: Callable[[], None]) -> AsyncGenerator[Any]:
    """Return a transport that reports its end: the package tells only those who wait for an answer."""
    async with transport as (read, write):
        yield _WatchedStream(read, on_end), write


class _WatchedStream:
    """A stream of messages that calls a function when it ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:  # the package's streams have no common class
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> object:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> "_WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stream.__aexit__(*error)


# ── a call on the wire ────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _result_reader() -> Any:
    from mcp_types import CallToolResult, InputRequiredResult
    from pydantic import TypeAdapter

    return TypeAdapter[Any](CallToolResult | InputRequiredResult)


async def _send_call(
    client: "Client",
    name: str,
    arguments: Mapping[str, object],
    progress: Any,
    responses: "types.InputResponses | None",
    state: str | None,
) -> "types.CallToolResult | types.InputRequiredResult":
    """Send a call. `Client.call_tool` would refuse a result that does not follow the schema that the server gave.

    `responses` and `state` continue a call whose server has asked for input.
    """
    from mcp_types import CallToolRequest, CallToolRequestParams

    parameters = CallToolRequestParams(
        name=name, arguments=dict(arguments), input_responses=responses, request_state=state
    )
    request = CallToolRequest(params=parameters)
    return await client.session.send_request(request, _result_reader(), progress_callback=progress)


def _error(text: str) -> ToolResult:
    return ToolResult(call_id="", name="", content=text, is_error=True)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}…"


def _one_line(error: BaseException) -> str:
    """Return an error as a line. Of a group it is the first one: task groups wrap even a single error."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return _shortened(" ".join(describe_error(error).split("\n")[:3]))
