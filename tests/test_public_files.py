"""The files that a hosting service or Docker reads, which no other test runs: what they name exists."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextc.cli import load_command
from contextc.cli.command_line import parse_arguments, read_parameters

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORMS = [path for path in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if path.stem != "config"]
COMPOSE = ROOT / "examples" / "fleet" / "compose.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
FIELDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
PATH = re.compile(r"(?<![\w/.])(?:tests|benchmarks|examples|docs)/[\w/-]+\.\w+")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(workflow: Any) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def check_command(words: list[str]) -> None:
    """Raise an error if a command of contextc does not take these options."""
    name, *arguments = words
    parse_arguments(read_parameters(load_command(name)), arguments, takes_rest=False, is_interspersed=True)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_exists(path: Path) -> None:
    """A workflow fails on the first push after a rename, which is late."""
    workflow = read(path)
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)}
    runs = "\n".join(step["run"] for step in steps(workflow) if "run" in step)
    assert {*re.findall(r"\bmake ([a-z-]+)", runs)} <= targets
    assert [each for each in PATH.findall(runs) if not (ROOT / each).exists()] == []
    extras = [name for found in re.findall(r'"\.\[([\w,-]+)\]"', runs) for name in found.split(",")]
    assert {*extras} <= {*PROJECT["optional-dependencies"]}
    for command in re.findall(r"python -m contextc (.+)", runs):
        check_command(shlex.split(command))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_end_by_themselves_and_may_only_read(path: Path) -> None:
    """A job that hangs costs hours, and a token that may write is what a hostile change looks for."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 90, name
        assert job.get("permissions", {}) in ({}, {"id-token": "write"}), name
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1)", each) for each in used)


def test_the_tests_run_on_every_python_and_system_that_the_package_names() -> None:
    matrix = read(GITHUB / "workflows" / "test.yml")["jobs"]["systems"]["strategy"]["matrix"]
    pythons = [each.split(" :: ")[-1] for each in PROJECT["classifiers"] if ":: Python :: 3." in each]
    assert matrix["python"] == pythons
    assert [each.split("-")[0] for each in matrix["os"]] == ["ubuntu", "macos", "windows"]


def test_a_release_is_published_without_a_password_and_after_the_tests() -> None:
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert [step["run"] for step in jobs["build"]["steps"] if step.get("run", "").startswith("make")] == [
        "make test",
        "make dist",
    ]
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_have_what_a_form_needs(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = form["body"]
    assert {field["type"] for field in fields} <= FIELDS
    ids = [field["id"] for field in fields if field["type"] != "markdown"]
    assert len(ids) == len({*ids})
    assert all(field["attributes"].get("value" if field["type"] == "markdown" else "label") for field in fields)


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"]
    assert f"## {citation['version']} ({citation['date-released']})" in changelog


def test_what_the_dockerfile_copies_and_runs_exists() -> None:
    """The daemon sees only what `.dockerignore` lets through."""
    seen = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)", DOCKERFILE, re.M) for word in line.split()[:-1]]
    assert {*copied} == seen
    assert all((ROOT / each).exists() for each in copied)
    extras = re.search(r"^ARG EXTRAS=(\S+)", DOCKERFILE, re.M)
    assert extras
    assert {*extras[1].split(",")} <= {*PROJECT["optional-dependencies"]}
    command = re.search(r"^CMD (\[.+\])$", DOCKERFILE, re.M)
    assert command
    check_command(yaml.safe_load(command[1]))


def test_a_container_is_not_root_keeps_its_store_and_says_whether_it_works() -> None:
    stage = DOCKERFILE.split("\nFROM ")[-1]
    user = re.search(r"^USER (\d+):\d+$", stage, re.M)
    assert user
    assert int(user[1]) >= 10_000
    assert re.search(r"^VOLUME /data$", stage, re.M)
    assert "CONTEXTC_STORE=sqlite:////data/" in stage
    assert "HEALTHCHECK" in stage
    assert "--no-token" not in DOCKERFILE


def test_the_compose_file_publishes_on_this_machine_alone_and_requires_its_secrets() -> None:
    text, services = COMPOSE.read_text(), read(COMPOSE)["services"]
    assert {*services} == {"postgres", "server-a", "server-b", "worker"}
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        if name != "postgres":
            check_command(service["command"])
            assert (COMPOSE.parent / service["build"]["context"] / "Dockerfile").exists()
            assert service["cap_drop"] == ["ALL"]
        for volume in service.get("volumes", []):
            if volume.startswith("."):
                assert (COMPOSE.parent / volume.split(":")[0]).exists()
    assert {*re.findall(r"\$\{(\w+)", text)} == {*re.findall(r"\$\{(\w+):\?", text)}


HOOK = read(ROOT / ".pre-commit-hooks.yaml")[0]
ACTION = read(ROOT / "action.yml")
BROKEN = {"model": "gpt-4o", "messages": [{"role": "tool", "tool_call_id": "c1", "content": "r"}]}


def test_the_hook_checks_changed_files_with_an_extra_that_exists() -> None:
    check_command([*shlex.split(HOOK["entry"])[1:], "a.json", "b.har"])
    assert [re.fullmatch(r"\.\[(\w+)\]", each)[1] for each in HOOK["additional_dependencies"]] == ["cli"]  # type: ignore[index]
    assert "cli" in PROJECT["optional-dependencies"]
    assert [bool(re.search(HOOK["files"], name)) for name in ("a/b.json", "x.har", "a.py")] == [True, True, False]


@pytest.mark.parametrize("sarif", ["", "found.sarif"])
def test_the_action_annotates_or_writes_sarif(tmp_path: Path, sarif: str) -> None:
    """The script of its last step runs here; the first one installs contextc."""
    install, check = ACTION["runs"]["steps"]
    assert '"$SOURCE[cli]"' in install["run"]
    inputs = {name: each["default"] for name, each in ACTION["inputs"].items()} | {"sarif": sarif}
    values = {
        key: inputs[name] for key, name in re.findall(r"(\w+): \$\{\{ inputs\.(\w+) \}\}", yaml.dump(check["env"]))
    }
    assert {*values} == {*check["env"]}
    (tmp_path / "request.json").write_text(json.dumps(BROKEN))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CONTEXTC_", "XDG_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", check["run"]],
        cwd=tmp_path,
        env={**clean, **values, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if sarif:
        assert ran.returncode == 0, ran.stderr
        found = json.loads((tmp_path / sarif).read_text())["runs"][0]["results"]
        assert [each["ruleId"] for each in found] == ["OAC007"]
    else:
        assert ran.returncode == 1
        assert ran.stdout.startswith("::error file=request.json,line=1,"), ran.stderr
