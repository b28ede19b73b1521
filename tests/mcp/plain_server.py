"""An MCP server of the older protocol (2025-06-18) in plain Python, which starts at once. It can misbehave on request.

Run it as `python plain_server.py`. It is written by hand, so that it can send what no library would. Arguments choose
how it behaves: `tools=FILE` reads the definitions of its tools from a JSON file, `die-at-start`, `hang-at-start`,
`flood-stderr`, `no-list`.
"""

import base64
import json
import os
import signal
import sys
import threading
import time
from typing import Any

MODES = sys.argv[1:]
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 50).decode()
ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Return the text.", "inputSchema": TEXT},
    {"name": "environment", "description": "Return the variables of this process.", "inputSchema": ANYTHING},
    {"name": "process", "description": "Return the id of this process.", "inputSchema": ANYTHING},
    {"name": "picture", "description": "Return a picture.", "inputSchema": ANYTHING},
    {"name": "forged", "description": "Return pictures that are none.", "inputSchema": ANYTHING},
    {"name": "structured", "description": "Return a value.", "inputSchema": ANYTHING},
    {"name": "fails", "description": "Return an error.", "inputSchema": ANYTHING},
    {"name": "refuses", "description": "Answer with a protocol error.", "inputSchema": ANYTHING},
    {"name": "dies", "description": "End this process.", "inputSchema": ANYTHING},
    {"name": "hangs", "description": "Never answer.", "inputSchema": ANYTHING},
    {"name": "cancelled", "description": "Return the ids of calls that were cancelled.", "inputSchema": ANYTHING},
    {"name": "counts", "description": "Report progress, and never answer.", "inputSchema": ANYTHING},
    {"name": "long", "description": "Return many characters.", "inputSchema": ANYTHING},
    {"name": "grow", "description": "Offer one more tool.", "inputSchema": ANYTHING},
    {"name": "shrink", "description": "Offer no tool but this one.", "inputSchema": ANYTHING},
    {"name": "nonsense", "description": "Answer with what is no result.", "inputSchema": ANYTHING},
    {"name": "noise", "description": "Write lines that are no messages, then answer.", "inputSchema": ANYTHING},
    {"name": "asks", "description": "Ask the client for input, sampling and roots.", "inputSchema": ANYTHING},
]
REQUESTS: dict[str, dict[str, Any]] = {
    "elicitation/create": {"message": "Your name?", "requestedSchema": ANYTHING},
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 10,
    },
    "roots/list": {},
}
CANCELLED: list[object] = []
ASKED: dict[str, Any] = {}
NUMBERS = iter(range(1_000))


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def call(request: Any, name: str, arguments: dict[str, Any], token: object) -> dict[str, Any] | None:
    match name:
        case "echo":
            return text(arguments["text"])
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "process":
            return text(str(os.getpid()))
        case "picture":
            return {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]}
        case "forged":
            forged = base64.b64encode(b"<script/>").decode()
            blocks = [("image/png", forged), ("image/jpeg", "%%%")]
            return {"content": [{"type": "image", "data": data, "mimeType": kind} for kind, data in blocks]}
        case "structured":
            return {"content": [], "structuredContent": {"answer": 42}}
        case "fails":
            return {**text("no such file"), "isError": True}
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "cancelled":
            return text(json.dumps(CANCELLED))
        case "counts":
            for number in (1, 2):
                params = {"progressToken": token, "progress": number, "total": 2, "message": f"line {number}"}
                send({"method": "notifications/progress", "params": params})
            return None
        case "long":
            return text("x" * int(arguments["characters"]))
        case "grow":
            TOOLS.append({"name": f"grown{len(TOOLS)}", "description": "New.", "inputSchema": ANYTHING})
            send({"method": "notifications/tools/list_changed"})
            return text(TOOLS[-1]["name"])
        case "shrink":
            TOOLS[:] = [each for each in TOOLS if each["name"] == "shrink"]
            send({"method": "notifications/tools/list_changed"})
            return text("shrunk")
        case "nonsense":
            return {"content": "not a list"}
        case "noise":
            sys.stdout.write("warning: this is no message\n\n{]\n[1]\n" + "y" * 100_000 + "\n")
            return text("heard")
        case "asks":
            for method, params in REQUESTS.items():
                send({"id": f"ask-{method}", "method": method, "params": params})
            ASKED["call"], ASKED["answers"] = request, []
            return None
        case _ if name.startswith("grown"):
            return text(f"{name} ran")
        case _:
            return None if name == "hangs" else text(f"{name}: {json.dumps(arguments)}")
    return None


def main() -> None:
    if "die-at-start" in MODES:
        sys.exit("the token abc-secret-token is wrong")
    if "flood-stderr" in MODES:
        threading.Thread(target=flood, daemon=True).start()
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        params: dict[str, Any] = message.get("params") or {}
        method, number = message.get("method"), message.get("id")
        if "hang-at-start" in MODES:
            continue
        if method is None and str(number).startswith("ask-"):
            ASKED["answers"].append(message.get("error", {}).get("message") or "answered")
            if len(ASKED["answers"]) == 3:
                send({"id": ASKED["call"], "result": text("; ".join(ASKED["answers"]))})
        elif method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "plain", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            send({"id": number, "result": result})
        elif method == "notifications/cancelled":
            CANCELLED.append(params.get("requestId"))
        elif method == "tools/list":
            send({"id": number, "result": {"tools": TOOLS}})
        elif method == "tools/call" and params["name"] == "refuses":
            send({"id": number, "error": {"code": -32603, "message": "out of order"}})
        elif method == "tools/call":
            meta: dict[str, Any] = params.get("_meta") or {}
            token: object = meta.get("progressToken")
            if (result := call(number, params["name"], params.get("arguments") or {}, token)) is not None:
                send({"id": number, "result": result})
        elif number is not None:
            send({"id": number, "error": {"code": -32601, "message": f"unknown method {method}"}})


def flood() -> None:
    while True:
        os.write(2, b"complaint " * 10_000)
        time.sleep(0.001)


for mode in MODES:
    if mode.startswith("tools="):
        with open(mode.removeprefix("tools="), encoding="utf-8") as source:
            TOOLS[:] = json.load(source)
main()
