"""Converters of scatter operators."""

__all__: list[str] = []
