"""Converters of norm operators."""

__all__: list[str] = []
