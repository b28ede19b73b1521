"""MCP servers: their declarations, their processes and connections, and their tools."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.mcp.config_files import ConfiguredServers, find_servers
    from contextc.mcp.connection import ServerConnections
    from contextc.mcp.declaration import MCPServer

__all__ = ["ConfiguredServers", "MCPServer", "ServerConnections", "find_servers"]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "config_files": "ConfiguredServers find_servers",
            "connection": "ServerConnections",
            "declaration": "MCPServer",
        },
    )
