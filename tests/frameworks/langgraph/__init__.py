"""Graphs that are built by hand, with and without fitted models."""
