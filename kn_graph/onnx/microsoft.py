"""Converters of microsoft operators."""

__all__: list[str] = []
