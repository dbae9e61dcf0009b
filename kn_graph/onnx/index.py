"""Converters of index operators."""

__all__: list[str] = []
