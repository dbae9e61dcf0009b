"""Converters of signal operators."""

__all__: list[str] = []
