"""The agents of a fleet, for `contextc worker agents:agents`, run in this folder."""

import contextc as cc


def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@cc.tool(approval=True)
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent {len(text)} characters to {to}"


def assistant(store: cc.Store) -> cc.AgentExecutor:
    return cc.AgentExecutor(
        store,
        "anthropic:claude-opus-5-5",
        name="assistant",
        tools=[word_count, send_mail],
        triggers=cc.default_triggers(),
        instructions="Be brief.",
    )


agents = {"assistant": assistant}
