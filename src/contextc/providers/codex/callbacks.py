"""Requests that Codex sends during a turn: to run a tool of ours, or to approve one of its own.

Before the result of one of our tools is returned, `between_calls` is awaited: the model reads what it adds with the
result.

The call's host answers. Without a host, everything that needs approval is declined. Requests that have no handler, such
as a question to the user, get an empty answer, so that the turn continues.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.codex.items import result_block
from contextc.messages import Text, ToolCall, ToolResult
from contextc.providers.client import Host, ProviderCall
from contextc.providers.codex.app_server import UNKNOWN_METHOD

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
            result = await _result(params, call)
            await between_calls()
        case "item/commandExecution/requestApproval":
            result = _decision(
                await _approved(call.host, params, COMMAND, _present_fields(params, "command", "cwd", "reason"))
            )
        case "item/fileChange/requestApproval":
            changes: JSON = items.get(params.get("itemId", ""), {}).get("changes", [])
            details = {"changes": changes, **_present_fields(params, "grantRoot", "reason")}
            result = _decision(await _approved(call.host, params, PATCH, details))
        case "item/permissions/requestApproval":
            details = _present_fields(params, "permissions", "cwd", "reason")
            is_granted = await _approved(call.host, params, PERMISSIONS, details)
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


async def _approved(host: Host | None, params: JSONObject, name: str, arguments: JSONObject) -> bool:
    if host is None:
        return False
    return await host.approve(ToolCall(id=str(params.get("itemId", "")), name=name, arguments=arguments)) == ""


async def _result(params: JSONObject, call: ProviderCall) -> JSONObject:
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
    parts = (Text(found.content),) if isinstance(found.content, str) else found.content
    blocks = [result_block(part) or {"type": "inputText", "text": _described(part)} for part in parts]
    return {"contentItems": blocks, "success": not found.is_error}


def _described(part: object) -> str:
    return f"[{cast(str, getattr(part, 'mime_type', 'something'))}: it cannot be shown here]"
