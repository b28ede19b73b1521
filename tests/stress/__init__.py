"""Long runs under load and faults, which are too slow for the ordinary tests: `make stress`."""
