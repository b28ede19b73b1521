"""Checks of optional packages before they are imported: not installed, too old, or broken.

The oldest version that works is the one in this package's own metadata (`pyproject.toml`), so that an error and the
installer never differ.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager

from contextc.errors import InvalidSetting, describe_error

OWN_NAME = "contextc"


@contextmanager
def importing(package: str, *, extra: str = "", at_least: str = "", needed_by: str = "") -> Generator[None]:
    """Check a package, and turn an `ImportError` of the block into an error that says what is wrong with the package.

    `extra` is the extra of contextc that installs it. Without one, `at_least` may be the oldest version that works.
    `needed_by` names what requires the package, if the caller did not ask for it by name.
    """
    check_package(package, extra=extra, at_least=at_least, needed_by=needed_by)
    try:
        yield
    except ImportError as error:
        raise InvalidSetting(
            f"package {package!r} {installed_version(package)} cannot be imported: {describe_error(error)}",
            fix=f"Reinstall it: pip install --force-reinstall {_quoted(package, extra, at_least)}",
        ) from None


def check_package(package: str, *, extra: str = "", at_least: str = "", needed_by: str = "") -> None:
    """Raise an error with the command to run if a package is not installed, or older than it must be."""
    oldest = at_least or (_oldest_version(package, extra) if extra else "")
    wanted = _quoted(package, extra, oldest)
    if (version := installed_version(package)) is None:
        missing = f"{needed_by} require the package {package!r}, which" if needed_by else f"package {package!r}"
        raise InvalidSetting(f"{missing} is not installed", fix=f"Install it: pip install {wanted}")
    if oldest and _numbers(version) < _numbers(oldest):
        raise InvalidSetting(
            f"package {package!r}: expected version {oldest} or newer",
            got=version,
            fix=f"Upgrade it: pip install --upgrade {wanted}",
        )


def installed_version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _oldest_version(package: str, extra: str) -> str:
    """Return the lower bound of a package in an extra of contextc. Empty if there is none."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires(OWN_NAME) or []
    except PackageNotFoundError:  # run from source
        return ""
    for requirement in declared:
        versions, _, marker = requirement.partition(";")
        named = re.match(r"[A-Za-z0-9._-]+", versions)
        is_of_extra = re.search(rf"""extra == ['"]{extra}['"]""", marker) is not None
        if named and is_of_extra and _normalized(named[0]) == _normalized(package):
            bound = re.search(r">=\s*([0-9][0-9.]*)", versions)
            return bound[1] if bound else ""
    return ""


def _quoted(package: str, extra: str, oldest: str) -> str:
    """Return the argument for pip."""
    return f"'{OWN_NAME}[{extra}]'" if extra else f"'{package}>={oldest}'" if oldest else package


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release: (2, 0) for "2.0rc1", without zeros at the end."""
    release = re.match(r"[0-9]+(\.[0-9]+)*", version)
    found = [int(each) for each in release[0].split(".")] if release else []
    while found and not found[-1]:
        found.pop()
    return tuple(found)
