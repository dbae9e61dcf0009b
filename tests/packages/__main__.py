"""`python -m tests.packages`: runs all packages and prints the table of docs/onnxruntime.md."""

from __future__ import annotations

import sys

from tests.packages.rows import PACKAGES
from tests.packages.running import differences, run


def main() -> int:
    """Print a row a package, and return 1 if answers differ."""
    lines, wrong = ["| package | what it does | answers | onnxruntime | kn-engine |",
                    "|-|-|-|-|-|"], 0  # fmt: skip
    for package in PACKAGES:
        answers = run(package)
        found = list(
            differences(answers.theirs["answer"], answers.ours["answer"], package.tolerance)
        )
        wrong += bool(found)
        same = found[0] if found else f"equal to {package.tolerance:g}"
        times = [f"{a['seconds'] * 1e3:.0f} ms" for a in (answers.theirs, answers.ours)]
        name = f"{package.name} {answers.ours['version']}"
        lines.append(f"| {' | '.join([name, package.does, same, *times])} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
