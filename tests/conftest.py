"""Settings that hold for all tests."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.bucket import Bucket

# Ray reads these when it is first imported. A token in the environment keeps it from writing one to the home directory.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", "0" * 64)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# The tests' processes share the cores: threads of torch that wait by spinning would keep others from their work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Output is 80 columns wide and plain, whatever the terminal is that the tests run in.
for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start Ray go first: they take longest, and what comes last should fill both processes to the end."""
    with_ray = {item.path for item in items if item.get_closest_marker("ray")}
    items.sort(key=lambda item: item.path not in with_ray)


@pytest.fixture(scope="module")
def bucket() -> "Iterator[Bucket]":
    """An S3 server of the module's own."""
    from tests.bucket import Bucket

    server = Bucket()
    yield server
    server.down()
