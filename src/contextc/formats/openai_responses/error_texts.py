"""Error messages that OpenAI returns for a rejected request to the Responses API."""

MALFORMED = "{what}"
NO_INPUT = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
WRONG_BLOCK_TYPE = "Invalid value: '{kind}'. Supported values are: {supported}."
UNANSWERED = "No tool output found for {kind} {id}."
ORPHAN = "No tool call found for {kind} with call_id {id}."
DUPLICATE_RESULT = "Duplicate tool output found for {kind} with call_id {id}."
CALL_ID = "Invalid '{where}.call_id': string {problem}. Expected a string with {wanted}, but got {length} instead."
LONE_REASONING = "Item '{id}' of type 'reasoning' was provided without its required following item."
NOT_STORED = (
    "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set "
    "to true, or remove this item from your input."
)
ENCRYPTED = "The encrypted content {content} could not be verified. Reason: Encrypted content could not be decrypted."
DUPLICATE_ITEM = "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
ID_FORM = "Invalid '{where}.id': '{id}'. Expected an ID that begins with '{prefix}'."
TOOL_NAME = (
    "Invalid '{where}.name': string does not match pattern. Expected a string that matches the pattern "
    "'^[a-zA-Z0-9_-]+$', of at most 128 characters."
)
UNKNOWN_CHOICE = "Tool choice '{kind}' not found in 'tools' parameter."
TWO_HISTORIES = (
    "Mutually exclusive parameters: 'conversation' and 'previous_response_id'. Ensure you are only providing one of: "
    "'previous_response_id' or 'conversation'."
)
TOO_SHORT = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit} instead."
NO_SAMPLING = "Unsupported parameter: '{setting}' is not supported with this model."
UNKNOWN_PARAMETER = "Unknown parameter: '{where}'."
TRIGGER_NOT_LAST = "Invalid '{where}': a 'compaction_trigger' item must be the last item of 'input'."
