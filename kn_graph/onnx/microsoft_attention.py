"""Converters of com.microsoft attention operators."""

__all__: list[str] = []
