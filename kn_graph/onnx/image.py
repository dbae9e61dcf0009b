"""Converters of image operators."""

__all__: list[str] = []
