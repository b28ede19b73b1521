"""Google ADK with the adapter."""
