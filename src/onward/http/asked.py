"""A generating request in the forms that its deployments need, and the most that it can cost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from onward.admission.gate import Demand, counts_money
from onward.core.failure import Failure, FailureKind
from onward.core.request import OutputOptions
from onward.dialects.schema import HeaderValue, UsageWhen
from onward.http.bill import Bill
from onward.http.exchange import Exchange
from onward.http.proxied_answer import ProxiedAnswer
from onward.http.served import Target
from onward.http.served_answer import ServedAnswer
from onward.providers.protocol import Protocols
from onward.serve.job import Job, lower, prepare_chat, prepare_completion, worst_output
from onward.serve.model import Deployment, ProxiedModel, ServedModel
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from onward.wire.messages import MessagesEncoder
from onward.wire.passing.outgoing import Passed, read_passed
from onward.wire.passing.prompt_size import image_count
from onward.wire.requests import chat_request, completion_request, messages_request

LARGE_BODY = 128 * 1024
"""Bytes from which a body is read in a thread, so that nobody else waits for it."""
Answering = ServedAnswer | ProxiedAnswer


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
        self._require()
        self._assumed = assumed_max_tokens
        refused: Failure | None = None
        for deployment in self._target.deployments:
            try:
                if isinstance(deployment, ServedModel):
                    await self._prepare_served(deployment)
                else:
                    await self._prepare_proxied(deployment)
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
        prompt, choices, most = 0, 1, 0
        for job in self._jobs.values():
            prompt = max(prompt, job.usage.prompt_tokens)
            count, tokens = worst_output(job)
            choices, most = max(choices, count), max(most, tokens)
        passed, lowerable = self._passed, False
        if passed is not None:
            prompt = max(prompt, passed.prompt_tokens)
            choices = max(choices, passed.choices)
            most = max(most, passed.max_tokens or self._assumed)
            lowerable = exchange.dialect.passing.lowers_limit and passed.max_tokens is not None
        elif self._neutral is not None:
            lowerable = exchange.dialect.passing.lowers_limit and self._neutral.max_tokens is not None
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
        limit = bill.max_tokens if bill.lowered else None
        if passed.max_tokens is None and (self._caps or self._own_limit is not None):
            limit = self._assumed
        return ProxiedAnswer(
            deployment,
            path=exchange.dialect.surfaces[self._surface.name].path,
            passed=passed,
            max_tokens=limit,
            show_usage=passed.include_usage or exchange.dialect.stream.usage is UsageWhen.ALWAYS,
            done=exchange.dialect.stream.done,
            record=exchange.record,
            members=exchange.dialect.passing.members,
            input_images=self._images,
        )

    async def _prepare_served(self, deployment: ServedModel) -> None:
        exchange = self._exchange
        if self._neutral is None:
            self._neutral = await in_turn(self._surface.read, exchange, self._raw, self._body)
        job = await self._surface.prepare(deployment, self._neutral, exchange.request_id)
        if exchange.dialect.response.media_usage:
            job.usage.input_images = sum(len(prompt.images) for prompt in job.prompts)
        self._jobs[deployment.deployment] = job

    async def _prepare_proxied(self, deployment: ProxiedModel) -> None:
        dialect, name = self._exchange.dialect, self._surface.name
        provider = deployment.provider
        rules = dialect.passed.get(name)
        if rules is None or provider.protocol is not Protocols.OPENAI:
            raise self._no_route(FailureKind.SURFACE_UNSUPPORTED)
        if name not in provider.surfaces:
            raise self._no_route(dialect.passing.no_route)
        if self._passed is None:
            if len(self._raw) < LARGE_BODY:
                self._passed = read_passed(rules, self._body, self._raw)
            else:
                self._passed = await asyncio.to_thread(read_passed, rules, self._body, self._raw)
            if dialect.response.media_usage:
                self._images = image_count(self._body)
            if self._passed.model_max_tokens:
                self._own_limit = self._target.model.default_max_tokens
                self._assumed = self._own_limit or self._assumed

    def _require(self) -> None:
        """Raises `Failure` where the model does not declare what the surface needs (P-1)."""
        model, needed = self._target.model, self._surface.capability
        if needed not in model.capabilities:
            raise Failure(
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
