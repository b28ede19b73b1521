"""Client for Codex through its app-server, a program in the package `openai-codex` that stores threads and runs tools.

The package's own client is not used. It blocks a thread per call, requests approvals on the thread that reads all
events, and builds objects from events that would have to be converted back. This client uses the same JSON-RPC
protocol with the same program (`app_server`).

One program serves all calls of an endpoint. A call is one turn of a thread (`turns`). The thread is started, resumed,
or reverted to its state after the last stored reply (`threads`). With a custom URL, the program uses only that URL and
the provider's key. Otherwise the user's own configuration and login apply (`call_options`).

Sandbox and approval policy are also the user's, unless the request sets `sandbox` and `approvalPolicy`. Approval
requests go to the call's host. Without a host they are declined (`turns`).
"""

from contextc.providers.codex.app_server import event_failure
from contextc.providers.codex.client import CodexEndpoint
from contextc.providers.registry import Provider

__all__ = ["CodexEndpoint", "event_failure", "open"]


def open(provider: Provider, **options: object) -> CodexEndpoint:
    return CodexEndpoint(provider, **options)  # pyright: ignore[reportArgumentType] - checked there
