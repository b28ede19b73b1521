"""The proxy: a relay that changes nothing, a spool of raw exchanges, and a process that records them."""
