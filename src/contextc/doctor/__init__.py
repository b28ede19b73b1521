"""Looks a store over, and heals the conversations in it."""

from contextc.doctor.damage import conversation_names
from contextc.doctor.examining import examine
from contextc.doctor.findings import Finding
from contextc.doctor.healing import Healed, heal

__all__ = ["Finding", "Healed", "conversation_names", "examine", "heal"]
