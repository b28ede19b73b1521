"""The causes of cache misses."""
