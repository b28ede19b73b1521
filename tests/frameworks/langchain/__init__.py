"""LangChain agents with and without the middleware."""
