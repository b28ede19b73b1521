"""API endpoints, one module for each topic. Every module in this package is imported and served."""
