"""The server: an HTTP API, event streams, and the web UI. It contains no engine logic of its own."""
