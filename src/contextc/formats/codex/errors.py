"""What Codex says of a request that it does not take, by what is wrong with it. Of other faults it says nothing."""

MISSHAPEN = "Invalid request: {what}"
NO_ID = "Invalid request: missing field `id`"
THREAD_ID = "invalid thread id: {problem}"
TOOL_NAME = "dynamic tool name must match ^[a-zA-Z0-9_-]+$ to match Responses API: {name}"
DOUBLED = "duplicate dynamic tool name: {name}"
