"""Graphs with nodes of their own, with and without fitted models."""
