"""What Ollama says when it refuses a request. Its JSON is read into Go's types, so a wrong type is said in Go's words.

What it takes without a word and does not show the model, or what only the templates of some models refuse, has no
sentence of its own here.
"""

GO: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
"""What Go calls a value of JSON."""
MISSHAPEN = "{what}"
WRONG_TYPE = "json: cannot unmarshal {given} into Go {place} of type {expected}"
FIELD = "struct field ChatRequest.{where}"
ORPHAN = "Message has tool role, but there was no previous assistant message with a tool call!"
"""gpt-oss's own template, and others that were made after it."""
NOT_BASE64 = "illegal base64 data at input byte {byte}"
THINK = 'invalid think value: {value} (must be "high", "medium", "low", "max", true, or false)'
FORMAT = 'invalid format: {value}; expected "json" or a valid JSON Schema object'
OPTION = 'option "{name}" must be of {expected}'
TOP_LOGPROBS = "top_logprobs must be between 0 and 20"
