"""A model that we serve ourselves: its text side and its engine."""

from dataclasses import dataclass

from onward.core.checkpoint import Adapter
from onward.core.remote_image import RemoteImages
from onward.engines.protocol import Engine
from onward.rendering.renderer import Renderer
from onward.rendering.tokenizer import Tokenizer
from onward.routing.catalog import Model


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Everything a request for one model needs.

    `renderer` is None for a model that has no chat format: chat is refused then.
    """

    model: Model
    tokenizer: Tokenizer
    renderer: Renderer | None
    engine: Engine
    adapter: Adapter | None = None
    """The checkpoint that is sampled; None: the model as it is."""
    remote_images: RemoteImages | None = None
    """What fetches images that requests name by their address; None: none is fetched."""
