"""Agents as people use them: put together from what is configured, for the terminal and for the page."""
