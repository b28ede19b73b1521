"""Names that have changed: the old ones work for one release, with a warning that states the new one."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

from contextc._lazy import REMOVED_IN

P = ParamSpec("P")
Result = TypeVar("Result")


def warn_renamed(old: str, new: str, *, depth: int = 3) -> None:
    """Warn that `old` is deprecated. `depth` is the number of stack frames from here to the code that uses it."""
    text = f"{old} is deprecated and will be removed in {REMOVED_IN}. Use {new}."
    import_module("warnings").warn(text, DeprecationWarning, stacklevel=depth)


def renamed_parameters(**new_names: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Return a decorator that accepts former keyword names: `renamed_parameters(upto="until")`."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            if not new_names.keys().isdisjoint(kwargs):
                for old, new in new_names.items():
                    if old in kwargs:
                        warn_renamed(f"{function.__qualname__}({old}=…)", f"{new}=…")
                        kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
