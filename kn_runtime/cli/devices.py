"""`kn devices`: which devices can be used."""

from __future__ import annotations

import argparse
from typing import Any

from kn_graph.errors import DeviceUnavailableError
from kn_runtime.cli.common import emit_json, grid, show

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn devices
  kn devices --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def execute(args: argparse.Namespace) -> int:
    """List devices, usable ones first."""
    rows = _rows()
    if args.json:
        emit_json({"devices": rows})
        return 0
    texts = ((r["device"], _status(r), r["reason"]) for r in rows)
    show(grid(texts, ("device", "usable", "remarks")))
    return 0


def _rows() -> list[dict[str, Any]]:
    from kn_runtime.device import Device

    usable, best = Device.available(), Device.best()
    rows = [
        {"device": str(d), "usable": True, "best": d == best, "reason": d.reason} for d in usable
    ]
    if all(d.kind != "cuda" for d in usable):
        try:
            Device.cuda()
        except DeviceUnavailableError as error:
            reason = "; ".join(error.reasons)
            rows.append({"device": "cuda", "usable": False, "best": False, "reason": reason})
    return rows


def _status(row: dict[str, Any]) -> str:
    return "best" if row["best"] else "yes" if row["usable"] else "no"
