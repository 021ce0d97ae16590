"""What a caller calls a model."""

import msgspec


class ModelReference(msgspec.Struct, frozen=True):
    """A model reference, taken apart by the grammar of its dialect.

    `base` is the ID or alias of a model, None where the checkpoint alone says it. `checkpoint` is
    the path of an adapter, `account` the tenant that owns the model, `deployment` the name of a deployment
    that is to run it. `text` is what the caller wrote, which responses repeat.
    """

    text: str
    base: str | None
    checkpoint: str | None = None
    account: str | None = None
    deployment: str | None = None
