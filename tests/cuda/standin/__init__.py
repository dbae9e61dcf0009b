"""A stand-in for CUDA's driver, runtime and cuBLAS, on which CuPy runs: no GPU is needed."""

__all__: list[str] = []
