"""A generating request in the forms that its deployments need, and the most that it can cost."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import msgspec

from onward.admission.demand import Demand, counts_money
from onward.core.content_filter import ContentFilter
from onward.core.failure import Failure, FailureKind
from onward.core.filtered_deltas import FilteredDeltas
from onward.core.ids import RandomIds
from onward.core.request import ChatRequest, OutputOptions
from onward.core.usage import Usage
from onward.dialects.schema import Dialect, HeaderValue, UsageWhen
from onward.dialects.schema import Surface as Rules
from onward.http.bill import Bill
from onward.http.exchange import Exchange
from onward.http.input_filter import check_texts, require_text
from onward.http.proxied_answer import ProxiedAnswer
from onward.http.served import Target
from onward.http.served_answer import ServedAnswer
from onward.http.translated_answer import TranslatedAnswer
from onward.providers.protocol import ROUTES
from onward.serve.content_filter import check_token_ids, log_found
from onward.serve.job import Job, lower, prepare_chat, prepare_completion, worst_output
from onward.serve.model import Deployment, ProxiedModel, ServedModel
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from onward.wire.messages import MessagesEncoder
from onward.wire.passing.image_size import check_images
from onward.wire.passing.kinds import KINDS, Kind, Shown, own_head
from onward.wire.passing.outgoing import Passed, read_passed
from onward.wire.passing.prompt_size import image_count
from onward.wire.requests import chat_request, completion_request, messages_request
from onward.wire.translating.ways import WAYS, Way
from onward.wire.translating.ways import body as translated_body

LARGE_BODY = 128 * 1024
"""Bytes from which a body is read in a thread, so that nobody else waits for it."""
Answering = ServedAnswer | ProxiedAnswer | TranslatedAnswer
_REASONING = ("hybrid", "reasoning")
"""Kinds of models that have a choice of how much they reason."""
_LONGEST_HEADER = 1024
_new_id = RandomIds()


class Surface(msgspec.Struct, frozen=True):
    """What one generating surface is made of."""

    name: str
    read: Callable[[Any, dict[str, Any]], Any]
    prepare: Callable[[Any, Any, str], Awaitable[Job]]
    encoder: Callable[..., ChatEncoder | CompletionEncoder | MessagesEncoder]
    capability: str
    """What a model must declare."""


COMPLETIONS = Surface("completions", completion_request, prepare_completion, CompletionEncoder, "completions")
CHAT = Surface("chat", chat_request, prepare_chat, ChatEncoder, "chat")
MESSAGES = Surface("messages", messages_request, prepare_chat, MessagesEncoder, "chat")


async def in_turn(read: Callable[..., Any], exchange: Exchange, raw: bytes, body: dict[str, Any]) -> Any:
    """Read a body by the exchange's dialect, a large one in a thread."""
    if len(raw) < LARGE_BODY:
        return read(exchange.dialect, body)
    return await asyncio.to_thread(read, exchange.dialect, body)


@cache
def _shown(dialect: Dialect, usage: bool) -> Shown:
    stream = dialect.stream
    return Shown(usage=usage or stream.usage is UsageWhen.ALWAYS, done=stream.done)


def _headers(kind: Kind, exchange: Exchange) -> list[tuple[bytes, bytes]]:
    """Those of the caller that go on."""
    sent = [(name, exchange.headers.get(name, b"")) for name in kind.headers]
    return [(name, value) for name, value in sent if value and len(value) <= _LONGEST_HEADER]


