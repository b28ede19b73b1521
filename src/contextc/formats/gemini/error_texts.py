"""Error texts of Google for refused requests, by cause."""

MALFORMED = "{what}"
UNKNOWN_NAME = "Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
WRONG_TYPE = "Invalid value at '{where}': {what}"
MISSING = "* GenerateContentRequest.{where}: this field is required."
NO_DATA = "* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field"
NO_CONTENTS = "* GenerateContentRequest.contents: contents is not specified"
NO_PARTS = "* GenerateContentRequest.{where}.parts: contents.parts must not be empty."
SECOND_FIELD = "Invalid value at '{where}' (oneof), oneof field 'data' is already set. Cannot set '{second}'"
INVALID_ROLE = "Please use a valid role: user, model."
CALL_PLACE = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESULT_PLACE = "Please ensure that function response turn comes immediately after a function call turn."
RESULT_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
WRONG_ROLE = "* GenerateContentRequest.{where}: `{kind}` parts can only be in a content with the role {role}."
SIGNATURE = "Corrupted thought signature."
UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}`, position {position}."
)
BASE64 = "Invalid value at '{where}.data' (TYPE_BYTES), Base64 decoding failed for \"{data}\""
FUNCTION_NAME = (
    "* GenerateContentRequest.{where}.name: Invalid function name. Must start with a letter or an underscore. Must be "
    "alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
)
DUPLICATE_FUNCTION = "Duplicate function declaration found: {name}"
UNKNOWN_CHOICE = "* GenerateContentRequest.{where}: there is no function declaration with the name {name}."
