"""Request and reply bodies in five wire formats, from one neutral form.

A neutral message is a role and blocks: text, thinking, call, result, image. See `Block`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.analysis.traces.simulated_cache import Use

JSONObject = dict[str, Any]


@dataclass
class Block:
    """A part of a message. `kind` is text, thinking, call, result, image or native (`native` is the wire form).

    The `text` of a call is its arguments as a string, for formats that send them so; "" for the usual spelling.
    """

    kind: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: JSONObject = field(default_factory=dict[str, Any])
    native: JSONObject = field(default_factory=dict[str, Any])


@dataclass
class Message:
    role: str
    blocks: list[Block]


@dataclass
class Request:
    """A request in neutral form. `marks` are the places of cache breakpoints, `ttl` their TTLs by place.

    Places are `tools` and `system` (after the last of them), `tail` (after the last message), `previous` (after the
    last user message before that), and `auto` (the provider's automatic breakpoint).
    """

    model: str
    system: list[str]
    tools: list[JSONObject]
    messages: list[Message]
    settings: JSONObject
    marks: set[str]
    ttl: dict[str, str]
    marked: int | None = None
    """The index of the message after which the breakpoint `tail` is placed; None for the last one."""

    def tail(self) -> int:
        return len(self.messages) - 1 if self.marked is None else self.marked % len(self.messages)

    def marked_messages(self) -> dict[int, str]:
        found: dict[int, str] = {}
        tail = self.tail()
        if "previous" in self.marks:
            earlier = [at for at in range(tail) if self.messages[at].role == "user"]
            if earlier:
                found[earlier[-1]] = "previous"
        if "tail" in self.marks:
            found[tail] = "tail"
        return found


def encode(wire: str, request: Request) -> JSONObject:
    """Return the body of a request. Its settings are fields of the body; None leaves one out.

    The setting `instructions` sends the system prompt in the field of that name (Responses).
    """
    make = {
        "anthropic": _anthropic, "bedrock": _bedrock, "chat": _chat, "responses": _responses, "gemini": _gemini,
    }[wire]  # fmt: skip
    body = make(request)
    for name, value in request.settings.items():
        if name == "toolConfig" and wire == "bedrock":
            body["toolConfig"] = {**body.get("toolConfig", {}), **value}
        elif value is None:
            body.pop(name, None)
        elif name != "instructions":
            body[name] = value
    return body


def _anthropic(request: Request) -> JSONObject:
    def control(place: str) -> JSONObject:
        ttl = request.ttl.get(place)
        return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}

    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["schema"]}
        for tool in request.tools
    ]
    if tools and "tools" in request.marks:
        tools[-1].update(control("tools"))
    system = [{"type": "text", "text": text} for text in request.system]
    if system and "system" in request.marks:
        system[-1].update(control("system"))
    places = request.marked_messages()
    messages: list[JSONObject] = []
    for at, message in enumerate(request.messages):
        blocks = [_anthropic_block(block) for block in message.blocks]
        if at in places:
            blocks[-1].update(control(places[at]))
        messages.append({"role": message.role, "content": blocks})
    body: JSONObject = {"model": request.model, "max_tokens": 8192, "system": system, "tools": tools}
    if "auto" in request.marks:
        body.update(control("auto"))
    body["messages"] = messages
    return {key: value for key, value in body.items() if value != []}


def _anthropic_block(block: Block) -> JSONObject:
    match block.kind:
        case "text":
            return {"type": "text", "text": block.text}
        case "thinking":
            return {"type": "thinking", "thinking": block.text, "signature": block.id}
        case "call":
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case "result":
            return {"type": "tool_result", "tool_use_id": block.id, "content": block.text}
        case "image":
            return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": block.text}}
        case _:
            return dict(block.native)


def _bedrock(request: Request) -> JSONObject:
    def point(place: str) -> JSONObject:
        ttl = request.ttl.get(place)
        return {"cachePoint": {"type": "default", **({"ttl": ttl} if ttl else {})}}

    tools: list[JSONObject] = [
        {"toolSpec": {"name": t["name"], "description": t["description"], "inputSchema": {"json": t["schema"]}}}
        for t in request.tools
    ]
    if tools and "tools" in request.marks:
        tools.append(point("tools"))
    system: list[JSONObject] = [{"text": text} for text in request.system]
    if system and "system" in request.marks:
        system.append(point("system"))
    places = request.marked_messages()
    messages: list[JSONObject] = []
    for at, message in enumerate(request.messages):
        blocks = [_bedrock_block(block) for block in message.blocks]
        if at in places:
            blocks.append(point(places[at]))
        messages.append({"role": message.role, "content": blocks})
    body: JSONObject = {"messages": messages, "system": system, "inferenceConfig": {"maxTokens": 4096}}
    if tools:
        body["toolConfig"] = {"tools": tools}
    return body


def _bedrock_block(block: Block) -> JSONObject:
    match block.kind:
        case "text":
            return {"text": block.text}
        case "thinking":
            return {"reasoningContent": {"reasoningText": {"text": block.text, "signature": block.id}}}
        case "call":
            return {"toolUse": {"toolUseId": block.id, "name": block.name, "input": block.input}}
        case "result":
            return {"toolResult": {"toolUseId": block.id, "content": [{"text": block.text}], "status": "success"}}
        case "image":
            return {"image": {"format": "png", "source": {"bytes": block.text}}}
        case _:
            return dict(block.native)


def _chat(request: Request) -> JSONObject:
    messages: list[JSONObject] = [{"role": "system", "content": text} for text in request.system]
    for message in request.messages:
        messages += _chat_messages(message)
    tools = [
        {
            "type": "function",
            "function": {"name": t["name"], "description": t["description"], "parameters": t["schema"]},
        }
        for t in request.tools
    ]
    body: JSONObject = {"model": request.model, "messages": messages}
    return {**body, "tools": tools} if tools else body


def _chat_messages(message: Message) -> list[JSONObject]:
    blocks = message.blocks
    if message.role == "assistant":
        text = "\n".join([block.text for block in blocks if block.kind == "text"])
        calls = [
            {"id": b.id, "type": "function", "function": {"name": b.name, "arguments": b.text or json.dumps(b.input)}}
            for b in blocks
            if b.kind == "call"
        ]
        return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]
    found: list[JSONObject] = [
        {"role": "tool", "tool_call_id": b.id, "content": b.text} for b in blocks if b.kind == "result"
    ]
    rest = [block for block in blocks if block.kind in ("text", "image")]
    if len(rest) == 1 and rest[0].kind == "text":
        found.append({"role": message.role, "content": rest[0].text})
    elif rest:
        parts = [
            {"type": "text", "text": b.text}
            if b.kind == "text"
            else {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b.text}"}}
            for b in rest
        ]
        found.append({"role": message.role, "content": parts})
    return found


def _responses(request: Request) -> JSONObject:
    items: list[JSONObject] = []
    if "instructions" not in request.settings:
        items += [_developer(text) for text in request.system]
    options: JSONObject = request.settings.get("prompt_cache_options") or {}
    is_explicit = options.get("mode") == "explicit"
    if is_explicit and "system" in request.marks and items:
        items[-1]["content"][-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    for message in request.messages:
        items += _response_items(message)
        if is_explicit and "tail" in request.marks and message.role == "user" and "content" in items[-1]:
            items[-1]["content"][-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    tools = [
        {
            "type": "function",
            "name": t["name"],
            "description": t["description"],
            "parameters": t["schema"],
            "strict": False,
        }
        for t in request.tools
    ]
    body: JSONObject = {"model": request.model, "input": items, "store": False, "stream": False}
    if "instructions" in request.settings:
        body["instructions"] = "\n\n".join(request.system)
    return {**body, "tools": tools} if tools else body


def _developer(text: str) -> JSONObject:
    return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}


def _response_items(message: Message) -> list[JSONObject]:
    found: list[JSONObject] = []
    parts: list[JSONObject] = []
    is_assistant = message.role == "assistant"
    role = "developer" if message.role == "system" else message.role
    for block in message.blocks:
        match block.kind:
            case "text":
                parts.append({"type": "output_text" if is_assistant else "input_text", "text": block.text})
            case "image":
                parts.append({"type": "input_image", "image_url": f"data:image/png;base64,{block.text}"})
            case "thinking":
                found.append({"type": "reasoning", "summary": [], "encrypted_content": block.id + block.text})
            case "call":
                found += _flush(parts, role)
                arguments = block.text or json.dumps(block.input)
                found.append({"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments})
            case "result":
                found.append({"type": "function_call_output", "call_id": block.id, "output": block.text})
            case _:
                found.append(dict(block.native))
    return found + _flush(parts, role)


def _flush(parts: list[JSONObject], role: str) -> list[JSONObject]:
    if not parts:
        return []
    item: JSONObject = {"type": "message", "role": role, "content": list(parts)}
    parts.clear()
    return [item]


def _gemini(request: Request) -> JSONObject:
    contents = [
        {"role": "model" if message.role == "assistant" else "user", "parts": _gemini_parts(message)}
        for message in request.messages
    ]
    body: JSONObject = {
        "systemInstruction": {"parts": [{"text": text} for text in request.system]},
        "contents": contents,
        "generationConfig": {"maxOutputTokens": 8192},
    }
    if request.tools:
        declarations = [
            {"name": t["name"], "description": t["description"], "parametersJsonSchema": t["schema"]}
            for t in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declarations}]
    return body


def _gemini_parts(message: Message) -> list[JSONObject]:
    found: list[JSONObject] = []
    signature = next((block.id for block in message.blocks if block.kind == "thinking"), "")
    for block in message.blocks:
        match block.kind:
            case "text":
                found.append({"text": block.text})
            case "image":
                found.append({"inlineData": {"mimeType": "image/png", "data": block.text}})
            case "call":
                found.append({"functionCall": {"name": block.name, "args": block.input}})
                if signature:
                    found[-1]["thoughtSignature"] = signature
                    signature = ""
            case "result":
                found.append({"functionResponse": {"name": block.name, "response": {"output": block.text}}})
            case _:
                pass
    if signature and found:
        found[-1]["thoughtSignature"] = signature
    return found


def encode_reply(wire: str, model: str, message: Message, use: Use, id: str) -> JSONObject:
    """Return the body of a reply with its token usage."""
    output = 20 + sum([len(block.text) + 40 * (block.kind == "call") for block in message.blocks]) // 4
    is_call = any(block.kind == "call" for block in message.blocks)
    if wire == "anthropic":
        return {
            "id": f"msg_{id}", "type": "message", "role": "assistant", "model": model,
            "content": [_anthropic_block(block) for block in message.blocks],
            "stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None,
            "usage": anthropic_usage(use, output),
        }  # fmt: skip
    if wire == "bedrock":
        return {
            "output": {
                "message": {"role": "assistant", "content": [_bedrock_block(block) for block in message.blocks]}
            },
            "stopReason": "tool_use" if is_call else "end_turn",
            "usage": {
                "inputTokens": use.rest, "outputTokens": output, "totalTokens": use.total + output,
                "cacheReadInputTokens": use.read, "cacheWriteInputTokens": use.written,
            },
            "metrics": {"latencyMs": 1200},
        }  # fmt: skip
    if wire == "chat":
        return {
            "id": f"chatcmpl-{id}", "object": "chat.completion", "created": 1_790_000_000, "model": model,
            "choices": [
                {"index": 0, "message": _chat_messages(message)[0],
                 "finish_reason": "tool_calls" if is_call else "stop"}
            ],
            "usage": {
                "prompt_tokens": use.total, "completion_tokens": output, "total_tokens": use.total + output,
                "prompt_tokens_details": {"cached_tokens": use.read},
            },
        }  # fmt: skip
    if wire == "responses":
        output_items = [
            {**item, "id": f"{item['type'][:2]}_{id}{at}", "status": "completed"}
            for at, item in enumerate(_response_items(message))
        ]
        return {
            "id": f"resp_{id}", "object": "response", "status": "completed", "model": model, "output": output_items,
            "usage": responses_usage(use, output),
        }  # fmt: skip
    return {
        "candidates": [
            {"content": {"role": "model", "parts": _gemini_parts(message)}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": use.total, "candidatesTokenCount": output, "totalTokenCount": use.total + output,
            **({"cachedContentTokenCount": use.read} if use.read else {}),
        },
        "modelVersion": model, "responseId": id,
    }  # fmt: skip


def anthropic_usage(use: Use, output: int) -> JSONObject:
    return {
        "input_tokens": use.rest, "cache_creation_input_tokens": use.written, "cache_read_input_tokens": use.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": use.written - use.written_long, "ephemeral_1h_input_tokens": use.written_long,
        },
        "output_tokens": output,
    }  # fmt: skip


def responses_usage(use: Use, output: int) -> JSONObject:
    return {
        "input_tokens": use.total,
        "input_tokens_details": {"cached_tokens": use.read, "cache_write_tokens": use.written},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": use.total + output,
    }  # fmt: skip


def failure(wire: str, status: int) -> JSONObject:
    """Return the body of an error reply."""
    text = {429: "Rate limit exceeded.", 529: "Overloaded", 500: "Internal server error"}.get(status, "Unavailable")
    if wire == "anthropic":
        return {"type": "error", "error": {"type": "overloaded_error", "message": text}}
    if wire == "bedrock":
        return {"message": text}
    if wire == "gemini":
        return {"error": {"code": status, "message": text, "status": "UNAVAILABLE"}}
    return {"error": {"message": text, "type": "server_error", "param": None, "code": None}}


def texts(*values: str) -> list[Block]:
    return [Block("text", value) for value in values]


def calls_of(message: Message) -> Sequence[Block]:
    return [block for block in message.blocks if block.kind == "call"]
