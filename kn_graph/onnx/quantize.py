"""Converters of quantize operators."""

__all__: list[str] = []
