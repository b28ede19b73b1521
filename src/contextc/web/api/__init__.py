"""The endpoints, one file a noun. A file that is put here is served."""
