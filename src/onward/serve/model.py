"""The ways in which a model is run: by an engine of ours, or by a provider elsewhere."""

from dataclasses import dataclass

from onward.core.checkpoint import Adapter
from onward.core.remote_image import RemoteImages
from onward.engines.protocol import Engine
from onward.providers.protocol import Provider
from onward.rendering.renderer import Renderer
from onward.rendering.tokenizer import Tokenizer
from onward.routing.catalog import Model


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A deployment whose tokens we own: the model's text side and its engine.

    `renderer` is None for a model that has no chat format: chat is refused then.
    """

    model: Model
    tokenizer: Tokenizer
    renderer: Renderer | None
    engine: Engine
    deployment: str = "local"
    """Its name in the config."""
    adapter: Adapter | None = None
    """The checkpoint that is sampled; None: the model as it is."""
    remote_images: RemoteImages | None = None
    """What fetches images that requests name by their address; None: none is fetched."""


@dataclass(frozen=True, slots=True)
class ProxiedModel:
    """A deployment whose tokens a provider owns."""

    model: Model
    provider: Provider
    upstream: str
    """The provider's name for the model; it shows nowhere."""
    deployment: str
    limit_field: str = "max_completion_tokens"
    """What the provider's chat calls the most tokens of a reply."""
    asks_usage: bool = True
    """Whether it takes `stream_options.include_usage`."""
    adaptive: bool = False
    """Whether the model decides itself how much it reasons, and is told an effort rather than a budget."""


Deployment = ServedModel | ProxiedModel
