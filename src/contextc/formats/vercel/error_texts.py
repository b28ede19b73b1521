"""Error messages of the AI SDK for a rejected request; where it reports none, those of the provider behind it.

Version 7 does not validate messages against its own schema, and later failures differ between providers. So for
malformed messages these are the errors of `modelMessageSchema` and `validateUIMessages`.
"""

MALFORMED = "{where}: {what}"
BAD_ROLE = (
    "AI_InvalidMessageRoleError: Invalid message role: '{role}'. Must be one of: "
    '"system", "user", "assistant", "tool".'
)
NO_INPUT = "{where}.input: Invalid input: expected nonoptional, received undefined"
BAD_DATA = "AI_InvalidDataContentError: {what}"
NO_MESSAGES = "AI_InvalidPromptError: Invalid prompt: messages must not be empty"
EMPTY = "{where}: Message must contain at least one part"
SYSTEM_AMONG_MESSAGES = (
    "AI_InvalidPromptError: Invalid prompt: System messages are not allowed in the prompt or messages fields. "
    "Use the instructions option instead."
)
TWO_PROMPTS = "AI_InvalidPromptError: Invalid prompt: prompt and messages cannot be defined at the same time"
UNANSWERED = "AI_MissingToolResultsError: Tool result is missing for tool call {id}."
ORPHAN = "No tool call found for function call output with call_id {id}."
DUPLICATE_RESULT = "each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
WRONG_ROLE = "{where}: Invalid input"
UNKNOWN_APPROVAL = (
    'AI_InvalidToolApprovalError: Tool approval response references unknown approvalId: "{id}". '
    "No matching tool-approval-request found in message history."
)
SIGNATURE = "{where}: Invalid `signature` in `thinking` block"
UNKNOWN_CHOICE = "Tool '{name}' not found in provided tools"
