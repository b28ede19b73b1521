"""Load public names on first use.

A package calls `lazy_names` in its `__init__` and assigns the result to `__getattr__`. Importing the package then loads
none of its modules.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing `collections.abc` or `typing` would be most of the cost of `import contextc`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: "Mapping[str, str]") -> "Callable[[str], object]":
    """Return a module-level `__getattr__`.

    `modules` maps a module, relative to the package, to the names it defines, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> object:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
