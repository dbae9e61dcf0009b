"""Operations that plans carry out as others, on the host in place of a GPU."""

from __future__ import annotations

import pytest

from tests.cuda.run import check_graph, needs_compiler
from tests.ops.example import Example
from tests.ops.test_examples import name_of
from tests.plan.expansions import EXPANDED

pytestmark = needs_compiler


@pytest.mark.parametrize("example", EXPANDED, ids=name_of)
def test_expansions_stay_on_the_device(example: Example) -> None:
    feeds = [example.feeds(sizes) for sizes in example.sizes]
    assert check_graph(example.graph(), feeds, ulps=1).proof.host_steps == {}
