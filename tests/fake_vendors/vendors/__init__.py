"""Fake vendors, one module per API."""
