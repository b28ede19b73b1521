"""Tests of frameworks that are not installed here are not collected: they run in environments of their own."""

from importlib.metadata import PackageNotFoundError, version

from tests.frameworks import FRAMEWORKS, Framework
from tests.package_environments import split_requirement


def is_installed(framework: Framework) -> bool:
    try:
        return all(version(split_requirement(package)[0]) for package in framework.packages)
    except PackageNotFoundError:
        return False


collect_ignore_glob = [f"{name}/*" for name, framework in FRAMEWORKS.items() if not is_installed(framework)]
