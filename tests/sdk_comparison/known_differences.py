"""Every difference between the AI SDK's bodies and ours, with its reason.

The SDK's body, with the differences of its format written our way, is our body: exactly, and for every conversation
that both can express. So a difference that is not listed here fails a test, and so does one that is listed and no
longer there. docs/sdk-comparison.md is made of this table, which is in differences.toml.
"""

import tomllib
from collections.abc import Iterable, Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from contextc._json import JSONObject
from tests.sdk_comparison import rewrites
from tests.sdk_comparison.rewrites.bodies import Rewrite, RewriteContext

TABLE = Path(__file__).parent / "differences.toml"


class Difference(NamedTuple):
    """What we write, what the SDK writes, and why we do; `example` names the case that shows it."""

    name: str
    formats: tuple[str, ...]
    ours: str
    theirs: str
    reason: str
    rewrite: Rewrite
    example: str


class Compared(NamedTuple):
    """The SDK's body in our form, and the names of the differences found on the way."""

    body: JSONObject
    met: list[str]


def apply_known_differences(
    theirs: JSONObject, ours: JSONObject, context: RewriteContext, known: Iterable[Difference]
) -> Compared:
    """The SDK's body with what is known to differ written our way, as far as it does differ."""
    body, met = deepcopy(theirs), list[str]()
    for difference in known:
        if body == ours:
            break
        if context.form.name in difference.formats:
            before = deepcopy(body)
            difference.rewrite(body, context)
            met += [difference.name] if body != before else []
    return Compared(body, met)


def find_rewrite(name: str) -> Rewrite:
    """The function `rule` of the module `anthropic` is `anthropic.rule`."""
    module, _, function = name.partition(".")
    return getattr(import_module(f"{rewrites.__name__}.{module}"), function)


def read_differences() -> Iterator[Difference]:
    for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["differences"]:
        fields: dict[str, Any] = {**row, "formats": tuple(row["formats"]), "rewrite": find_rewrite(row["rewrite"])}
        yield Difference(**fields)


DIFFERENCES = (*read_differences(),)
