"""Adapters for agent frameworks: their messages in a store, and their requests within the window.

Import the module of a framework: `from contextc.adapters.openai_agents import Session`. This package imports nothing.
"""
