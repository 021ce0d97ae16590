"""From a plan to the objects that answer: models, routes, the application."""

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from onward.admission.store import Store
from onward.core.clock import SystemClock
from onward.core.ids import RandomIds
from onward.core.money import parse_amount
from onward.core.price import Price
from onward.core.remote_image import RemoteImages
from onward.dialects import DIALECTS
from onward.dialects.schema import HeaderValue
from onward.engines.protocol import Engine
from onward.http.admin.reload import Reload
from onward.http.api import endpoints, mount
from onward.http.app import App
from onward.http.exchange import HeldBodies
from onward.http.generation import Generation
from onward.http.health import Health
from onward.http.idempotent import Idempotency
from onward.http.lifecycle import Lifecycle
from onward.http.limits import Limits
from onward.http.log import LogWriter, RequestLog
from onward.http.metrics import Metrics
from onward.http.routes import Routes
from onward.http.served import Models
from onward.http.tokens import Tokens
from onward.http.tries import Tries
from onward.providers.protocol import Provider
from onward.routing import catalog
from onward.routing.breaker import Breakers
from onward.serve.model import Deployment, ProxiedModel, ServedModel
from onward.stores.limits import MemoryLimits
from onward.wiring import config as settings
from onward.wiring.admin import admin_of
from onward.wiring.admission import Admission
from onward.wiring.checkpoints import CheckpointedModel, FolderCheckpoints
from onward.wiring.content_filter import content_filter
from onward.wiring.plan import Plan
from onward.wiring.providers import policy_of
from onward.wiring.remote_images import remote_images
from onward.wiring.text_side import TextSide, read_text_side


class Built(msgspec.Struct, frozen=True):
    """An application and what its process needs to know of it."""

    app: App
    limits: Limits
    lifecycle: Lifecycle
    models: Models
    breakers: Breakers


class Lasting:
    """What an HTTP process keeps when its config changes: what was admitted, counted and is running."""

    def __init__(
        self,
        config: settings.Config,
        writer: LogWriter,
        admission: Admission,
        store: Store | None,
        reload: Reload | None = None,
    ) -> None:
        self.admission = admission
        self.store = store
        self.reload = reload
        self.lifecycle = Lifecycle()
        self.log = RequestLog(writer, text=config.server.log_format == "text")
        self.created = int(time.time())
        self.models: Models | None = None
        """Those in force."""
        self.metrics = Metrics(lambda: {} if self.models is None else self.models.status())


def read_text_sides(plan: Plan, known: Mapping[str, TextSide]) -> dict[str, TextSide]:
    """The text side of every embedded deployment, by `text_key`; those that are `known` are not read again.

    Raises `ServeError`. Takes long, and may run in a thread.
    """
    sides: dict[str, TextSide] = {}
    for model in plan.config.models:
        for one in model.deployments:
            if one.engine is not None:
                key = text_key(model, plan.model_files[one.name])
                sides[key] = known.get(key) or read_text_side(model, Path(plan.model_files[one.name]))
    return sides


def text_key(model: settings.Model, file: str) -> str:
    """What the text side of a model depends on."""
    return msgspec.json.encode([file, model.id, model.repo, model.renderer, model.context_length]).decode()


def build(
    plan: Plan,
    engines: Mapping[str, Engine],
    providers: Mapping[str, Provider],
    texts: Mapping[str, TextSide],
    lasting: Lasting,
) -> Built:
    """The application of a plan. `engines` is by deployment name, `texts` by `text_key`."""
    deployments: dict[str, list[Deployment]] = {}
    templates: dict[str, str | None] = {}
    checkpointed: list[CheckpointedModel] = []
    entries: list[catalog.Model] = []
    fetcher = remote_images(plan.config.images)
    for model in plan.config.models:
        sides = {
            one.name: texts[text_key(model, plan.model_files[one.name])]
            for one in model.deployments
            if one.engine is not None
        }
        first = next(iter(sides.values()), None)
        entry = catalog_model(model, first, lasting.created)
        entries.append(entry)
        templates[model.id] = None if first is None else first.chat_template
        deployments[model.id] = [
            _served(entry, sides[one.name], engines[one.name], one.name, fetcher)
            if one.name in sides
            else _proxied(entry, plan.config, providers, one)
            for one in model.deployments
        ]
        if model.checkpoints and first is not None:
            file = Path(plan.model_files[next(iter(sides))])
            checkpointed.append(CheckpointedModel(entry, Path(model.checkpoints), file))
    known = catalog.Catalog(entries)
    models = Models(known, deployments, FolderCheckpoints(checkpointed) if checkpointed else None)
    return application(plan.config, models, templates, lasting)


