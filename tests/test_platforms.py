"""What differs between operating systems, simulated where it can be."""

import subprocess
import sys


def test_the_library_and_the_command_import_without_the_modules_of_unix() -> None:
    """Windows has none of these."""
    code = """
import sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "readline", "syslog"):
    sys.modules[name] = None
import contextc as cc
for name in cc.__all__:
    getattr(cc, name)
import contextc.cli
from contextc.cli import COMMANDS, load_command
for name in COMMANDS:
    load_command(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
