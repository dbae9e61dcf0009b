"""Converters of random operators."""

__all__: list[str] = []
