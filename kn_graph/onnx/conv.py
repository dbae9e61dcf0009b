"""Converters of conv operators."""

__all__: list[str] = []
