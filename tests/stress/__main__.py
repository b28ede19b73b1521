"""`make stress`: the long fault, load and size runs, one module each, and a summary.

`make stress STRESS="large_store postgres_faults"` runs these alone. Each has options of its own: run it as
`python -m tests.stress.NAME --help`.
"""

import argparse
import subprocess
import sys
import time

RUNS: dict[str, list[str]] = {
    "postgres_faults": [],
    "fleet_faults": [],
    "suspended_process": [],
    "busy_server": [],
    "large_store": [],
    "format_growth": [],
    "fuzz_formats": ["--targets", "2"],
}


def main() -> int:
    asked = argparse.ArgumentParser(prog="make stress", description=__doc__)
    asked.add_argument(
        "runs", nargs="*", choices=[*RUNS, []], metavar="run", help=f"of {', '.join(RUNS)} (default: all)"
    )
    failed: list[str] = []
    for name in asked.parse_args().runs or RUNS:
        began = time.monotonic()
        print(f"── {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.stress.{name}", *RUNS[name]], check=False).returncode:
            failed.append(name)
        print(f"   {name}: {'FAILED' if name in failed else 'passed'} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
