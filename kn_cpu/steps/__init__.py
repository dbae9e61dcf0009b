"""Steps of a plan as calls of native kernels: one function for each operation."""

__all__: list[str] = []
