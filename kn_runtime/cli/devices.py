"""`kn devices`: which devices can be used."""

from __future__ import annotations

import argparse

from kn_graph.errors import DeviceUnavailableError
from kn_runtime.cli.common import console, emit_json, table

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn devices
  kn devices --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def execute(args: argparse.Namespace) -> int:
    """List devices, usable ones first."""
    from kn_runtime.device import Device

    best = Device.best()
    rows = [
        {"device": str(d), "usable": True, "best": str(d) == str(best), "reason": d.reason}
        for d in Device.available()
    ]
    if not any(str(d).startswith("cuda") for d in Device.available()):
        try:
            Device.cuda()
        except DeviceUnavailableError as error:
            rows.append({"device": "cuda", "usable": False, "best": False, "reason": str(error)})
    if args.json:
        emit_json({"devices": rows})
        return 0
    marks = {True: "yes", False: "no"}
    console().print(
        table(
            ("device", "usable", "best", "why"),
            ((r["device"], marks[bool(r["usable"])], "*" if r["best"] else "", r["reason"]) for r in rows),
        )
    )
    return 0
