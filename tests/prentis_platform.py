"""A server as a platform has it: the mount of `prentis`, the real model and a provider's, a key."""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import MODEL_SOURCE, RunningServer, start_server
from tests.mock_provider import MockProvider

SECRET = "on-secret-of-the-platform"
MOUNT = "/prentis/v1"
CONTEXT = 256
"""Of the real model, short enough to be filled."""
MODELS = ("small", "passed")
"""The first is ours, the second a provider's."""
_CONFIG = """
[dialects]
prentis = "{mount}"

[[providers]]
name = "elsewhere"
protocol = "openai"
base_url = "{base_url}"

[[models]]
id = "small"
context_length = {context}
default_max_tokens = 4

[[models.deployments]]
name = "local"
engine = "llama"
source = "{source}"
slots = 2

[[models]]
id = "passed"
default_max_tokens = 4

[[models.deployments]]
name = "remote"
provider = "elsewhere"
model = "their-own-name"

[[tenants]]
name = "acme"

[[keys]]
name = "ci"
tenant = "acme"
sha256 = "{digest}"
"""


@contextlib.contextmanager
def platform(folder: Path) -> Iterator[RunningServer]:
    """The server, ready. Its store and its log lie in `folder`."""
    with MockProvider() as provider:
        config = _CONFIG.format(
            mount=MOUNT,
            base_url=provider.base_url,
            context=CONTEXT,
            source=MODEL_SOURCE,
            digest=hashlib.sha256(SECRET.encode()).hexdigest(),
        )
        running = start_server(folder, config=config)
        try:
            running.wait_ready()
            yield running
            assert running.stop() == 0, running.log.read_text()
        finally:
            running.process.kill()
            running.process.wait()
