"""Lines of Codex's app server, split at any place."""

import asyncio
from types import SimpleNamespace
from typing import Any

from contextc._json import JSONObject, encode
from contextc.providers.codex.app_server import AppServer


def test_lines_of_any_length_are_put_together_from_their_pieces() -> None:
    """A result of a tool may have megabytes: its line comes in many pieces, and others share the last one."""
    answers: list[JSONObject] = [{"x": "a" * 3_000_000}, {"x": "b"}, {"x": "c" * 70_000}, {"x": ""}]

    async def main() -> list[JSONObject]:
        output, complaints = asyncio.StreamReader(), asyncio.StreamReader()
        lines = [encode({"id": number, "result": answer}) for number, answer in enumerate(answers)]
        lines.insert(1, b"this is no JSON")
        output.feed_data(b"\n".join(lines) + b"\n")
        output.feed_eof()
        complaints.feed_eof()

        async def wait() -> int:
            return 0

        process: Any = SimpleNamespace(stdout=output, stderr=complaints, returncode=None, wait=wait)
        server = AppServer(process)
        loop = asyncio.get_running_loop()
        waiting = server._waiting  # pyright: ignore[reportPrivateUsage]
        waiting.update({number: loop.create_future() for number in range(len(answers))})
        return await asyncio.gather(*waiting.values())

    assert asyncio.run(main()) == answers
