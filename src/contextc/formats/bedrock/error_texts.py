"""Error texts of Bedrock for refused requests, by cause.

Some are errors of the model, which Bedrock passes on with a prefix.
"""

from contextc.formats.anthropic import error_texts as anthropic

MODEL_ERROR_PREFIX = "The model returned the following errors: "
MALFORMED = "The value at {where} is invalid. {what}"
NO_MESSAGES = (
    "A conversation must start with a user message. Try again with a conversation that starts with a user message."
)
EMPTY_CONTENT = (
    "The content field in the Message object at {where} is empty. Add a ContentBlock object to the content field and "
    "try again."
)
BLANK_TEXT = "The text field in the ContentBlock object at {where} is blank. Add text to the text field, and try again."
ROLES_MUST_ALTERNATE = (
    "A conversation must alternate between user and assistant roles. Make sure the conversation alternates between "
    "user and assistant roles and try again."
)
UNANSWERED = "Expected toolResult blocks at {where} for the following Ids: {ids}"
RESULTS_FIRST = MODEL_ERROR_PREFIX + anthropic.RESULTS_FIRST
ORPHAN_RESULT = "The number of toolResult blocks at {where} exceeds the number of toolUse blocks of previous turn."
DUPLICATE_RESULT = "The toolResult blocks at {where} contain duplicate Ids: {id}"
DUPLICATE_CALL_ID = "The toolUse blocks at {where} contain duplicate Ids: {id}"
WRONG_ROLE = MODEL_ERROR_PREFIX + anthropic.WRONG_ROLE
CONSTRAINT = "1 validation error detected: Value '{value}' at '{where}' failed to satisfy constraint: {what}"
EMPTY_ERROR = "The content field at {where} cannot be empty when status value is error."
NOT_AN_OBJECT = "The format of the value at {where} is invalid. Provide a json object for the field and try again."
NO_TOOLS = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
DUPLICATE_TOOL = MODEL_ERROR_PREFIX + anthropic.DUPLICATE_TOOL
UNKNOWN_CHOICE = MODEL_ERROR_PREFIX + anthropic.UNKNOWN_CHOICE
DOCUMENT_WITHOUT_TEXT = "A text block must be included when using documents."
DOCUMENT_NAME = (
    "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses, and "
    "square brackets. The name can't contain more than one consecutive whitespace character."
)
DUPLICATE_DOCUMENT = "Messages can't contain duplicate document names. Rename the document and retry your request."
SYSTEM_PLACE = MODEL_ERROR_PREFIX + anthropic.SYSTEM_PLACE
NO_SIGNATURES = (
    "This model doesn't support the reasoningContent.reasoningText.signature field. Remove "
    "reasoningContent.reasoningText.signature and try again."
)
UNKNOWN_NAME = 'Unknown parameter in {where}: "{name}", must be one of: {known}'
TOO_MANY_DOCUMENTS = "You can't include more than 5 documents in a request."
TOO_MANY_IMAGES = MODEL_ERROR_PREFIX + "{where}: too many images and documents: {count} + 0 > 20"
SIGNATURE = MODEL_ERROR_PREFIX + anthropic.SIGNATURE
TOO_MANY_BREAKPOINTS = MODEL_ERROR_PREFIX + anthropic.TOO_MANY_BREAKPOINTS
MISPLACED_BREAKPOINT = (
    "Cache point cannot be inserted after reasoning block. Please remove the invalid cache point and try again."
)
