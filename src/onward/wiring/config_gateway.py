"""Settings of the gateway: providers, when deployments rest, who pays and who calls."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(max_length=1000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Amount = Annotated[str, Meta(max_length=30)]


class Routing(msgspec.Struct, kw_only=True):
    """When a deployment rests after failures of its own. Others are tried before it then. Each HTTP process
    decides by what it has seen itself.
    """

    breaker_failures: Annotated[int, Meta(ge=0, le=1000)] = 5
    """Failures in a row after which it rests; 0: it does not, but where it asks to."""
    breaker_open_s: Seconds = 5
    """How long it rests at first. Then one request is sent to it, and decides; each time that this one
    fails, it rests for twice as long."""
    breaker_open_most_s: Seconds = 120
    """The longest that it rests so."""
    retry_after_most_s: Annotated[float, Meta(ge=0, le=86_400)] = 60
    """The longest that it rests because its provider says so (`Retry-After` of 429, 5xx); 0: not at all."""


class Provider(msgspec.Struct, kw_only=True):
    """A service elsewhere that serves models under its own names."""

    name: Name
    """What deployments call it."""
    protocol: Literal["openai", "anthropic"]
    """Which API it speaks."""
    base_url: Text = ""
    """Its address, down to the path that its routes hang under. Either this or `base_urls`."""
    base_urls: list[Text] = []
    """Addresses that answer alike, such as replicas behind no balancer of their own. The one with the
    fewest requests is asked; one that cannot be connected to is replaced by the next."""
    api_key_env: Text = ""
    """Environment variable with our key there."""
    surfaces: list[Literal["completions", "chat", "messages"]] = []
    """Routes that it has; absent: all of its protocol. With `openai` it may have `messages` too. A chat or a
    message for one that has the other route alone is translated."""
    limit_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """What its chat calls the longest reply, where we have to set it."""
    asks_usage: bool = True
    """Whether it takes `stream_options.include_usage`. Without it usage of streams is estimated."""
    connections: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Connections at once to each address; further requests wait."""
    connect_timeout_s: Seconds = 5
    """To connect."""
    first_byte_timeout_s: Seconds = 300
    """To the first byte of its answer; of a stream to its first event, comments do not count."""
    idle_timeout_s: Seconds = 60
    """The longest silence between two pieces of a stream. Comments break it, but no event may be longer
    in coming than the first one may."""


class Tenant(msgspec.Struct, kw_only=True):
    """Somebody who pays."""

    name: Name
    """What keys call it."""
    status: Literal["active", "suspended", "unpaid"] = "active"
    """Only active tenants are served."""
    balance: Amount | None = None
    """Opening balance; absent: not prepaid."""
    monthly_budget: Amount | None = None
    """The most that it may spend in a calendar month."""
    agreements: list[Name] = []
    """Models whose terms it has accepted."""


class Key(msgspec.Struct, kw_only=True):
    """A key that callers send. Once there is one, every caller needs one."""

    name: Name
    """What logs and metrics call it. Also its ID in the ledger: a new name is a new key."""
    tenant: Name | None = None
    """Whose it is."""
    secret_env: Text = ""
    """Environment variable with the key itself."""
    sha256: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """Instead of `secret_env`: the hash of the key in lower-case hexadecimal (see `onward keys new`)."""
    models: list[Name] | None = None
    """IDs of models that it may use; absent: all."""
    monthly_cap: Amount | None = None
    """The most that it may spend in a calendar month."""
    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    """Limit; absent: none."""
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None
    """Limit; absent: none."""
    concurrency: Annotated[int, Meta(ge=1)] | None = None
    """Requests at once; absent: no limit."""
