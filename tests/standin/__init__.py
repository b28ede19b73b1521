"""Strict fakes of the vendors' APIs, on loopback or in-process. See `standin.py` for an example."""

from tests.standin import faults
from tests.standin.answer import RequestRecord
from tests.standin.faults import Fault, Plan, RandomFaults, listed
from tests.standin.reply import Reply, ScriptedCall
from tests.standin.scripts import Script, Scripted
from tests.standin.standin import FakeVendors
from tests.standin.vendor import KEY, AcceptedRequest
from tests.standin.wanderer import Wanderer

__all__ = [
    "KEY",
    "AcceptedRequest",
    "ScriptedCall",
    "Fault",
    "Plan",
    "RequestRecord",
    "Reply",
    "Script",
    "Scripted",
    "FakeVendors",
    "Wanderer",
    "RandomFaults",
    "faults",
    "listed",
]
