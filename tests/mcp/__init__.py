"""MCP servers as tools of an agent."""
