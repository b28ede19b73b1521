"""Compression of what observed requests store. The store defines it, because a redaction changes compressed rows."""

from contextc.store.ledger_schema import PACKED, pack_record, pack_wire, unpack_record, unpack_wire

__all__ = ["PACKED", "pack_record", "pack_wire", "unpack_record", "unpack_wire"]
