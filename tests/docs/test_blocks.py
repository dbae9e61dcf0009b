"""The reader of pages itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, commands_of, differences

PAGE = """# Page

<!-- not run: it needs a GPU -->
```python
x = 1
```

- a list
  <!-- output varies: times -->
  ```console
  $ kn info a.onnx  # a comment
  line
  $ kn plan a.onnx \\
    --check
  ```

```
text
```
"""


def test_blocks_have_notes_and_languages(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    first, second, third = blocks_of(tmp_path / "page.md")
    assert (first.language, first.text, first.not_run) == ("python", "x = 1", "it needs a GPU")
    assert (first.line, second.line) == (4, 10)
    assert (second.not_run, second.output_varies) == ("", "times")
    assert (third.language, third.not_run) == ("", "")
    info, plan = commands_of(second)
    assert (info.words, info.output) == ("kn info a.onnx", ["line"])
    assert plan.words.split() == ["kn", "plan", "a.onnx", "--check"]


def test_a_console_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match=r"page.md:3: a console block begins"):
        commands_of(Block(Path("page.md"), 3, "console", "kn info"))


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        (["a  1.5 ms"], "a 22.75 ms\n", []),
        (["a", "b"], "b\na\n", ["b"]),
        (["a", "...", "c"], "a\nb\nc\n", []),
        (["device  cpu: planned..."], "device cpu: planned, with kernels\n", []),
        (["three  99%  ████"], "three  98%  ██\n", []),
        (["four"], "three\n", ["four"]),
    ],
)
def test_what_is_shown_is_printed_but_for_numbers(
    shown: list[str], printed: str, missing: list[str]
) -> None:
    assert differences(shown, printed) == missing
