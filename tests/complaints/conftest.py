"""Every complaint is a case at a whole gateway, before providers that misbehave."""

from collections.abc import Iterator

import pytest

from tests.mock_provider import MockProvider


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    """A provider that misbehaves where a prompt says so."""
    with MockProvider() as provider:
        yield provider


@pytest.fixture
def other() -> Iterator[MockProvider]:
    """A second one."""
    with MockProvider() as provider:
        yield provider
