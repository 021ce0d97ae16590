"""From a plan to the objects that answer: models, routes, the application."""

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from onward.admission.keys import Key, Keys
from onward.core.clock import SystemClock
from onward.core.ids import RandomIds
from onward.core.money import parse_amount
from onward.core.price import Price
from onward.dialects import DIALECTS
from onward.dialects.schema import HeaderValue
from onward.engines.protocol import Engine
from onward.http.api import endpoints, mount
from onward.http.app import App
from onward.http.exchange import HeldBodies
from onward.http.generation import Generation
from onward.http.health import Health, Lifecycle
from onward.http.limits import Limits
from onward.http.log import LogWriter, RequestLog
from onward.http.metrics import Metrics
from onward.http.routes import Routes
from onward.http.served import Models
from onward.http.tokens import Tokens
from onward.routing import catalog
from onward.serve.model import ServedModel
from onward.wiring import config as settings
from onward.wiring.checkpoints import CheckpointedModel, FolderCheckpoints
from onward.wiring.plan import Plan
from onward.wiring.remote_images import remote_images
from onward.wiring.text_side import TextSide, read_text_side


class Built(msgspec.Struct, frozen=True):
    """An application and what its process needs to know of it."""

    app: App
    limits: Limits
    lifecycle: Lifecycle


def build(
    plan: Plan, engines: Mapping[str, Engine], writer: LogWriter, limits: Limits | None = None
) -> Built:
    """The application of a plan. `engines` is by deployment name. Raises `ServeError`."""
    served: dict[str, ServedModel] = {}
    templates: dict[str, str | None] = {}
    deployments: dict[str, str] = {}
    checkpointed: list[CheckpointedModel] = []
    created = int(time.time())
    fetcher = remote_images(plan.config.images)
    for model in plan.config.models:
        primary = model.deployments[0].name
        side = read_text_side(model, Path(plan.model_files[primary]))
        entry = catalog_model(model, side, created)
        served[model.id] = ServedModel(
            entry, side.tokenizer, side.renderer, engines[primary], remote_images=fetcher
        )
        templates[model.id] = side.chat_template
        deployments[primary] = model.id
        if model.checkpoints:
            root, file = Path(model.checkpoints), Path(plan.model_files[primary])
            checkpointed.append(CheckpointedModel(entry, root, file))
    known = catalog.Catalog([one.model for one in served.values()])
    models = Models(known, served, deployments, FolderCheckpoints(checkpointed) if checkpointed else None)
    return assemble(plan.config, models, templates, writer, limits)


def assemble(
    config: settings.Config,
    models: Models,
    templates: Mapping[str, str | None],
    writer: LogWriter,
    limits: Limits | None = None,
) -> Built:
    """The application over models that are there already."""
    server = config.server
    limits = limits or Limits(
        body_bytes=server.max_body_bytes,
        held_body_bytes=max(Limits().held_body_bytes, 2 * server.max_body_bytes),
        request_s=server.request_timeout_s,
    )
    held, lifecycle, clock = HeldBodies(limits.held_body_bytes), Lifecycle(), SystemClock()
    metrics = Metrics(models.status)
    mounts = {path.rstrip("/"): DIALECTS[name] for name, path in config.dialects.items()}
    routes = Routes(mounts)
    Health(models, metrics, lifecycle, list(mounts)).add_to(routes)
    answers = endpoints(
        Generation(models, limits, held, clock), Tokens(models, templates, limits, held), models
    )
    for path, dialect in mounts.items():
        mount(routes, path, dialect, answers)
    log = RequestLog(writer, text=server.log_format == "text")
    app = App(
        routes=routes,
        keys=keys_of(config),
        metrics=metrics,
        log=log,
        ids=RandomIds(),
        header_values={HeaderValue.CONFIG_VERSION: config.version.encode()},
    )
    return Built(app, limits, lifecycle)


def keys_of(config: settings.Config) -> Keys:
    """The keys of a loaded config."""
    return Keys(
        Key(
            id=key.name,
            name=key.name,
            sha256=bytes.fromhex(key.sha256),
            models=None if key.models is None else frozenset(key.models),
        )
        for key in config.keys
    )


def catalog_model(model: settings.Model, side: TextSide, created: int) -> catalog.Model:
    """What callers see of a model of the config."""
    renderer = side.renderer
    capabilities = frozenset(model.capabilities)
    if renderer is None:
        capabilities -= {"chat", "tools"}
    elif not renderer.tools:
        capabilities -= {"tools"}
    elif "chat" in capabilities:
        capabilities |= {"tools"}
    if any(deployment.mmproj for deployment in model.deployments):
        capabilities |= {"images"}
    return catalog.Model(
        id=model.id,
        aliases=tuple(model.aliases),
        repo=model.repo or None,
        kind=model.kind,
        capabilities=capabilities,
        renderer=None if renderer is None else renderer.name,
        renderer_reason=None if renderer is None else renderer.reason,
        context_length=side.context_length,
        default_max_tokens=model.default_max_tokens,
        price=_price(model.price),
        created=created,
        agreement=model.agreement,
    )


def _price(price: settings.Price | None) -> Price | None:
    if price is None:
        return None
    return Price(
        input=parse_amount(price.input),
        cached_input=parse_amount(price.input if price.cached_input is None else price.cached_input),
        output=parse_amount(price.output),
    )
