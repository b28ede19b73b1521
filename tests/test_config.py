"""Settings: arguments over variables over files over defaults, and each says where it came from."""

from datetime import timedelta
from pathlib import Path

import pytest

import contextc as cc
from contextc.config import Setting, masked, read_providers, read_settings


def test_with_nothing_configured_the_store_is_in_the_users_data_folder(tmp_path: Path) -> None:
    found = read_settings(environment={"HOME": "/home/ann"}, folder=str(tmp_path))
    assert found.store.source == "default"
    assert found.store.value.startswith("sqlite:////home/ann/")
    assert found.retention_age() is None


def test_each_source_wins_over_the_one_below(tmp_path: Path) -> None:
    user, project = tmp_path / "config" / "contextc", tmp_path / "project"
    user.mkdir(parents=True)
    project.mkdir()
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    (user / "contextc.toml").write_text('store = "sqlite:///user.db"\nretention = "90d"\n')
    assert read_settings(environment=environment, folder=str(project)).store.value == "sqlite:///user.db"
    (project / "contextc.toml").write_text('store = "sqlite:///project.db"\n')
    found = read_settings(environment=environment, folder=str(project))
    assert found.store == Setting("sqlite:///project.db", str(project / "contextc.toml"))
    assert found.retention_age() == timedelta(days=90)
    environment["CONTEXTC_STORE"] = "sqlite:///variable.db"
    found = read_settings(environment=environment, folder=str(project))
    assert found.store == Setting("sqlite:///variable.db", "CONTEXTC_STORE")
    found = read_settings("memory:", environment=environment, folder=str(project))
    assert found.store == Setting("memory:", "argument")


@pytest.mark.parametrize("text", ["store = 5", 'colour = "red"', "store = ", "[store]"])
def test_a_file_that_cannot_be_used_says_what_is_wrong(tmp_path: Path, text: str) -> None:
    """SPEC 15.1: a misspelt setting must not be silently ignored."""
    (tmp_path / "contextc.toml").write_text(text)
    with pytest.raises(cc.InvalidSetting, match=r"contextc\.toml"):
        read_settings(environment={"HOME": str(tmp_path)}, folder=str(tmp_path))


@pytest.mark.parametrize("text", ["90", "d", "ninety days", "-1d", "0d", "30m"])
def test_a_retention_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    found = read_settings(environment={"HOME": "/", "CONTEXTC_RETENTION": text}, folder=str(tmp_path))
    with pytest.raises(cc.InvalidSetting, match="write days or hours, like 90d or 12h"):
        found.retention_age()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:hunter2@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:p%40@h1:1,h2:2/db?user=x@y", "postgresql://ann:***@h1:1,h2:2/db?user=x@y"),
        ("postgresql://ann:a?b@host/db?x=1", "postgresql://ann:***@host/db?x=1"),
        ("postgresql:///db?host=/run&password=hunter2&x=1", "postgresql:///db?host=/run&password=***&x=1"),
        ("postgresql://host?Password=hunter2", "postgresql://host?Password=***"),
        ("postgresql://host?password=hun@ter2", "postgresql://host?password=***"),
        ("postgresql://h/d?sslpassword=hunter2&passfile=/p", "postgresql://h/d?sslpassword=***&passfile=***"),
        ("https://host/v1?api-key=hunter2&v=1", "https://host/v1?api-key=***&v=1"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("memory:", "memory:"),
    ],
)
def test_passwords_are_never_shown(address: str, shown: str) -> None:
    assert masked(address) == shown


def configured(folder: Path, *, user: str = "", project: str = "") -> dict[str, str]:
    """An environment in which these are written in the user's file and in the project's."""
    (folder / "config" / "contextc").mkdir(parents=True)
    (folder / "config" / "contextc" / "contextc.toml").write_text(user)
    (folder / "contextc.toml").write_text(project)
    return {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}


def test_providers_of_ones_own_are_read_fact_by_fact(tmp_path: Path) -> None:
    """SPEC 9.11: any compatible endpoint."""
    user = '[providers.My_Groq]\nurl = "https://groq.example/v1"\nkey = "GROQ_API_KEY"\n'
    environment = configured(tmp_path, user=user, project="[providers.my-groq]\nwindow = 9_000\n")
    found = read_providers(environment=environment, folder=str(tmp_path))
    assert found == {"my-groq": {"url": "https://groq.example/v1", "key": "GROQ_API_KEY", "window": 9_000}}
    assert read_settings(environment=environment, folder=str(tmp_path)).model.value == ""


@pytest.mark.parametrize("key", ["sk-abc123", "gsk_abc123", "", "Bearer X"])
def test_a_literal_key_in_a_file_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    """SPEC 13.3."""
    environment = configured(tmp_path, user=f'[providers.groq]\nkey = "{key}"\n')
    with pytest.raises(cc.InvalidSetting, match="the name of an environment variable") as raised:
        read_providers(environment=environment, folder=str(tmp_path))
    assert not key or key not in str(raised.value)


def test_a_projects_file_cannot_send_a_users_key_anywhere(tmp_path: Path) -> None:
    """SPEC 13.3: a folder that came from somebody else names no key, and its address gets none."""
    evil = '[providers.groq]\nurl = "https://evil.example/v1"\n'
    user = '[providers.groq]\nurl = "https://groq.example/v1"\nkey = "GROQ_API_KEY"\n'
    environment = configured(tmp_path, user=user, project=evil)
    found = read_providers(environment=environment, folder=str(tmp_path))
    assert found == {"groq": {"url": "https://evil.example/v1"}}
    (tmp_path / "contextc.toml").write_text(evil + 'key = "GROQ_API_KEY"\n')
    with pytest.raises(cc.InvalidSetting, match="a project's file names no key"):
        read_providers(environment=environment, folder=str(tmp_path))
