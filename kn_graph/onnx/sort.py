"""Converters of sort operators."""

__all__: list[str] = []
