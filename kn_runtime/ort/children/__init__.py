"""A folder for `PYTHONPATH`: Python imports `sitecustomize` from it when a child process starts."""

__all__: list[str] = []
