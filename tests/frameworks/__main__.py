"""Install each framework beside this project, and run its tests there.

    python -m tests.frameworks [NAME …] [--install] [-- PYTEST OPTIONS]

For each framework:
1. The resolver must choose the same release beside this project with all its extras as it chooses alone.
2. The framework and this project must be importable in one environment (`.cache/frameworks/NAME`).
3. The adapter, if there is one, must have no type errors against the release there.
4. The tests in `tests/frameworks/NAME` must pass there, if there are any. `--install` leaves 3 and 4 out.

A PostgreSQL is started for the tests, unless CONTEXTC_TEST_POSTGRES is the address of one.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.frameworks import ENVIRONMENTS, FRAMEWORKS, TESTS, Framework
from tests.package_environments import (
    ROOT,
    TEST_PACKAGES,
    Unavailable,
    make_environment,
    newest_release,
    project_requirements,
    resolve,
    run_tests,
    split_requirement,
)
from tests.stress.postgres_server import running_server

Report = Callable[[str], None]
ADAPTERS = ROOT / "src" / "contextc" / "adapters"
POSTGRES = "CONTEXTC_TEST_POSTGRES"
NO_TESTS = 5
"""The exit code of pytest if it found no tests."""


class Failed(Exception):
    """A framework that does not work beside this project."""


def check(name: str, options: Sequence[str], report: Report, *, only_install: bool = False) -> None:
    framework = FRAMEWORKS[name]
    compare_releases(framework, report)
    python = find_python(name)
    import_both(python, framework)
    if framework.has_adapter and not only_install:
        check_types(name, python, report)
    folder = TESTS / name
    if only_install or not any(folder.glob("test_*.py")):
        report(f"imported in {python}" if only_install else "imported; there are no tests")
        return
    report("imported; its tests follow")
    if (code := run_tests(python, [str(folder.relative_to(ROOT)), *options])) and code != NO_TESTS:
        raise Failed(f"its tests failed (exit code {code})")


def compare_releases(framework: Framework, report: Report) -> None:
    """Compare the releases that are chosen without and with this project and all of its extras."""
    alone = resolve(framework.packages)
    beside = resolve([*framework.packages, *project_requirements("all")])
    for package in framework.packages:
        name, _, _ = split_requirement(package)
        report(f"{name} {alone[name]}{_not_installable(name, alone[name])}")
        if beside[name] != alone[name]:
            raise Failed(f"{name}: {alone[name]} alone, but {beside[name]} beside contextc[all]")


def find_python(name: str) -> str:
    """Return the Python of a framework's environment."""
    framework = FRAMEWORKS[name]
    needed = [*framework.packages, *project_requirements("tokens", "prices", *framework.extras), *TEST_PACKAGES]
    return make_environment(ENVIRONMENTS / name, resolve(needed))


def import_both(python: str, framework: Framework) -> None:
    code = f"import contextc, {framework.module}; contextc.__version__"
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"cannot be imported: {done.stderr.strip()[-600:]}")


def check_types(name: str, python: str, report: Report) -> None:
    """Check the types of an adapter. The project's own check leaves it out, because it needs the framework."""
    found = sorted(ADAPTERS.glob(f"{name}*"))
    settings = {
        "extends": str(ROOT / "pyproject.toml"),
        "include": [str(path) for path in found],
        "exclude": [],
        "extraPaths": [str(ROOT / "src")],
    }
    with TemporaryDirectory() as folder:
        config = Path(folder) / "pyrightconfig.json"
        config.write_text(json.dumps(settings))
        command = [Path(sys.executable).with_name("basedpyright"), "--project", config, "--pythonpath", python]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or "No source files found" in done.stdout:
        raise Failed(f"its types are wrong:\n{done.stdout.strip()[-4000:]}")
    report("the types of its adapter are right")


def _not_installable(name: str, chosen: str) -> str:
    """Explain why the newest release is not the one that is chosen, although nothing of ours is in the way."""
    newest = newest_release(name)
    if newest == chosen:
        return ""
    try:
        resolve([f"{name}=={newest}"])
    except Unavailable as reason:
        return f" ({newest} cannot be installed from here, also alone: {_cause(str(reason))})"
    return f" ({newest} cannot be installed with the other packages of the framework)"


def _cause(message: str) -> str:
    """Return the cause that the resolver names."""
    lines = [line.strip().removeprefix("cause: ") for line in message.splitlines() if "ecause" in line]
    return lines[0] if lines else message[-300:]


def main(arguments: Sequence[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    ours, options = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks")
    parser.add_argument("names", nargs="*", choices=[*FRAMEWORKS, []], metavar="NAME")
    parser.add_argument("--install", action="store_true", help="make the environments, and run no tests")
    chosen = parser.parse_args(ours)
    failed: list[str] = []
    with ExitStack() as running:
        if not chosen.install and POSTGRES not in os.environ:
            os.environ[POSTGRES] = running.enter_context(running_server()).address
        for name in chosen.names or FRAMEWORKS:

            def report(text: str, name: str = name) -> None:
                print(f"{name}: {text}", flush=True)

            try:
                check(name, options, report, only_install=chosen.install)
            except (Failed, Unavailable) as reason:
                report(f"FAILED: {reason}")
                failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
