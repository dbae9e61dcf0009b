"""The CUDA executor: generated kernels, cuBLAS and cuDNN over one arena."""

__all__: list[str] = []
