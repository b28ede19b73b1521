"""Verification of a store, and repair of its conversations."""

from contextc.doctor.damage import conversation_names
from contextc.doctor.examining import scan_store
from contextc.doctor.findings import Finding
from contextc.doctor.healing import RepairResult, repair_conversations

__all__ = ["Finding", "RepairResult", "conversation_names", "scan_store", "repair_conversations"]
