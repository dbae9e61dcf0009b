"""Converters of attention operators."""

__all__: list[str] = []
