"""Agents built from the configuration, for the command line and the web UI."""
