"""Converters of matmul operators."""

__all__: list[str] = []
