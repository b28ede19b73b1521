"""The command `contextc`, also as `python -m contextc`. Without the packages of its extra it says what to install."""

import sys


def main() -> None:
    try:
        from contextc.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        sys.exit(
            "error: the command line requires the package 'rich', which is not installed. "
            "Install it: pip install 'contextc[cli]'"
        )
    run()


if __name__ == "__main__":
    main()
