"""Verification of a store, and repair of its conversations."""

from contextc.doctor.findings import Finding
from contextc.doctor.repair import RepairResult, repair_conversations
from contextc.doctor.store_scan import conversation_names, scan_store

__all__ = ["Finding", "RepairResult", "conversation_names", "repair_conversations", "scan_store"]
