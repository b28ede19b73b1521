"""Claude Code, through Anthropic's Agent SDK, which brings the program: it keeps the session, and is sent what is new.

A call goes to a running program where one stands at the call's cursor, else to a new one that resumes the session from
its record. What was said elsewhere is written into that record as if it had been said there. A session never holds
what the ledger does not know: it goes back to the cursor first, in a session of a new name.
"""

from contextc.providers.claude_code.line import ClaudeCodeEndpoint
from contextc.providers.named import Provider


def open(provider: Provider, **options: object) -> ClaudeCodeEndpoint:
    return ClaudeCodeEndpoint(provider, **options)
