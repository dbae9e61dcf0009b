"""Converters of pool operators."""

__all__: list[str] = []
