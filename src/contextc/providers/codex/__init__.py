"""Codex, through its app-server: a program of OpenAI's that keeps threads, runs tools by itself, and is found in the
package `openai-codex`.

The package's own client is not used: it blocks a thread for every call, asks for approval on the thread that reads
everybody's events, and builds classes from events that then had to be taken apart again. What is spoken is the same
JSON-RPC, to the same program (`server`).

One program serves all calls of an endpoint. A call is a turn of a thread (`turns`): begun, gone on with, or brought
back to where it stood after the last reply that was stored (`threads`). Where an address is given, the program is told
to ask there, with the key of the provider, and nowhere else; without one the user's own configuration and login hold
(`launching`). Sandbox and approvals are the user's too, unless the request says `sandbox` and `approvalPolicy`; what
needs approval is put to the call's host, and declined where there is none (`hosting`).
"""

from contextc.providers.codex.line import CodexEndpoint
from contextc.providers.named import Provider


def open(provider: Provider, **options: object) -> CodexEndpoint:
    return CodexEndpoint(provider, **options)  # pyright: ignore[reportArgumentType] - it looks at them itself
