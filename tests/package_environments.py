"""Environments in the cache, for packages that cannot be installed beside the project's own, or in other versions.

uv resolves and installs them. It does not read pip's configuration, so pip does it where uv finds no packages. An
environment is made again if the versions in it are not the ones that were resolved. Other processes wait meanwhile.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache"
UV = Path(sys.executable).with_name("uv")
INSTALL_SECONDS = 1800
TEST_SECONDS = 3600
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)")
TEST_PACKAGES = ("certifi", "h11", "hypothesis", "jsonschema", "psycopg[binary]", "pytest", "pytest-xdist", "rich")
"""Packages that the tests of an environment import."""
OF_WINDOWS = "; sys_platform == 'win32'"
OWN_AUTHORITIES = "TESTS_OWN_SSL_CERT_FILE"
"""What SSL_CERT_FILE was before the tests changed it, for what really asks a registry."""


class Unavailable(Exception):
    """The packages cannot be installed together."""


def project_requirements(*extras: str) -> list[str]:
    """Return what the project requires with these extras, as `pyproject.toml` says it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            if requirement.endswith(OF_WINDOWS) and sys.platform != "win32":
                continue
            name, inner, _ = split_requirement(requirement)
            found += project_requirements(*inner) if name == project["name"] else [requirement]
    return list(dict.fromkeys(found))


def split_requirement(requirement: str) -> tuple[str, list[str], str]:
    """Return the normalized name, the extras and the version specifier of a requirement."""
    match = REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise ValueError(f"requirement: expected a name and versions, got {requirement!r}")
    name, extras, versions = match.groups()
    return normalized(name), [each.strip() for each in (extras or "[]")[1:-1].split(",") if each.strip()], versions


def normalized(name: str) -> str:
    """Return the name of a package as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(requirements: Sequence[str], *, with_dependencies: bool = True) -> dict[str, str]:
    """Return the newest versions of all packages that fulfil these requirements together, by name."""
    refused, alone = "", [] if with_dependencies else ["--no-deps"]
    if UV.exists():
        command = [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", sys.executable, "-"]
        done = _run([*command, *alone], "\n".join(requirements))
        if not done.returncode:
            pins = (line.split(";")[0].split("==") for line in done.stdout.splitlines() if "==" in line)
            return {normalized(name): version.strip() for name, version in pins}
        refused = done.stderr.strip()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = _run([*command, *alone, *requirements])
    if done.returncode:
        raise Unavailable(refused or done.stderr.strip())
    packages = (each["metadata"] for each in json.loads(done.stdout)["install"])
    return {normalized(each["name"]): each["version"] for each in packages}


def newest_release(package: str) -> str:
    """Return the newest release of a package, whatever it requires."""
    return resolve([package], with_dependencies=False)[normalized(package)]


def make_environment(folder: Path, versions: dict[str, str], *, with_project: bool = True) -> str:
    """Return a Python that has exactly these packages, and this project with its current metadata."""
    python, ready, project = folder / "bin" / "python", folder / "ready", folder / "project"
    pins = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    state = f"{sys.version}\n{pins}"
    with _locked(folder):
        if not ready.exists() or ready.read_text() != state:
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, symlinks=True)
            (folder / "pins.txt").write_text(pins)
            _install(python, ["--no-deps", "-r", str(folder / "pins.txt")])
            ready.write_text(state)
        described = f"{ROOT}\n{(ROOT / 'pyproject.toml').read_text()}"
        if with_project and (not project.exists() or project.read_text() != described):
            _install(python, ["--no-deps", "--editable", str(ROOT)])
            project.write_text(described)
    return str(python)


def run_tests(python: str, arguments: Iterable[str], **variables: str) -> int:
    """Run pytest in an environment, and return its exit code. Warnings of other packages are not errors there."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **variables}
    settings = ("-p", "no:cacheprovider", "-o", "filterwarnings=default", "-o", "faulthandler_timeout=300")
    command = [python, "-m", "pytest", "-q", *settings, *arguments]
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, timeout=TEST_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"The tests did not end within {TEST_SECONDS} s.", flush=True)
        return 1


def _install(python: Path, arguments: Sequence[str]) -> None:
    refused = ""
    if UV.exists():
        done = _run([UV, "pip", "install", "--quiet", "--python", str(python), *arguments])
        if not done.returncode:
            return
        refused = done.stderr.strip()
    # pip of this environment, for another one: it has none of its own
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *arguments]
    done = _run(command)
    if done.returncode:
        raise Unavailable(refused or done.stderr.strip())


def _environment() -> dict[str, str]:
    """Return the environment with the certificate authorities of this machine."""
    found = dict(os.environ)
    if (own := found.pop(OWN_AUTHORITIES, None)) is not None:
        found.pop("SSL_CERT_FILE", None)
    return {**found, "SSL_CERT_FILE": own} if own else found


def _run(command: Sequence[str | Path], given: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [str(each) for each in command],
            input=given,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
            env=_environment(),
        )
    except subprocess.SubprocessError as error:
        raise Unavailable(f"{command[0]}: {error}") from error


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
