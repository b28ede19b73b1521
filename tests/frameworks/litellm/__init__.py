"""litellm with the adapter."""
