"""Converters of loss operators."""

__all__: list[str] = []
