"""Strands with the adapter."""
