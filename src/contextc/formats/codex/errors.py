"""Error texts of Codex for refused requests, by cause. It reports no other faults."""

MISSHAPEN = "Invalid request: {what}"
NO_ID = "Invalid request: missing field `id`"
THREAD_ID = "invalid thread id: {problem}"
TOOL_NAME = "dynamic tool name must match ^[a-zA-Z0-9_-]+$ to match Responses API: {name}"
DOUBLED = "duplicate dynamic tool name: {name}"
