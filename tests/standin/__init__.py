"""Strict fakes of the vendors' APIs, on loopback or in-process. See `standin.py` for an example."""

from tests.standin import faults
from tests.standin.answer import Record
from tests.standin.faults import Fault, Plan, Weather, listed
from tests.standin.reply import Call, Reply
from tests.standin.scripts import Script, Scripted
from tests.standin.standin import Standin
from tests.standin.vendor import KEY, Ask
from tests.standin.wanderer import Wanderer

__all__ = [
    "KEY",
    "Ask",
    "Call",
    "Fault",
    "Plan",
    "Record",
    "Reply",
    "Script",
    "Scripted",
    "Standin",
    "Wanderer",
    "Weather",
    "faults",
    "listed",
]
