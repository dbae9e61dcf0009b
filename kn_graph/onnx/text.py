"""Converters of text operators."""

__all__: list[str] = []
