"""Install the wheel as users do, in new environments, and run every line of the README there.

    python -m tests.install_trial [--python 3.12] [--only installers|readme|extras|runners] [--extra web]

It builds the wheel, and then:
1. installs it with pip and with uv on every Python from 3.11 that it finds, imports it, and runs the README's examples
2. runs the commands of the README on each of them, with a program of ours in place of Claude Code, and of its API
3. installs each extra by itself, and imports what it is for
4. runs `contextc --help` with `uvx` and with `pipx`, which install nothing

It prints the time and the size of each install. The times contain downloads of what is not in a cache.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from urllib.request import urlopen

from tests.doc_examples import BLOCK
from tests.fake_vendors import KEY, FakeVendors, Scripted
from tests.package_environments import ROOT, UV

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
SECONDS = 300
README = ROOT / "README.md"
TRIED = {
    "cli": ("rich", "contextc.cli"),
    "web": ("uvicorn", "contextc.web.application"),
    "watch": ("cryptography", "contextc.proxy.forward_proxy"),
    "anthropic": ("anthropic", "contextc.providers.anthropic"),
    "openai": ("openai", "contextc.providers.openai"),
    "gemini": ("google.genai", "contextc.providers.gemini"),
    "bedrock": ("boto3", "contextc.providers.bedrock"),
    "mistral": ("openai", "contextc.providers.openai"),
    "ollama": ("ollama", "contextc.providers.ollama"),
    "claude-code": ("claude_agent_sdk", "contextc.providers.claude_code.client"),
    "codex": ("openai_codex", "contextc.providers.codex.client"),
    "mcp": ("mcp", "contextc.mcp.connection"),
    "local": ("xllamacpp", "contextc.providers.local"),
    "postgres": ("psycopg", "contextc.store.postgres"),
    "worker": ("procrastinate", "contextc.worker"),
    "tokens": ("splintr", "contextc.models.tokens"),
    "prices": ("genai_prices", "contextc.models"),
    "resources": ("psutil", "contextc.triggers"),
    "telemetry": ("opentelemetry", "contextc.telemetry"),
    "all": ("openai", "contextc"),
}
"""For each extra, a module that it installs, and what of contextc uses it."""
CLIENT = """
import json, os, urllib.request
body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
headers["x-api-key"] = os.environ["ANTHROPIC_API_KEY"]
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
    print(json.load(reply)["content"][0]["text"])
"""
"""What runs in place of `claude`: it calls the address in its environment."""


class Failed(Exception):
    """Something that a user would do did not work."""


def run(
    command: Sequence[str | Path], folder: Path, expect: int = 0, variables: Mapping[str, str] | None = None
) -> str:
    """Run a command in a folder that is also its home. Return what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONTEXTC_", "XDG_", "VIRTUAL_"))}
    kept.pop("PYTHONPATH", None)
    caches = {"UV_CACHE_DIR": _cache("UV_CACHE_DIR", "uv"), "PIP_CACHE_DIR": _cache("PIP_CACHE_DIR", "pip")}
    environment = {**kept, **caches, "HOME": str(folder), "PYTHONWARNINGS": "default", **(variables or {})}
    words = [str(each) for each in command]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode != expect:
        raise Failed(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout + done.stderr


def _cache(variable: str, name: str) -> str:
    return os.environ.get(variable) or str(Path.home() / ".cache" / name)


def find_pythons() -> dict[str, str]:
    """Return the Pythons of this machine by version: those on the path, of pyenv and of uv."""
    folders = [Path(each) for each in os.environ["PATH"].split(os.pathsep)]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"), reverse=True)
    folders += sorted(Path.home().glob(".local/share/uv/python/*/bin"), reverse=True)
    found: dict[str, str] = {}
    for version in VERSIONS:
        for file in (folder / f"python{version}" for folder in folders):
            if file.exists() and _is_usable(file, version):
                found[version] = str(file)
                break
    return found


def _is_usable(python: Path, version: str) -> bool:
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def make(folder: Path, python: str, installer: str) -> Path:
    """Make an environment with nothing but Python, and pip if that is to install. Return its Python."""
    if installer == "uv":
        run([UV, "venv", "--quiet", "--python", python, folder / "venv"], folder)
    else:
        run([python, "-m", "venv", folder / "venv"], folder)
    return folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"


def install(python: Path, installer: str, folder: Path, *what: str) -> str:
    """Install with pip or uv. Return the time, and the size of what is new."""
    before, began = _size(folder / "venv"), time.perf_counter()
    if installer == "uv":
        run([UV, "pip", "install", "--quiet", "--python", python, *what], folder)
    else:
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what], folder)
    seconds = time.perf_counter() - began
    return f"{seconds:6.1f} s {(_size(folder / 'venv') - before) / 1e6:7.1f} MB"


