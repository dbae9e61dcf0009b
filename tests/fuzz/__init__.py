"""Random graphs: `python -m tests.fuzz --seeds 0:500 --check optimize`."""
