"""MCP servers: their declarations, their processes and connections, and their tools."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.mcp.connection import ServerConnections
    from contextc.mcp.declaration import MCPServer

__all__ = ["MCPServer", "ServerConnections"]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(__name__, {"connection": "ServerConnections", "declaration": "MCPServer"})
