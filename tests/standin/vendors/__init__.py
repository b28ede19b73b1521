"""One file per vendor's API."""
