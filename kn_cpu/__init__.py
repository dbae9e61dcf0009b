"""The planned CPU executor: native kernels over a flat list of steps."""

__all__: list[str] = []
