"""Small models that tests, demos and benchmarks share; see README.md beside this file."""
