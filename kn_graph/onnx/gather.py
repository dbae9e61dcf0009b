"""Converters of gather operators."""

__all__: list[str] = []