def assemble(
    config: settings.Config,
    models: Models,
    templates: Mapping[str, str | None],
    writer: LogWriter,
    limits: Limits | None = None,
    *,
    admission: Admission | None = None,
    store: Store | None = None,
) -> Built:
    """The only application of a process, over models that are there already. Without `admission` only keys
    are looked at.
    """
    admission = admission or Admission(config, None, MemoryLimits(time.monotonic), lease="")
    lasting = Lasting(config, writer, admission, store)
    lasting.models = models
    return application(config, models, templates, lasting, limits)


def application(
    config: settings.Config,
    models: Models,
    templates: Mapping[str, str | None],
    lasting: Lasting,
    limits: Limits | None = None,
) -> Built:
    """The application of a config over its models."""
    server = config.server
    limits = limits or Limits(
        connections=server.max_connections,
        body_bytes=server.max_body_bytes,
        held_body_bytes=max(Limits().held_body_bytes, 2 * server.max_body_bytes),
        request_s=server.request_timeout_s,
    )
    admission, metrics = lasting.admission, lasting.metrics
    held = HeldBodies(limits.held_body_bytes)
    breakers = Breakers(policy_of(config.routing), time.monotonic, metrics.rests)
    mounts = {path.rstrip("/"): DIALECTS[name] for name, path in config.dialects.items()}
    routes = Routes(mounts)
    Health(models, metrics, lasting.lifecycle, list(mounts), admission.troubles).add_to(routes)
    admin_of(
        config,
        models,
        breakers,
        held=held,
        admission=admission,
        store=lasting.store,
        reload=lasting.reload,
    ).add_to(routes)
    generation = Generation(
        models,
        limits,
        held,
        Tries(SystemClock(), breakers, models.primaries(), limits.request_s),
        gate=admission.gate,
        idempotency=Idempotency(
            admission.names, limits, SystemClock(), admission.recordings, lease=admission.lease
        ),
        assumed_max_tokens=config.billing.assumed_max_tokens,
    )
    answers = endpoints(generation, Tokens(models, templates, limits, held), models)
    for path, dialect in mounts.items():
        mount(routes, path, dialect, answers)
    app = App(
        routes=routes,
        keys=admission.keys,
        metrics=metrics,
        log=lasting.log,
        ids=RandomIds(),
        header_values={HeaderValue.CONFIG_VERSION: config.version.encode()},
        lifecycle=lasting.lifecycle,
        recheck=None if lasting.store is None else admission.recheck,
    )
    return Built(app, limits, lasting.lifecycle, models, breakers)


def _served(
    entry: catalog.Model, side: TextSide, engine: Engine, name: str, fetcher: RemoteImages | None
) -> ServedModel:
    return ServedModel(entry, side.tokenizer, side.renderer, engine, name, remote_images=fetcher)


def _proxied(
    entry: catalog.Model,
    config: settings.Config,
    providers: Mapping[str, Provider],
    deployment: settings.Deployment,
) -> ProxiedModel:
    (chosen,) = [one for one in config.providers if one.name == deployment.provider]
    return ProxiedModel(
        entry,
        providers[chosen.name],
        deployment.model or entry.id,
        deployment.name,
        limit_field=chosen.limit_field,
        asks_usage=chosen.asks_usage,
        adaptive=deployment.thinking == "adaptive",
    )


def catalog_model(model: settings.Model, side: TextSide | None, created: int) -> catalog.Model:
    """What callers see of a model of the config. `side`: of its first engine; None: providers run it."""
    renderer = None if side is None else side.renderer
    capabilities = frozenset(model.capabilities)
    if side is not None:
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
        context_length=model.context_length if side is None else side.context_length,
        default_max_tokens=model.default_max_tokens,
        price=_price(model.price),
        created=created,
        agreement=model.agreement,
        content_filter=content_filter(model.content_filter),
    )


def _price(price: settings.Price | None) -> Price | None:
    if price is None:
        return None
    return Price(
        input=parse_amount(price.input),
        cached_input=parse_amount(price.input if price.cached_input is None else price.cached_input),
        output=parse_amount(price.output),
    )
