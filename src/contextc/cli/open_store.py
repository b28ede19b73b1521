"""Open the configured store for a command: option, missing file, retention, and the warning of a pending erasure."""

import os
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated

import typer

from contextc.cli.console import err, escape_markup, pluralize, progress_bar
from contextc.config import Settings, make_private_folder, mask_secrets, read_settings
from contextc.errors import ContextcError, InvalidSetting, UnknownBranch, UnknownConversation
from contextc.store import Store, open_store
from contextc.store.sqlite import remove_empty_store

StoreOption = Annotated[
    str | None, typer.Option("--store", help="sqlite:///chat.db, postgresql://… (default: configured).")
]
MAX_CLOSE_NAMES, MIN_PART_LENGTH = 3, 3


@contextmanager
def open_configured_store(store: str | None, *, create: bool = False) -> Generator[Store]:
    """Open the configured store. Only with `create`, a missing file is created, and expired content is redacted.

    So commands that read change nothing. If the command fails, a file that was created and is empty is removed.
    """
    settings = read_settings(store)
    age, missing = settings.parse_retention(), missing_store_file(settings)
    if missing and not create:
        raise InvalidSetting(
            f"{settings.store.value}: store not found", fix="Create one with `contextc import` or `contextc chat`."
        )
    if missing and settings.store.source == "default":
        make_private_folder(os.path.dirname(missing))
    try:
        with open_store(settings.store.value) as handle:
            if create and age is not None and (redacted := handle.expire(age)):
                err.print(
                    f"redacted {pluralize(redacted, 'message')} older than {escape_markup(settings.retention.value)}"
                )
            if create:
                _limit_observed(handle, settings)
            try:
                yield handle
            except (UnknownConversation, UnknownBranch) as error:
                error.detail = f" --store {shlex.quote(mask_secrets(store))}" if store is not None else ""
                if isinstance(error, UnknownConversation):
                    error.close = _find_close_conversations(handle, error.conversation)
                raise
    except BaseException:
        if missing:
            remove_empty_store(missing)
        raise


def _find_close_conversations(store: Store, name: str) -> tuple[str, ...]:
    """Return at most three conversations whose names contain the given one, or have a similar spelling."""
    try:
        names = [each.name for each in store.conversations()]
    except ContextcError:
        return ()
    containing = [each for each in names if len(name) >= MIN_PART_LENGTH and name.lower() in each.lower()]
    close = [*containing, *get_close_matches(name, names, n=MAX_CLOSE_NAMES)]
    return tuple(dict.fromkeys(close))[:MAX_CLOSE_NAMES]


def _limit_observed(store: Store, settings: Settings) -> None:
    """Delete observed conversations beyond their own retention and size limit, and report it."""
    age, size = settings.parse_observed_age(), settings.parse_observed_size()
    if age is None and size is None:
        return
    from contextc.observation import limit_observed  # most stores have no limit, and it takes time to import

    with progress_bar("deleting observed traffic") as report:
        deleted = limit_observed(store, age=age, max_bytes=size, progress=report)
    if deleted.conversations:
        limits = [f"{age.days} days"] if age is not None else []
        limits += [f"{size:,} bytes"] if size is not None else []
        err.print(
            f"deleted {pluralize(deleted.conversations, 'observed conversation')} ({deleted.size:,} bytes), "
            f"beyond the limit of {' and '.join(limits)}"
        )


def missing_store_file(settings: Settings) -> str | None:
    """Return the path of a SQLite store if its file is missing."""
    scheme, _, path = settings.store.value.partition(":///")
    path = os.path.expanduser(path.partition("?")[0])
    return path if scheme == "sqlite" and path and not os.path.exists(path) else None


def warn_pending_erasure(erasures: int) -> None:
    """Warn that removed content is still in the files of a store."""
    if erasures:
        err.print(
            "pending: the content is still in the store's files, because another connection reads them. It is "
            "removed when the store is next opened after that.",
            soft_wrap=True,
        )
