"""Calls of each family of operations; `kn_cuda.lower` says which function serves which."""

__all__: list[str] = []
