"""One turn of a Codex thread: inject the history, send the prompt, and yield the events unchanged.

Between the calls of its model the host may add input to the turn (`turn/steer`), or end it. Codex runs its own tools
without asking: such a call may still run when a limit is reached, and the model may read the input one call later.

A turn that the caller leaves early is interrupted and awaited, so that nothing of it continues. If the program does not
react, it is ended.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc._worker_threads import run_in_thread
from contextc.errors import ProviderFailed
from contextc.formats.codex.codec import CALL_TYPES, Decoder, encode_result
from contextc.formats.streams import make_note_event
from contextc.messages import SYSTEM_CONTEXT, Message, ToolCall, ToolResult
from contextc.providers.client import Host, ProviderCall
from contextc.providers.codex.app_server import (
    UNKNOWN_METHOD,
    AppServer,
    MessageQueue,
    ProgramEnded,
    RequestRejected,
    error_failure,
    id_in_message,
    turn_failure,
)
from contextc.providers.codex.call_options import CodexCallOptions
from contextc.providers.codex.threads import USAGE, OpenedThread, UnreportedCalls

INTERRUPT_SECONDS = 5.0
LONG_RUNNING_ITEMS = (
    "commandExecution",
    "fileChange",
    "mcpToolCall",
    "dynamicToolCall",
    "collabAgentToolCall",
    "webSearch",
    "sleep",
)
"""Types of items that may run for any time without events."""


class CodexTurn:
    """One turn.

    `path` is the thread's rollout file, `max_retries` the number of retries that Codex may make, and `timeout` the
    maximum number of seconds between two events.
    """

    def __init__(
        self,
        server: AppServer,
        call: ProviderCall,
        thread: str,
        *,
        path: str,
        max_retries: int,
        timeout: float | None,
        secrets: tuple[str, ...],
    ) -> None:
        self.server, self.call, self.thread, self.path = server, call, thread, path
        self.max_retries, self.timeout, self.secrets = max_retries, timeout, secrets
        self.provider = call.provider.name
        self.id = ""
        self.is_over = False
        self.items: dict[str, JSONObject] = {}
        self._at_work: set[str] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._notes: list[str] = []
        self._is_ended_by_host = False

    async def run(self, asked: CodexCallOptions) -> AsyncGenerator[JSONObject, None]:
        """Run the turn and yield its events."""
        with self.server.listen(self.thread) as messages:
            async for event in self._take_in(asked.history):
                yield event
            known = {str(item["call_id"]) for item in asked.history if "call_id" in item}
            self._unreported = await run_in_thread(UnreportedCalls, self.path, known)
            params = {
                **asked.turn_params,
                "threadId": self.thread,
                "input": asked.input,
                "cwd": asked.thread_params["cwd"],
            }
            params["clientUserMessageId"] = asked.turn_name
            starting = asyncio.ensure_future(self.server.request("turn/start", params))
            try:
                self.id = (await asyncio.shield(starting))["turn"]["id"]
                async with aclosing(self._events(messages)) as events:
                    async for event in events:
                        yield event
            finally:
                for task in self._answering:
                    task.cancel()
                if not self.is_over:
                    await asyncio.shield(self._interrupt(starting, messages))

    async def _take_in(self, history: list[JSONObject]) -> AsyncGenerator[JSONObject, None]:
        items, as_text = to_importable(history)
        while items:
            try:
                await self.server.request("thread/inject_items", {"threadId": self.thread, "items": items})
                break
            except RequestRejected as refused:
                if (others := replace_rejected(items, str(refused))) is None:
                    raise
                items, as_text = others, as_text + 1
        if as_text:
            yield make_note_event(
                f"{as_text} of {len(items)} history items were sent to Codex as text: their types are not accepted."
            )

    async def _events(self, messages: MessageQueue) -> AsyncGenerator[JSONObject, None]:
        while not self.is_over:
            message = await self._next(messages)
            if "id" in message:
                self._start(self._answer(message))
            elif self._is_ours(message):
                while self._notes:
                    yield make_note_event(self._notes.pop(0))
                for each in (*self._unreported.messages_before(message, self.items), message):
                    self._keep(each)
                    yield {"method": each["method"], "params": self._params(each)}
                    self._follow(each)
                self._check(message)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _params(self, message: JSONObject) -> JSONObject:
        """Return the parameters of an event. A turn that the host has ended is complete as it is."""
        params = message["params"]
        if message["method"] != "turn/completed" or not self._is_ended_by_host:
            return params
        return {**params, "turn": {**params["turn"], "status": "completed"}}

    def _follow(self, message: JSONObject) -> None:
        """Tell the host about the start and the end of a tool call of Codex itself."""
        item: JSONObject = message["params"].get("item") or {}
        if item.get("type") not in CALL_TYPES or item["type"] == "dynamicToolCall":  # ours
            return
        if message["method"] == "item/completed":
            self._start(self._between_calls())
        elif message["method"] == "item/started":
            self._start(self._admit(item))

    async def _admit(self, item: JSONObject) -> None:
        found, _ = Decoder(self.provider).decode_call(item, CALL_TYPES[item["type"]])
        if self.call.host is not None and await self.call.host.admit(found):
            await self._end()

    async def _between_calls(self) -> None:
        if self.call.host is not None and await self.call.host.between_calls(self._deliver):
            await self._end()

    async def _deliver(self, messages: Sequence[Message]) -> bool:
        texts = [f"{SYSTEM_CONTEXT if each.role == 'system' else ''}{each.text}" for each in messages]
        params = {
            "threadId": self.thread,
            "expectedTurnId": self.id,
            "input": [{"type": "text", "text": text} for text in texts],
        }
        try:
            await self.server.request("turn/steer", params)
        except (RequestRejected, ProgramEnded, TimeoutError) as error:
            self._notes.append(f"Codex took no input within its turn, it is sent with the next prompt: {error}")
            return False
        return True

    async def _end(self) -> None:
        """End the turn for the host. What it has done so far is its reply."""
        if not self._is_ended_by_host and not self.is_over:
            self._is_ended_by_host = True
            with suppress(RequestRejected, ProgramEnded, TimeoutError):  # it is over
                await self.server.request("turn/interrupt", {"threadId": self.thread, "turnId": self.id})

    async def _next(self, heard: MessageQueue) -> JSONObject:
        is_waiting = not self._at_work and not self._answering
        try:
            async with asyncio.timeout(self.timeout if is_waiting else None):
                message = await heard.get()
        except TimeoutError:
            problem = f"no data received for {self.timeout:g} s"
            raise ProviderFailed(self.provider, "transient", problem) from None
        if message is None:
            self.is_over = True
            raise self.server.end_error()
        return message

    def _is_ours(self, message: JSONObject) -> bool:
        return id_in_message(message, "turn") == self.id and message["method"] != "serverRequest/resolved"

    def _keep(self, message: JSONObject) -> None:
        """Update the state of the turn: its items, the items that are running, and whether it is over."""
        method, params = message["method"], message["params"]
        if method in ("item/started", "item/completed"):
            item = params["item"]
            self.items[item["id"]] = item
            if method == "item/started" and item["type"] in LONG_RUNNING_ITEMS:
                self._at_work.add(item["id"])
            else:
                self._at_work.discard(item["id"])
        self.is_over = self.is_over or method == "turn/completed"

    def _check(self, message: JSONObject) -> None:
        """Raise the failure of the turn. An error that Codex retries is raised when the retries are used up."""
        params = message["params"]
        if message["method"] == "error" and params.get("willRetry"):
            self.max_retries -= 1
            if self.max_retries < 0:
                raise error_failure(self.provider, params["error"], self.secrets)
        is_interrupted = self._is_ended_by_host and params.get("turn", {}).get("status") == "interrupted"
        if message["method"] == "turn/completed" and params["turn"]["status"] != "completed" and not is_interrupted:
            raise turn_failure(self.provider, params["turn"], self.secrets)

    async def _answer(self, message: JSONObject) -> None:
        try:
            answered = await answer_request(message, self.call, self.items, self._between_calls)
        except Exception as error:
            answered = {"id": message["id"], "error": {"code": -32000, "message": f"{type(error).__name__}: {error}"}}
        with suppress(ProgramEnded):
            self.server.send(answered)

    async def _interrupt(self, starting: "asyncio.Future[JSONObject]", heard: MessageQueue) -> None:
        try:
            async with asyncio.timeout(INTERRUPT_SECONDS):
                self.id = (await starting)["turn"]["id"]
                await self.server.request("turn/interrupt", {"threadId": self.thread, "turnId": self.id})
                while not self.is_over and (message := await heard.get()) is not None:
                    self.is_over = self._is_ours(message) and message["method"] == "turn/completed"
        except RequestRejected:  # the turn never started, or is over
            self.is_over = True
        except (TimeoutError, ProgramEnded):
            await self.server.close()


def recorded_events(opened: OpenedThread) -> list[JSONObject]:
    """Return the events of a turn that is already in a thread."""
    turn: JSONObject = opened.recorded_turn or {}
    place = {"threadId": opened.id, "turnId": turn["id"]}
    bare: JSONObject = {**turn, "items": [], "itemsView": "notLoaded"}
    events: list[JSONObject] = [{"method": "turn/started", "params": {"threadId": opened.id, "turn": bare}}]
    events += [{"method": "item/completed", "params": {**place, "item": item}} for item in turn["items"]]
    if opened.usage is not None:
        events.append({"method": USAGE, "params": opened.usage["params"]})
    return [*events, {"method": "turn/completed", "params": {"threadId": opened.id, "turn": bare}}]


# ── requests of the program ───────────────────────────────────────────────────────────────────────────────────────────
# Requests that Codex sends during a turn: to run a tool of ours, or to approve one of its own.
#
# Before the result of one of our tools is returned, `between_calls` is awaited: the model reads what it adds with the
# result.
#
# The call's host answers. Without a host, everything that needs approval is declined. Requests that have no handler,
# such as a question to the user, get an empty answer, so that the turn continues.


COMMAND, PATCH, PERMISSIONS = "shell", "apply_patch", "request_permissions"
NO_HOST_TEXT = "Nobody is here to run this tool."


async def answer_request(
    message: JSONObject,
    call: ProviderCall,
    items: Mapping[str, JSONObject],
    between_calls: Callable[[], Awaitable[None]],
) -> JSONObject:
    """Return the answer to a request of the program. `items` are the items of the turn so far, by id."""
    params: JSONObject = message.get("params") or {}
    match message["method"]:
        case "item/tool/call":
            result = await _tool_result(params, call)
            await between_calls()
        case "item/commandExecution/requestApproval":
            result = _decision(
                await _is_approved(call.host, params, COMMAND, _present_fields(params, "command", "cwd", "reason"))
            )
        case "item/fileChange/requestApproval":
            changes: JSON = items.get(params.get("itemId", ""), {}).get("changes", [])
            details = {"changes": changes, **_present_fields(params, "grantRoot", "reason")}
            result = _decision(await _is_approved(call.host, params, PATCH, details))
        case "item/permissions/requestApproval":
            details = _present_fields(params, "permissions", "cwd", "reason")
            is_granted = await _is_approved(call.host, params, PERMISSIONS, details)
            result: JSONObject = {"permissions": params.get("permissions", {}) if is_granted else {}}
        case "item/tool/requestUserInput":
            result = {"answers": {}}
        case "mcpServer/elicitation/request":
            result = {"action": "decline"}
        case other:
            return {"id": message["id"], "error": {"code": UNKNOWN_METHOD, "message": f"contextc has no {other}"}}
    return {"id": message["id"], "result": result}


def _present_fields(params: JSONObject, *names: str) -> JSONObject:
    return {name: params[name] for name in names if params.get(name) is not None}


def _decision(is_approved: bool) -> JSONObject:
    return {"decision": "accept" if is_approved else "decline"}


async def _is_approved(host: Host | None, params: JSONObject, name: str, arguments: JSONObject) -> bool:
    if host is None:
        return False
    return await host.approve(ToolCall(id=str(params.get("itemId", "")), name=name, arguments=arguments)) == ""


async def _tool_result(params: JSONObject, call: ProviderCall) -> JSONObject:
    names = call.provider.formatter.name_codec.names
    name = str(params["tool"])
    asked = ToolCall(
        id=str(params["callId"]),
        name=name if names is None else names.decode(name),
        arguments=params.get("arguments") or {},
    )
    found = ToolResult(call_id=asked.id, name=asked.name, content=NO_HOST_TEXT, is_error=True)
    if call.host is not None:
        found = await call.host.run(asked)
    return encode_result(found)


# ── history of a thread ───────────────────────────────────────────────────────────────────────────────────────────────
# Conversion of history to items that a Codex thread accepts: items of the Responses API of supported types.
#
# Codex silently drops items of unknown types, and rejects a whole list for one invalid item. Both are converted to
# text here and counted for a note, because text is better than a missing message.


ITEM_TYPES = (
    "message",
    "agent_message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
    "image_generation_call",
    "compaction",
)
ROLES = ("user", "assistant", "developer")
ITEM_INDEX = re.compile(r"items\[(\d+)\]")


def to_importable(items: list[JSONObject]) -> tuple[list[JSONObject], int]:
    """Return the items in the accepted form, and the number that became text."""
    taken = [_taken(item) for item in items]
    return taken, sum(item.get("type", "message") != other["type"] for item, other in zip(items, taken, strict=True))


def replace_rejected(items: list[JSONObject], refusal: str) -> list[JSONObject] | None:
    """Convert the rejected item to text and return all items. None if no item is named, or it is text already."""
    found = ITEM_INDEX.search(refusal)
    if found is None or (place := int(found[1])) >= len(items):
        return None
    text = item_as_text(items[place])
    return None if text == items[place] else [*items[:place], text, *items[place + 1 :]]


def item_as_text(item: JSONObject) -> JSONObject:
    """Return an item as a text message: its texts, and everything else as JSON."""
    content: JSON = item.get("content")
    blocks = cast(list[JSONObject], content) if isinstance(content, list) else [item]
    texts = [block["text"] if isinstance(block.get("text"), str) else encode(block).decode() for block in blocks]
    role = item["role"] if item.get("role") in ROLES else "user"
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def _taken(item: JSONObject) -> JSONObject:
    if item.get("type", "message") not in ITEM_TYPES:
        return item_as_text(item)
    if item.get("type", "message") != "message":
        return item
    role = "developer" if item.get("role") == "system" else item.get("role")
    content: JSON = item.get("content")
    blocks = cast(list[JSONObject], content) if isinstance(content, list) else [{"text": content}]
    if role != "assistant":
        input_blocks = [{"type": "input_text", **block} for block in blocks]
        return {**item, "type": "message", "role": role, "content": input_blocks}
    output_blocks: list[JSONObject] = [{"type": "output_text", "annotations": [], **block} for block in blocks]
    return {**item, "type": "message", "role": role, "status": "completed", "content": output_blocks}
