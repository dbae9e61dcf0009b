"""Converters of resize operators."""

__all__: list[str] = []
