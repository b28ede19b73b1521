"""Error messages of the time: from the API that had `function_call`, and from version 4 of the AI SDK."""

MALFORMED = "Invalid value for '{where}': {what}"
NO_MESSAGES = "[] is too short - 'messages'"
EMPTY = "'{where}.content': text content must be non-empty"
ARGUMENTS = "'{where}.function_call.arguments': expected a string, but got {kind} instead."
NO_NAME = "Missing parameter 'name': messages with role 'function' must have a 'name'."
WRONG_ROLE = "'{where}': only messages with role 'assistant' can have a function call."
UNANSWERED = "An assistant message with 'function_call' must be followed by a message with role 'function': {name}"
INVOCATION = "AI_MessageConversionError: ToolInvocation must have a result: {invocation}"
ORPHAN = "Messages with role 'function' must be a response to a preceding message with 'function_call': {name}"
DUPLICATE_RESULT = "The function call {name} has been answered by an earlier message with role 'function'."
UNKNOWN_CHOICE = (
    "Invalid value for 'function_call': no function named '{name}' was specified in the 'functions' parameter."
)
