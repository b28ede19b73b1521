"""Strict fakes of the vendors' APIs, on loopback or in-process. See `standin.py` for an example."""

from tests.fake_vendors import faults
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import Fault, Plan, RandomFaults, listed
from tests.fake_vendors.random_script import RandomScript
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.responses import RequestRecord
from tests.fake_vendors.scripts import Script, Scripted
from tests.fake_vendors.vendor import KEY, AcceptedRequest

__all__ = [
    "KEY",
    "AcceptedRequest",
    "FakeVendors",
    "Fault",
    "Plan",
    "RandomFaults",
    "RandomScript",
    "Reply",
    "RequestRecord",
    "Script",
    "Scripted",
    "ScriptedCall",
    "faults",
    "listed",
]
