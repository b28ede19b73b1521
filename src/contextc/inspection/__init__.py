"""Explain requests: their content, their differences, what a provider already knows, and what would be sent next."""
