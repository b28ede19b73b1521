"""Encoders of event streams, one module for each vocabulary."""