class Asked:
    """A request for a model that its caller may use."""

    def __init__(
        self, exchange: Exchange, surface: Surface, target: Target, raw: bytes, body: dict[str, Any]
    ) -> None:
        self._exchange = exchange
        self._surface = surface
        self._target = target
        self._raw = raw
        self._body = body
        self._neutral: OutputOptions | None = None
        self._jobs: dict[str, Job] = {}
        self._passed: Passed | None = None
        self._translated: dict[bool, dict[str, Any]] = {}
        """The fields of a body in the words of the other API, for deployments that speak that one alone."""
        self._assumed = 0
        self._caps = False
        self._own_limit: int | None = None
        """The model's default, where it holds for the provider too."""
        self._images = 0
        self.stream = False
        self.deployments: list[Deployment] = []
        """Those that can take it, in order."""

    async def prepare(self, assumed_max_tokens: int) -> None:
        """Read it for every deployment that can take it. Raises `Failure` if none can."""
        if self._surface.capability not in self._target.model.capabilities:
            raise self._not_offered()
        if self._target.model.content_filter is not None:
            await check_texts(self._exchange, self._target, self._surface.name, self._body, self._raw)
        self._assumed = assumed_max_tokens
        refused: Failure | None = None
        for deployment in self._target.deployments:
            try:
                if isinstance(deployment, ServedModel):
                    await self._prepare_served(deployment)
                else:
                    left = self._prepare_proxied(deployment)
                    if left is not None:
                        await left
            except Failure as failure:
                refused = refused or failure
            else:
                self.deployments.append(deployment)
        if not self.deployments:
            raise refused or self._no_route(FailureKind.SURFACE_UNSUPPORTED)
        record, known = self._exchange.record, self._neutral or self._passed
        if known is not None:
            self.stream = record.stream = known.stream
            record.user = known.user

    def demand(self) -> Demand:
        """The most that it can take, at whichever deployment."""
        exchange, model = self._exchange, self._target.model
        passed, lowers = self._passed, exchange.dialect.passing.lowers_limit
        prompt, choices, most, lowerable = 0, 1, 0, False
        if passed is not None:
            asked = passed.max_tokens
            prompt, choices, most = passed.size.most, passed.choices, max(asked or self._assumed, 0)
            lowerable = lowers and asked is not None
        elif self._neutral is not None:
            lowerable = lowers and self._neutral.max_tokens is not None
        for job in self._jobs.values():
            prompt = max(prompt, job.usage.prompt_tokens)
            count, tokens = worst_output(job)
            choices, most = max(choices, count), max(most, tokens)
        self._caps = exchange.dialect.passing.cap_unset and counts_money(exchange.key, exchange.tenant)
        return Demand(
            request_id=exchange.request_id,
            label=exchange.record.label,
            key=exchange.key,
            tenant=exchange.tenant,
            model=model.id,
            price=model.price,
            surface=self._surface.name,
            prompt_tokens=prompt,
            choices=choices,
            max_tokens=most,
            lowerable=lowerable,
            config_version=exchange.header_values.get(HeaderValue.CONFIG_VERSION, b"").decode(),
        )

    def answer(self, deployment: Deployment, bill: Bill, created: int) -> Answering:
        """A fresh try at one of `deployments`."""
        exchange = self._exchange
        if isinstance(deployment, ServedModel):
            job, neutral = self._jobs[deployment.deployment], self._neutral
            if bill.lowered:
                lower(job, bill.max_tokens)
            encoder = self._surface.encoder(
                exchange.dialect, neutral, id=exchange.request_id, created=created
            )
            return ServedAnswer(job, encoder, exchange.record)
        passed = self._passed
        assert passed is not None  # noqa: S101 - read by `prepare`
        if self._surface.name not in deployment.provider.surfaces:
            return self._translation(deployment, WAYS[self._surface.name], passed, bill, created)
        kind = KINDS[self._surface.name]
        limit = bill.max_tokens if bill.lowered else None
        if passed.max_tokens is None and (self._caps or self._own_limit is not None):
            limit = self._assumed
        shown = _shown(exchange.dialect, passed.include_usage)
        if exchange.dialect.passing.choices_alone:
            head = own_head(exchange.dialect, self._surface.name, passed, exchange.request_id, created)
            shown = msgspec.structs.replace(shown, head=head)
        return ProxiedAnswer(
            deployment,
            kind,
            exchange.dialect.surfaces[self._surface.name].path,
            passed,
            limit,
            shown,
            _headers(kind, exchange) if kind.headers else [],
            exchange.record,
            self._images,
            self._content(),
        )

    def _translation(
        self, deployment: ProxiedModel, way: Way, passed: Passed, bill: Bill, created: int
    ) -> TranslatedAnswer:
        exchange, neutral, fields = self._exchange, self._neutral, self._translated[deployment.adaptive]
        assert neutral is not None  # noqa: S101 - read by `prepare`
        # without a limit: a count of a provider, or a guess, does not show the end of a context
        told = msgspec.structs.replace(neutral, max_tokens=None)
        return TranslatedAnswer(
            deployment,
            path=way.path,
            body=translated_body(
                fields,
                model=deployment.upstream,
                limit_field=deployment.limit_field if way.own_limit_field else "max_tokens",
                max_tokens=bill.max_tokens if bill.lowered else neutral.max_tokens or self._assumed,
                stream=neutral.stream,
                ask_usage=way.asks_usage and deployment.asks_usage,
            ),
            reader=way.reader(_new_id),
            encoder=self._surface.encoder(exchange.dialect, told, id=exchange.request_id, created=created),
            usage=Usage(prompt_tokens=passed.size.likely, input_images=self._images),
            record=exchange.record,
            output=self._output(),
        )

    def _content(self) -> ContentFilter | None:
        """The content filter of the model, where it has patterns of output."""
        content = self._target.model.content_filter
        return content if content is not None and content.output else None

    def _output(self) -> FilteredDeltas | None:
        """What holds a translated answer against the patterns of the model; None: it has none."""
        model, request_id = self._target.model, self._exchange.request_id
        content = model.content_filter
        if content is None or not content.output:
            return None
        return FilteredDeltas(
            content, stream=self.stream, found=lambda what: log_found(request_id, model.id, what)
        )

    async def _prepare_served(self, deployment: ServedModel) -> None:
        exchange = self._exchange
        job = await self._surface.prepare(deployment, await self._read(), exchange.request_id)
        if deployment.model.content_filter is not None:
            await check_token_ids(deployment, job.request, exchange.request_id)
        if exchange.dialect.response.media_usage:
            job.usage.input_images = sum(len(prompt.images) for prompt in job.prompts)
        self._jobs[deployment.deployment] = job

    async def _read(self) -> Any:
        """The neutral request."""
        if self._neutral is None:
            self._neutral = await in_turn(self._surface.read, self._exchange, self._raw, self._body)
        return self._neutral

    def _prepare_proxied(self, deployment: ProxiedModel) -> Awaitable[None] | None:
        """A provider that has the route gets the request as it is, another one translated. What is given is
        to be waited for.
        """
        dialect, name = self._exchange.dialect, self._surface.name
        provider = deployment.provider
        rules, way = dialect.passed.get(name), WAYS.get(name)
        if name not in provider.surfaces:
            if way is None or not dialect.passing.translates or way.surface not in provider.surfaces:
                own = name in ROUTES[provider.protocol]
                raise self._no_route(dialect.passing.no_route if own else FailureKind.SURFACE_UNSUPPORTED)
        else:
            way = None
        if rules is None:
            raise self._no_route(FailureKind.SURFACE_UNSUPPORTED)
        if deployment.model.content_filter is not None:
            require_text(self._target, self._body)
        if self._passed is None:
            if dialect.passing.largest_image is not None:
                taken = "images" in self._target.model.capabilities
                check_images(self._body, dialect.passing.largest_image, taken=taken)
            if len(self._raw) >= LARGE_BODY:
                return self._prepare_slowly(rules, way, adaptive=deployment.adaptive)
            self._know(read_passed(rules, self._body, self._raw))
        if way is None or deployment.adaptive in self._translated:
            return None
        return self._prepare_slowly(rules, way, adaptive=deployment.adaptive)

    async def _prepare_slowly(self, rules: Rules, way: Way | None, *, adaptive: bool) -> None:
        if self._passed is None:
            self._know(await asyncio.to_thread(read_passed, rules, self._body, self._raw))
        if way is not None and adaptive not in self._translated:
            neutral: ChatRequest = await self._read()
            reasons = self._target.model.kind in _REASONING
            most = neutral.max_tokens or self._assumed
            self._translated[adaptive] = way.fields(neutral, reasons=reasons, most=most, adaptive=adaptive)

    def _know(self, passed: Passed) -> None:
        self._passed = passed
        if self._exchange.dialect.response.media_usage:
            self._images = image_count(self._body)
        if passed.model_max_tokens:
            self._own_limit = self._target.model.default_max_tokens
            self._assumed = self._own_limit or self._assumed

    def _not_offered(self) -> Failure:
        """The model does not declare what the surface needs (P-1)."""
        model, needed = self._target.model, self._surface.capability
        return Failure(
            self._exchange.dialect.passing.no_route,
            f"The model '{model.id}' does not offer {needed}; it offers "
            f"{', '.join(sorted(model.capabilities)) or 'nothing'}.",
            param="model",
        )

    def _no_route(self, kind: FailureKind) -> Failure:
        return Failure(
            kind,
            f"The model '{self._target.model.id}' does not offer {self._surface.name} here. Use another"
            " model, or another route.",
            param="model",
        )
