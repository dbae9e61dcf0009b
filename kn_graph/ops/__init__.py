"""Operations, one small class each: type rule, NumPy reference, documentation."""

__all__: list[str] = []
