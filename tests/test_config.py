"""Settings: arguments over variables over files over defaults, and each says where it came from."""

from datetime import timedelta
from pathlib import Path

import pytest

import contextc as cc
from contextc.config import Setting, masked, read_settings


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
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("memory:", "memory:"),
    ],
)
def test_passwords_are_never_shown(address: str, shown: str) -> None:
    assert masked(address) == shown
