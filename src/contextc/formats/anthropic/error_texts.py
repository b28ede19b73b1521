"""Error texts of Anthropic for refused requests, by cause."""

MALFORMED = "{where}: {what}"
MISSING = "Field required"
WRONG_TYPE = "Input should be a valid {kind}"
NO_MESSAGES = "messages: at least one message is required"
EMPTY_CONTENT = "{where}: all messages must have non-empty content except for the optional final assistant message"
BLANK_TEXT = "messages: text content blocks must contain non-whitespace text"
UNANSWERED = (
    "{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. "
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
RESULTS_FIRST = (
    "{where}: Did not find {count} `tool_result` block(s) at the beginning of this message. Messages following "
    "`tool_use` blocks must begin with a matching number of `tool_result` blocks."
)
ORPHAN_RESULT = (
    "{where}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a "
    "corresponding `tool_use` block in the previous message."
)
DUPLICATE_RESULT = "{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
DUPLICATE_CALL_ID = "messages: `tool_use` ids must be unique"
WRONG_ROLE = "{where}: `{kind}` blocks can only be in `{role}` messages"
ID_FORM = "{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
SIGNATURE = "{where}: Invalid `signature` in `thinking` block"
SYSTEM_PLACE = "{where}: role 'system' must follow a user message and be last or followed by an assistant message"
SYSTEM_ROLE = "{where}: role 'system' is not supported on this model"
TOO_MANY_BREAKPOINTS = "A maximum of 4 blocks with cache_control may be provided. Found {count}."
MISPLACED_BREAKPOINT = "{where}.cache_control: {what}"
TOOL_NAME = "{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
DUPLICATE_TOOL = "tools: Tool names must be unique."
UNKNOWN_CHOICE = "tool_choice.name: Tool '{name}' not found in provided tools"
TRAILING_SPACE = "messages: final assistant content cannot end with trailing whitespace"
THINKING_FIRST = (
    "{where}.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final "
    "`assistant` message must start with a thinking block."
)
MAX_TOKENS = "max_tokens: Field required"
NO_PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."
FORCED_CHOICE = 'tool_choice: type "tool" and "any" are not supported for this model.'
UNKNOWN_FIELD = "{where}: Extra inputs are not permitted"
SERVER_ORPHAN = (
    "{where}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. Each `{kind}` block must have a corresponding "
    "`server_tool_use` block before it."
)
