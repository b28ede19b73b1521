"""API endpoints, one module for each resource. Every module in this package is imported and served."""
