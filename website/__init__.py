"""The website of the documentation: `make docs`."""
