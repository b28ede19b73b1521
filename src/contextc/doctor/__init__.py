"""Verification of a store, and repair of its conversations."""

from contextc.doctor.damage import conversation_names
from contextc.doctor.examining import examine
from contextc.doctor.findings import Finding
from contextc.doctor.healing import Healed, heal

__all__ = ["Finding", "Healed", "conversation_names", "examine", "heal"]
