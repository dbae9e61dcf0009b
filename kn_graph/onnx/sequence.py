"""Converters of sequence operators."""

__all__: list[str] = []
