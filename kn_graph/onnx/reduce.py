"""Converters of reduce operators."""

__all__: list[str] = []
