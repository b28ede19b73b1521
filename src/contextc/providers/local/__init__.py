"""Client for a model on this machine, without a key or a network: llama.cpp's server with a small model.

The server is a separate process, one per user and model, started on first use. It listens on loopback, requires a key
that only this user can read, and exits when it has been idle for a while.
"""

from contextc.providers.local.client import LocalEndpoint, open
from contextc.providers.local.model_path import find_model_file
from contextc.providers.local.server_control import LocalServer, ensure_server, running_server, stop_server

__all__ = ["LocalEndpoint", "LocalServer", "ensure_server", "find_model_file", "open", "running_server", "stop_server"]
