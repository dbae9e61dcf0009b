"""Converters of control operators."""

__all__: list[str] = []
