"""Run the tests of each optional package with its oldest allowed and its newest version.

    python -m tests.package_versions [NAME …] [--only floor|newest] [-- PYTEST OPTIONS]

In the floor environment, the requirements `package>=X` of the extra are installed as `package==X`. Everything else is
as new as they allow. Environments are in `.cache/package-versions`.
"""

import argparse
import re
import sys
from collections.abc import Sequence

from tests.package_environments import (
    CACHE,
    TEST_PACKAGES,
    Unavailable,
    make_environment,
    project_requirements,
    resolve,
    run_tests,
    split_requirement,
)
from tests.package_versions import PACKAGE_TESTS

ENVIRONMENTS = CACHE / "package-versions"
KINDS = ("floor", "newest")


def lowest(requirement: str) -> str:
    """Return the requirement with its lower bound as the only version."""
    bound = re.search(r">=\s*([0-9][0-9.]*)", requirement)
    if bound is None:
        raise ValueError(f"requirement: expected a lower bound, got {requirement!r}")
    name, extras, _ = split_requirement(requirement)
    return f"{name}[{','.join(extras)}]=={bound[1]}"


def tested_packages(extra: str) -> list[str]:
    """Return the requirements that an extra adds, or those of the core without one."""
    core = project_requirements()
    return [each for each in project_requirements(extra) if each not in core] if extra else core


def versions_of(name: str, kind: str) -> dict[str, str]:
    """Return the versions of all packages in an environment."""
    needed, packages = PACKAGE_TESTS[name].needs, tested_packages(PACKAGE_TESTS[name].extra)
    wanted = [lowest(each) for each in packages] if kind == "floor" else packages
    return resolve([*wanted, *project_requirements(), *needed, *TEST_PACKAGES])


def check(name: str, kind: str, options: Sequence[str]) -> str:
    """Run the tests in an environment, and return the tested versions and the result."""
    versions = versions_of(name, kind)
    names = [split_requirement(each)[0] for each in tested_packages(PACKAGE_TESTS[name].extra)]
    shown = ", ".join(f"{each} {versions[each]}" for each in names)
    print(f"── {name}, {kind}: {shown}", flush=True)
    python = make_environment(ENVIRONMENTS / f"{name}-{kind}", versions)
    left = [f"--deselect={each}" for each in PACKAGE_TESTS[name].not_for_floor if kind == "floor"]
    code = run_tests(python, [*PACKAGE_TESTS[name].tests, *left, *options], CI="true")
    return f"{name:12} {kind:7} {'FAILED' if code else 'passed'}  {shown}"


def main(arguments: Sequence[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.package_versions")
    parser.add_argument("names", nargs="*", choices=[*PACKAGE_TESTS, []], metavar="NAME")
    parser.add_argument("--only", choices=KINDS, help="one of the two environments")
    chosen = parser.parse_args(arguments[:split])
    results: list[str] = []
    for name in chosen.names or PACKAGE_TESTS:
        for kind in [chosen.only] if chosen.only else KINDS:
            try:
                results.append(check(name, kind, arguments[split + 1 :]))
            except Unavailable as reason:
                results.append(f"{name:12} {kind:7} FAILED  {reason}")
    print(*results, sep="\n")
    return 1 if any(" FAILED " in each for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
