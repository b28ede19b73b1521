"""A model on this machine, for whoever has no key and no network: llama.cpp's server with a small model.

The server is a process of its own, one per user and model, started when it is first needed. It listens on loopback,
wants a key that only this user can read, and goes away by itself when nobody has asked it anything for a while.
"""

from contextc.providers.local.line import LocalEndpoint, open
from contextc.providers.local.model import model_file
from contextc.providers.local.running import Server, ensure_server, running_server, stop_server

__all__ = ["LocalEndpoint", "Server", "ensure_server", "model_file", "open", "running_server", "stop_server"]
