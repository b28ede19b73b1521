"""Client for Claude Code, through Anthropic's Agent SDK, which contains the program.

Claude Code stores the session, so only new messages are sent. A call uses a running program that is at the call's
cursor, else a new one that resumes the session from its transcript. Messages of other agents are written into that
transcript as if they had been part of the session. A session never contains messages that the ledger does not know: it
is first copied up to the cursor, under a new session id.
"""

from contextc.providers.claude_code.client import ClaudeCodeEndpoint, event_failure
from contextc.providers.claude_code.sessions import ClaudeSessions
from contextc.providers.registry import Provider

__all__ = ["ClaudeCodeEndpoint", "ClaudeSessions", "event_failure", "open"]


def open(provider: Provider, **options: object) -> ClaudeCodeEndpoint:
    return ClaudeCodeEndpoint(provider, **options)
