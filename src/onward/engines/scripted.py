"""An engine that emits given token IDs: for what a real model cannot be made to say."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from onward.core.failure import Failure, FailureKind
from onward.core.generate import Chunk, EngineFinish, GenerateRequest, ScoredToken
from onward.core.image import ImageSpan
from onward.engines.protocol import EngineState, EngineStatus

Script = Callable[[GenerateRequest], Sequence[Sequence[int] | Exception]]
"""From a request to its steps: the token IDs of each, or what the engine raises there."""


class ScriptedEngine:
    """Plays a script, step by step, and honours `max_tokens` and stop tokens like any engine."""

    def __init__(
        self,
        script: Script | Sequence[int],
        *,
        context_length: int = 8192,
        image: ImageSpan | None = None,
    ) -> None:
        """`image`: what every image takes; None: it takes none."""
        self._script: Script = script if callable(script) else lambda _: [[token] for token in script]
        self._context_length = context_length
        self._image = image
        self.requests: list[GenerateRequest] = []
        self.cancelled = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        yield Chunk(cached_tokens=0, prompt_tokens=self._scored_prompt(request))
        if request.max_tokens == 0:
            yield Chunk(finish=EngineFinish.LENGTH)
            return
        left = request.max_tokens
        stops = set(request.stop_token_ids)
        try:
            for step in self._script(request):
                await asyncio.sleep(0)
                if isinstance(step, Exception):
                    raise step
                taken: list[ScoredToken] = []
                finish: EngineFinish | None = None
                for token in step:
                    taken.append(self._scored(token, request.alternatives))
                    left -= 1
                    if token in stops:
                        finish = EngineFinish.STOP_TOKEN
                    elif left == 0:
                        finish = EngineFinish.LENGTH
                    if finish:
                        break
                yield Chunk(taken, finish)
                if finish:
                    return
            yield Chunk(finish=EngineFinish.LENGTH)
        except GeneratorExit:
            self.cancelled += 1
            raise

    async def measure_images(self, sizes: list[tuple[int, int]]) -> list[ImageSpan]:
        if self._image is None:
            raise Failure(FailureKind.INVALID_REQUEST, "This engine takes no images.")
        return [self._image for _ in sizes]

    def status(self) -> EngineStatus:
        return EngineStatus(state=EngineState.READY, slots=1, context_length=self._context_length)

    async def load_adapter(self, name: str, path: str) -> None:
        raise NotImplementedError(f"a scripted engine has no adapters ({name}: {path})")

    async def close(self) -> None:
        pass

    @staticmethod
    def _scored(token: int, alternatives: int | None) -> ScoredToken:
        if alternatives is None:
            return ScoredToken(token)
        others = tuple((other, -1.0 - other) for other in range(alternatives))
        return ScoredToken(token, -0.5, ((token, -0.5), *others)[:alternatives])

    def _scored_prompt(self, request: GenerateRequest) -> list[ScoredToken] | None:
        if request.prompt_alternatives is None:
            return None
        first, *rest = request.prompt
        return [ScoredToken(first), *(self._scored(token, request.prompt_alternatives) for token in rest)]
