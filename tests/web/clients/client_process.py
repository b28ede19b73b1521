"""The client libraries in a separate process, which read a stream and return the result.

Their packages are in the same package-lock.json as those of the oracle, which is installed once.
"""

import json
import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from contextc._json import JSONObject
from tests.sdk_comparison.ai_sdk_process import find_node, installed

HERE = Path(__file__).parent


class ClientProcess:
    """A running judge; one line in, one line out."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, node: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._into, self._out = process.stdin, process.stdout
        self.folder, self.node = folder, node

    def _ask(self, **asked: object) -> JSONObject:
        self._into.write(json.dumps(asked) + "\n")
        self._into.flush()
        line = self._out.readline()
        assert line, "the judge has ended; what it said stands in the captured stderr"
        return cast(JSONObject, json.loads(line))

    def agui(self, events: Sequence[JSONObject]) -> str:
        """What AG-UI's own verifier has to say against a stream; nothing, where it takes it."""
        answer = self._ask(kind="agui", events=events)
        return cast(str, answer.get("error", "")) or ("" if answer["count"] == len(events) else "some were dropped")

    def vercel(self, chunks: Sequence[JSONObject]) -> JSONObject:
        """The message that the AI SDK makes of a stream, with the errors that it found in it."""
        return self._ask(kind="vercel", chunks=chunks)


@contextmanager
def running() -> Generator[ClientProcess]:
    node = find_node()
    folder = installed(node)
    program = [str(node.folder / "node"), str(HERE / "judge.mjs"), str(folder)]
    quiet = {"PATH": os.environ.get("PATH", "")}
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet, cwd=folder, encoding="utf-8"
    ) as process:
        try:
            yield ClientProcess(process, folder, node.folder / "node")
        finally:
            process.kill()
