"""`python -m kn_runtime` is the `kn` command."""

import sys

from kn_runtime.cli import main

sys.exit(main())
