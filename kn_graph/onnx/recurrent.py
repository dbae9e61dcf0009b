"""Converters of recurrent operators."""

__all__: list[str] = []
