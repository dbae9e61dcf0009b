"""Converters of ml operators."""

__all__: list[str] = []
