"""Servers that are configured, and those that a project brings (guarantee 24.6)."""

import json
import os
import sys
from pathlib import Path

import pytest

import contextc as cc
from contextc import config
from contextc.app.agent_choices import AgentChoices
from contextc.app.agent_factory import describe_mcp_servers, find_mcp_servers
from contextc.mcp import find_servers
from contextc.mcp.config_files import choose_servers, read_project_file

SERVER = {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "${TOKEN}"}, "type": "stdio", "disabled": False}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The configuration folder of a user, and a project."""
    for name in [each for each in os.environ if each.startswith(("CONTEXTC_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    user, project = tmp_path / "config" / "contextc", tmp_path / "project"
    user.mkdir(parents=True)
    project.mkdir()
    return user, project


def declare(project: Path, **servers: object) -> Path:
    path = project / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def approve(path: Path) -> None:
    _, file = read_project_file(str(path))
    assert file is not None
    config.trust_file(file)


def names(project: Path, agent: str = "assistant") -> list[str]:
    return [each.name for each in find_servers(project, agent=agent).servers]


def test_servers_of_the_user_are_used_by_the_agents_that_they_name(folders: tuple[Path, Path]) -> None:
    user, project = folders
    (user / "contextc.toml").write_text(
        '[mcp.files]\ncommand = "npx"\nargs = ["-y", "server"]\ntools = ["read"]\n'
        '[mcp.shop]\nurl = "https://example.com/mcp"\nagents = ["seller"]\nneeds_approval = ["buy"]\n'
        'headers = {Authorization = "Bearer ${SHOP}"}\n'
    )
    assert (names(project), names(project, "seller")) == (["files"], ["files", "shop"])
    files, shop = find_servers(project, agent="seller").servers
    assert (files.args, files.tools, files.needs_approval) == (("-y", "server"), ("read",), True)
    assert (shop.needs_approval, shop.variables()) == (("buy",), ("SHOP",))


def test_a_projects_servers_start_only_after_a_person_approved_the_content(folders: tuple[Path, Path]) -> None:
    """Cloning a repository must start nothing. A change needs another approval."""
    _, project = folders
    path = declare(project, github=SERVER)
    found = find_servers(project)
    assert found.servers == ()
    assert found.skipped == (".mcp.json: not approved. `contextc trust` shows it, and asks.",)
    assert "mcpServers.github.command = 'npx'" in found.pending[0].changes
    approve(path)
    (github,) = find_servers(project).servers
    assert (github.command, github.needs_approval, github.env) == ("npx", True, {"TOKEN": "${TOKEN}"})
    declare(project, github={**SERVER, "args": ["-y", "evil"]})
    assert names(project) == []


@pytest.mark.parametrize("name", [".mcp.json", "contextc.toml"])
def test_a_link_to_an_approved_file_of_another_project_is_not_approved(folders: tuple[Path, Path], name: str) -> None:
    """Its relative paths would be programs of this project."""
    _, project = folders
    other = project.parent / "other"
    other.mkdir()
    declare(project, build={"command": "./build.sh"})
    (project / "contextc.toml").write_text('[mcp.build2]\ncommand = "./build.sh"\n')
    for each in find_servers(project).pending:
        config.trust_file(each)
    assert names(project) == ["build2", "build"]
    (other / name).symlink_to(Path("..", "project", name))
    found = find_servers(other)
    assert (found.servers, len(found.pending)) == ((), 1)
    config.trust_file(found.pending[0])
    assert len(names(other)) == 1
    assert config.distrust_file(str(other / name))
    assert names(other) == []
    assert names(project) == ["build2", "build"]


def test_what_a_person_approves_has_one_line_for_each_field(folders: tuple[Path, Path]) -> None:
    """A name with line breaks must not look like other fields."""
    _, project = folders
    declare(project, build={"command": "./evil.sh", "note = 1\n  mcpServers.build.command": "ls"})
    (file,) = find_servers(project).pending
    assert "\n" not in "".join(file.changes)
    assert len(file.changes) == 2


def test_a_projects_settings_with_servers_need_trust_too(folders: tuple[Path, Path]) -> None:
    _, project = folders
    (project / "contextc.toml").write_text('[mcp.build]\ncommand = "make"\nenv = {KEY = "${ANTHROPIC_API_KEY}"}\n')
    found = find_servers(project)
    assert (found.servers, len(found.pending)) == ((), 1)
    assert found.pending[0].changes == (
        "mcp.build.command = 'make'",
        "mcp.build.env = {'KEY': '${ANTHROPIC_API_KEY}'}",
    )
    config.trust_file(found.pending[0])
    assert names(project) == ["build"]


def test_a_project_does_not_replace_a_server_of_the_user(folders: tuple[Path, Path]) -> None:
    user, project = folders
    (user / "contextc.toml").write_text('[mcp.github]\nurl = "https://example.com/mcp"\n')
    approve(declare(project, GitHub=SERVER, other=SERVER))
    found = find_servers(project)
    assert [(each.name, each.url) for each in found.servers] == [("github", "https://example.com/mcp"), ("other", "")]
    assert found.skipped[0].endswith(".mcp.json: GitHub is declared already, and is not replaced.")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "cannot be read"),
        ("[]", "expected"),
        ('{"mcpServers": {"a": 1}}', "expected"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "https://example.com"}}}', "transport sse"),
        ('{"mcpServers": {"a__b": {"command": "x"}}}', "name must begin with a letter"),
        ('{"mcpServers": {"a": {"command": 7}}}', "mcp.a: Expected `str`, got `int`"),
    ],
)
def test_a_wrong_project_file_is_a_reason_and_not_an_error(
    folders: tuple[Path, Path], content: str, problem: str
) -> None:
    _, project = folders
    path = project / ".mcp.json"
    path.write_text(content)
    if '{"a' in content and "1}" not in content:
        approve(path)
    found = find_servers(project)
    assert found.servers == ()
    assert problem in found.skipped[0]


def test_a_wrong_table_of_the_user_is_an_error_that_names_it(folders: tuple[Path, Path]) -> None:
    user, project = folders
    (user / "contextc.toml").write_text('[mcp.files]\ncomand = "npx"\n')
    with pytest.raises(cc.errors.InvalidSetting, match=r"contextc.toml: mcp.files: .*unknown field `comand`"):
        find_servers(project)


def test_a_choice_of_servers(folders: tuple[Path, Path]) -> None:
    user, project = folders
    (user / "contextc.toml").write_text('[mcp.one]\ncommand = "a"\n[mcp.two]\ncommand = "b"\n')
    found = find_servers(project)
    assert [each.name for each in choose_servers(found, "two").servers] == ["two"]
    assert choose_servers(found, "none").servers == ()
    with pytest.raises(cc.errors.InvalidSetting, match="MCP server 'three' is not configured"):
        choose_servers(found, "one, three")


def test_agents_without_all_tools_have_no_servers_unless_they_are_chosen(folders: tuple[Path, Path]) -> None:
    """Local models are too small for many tools, and programs with tools of their own read `.mcp.json` themselves."""
    user, project = folders
    (user / "contextc.toml").write_text(f'[mcp.one]\ncommand = "{sys.executable}"\n')
    declare(project, github=SERVER)
    claude, program = cc.provider("anthropic:claude-opus-5-5"), cc.provider("claude-code")
    assert describe_mcp_servers(claude, AgentChoices(root=project)) == [
        "MCP servers: one",
        "MCP servers not started: .mcp.json: not approved. `contextc trust` shows it, and asks.",
    ]
    assert describe_mcp_servers(claude, AgentChoices(root=project, tools="read")) == []
    assert describe_mcp_servers(program, AgentChoices(root=project)) == []
    chosen = find_mcp_servers(program, AgentChoices(root=project, mcp="one"))
    assert [each.name for each in chosen.servers] == ["one"]
