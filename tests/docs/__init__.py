"""The code in README.md and docs/ is run."""
