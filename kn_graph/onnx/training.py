"""Converters of training operators."""

__all__: list[str] = []
