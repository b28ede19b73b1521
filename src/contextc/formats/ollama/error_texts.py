"""Error messages that Ollama returns for a rejected request. Its JSON is decoded into Go types, hence Go's wording.

Some faults have no message here. Ollama accepts them silently and does not show them to the model, or only the
templates of some models reject them.
"""

GO_KINDS: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
"""Go's names for JSON types."""
MALFORMED = "{what}"
WRONG_TYPE = "json: cannot unmarshal {given} into Go {place} of type {expected}"
FIELD = "struct field ChatRequest.{where}"
ORPHAN = "Message has tool role, but there was no previous assistant message with a tool call!"
"""From the template of gpt-oss, and templates derived from it."""
NOT_BASE64 = "illegal base64 data at input byte {byte}"
THINK = 'invalid think value: {value} (must be "high", "medium", "low", "max", true, or false)'
FORMAT = 'invalid format: {value}; expected "json" or a valid JSON Schema object'
OPTION = 'option "{name}" must be of {expected}'
TOP_LOGPROBS = "top_logprobs must be between 0 and 20"
