"""Options of all tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-device",
        action="store_true",
        help="tests marked gpu fail, and are not skipped, where there is no GPU",
    )
