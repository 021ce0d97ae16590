"""The official tokenizers and templates that rendering is compared with."""

import os
from pathlib import Path

import pytest

from tests.conftest import missing


@pytest.fixture(scope="session")
def official() -> Path:
    """A folder with one folder for each model family: `tokenizer.json`, `*.jinja`."""
    folder = os.environ.get("ONWARD_TOKENIZERS")
    if not folder:
        missing("a folder of official tokenizers (the environment variable ONWARD_TOKENIZERS)")
    return Path(folder)
