"""Error texts of Claude Code, or of the API behind it.

Claude Code drops many invalid inputs silently. Those have no text here.
"""

from contextc.formats.anthropic import error_texts as anthropic

MALFORMED = "{where}: {what}"
INVALID_SESSION_ID = "Error: Invalid session ID. Must be a valid UUID."
API_ERROR_PREFIX = "API Error: 400 "
ID_FORM = API_ERROR_PREFIX + anthropic.ID_FORM
SIGNATURE = API_ERROR_PREFIX + anthropic.SIGNATURE
WRONG_ROLE = API_ERROR_PREFIX + anthropic.WRONG_ROLE
TOOL_NAME = API_ERROR_PREFIX + anthropic.TOOL_NAME
DUPLICATE_TOOL = API_ERROR_PREFIX + anthropic.DUPLICATE_TOOL
