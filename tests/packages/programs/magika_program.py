"""magika: what kind of content files have."""

import json
import zlib
from pathlib import Path

from magika import Magika
from material import report

magika = Magika()
HERE = Path(__file__)
CONTENTS = {
    "python": HERE.read_bytes(),
    "elf": Path("/proc/self/exe").resolve().read_bytes()[:200_000],
    "json": json.dumps({"a": [1, 2, {"b": None}], "list": list(range(50))}).encode(),
    "html": b"<!doctype html><html><head><title>x</title></head><body><p>text</p></body></html>"
    * 3,
    "zlib": zlib.compress(HERE.read_bytes()),
    "c": b'#include <stdio.h>\nint main(void) {\n  printf("%d\\n", 42);\n  return 0;\n}\n' * 4,
    "sql": b"SELECT name, count(*) FROM users WHERE age > 30 GROUP BY name ORDER BY 2 DESC;\n" * 4,
    "markdown": b"# Title\n\nSome *text* with a [link](there).\n\n- one\n- two\n" * 4,
}


def answer():
    found = {}
    for name, content in CONTENTS.items():
        result = magika.identify_bytes(content)
        found[name] = {"label": str(result.output.label), "score": result.score}
    return found


report("magika", answer)
