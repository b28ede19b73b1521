"""Error texts of Codex for refused requests, by cause. It reports no other faults."""

MALFORMED = "Invalid request: {what}"
NO_ID = "Invalid request: missing field `id`"
INVALID_THREAD_ID = "invalid thread id: {problem}"
TOOL_NAME = "dynamic tool name must match ^[a-zA-Z0-9_-]+$ to match Responses API: {name}"
DUPLICATE_TOOL = "duplicate dynamic tool name: {name}"
