"""Record sessions of real clients against the fake vendors, for test_recorded_sessions.py. No test runs this.

    .venv/bin/python -m tests.observation.record_sessions FOLDER [CLIENT …]

Clients run with a temporary home and the fake key, and reach nothing but the loopback server. A prompt contains a mark,
such as `#m1`, that selects the scripted replies; marks of sub-agents are `#a1`, `#a2`. Frameworks run in another
environment: `FRAMEWORKS_PYTHON` is its Python, `AI_SDK_FOLDER` a folder with the npm packages of tests/sdk_comparison.
Long texts of the vendors are replaced by filler of the same length; see `fill` in session_recorder.py.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.observation.record_cli_sessions import record_claude_code, record_codex
from tests.observation.record_sdk_sessions import (
    record_anthropic,
    record_frameworks,
    record_gemini,
    record_mistral,
    record_ollama,
    record_openai,
)
from tests.observation.session_recorder import Recorder, log

CLIENTS: dict[str, Callable[[Recorder, Path], None]] = {
    "claude_code": record_claude_code,
    "codex": record_codex,
    "anthropic": record_anthropic,
    "openai": record_openai,
    "gemini": record_gemini,
    "mistral": record_mistral,
    "ollama": record_ollama,
    "frameworks": record_frameworks,
}


def main(target: str, *names: str) -> None:
    for name in names or CLIENTS:
        recorder = Recorder(name)
        with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
            CLIENTS[name](recorder, Path(folder))
        recorder.save(Path(target))
        log(name, len(recorder.lines), "requests")


if __name__ == "__main__":
    main(*sys.argv[1:])
