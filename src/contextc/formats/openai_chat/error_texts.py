"""Error messages that OpenAI returns for a rejected request. Other endpoints of this API return similar ones."""

MALFORMED = "{what}"
NO_MESSAGES = (
    "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
)
EMPTY_REPLY = "Invalid value for 'content': expected a string, got null."
EMPTY_LIST = "Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead."
UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: {ids}"
)
ORPHAN = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
DUPLICATE_RESULT = "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in {first} and {where}."
DUPLICATE_CALL_ID = "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in {where}."
ASSISTANT_ONLY = "Invalid parameter: only messages with role 'assistant' can have {what}."
ID_LENGTH = "Invalid '{where}': {what}."
TOO_LONG = (
    "string too long. Expected a string with maximum length {most}, but got a string with length {length} instead"
)
TOO_SHORT = "empty string. Expected a string with minimum length 1, but got an empty string instead"
PATTERN = "Invalid '{where}': string does not match pattern. Expected a string that matches the pattern '{pattern}'."
DUPLICATE_TOOL = "Invalid 'tools': tool names must be unique, but there are two called '{name}'."
UNKNOWN_CHOICE = "Invalid value for 'tool_choice': no function named '{name}' was specified in the 'tools' parameter."
NO_TOOLS = "Invalid value for '{setting}': '{setting}' is only allowed when '{needed}' are specified."
TOO_MANY = (
    "Invalid '{where}': array too long. Expected an array with maximum length {most}, but got an array with length "
    "{count} instead."
)
MISPLACED_MEDIA = (
    "Invalid '{where}'. Image URLs are only allowed for messages with role 'user', but this message with role '{role}' "
    "contains an image URL."
)
DAMAGED_REASONING = "Invalid '{where}': the encrypted content could not be verified."
NO_MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
NO_SAMPLING = (
    "Unsupported value: '{setting}' does not support {value} with this model. Only the default (1) value is supported."
)
TOOLS_AND_EFFORT = (
    "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'."
)
TEXT_ONLY = "Invalid content type. image_url is only supported by certain models."

TYPES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "an array",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
}
"""OpenAI's names of types."""
MISSING = "Missing required parameter: '{where}'."
WRONG_TYPE = "Invalid type for '{where}': expected {expected}, but got {given} instead."
WRONG_VALUE = "Invalid value: '{value}'. Supported values are: {known}."
UNKNOWN_PARAMETER = "Unknown parameter: '{where}'."
