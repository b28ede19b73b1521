"""Error texts of Claude Code, or of the API behind it.

Claude Code drops many invalid inputs silently. Those have no text here.
"""

MALFORMED = "{where}: {what}"
INVALID_SESSION_ID = "Error: Invalid session ID. Must be a valid UUID."
ID_FORM = "API Error: 400 {where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
SIGNATURE = "API Error: 400 {where}: Invalid `signature` in `thinking` block"
WRONG_ROLE = "API Error: 400 {where}: `{kind}` blocks can only be in `{role}` messages"
TOOL_NAME = "API Error: 400 {where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
DUPLICATE_TOOL = "API Error: 400 tools: Tool names must be unique."
