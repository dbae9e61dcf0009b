"""The `kn` command."""

from kn_runtime.cli.main import main

__all__ = ["main"]
