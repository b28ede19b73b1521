"""Error messages that Mistral returns for a rejected request.

pydantic rejects malformed values (status 422) and states the position of each fault. The validators that Mistral
publishes as `mistral-common` reject wrong order, ids and names (status 400, with a four-digit code).
"""

MALFORMED = "{what}"
MISSING = "{where}: Field required"
WRONG_TYPE = "{where}: Input should be a valid {kind}"
WRONG_TAG = "{where}: Input tag '{value}' found using '{field}' does not match any of the expected tags: {known}"
EXTRA = "{where}: Extra inputs are not permitted"
NO_MESSAGES = "Conversation must have at least one message"
EMPTY_REPLY = "Assistant message must have either content or tool_calls, but not none."
WRONG_FIRST_ROLE = "Conversation must start with a user message or system message"
UNANSWERED = "Not the same number of function calls and responses"
UNEXPECTED_ID = "Unexpected tool call id {id} in tool results"
UNEXPECTED_ROLE = "Unexpected role '{role}' after role '{before}'"
DUPLICATE_RESULT = "Duplicate tool call id {id} in tool results"
DUPLICATE_CALL_ID = "Duplicate tool call id {id} in assistant message"
ID_FORM = "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
NAME_FORM = (
    "Function name was {name} but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length "
    "of 64."
)
WRONG_LAST_ROLE = "Expected last role User or Tool (or Assistant with prefix True) for serving but got {role}"
PREFIX_NOT_LAST = "Assistant message with prefix True must be last message"
ONE_OF = "{where}: Input should be {known}"
MISPLACED = "Unexpected content chunk types in {role} message: ['{chunk}']"
