"""The folder of the spools of a store."""

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from contextc.config import find_data_folder


def find_spool_folder(store: str, *, in_memory: bool = False, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the spools of a store. A proxy that is started later records what an earlier one left.

    With `in_memory`, it is in the user's runtime folder, if there is one: its files are never on a disk.
    """
    scheme, separator, path = store.partition(":///")
    if scheme == "sqlite":  # a relative path is another store in another folder
        store = f"{scheme}{separator}{os.path.abspath(os.path.expanduser(path))}"
    name = blake2b(store.encode(), digest_size=8, person=b"contextc spool").hexdigest()
    runtime = environment.get("XDG_RUNTIME_DIR", "") if in_memory else ""
    base = os.path.join(runtime, "contextc") if os.path.isdir(runtime) else find_data_folder(environment)
    return Path(base) / "spool" / name
