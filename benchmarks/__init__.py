"""Programs behind the figures in docs/; each prints what it measured and the machine it ran on."""
