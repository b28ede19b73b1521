"""Load public names on first use, and keep renamed ones working for one release.

A package calls `lazy_names` in its `__init__` and assigns the result to `__getattr__`. Importing the package then loads
none of its modules.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing `collections.abc` or `typing` would be most of the cost of `import contextc`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REMOVED_IN = "0.3"
"""The version that drops the names which `deprecated` lists."""


def lazy_names(
    package: str, modules: "Mapping[str, str]", deprecated: "Mapping[str, str] | None" = None, *, depth: int = 2
) -> "Callable[[str], object]":
    """Return a module-level `__getattr__`.

    `modules` maps a module, relative to the package, to the names it defines, separated by spaces. `deprecated` maps an
    old name to the full path of the new one. `depth` is the number of stack frames from the warning to the caller.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    moved = deprecated or {}

    def load(name: str) -> object:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        if name in moved:
            target, _, new = moved[name].rpartition(".")
            warn = import_module("warnings").warn
            text = f"{package}.{name} is deprecated and will be removed in {REMOVED_IN}. Use {target}.{new}."
            warn(text, DeprecationWarning, stacklevel=depth)
            return getattr(import_module(target), new)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
