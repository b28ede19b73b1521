"""The ledger: what was sent on each channel. Items, the rows they form, and the state of a channel."""