def _size(folder: Path) -> int:
    """Return the bytes of all files. uv links them to its cache, and compiles nothing before it is imported."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file() and not each.is_symlink())


def try_core(python: str, installer: str, wheel: str) -> str:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        own = make(folder, python, installer)
        figures = install(own, installer, folder, wheel)
        run([own, "-I", "-W", "error", "-c", "import contextc as cc; cc.Agent, cc.__version__"], folder)
        examples = run([own, "-I", ROOT / "tests" / "doc_examples.py", README], folder).strip()
        told = run([own.with_name("contextc")], folder, expect=1)
        if "pip install 'contextc[cli]'" not in told:
            raise Failed(f"contextc without its extra printed: {told}")
        return f"{figures}  {examples} examples of the README"


def readme_blocks(kind: str) -> list[str]:
    return [block for found, block in BLOCK.findall(README.read_text(encoding="utf-8")) if found == kind]


def readme_commands() -> Iterator[tuple[int, str]]:
    """Return the commands of the README with the number of their block, without comments."""
    for number, block in enumerate(readme_blocks("")):
        for line in block.splitlines():
            if command := shlex.join(shlex.split(line, comments=True)):
                yield number, command


def try_readme(python: str, wheel: str) -> Iterator[str]:
    """Run every command of the README, each block in an environment of its own."""
    with TemporaryDirectory() as temporary, FakeVendors(Scripted(["Hello!"] * 9)) as vendors:
        api = {"ANTHROPIC_BASE_URL": vendors.url("anthropic"), "ANTHROPIC_API_KEY": KEY}
        places: dict[int, tuple[Path, Path]] = {}
        for number, command in readme_commands():
            if number not in places:
                folder = Path(temporary) / str(number)
                folder.mkdir()
                places[number] = folder, make(folder, python, "uv")
                (folder / "claude").write_text(f"#!{places[number][1]}\n{CLIENT}")
                (folder / "claude").chmod(0o755)
            folder, own = places[number]
            figures = run_command(command, folder, own, wheel, api)
            yield f"$ {command}  {figures}".rstrip()
        folder = Path(temporary) / "key"
        folder.mkdir()
        own = make(folder, python, "uv")
        figures = install(own, "uv", folder, f"{wheel}[anthropic]")
        for block in readme_blocks("py"):
            answer = run([own, "-I", "-c", block], folder, variables=api).strip()
            if answer != "Hello!":
                raise Failed(f"the README's example with a key printed {answer!r}")
            yield f"an answer with a key  {figures}"


def run_command(command: str, folder: Path, own: Path, wheel: str, api: Mapping[str, str]) -> str:
    """Run a command of the README: with the wheel in place of a clone, and without a browser."""
    words = shlex.split(command)
    path = os.pathsep.join([str(folder), str(own.parent), os.environ["PATH"]])
    match words:
        case ["pip", "install", *what]:
            return install(own, "uv", folder, *(each.replace(".[", f"{wheel}[") for each in what))
        case ["contextc", "serve", *options]:
            options = [each for each in options if each != "--open"]
            return load_pages([own.with_name("contextc"), "serve", "--port", "0", *options], folder)
        case ["contextc", "demo"]:
            return load_pages([own.with_name("contextc"), "demo", "--no-open"], folder)
        case ["contextc", "watch", *rest]:
            printed = run(["contextc", "watch", "--no-web", *rest], folder, variables={"PATH": path, **api})
            listed = run(["contextc", "list"], folder, variables={"PATH": path})
            if "Hello!" not in printed or not listed.strip():
                raise Failed(f"{command}: nothing was recorded\n{printed}\n{listed}")
            return "recorded"
        case ["contextc", "chat", *options]:
            answer = run(["contextc", "chat", *options, "--prompt", "Say hello."], folder, variables={"PATH": path})
            return f"answered {len(answer.split())} words"
        case _:
            printed = run(words, folder, variables={"PATH": path})
            return f"printed {len(printed.splitlines())} lines"


def load_pages(command: Sequence[str | Path], folder: Path) -> str:
    """Start a command with a server, load the page and modules of it, and stop it with Ctrl-C."""
    environment = {**os.environ, "HOME": str(folder)}
    environment.pop("PYTHONPATH", None)
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        watchdog = Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            address = None
            for line in process.stdout:
                if file := re.search(r"file://(\S+)", line):  # a page that only its owner can read, with the address
                    line = Path(file[1]).read_text()
                if address := re.search(r"http://[\d.]+:\d+", line):
                    break
            if address is None:
                raise Failed(f"{command} printed no address")
            for path in ("/", "/app/main.js", "/vendor/preact.js"):
                with urlopen(address[0] + path, timeout=60) as answer:
                    if answer.status != 200 or not answer.read():
                        raise Failed(f"{command}: {path} is empty")
            return f"served after {time.perf_counter() - began:.1f} s"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            watchdog.cancel()


def try_extra(extra: str, python: str, wheel: str) -> str:
    """Install an extra, with pip where uv does not find a package, and import what it is for."""
    with TemporaryDirectory() as temporary:
        folder, by = Path(temporary), "uv"
        try:
            own = make(folder, python, by)
            figures = install(own, by, folder, f"{wheel}[{extra}]")
        except Failed:
            shutil.rmtree(folder / "venv")
            by = "pip"
            own = make(folder, python, by)
            figures = install(own, by, folder, f"{wheel}[{extra}]")
        run([own, "-I", "-c", f"import {', '.join(TRIED[extra])}"], folder)
        return f"{figures}  {by}"


def try_runners(python: str, wheel: str) -> Iterator[tuple[str, str]]:
    """Run the command without an install: with uv's and with pipx' environments."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        began = time.perf_counter()
        printed = run([UV, "tool", "run", "--python", python, "--from", f"{wheel}[cli]", "contextc", "--help"], folder)
        yield "uvx", f"{time.perf_counter() - began:6.1f} s  {len(printed.splitlines())} lines of help"
        own = make(folder, python, "pip")
        install(own, "pip", folder, "pipx")
        began = time.perf_counter()
        printed = run([own.with_name("pipx"), "run", "--spec", f"{wheel}[cli]", "contextc", "--help"], folder)
        yield "pipx", f"{time.perf_counter() - began:6.1f} s  {len(printed.splitlines())} lines of help"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.install_trial")
    parser.add_argument("--python", action="append", help="a version to try, such as 3.12 (default: all)")
    parser.add_argument("--only", action="append", choices=("installers", "readme", "extras", "runners"))
    parser.add_argument("--extra", action="append", choices=[*TRIED], help="an extra to try (default: all)")
    chosen = parser.parse_args(arguments)
    parts = chosen.only or ["installers", "readme", "extras", "runners"]
    pythons = {name: each for name, each in find_pythons().items() if name in (chosen.python or VERSIONS)}
    missing = [name for name in chosen.python or VERSIONS[:-1] if name not in pythons]
    failed = 0

    def report(name: str, result: str) -> None:
        print(f"{name:24} {result}", flush=True)

    def fail(name: str, reason: Failed | subprocess.TimeoutExpired) -> None:
        nonlocal failed
        failed += 1
        report(name, f"FAILED {reason}")

    with TemporaryDirectory() as temporary:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", temporary]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        wheel = str(next(Path(temporary).glob("*.whl")))
        report("wheel", f"{Path(wheel).stat().st_size / 1e6:.1f} MB")
        for name in missing:
            report(f"Python {name}", "not on this machine: not tried")
        for version, python in pythons.items():
            for installer in ("pip", "uv") if "installers" in parts else ():
                try:
                    report(f"Python {version}, {installer}", try_core(python, installer, wheel))
                except (Failed, subprocess.TimeoutExpired) as reason:
                    fail(f"Python {version}, {installer}", reason)
            if "readme" in parts:
                try:
                    for line in try_readme(python, wheel):
                        report(f"Python {version}, README", line)
                except (Failed, subprocess.TimeoutExpired) as reason:
                    fail(f"Python {version}, README", reason)
        first = next(iter(pythons.values()))
        for extra in (chosen.extra or TRIED) if "extras" in parts else ():
            try:
                report(f"[{extra}]", try_extra(extra, first, wheel))
            except (Failed, subprocess.TimeoutExpired) as reason:
                fail(f"[{extra}]", reason)
        if "runners" in parts:
            try:
                for name, result in try_runners(first, wheel):
                    report(name, result)
            except (Failed, subprocess.TimeoutExpired) as reason:
                fail("uvx, pipx", reason)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
