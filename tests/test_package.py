"""The wheel and the source distribution are what users get: exactly the package, with metadata that registries show."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import import_module
from pathlib import Path

import pytest

from tests.install_trial import TRIED

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = "https://git.invalid/someone/contextc"
BESIDE_THE_PACKAGE = {
    *(".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO"),
    *("README.md", "SECURITY.md", "hatch_build.py", "pyproject.toml"),
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
MENTIONS_RICH = re.compile(r"\bimport\b[^\n]*\brich\b|\bfrom\s+rich\b")


def package_files() -> set[str]:
    found = (path for path in (SOURCE / "contextc").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE).as_posix() for path in found}


def build(root: Path, to: Path, *arguments: str, repository: str = "") -> None:
    environment = {**os.environ, "CONTEXTC_REPOSITORY_URL": repository}
    command = [sys.executable, "-m", "hatchling", "build", "-d", to, *arguments]
    subprocess.run(command, cwd=root, env=environment, capture_output=True, check=True)


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, repository=REPOSITORY + "/")
    return folder


def test_the_wheel_has_the_package_and_nothing_else(dist: Path) -> None:
    """Tables, rules, migrations and the web UI are files that a build could forget."""
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        names = set(archive.namelist())
    about = {each for each in names if each.startswith(f"contextc-{PROJECT['version']}.dist-info/")}
    assert names - about == package_files()
    assert {"contextc/py.typed", "contextc/web/static/index.html"} <= names
    assert {each.split("/", 2)[-1] for each in about if "/licenses/" in each} == {*PROJECT["license-files"]}


def test_the_source_distribution_has_what_a_build_needs_and_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    """The README and the URLs in it are those of the release, wherever it is built."""
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        top = archive.getnames()[0].split("/")[0]
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    assert names == {*BESIDE_THE_PACKAGE, *(f"src/{each}" for each in package_files())}
    build(tmp_path / top, tmp_path, "-t", "wheel")
    assert next(tmp_path.glob("*.whl")).read_bytes() == next(dist.glob("*.whl")).read_bytes()


def test_the_readme_of_a_release_has_only_absolute_links_to_files_that_exist(dist: Path) -> None:
    text = str(metadata_of(next(dist.glob("*.whl"))).get_payload())
    links = LINK.findall(text)
    assert len(links) > 30
    for each in links:
        kind, _, path = each.removeprefix(f"{REPOSITORY}/").partition(f"/v{PROJECT['version']}/")
        assert kind == ("raw" if path.endswith(".png") else "blob"), each
        assert (ROOT / path.partition("#")[0]).exists(), each


def test_the_metadata_of_a_release_names_its_repository(dist: Path) -> None:
    found = metadata_of(next(dist.glob("*.whl")))
    urls = dict(each.split(", ") for each in found.get_all("Project-URL", []))
    assert {*urls} == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    assert all(each.startswith(REPOSITORY) for each in urls.values())
    assert found["Description-Content-Type"] == "text/markdown"
    assert found["Metadata-Version"] == "2.4"


def test_a_build_without_a_repository_invents_none(tmp_path: Path) -> None:
    build(ROOT, tmp_path, "-t", "wheel")
    found = metadata_of(next(tmp_path.glob("*.whl")))
    assert found.get_all("Project-URL") is None
    assert str(found.get_payload()).strip() == (ROOT / "README.md").read_text().strip()


def test_the_library_needs_msgspec_alone(dist: Path) -> None:
    required = metadata_of(next(dist.glob("*.whl"))).get_all("Requires-Dist", [])
    assert [each for each in required if ";" not in each] == PROJECT["dependencies"] == ["msgspec>=0.19"]


def test_only_the_command_line_imports_what_its_extra_installs() -> None:
    """A library module that imports rich works in every development environment, and fails for users."""
    importing: set[str] = set()
    for path in (SOURCE / "contextc").rglob("*.py"):
        text = path.read_text()
        if not MENTIONS_RICH.search(text):
            continue  # to parse all of them takes seconds
        for node in ast.walk(ast.parse(text)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "rich" for name in names):
                importing.add(path.relative_to(SOURCE / "contextc").parts[0])
    assert importing == {"cli"}


def test_entry_points_can_be_imported() -> None:
    for place in (*PROJECT["scripts"].values(), *PROJECT["entry-points"]["pytest11"].values()):
        module, _, name = place.partition(":")
        assert not name or callable(getattr(import_module(module), name))


def test_the_command_without_its_extra_says_what_to_install() -> None:
    code = "import sys; sys.modules['rich'] = None; from contextc.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: the command line requires the package 'rich', which is not installed. "
        "Install it: pip install 'contextc[cli]'\n"
    )


def test_every_extra_is_in_the_readme_and_in_the_trial() -> None:
    text = (ROOT / "README.md").read_text()
    extras = PROJECT["optional-dependencies"]
    assert [name for name in extras if name != "all" and f"`{name}`" not in text] == []
    assert {*TRIED} == {*extras}
