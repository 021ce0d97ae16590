"""Who computes when: continuous batching over a fixed number of sequences.

A decode step takes one token for every running request in one call. A prefill step takes one chunk
of one prompt in a call of its own. They take turns, so that a long prompt slows the others down
but never stalls them. Nothing here can change what a request gets: rows of a call do not influence
each other (`rows_exact`), chunks are cut at fixed positions, and only whole chunks are reused, or all
of an equal prompt.
"""

import time
from collections import deque
from collections.abc import Callable

from onward.core.failure import Failure, FailureKind, invalid
from onward.core.generate import EngineFinish, GenerateRequest, ScoredToken
from onward.engines.llama.adapters import Adapters
from onward.engines.llama.binding import Context, DecodeError, Logits
from onward.engines.llama.checks import check, check_length
from onward.engines.llama.exactness import rows_are_exact
from onward.engines.llama.frames import Progress
from onward.engines.llama.pictures import Pictures
from onward.engines.llama.sampling import Sampler, Softmax
from onward.engines.llama.settings import ADAPTERS
from onward.engines.llama.slots import CHUNK, Run, Slot, best_match

WORTH_A_COPY = 32
"""Tokens: copying a sequence copies its whole memory, which costs about as much as computing these."""

DECODE_SHARE = 0.2
"""While prompts wait, running requests get this part of the time of the prompts' chunks."""

OLDEST_EVERY = 4
"""One chunk in so many goes to the prompt that came first, however long it is."""

Key = tuple[int, int]
"""A connection, and the connection's own number of a request."""


Work = tuple[Slot, Run]


class Scheduler:
    """Requests in, outputs out, one `step` at a time. Not thread-safe: one thread owns it."""

    def __init__(
        self,
        context: Context,
        *,
        slots: int,
        queue: int,
        context_length: int,
        adapters: int = ADAPTERS,
        pictures: Pictures | None = None,
        emit: Callable[[Key, Progress], None],
        fail: Callable[[Key, Failure], None],
    ) -> None:
        self._context = context
        self._vocabulary = context.model.vocabulary
        self._can_reuse = context.model.can_reuse
        self.pictures = pictures or Pictures(context, None)
        self._slots = [Slot(index) for index in range(slots)]
        self._queue_limit = queue
        self._context_length = context_length
        self._emit = emit
        self._fail = fail
        self._waiting: deque[Run] = deque()
        self._runs: dict[Key, Run] = {}
        self._adapters = Adapters(context, limit=max(adapters, 1))
        self._submitted = 0
        self._tick = 0
        self._chunks = 0
        self._owed = 0.0
        self._seconds_per_run = 1.0
        self.stalled = False
        """Nothing can be computed before an image is encoded."""
        self.rows_exact = slots == 1 or rows_are_exact(context, slots)

    @property
    def running(self) -> int:
        return sum(slot.run is not None for slot in self._slots)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def cached_prefixes(self) -> int:
        return sum(bool(slot.prefix) for slot in self._slots)

    @property
    def idle(self) -> bool:
        return not self._runs

    # Requests

    def submit(self, key: Key, request: GenerateRequest) -> None:
        """Take a request on. Raises `Failure` if it cannot be."""
        check(request, vocabulary=self._vocabulary)
        adapter = request.adapter
        if adapter is not None and request.adapter_path is None and not self._adapters.knows(adapter):
            raise invalid("adapter", f"The adapter {adapter} is not loaded.")
        free = sum(slot.run is None for slot in self._slots)
        if len(self._waiting) >= self._queue_limit + free:
            raise Failure(
                FailureKind.ENGINE_FULL,
                f"The engine is full: {self.running} requests run and {self.waiting} wait. Try again later.",
                retry_after=self._retry_after(),
            )
        pictures = self.pictures.of(request)
        image_tokens = sum(picture.measure.span.tokens for picture in pictures)
        check_length(len(request.prompt) + image_tokens, self._context_length)
        self._submitted += 1
        run = Run(
            key=key,
            order=self._submitted,
            request=request,
            sampler=Sampler(request),
            started_at=time.monotonic(),
            scored=None if request.prompt_alternatives is None else [ScoredToken(request.prompt[0])],
            pictures=pictures,
            image_tokens=image_tokens,
        )
        self._runs[key] = run
        self._waiting.append(run)

    def cancel(self, key: Key) -> None:
        """End a request without another word. One that is over already is ignored."""
        run = self._runs.get(key)
        if run is not None:
            self._release(run)

    def load_adapter(self, name: str, path: str) -> None:
        """Load or replace an adapter. Raises `Failure`."""
        if any(run.request.adapter == name for run in self._runs.values()):
            raise Failure(FailureKind.INVALID_REQUEST, f"The adapter {name} is in use.", param="name")
        self._adapters.add(name, path, self._adapters_in_use())
        for slot in self._slots:
            if slot.owner[0] == name:
                slot.keep(0)

    def _adapters_in_use(self) -> set[str]:
        running = (slot.run.request.adapter for slot in self._slots if slot.run is not None)
        return {name for name in running if name is not None}

    def _retry_after(self) -> int:
        rounds = 1 + self.waiting / len(self._slots)
        return min(60, max(1, round(self._seconds_per_run * rounds / 2)))

    # Steps

    def step(self) -> None:
        """Admit what fits, then compute once: a decode step or a chunk of a prompt."""
        self._admit()
        busy = [(slot, slot.run) for slot in self._slots if slot.run is not None]
        decoding = [(slot, run) for slot, run in busy if run.decoding]
        prefilling = [
            (slot, run) for slot, run in busy if not run.decoding and not self._waits_for_image(run)
        ]
        self.stalled = not decoding and not prefilling
        started = time.perf_counter()
        if decoding and (not prefilling or self._owed > 0):
            self._decode(decoding)
            self._owed -= time.perf_counter() - started
        elif prefilling:
            self._prefill(*self._next_prefill(prefilling))
            self._owed = (time.perf_counter() - started) * DECODE_SHARE
            return
        if not prefilling:
            self._owed = 0.0

    def _admit(self) -> None:
        held = False
        for run in list(self._waiting):
            free = [slot for slot in self._slots if slot.run is None]
            if not free:
                return
            if run.request.adapter is not None:
                # In turn among themselves, so that one in steady demand cannot keep the others out.
                held = held or not self._adapters.has_room(run.request.adapter, self._adapters_in_use())
                if held or not self._take_adapter(run, run.request.adapter):
                    continue
            self._waiting.remove(run)
            self._place(run, free)

    def _take_adapter(self, run: Run, name: str) -> bool:
        """Have the adapter of a run ready; a run whose adapter cannot be loaded ends."""
        try:
            self._adapters.take(name, run.request.adapter_path, self._adapters_in_use())
        except Failure as failure:
            self._release(run)
            self._fail(run.key, failure)
            return False
        return True

    def _place(self, run: Run, free: list[Slot]) -> None:
        slot, length = best_match(free, run) if self._reuses(run) else (None, 0)
        if slot is None:
            slot = min(free, key=self._loss)
        run.slot = slot
        slot.run = run
        run.position = run.cached = length
        slot.owner = run.owner
        slot.keep(length)
        self._touch(slot)
        self._context.truncate(slot.index, length)

    def _loss(self, slot: Slot) -> tuple[bool, bool, int]:
        """How bad it is to overwrite a slot: the least is chosen, and the lowest index of equals.

        llama.cpp computes neighbours in one graph, and rows with a gap between them in several: the
        step of four is then a third slower. Otherwise what was used longest ago goes first.
        """
        near = [one.run for one in self._slots if abs(one.index - slot.index) == 1]
        lonely = not any(near) and self.running > 0
        return bool(slot.prefix), lonely, slot.used if slot.prefix else 0

    def _next_prefill(self, busy: list[Work]) -> Work:
        """The prompt with the least left, so that most first tokens come early; now and then the oldest.

        A run whose prefix another one is computing lets that one go ahead.
        """
        busy = sorted(busy, key=lambda work: (-work[1].position, work[1].order))
        ready = [
            (slot, run)
            for index, (slot, run) in enumerate(busy)
            if not any(self._computes_for(other, run) for _, other in busy[:index])
        ]
        self._chunks += 1
        if self._chunks % OLDEST_EVERY == 0:
            return min(ready, key=lambda work: work[1].order)
        return min(ready, key=lambda work: (len(work[1].request.prompt) - work[1].position, work[1].order))

    def _computes_for(self, other: Run, run: Run) -> bool:
        """Whether `other` has yet to compute keys that `run` can then copy."""
        if not self._reuses(run) or other.owner != run.owner:
            return False
        whole = not run.request.images and not other.request.images
        if whole and other.request.prompt == run.request.prompt and self._reuses(other):
            return len(run.request.prompt) - run.position >= WORTH_A_COPY
        return max(run.position, other.position) < min(run.shares(other.request.prompt), other.plain)

    def _reuses(self, run: Run) -> bool:
        return self._can_reuse and run.scored is None

    def _take_prefix(self, slot: Slot, run: Run) -> None:
        """Copy the keys of another slot that holds more of the prompt than this run has."""
        if not self._reuses(run):
            return
        source, length = best_match((other for other in self._slots if other is not slot), run)
        if source is None or length - run.position < WORTH_A_COPY:
            return
        self._context.copy(source.index, slot.index)
        self._context.truncate(slot.index, length)
        slot.prefix, slot.prompt, slot.logits = source.prefix, source.prompt, source.logits
        slot.keep(length)
        run.cached += length - run.position
        run.position = length
        self._touch(source)

    def _waits_for_image(self, run: Run) -> bool:
        return _at_image(run) and not self.pictures.ready(run.pictures[0])

    def _prefill_image(self, slot: Slot, run: Run) -> None:
        picture = run.pictures[0]
        last = run.position == len(run.request.prompt) and len(run.pictures) == 1
        self._touch(slot)
        try:
            self._adapters.use(run.request.adapter)
            if self.pictures.advance(slot.index, picture, output=last):
                run.pictures.popleft()
                run.shift += picture.measure.advance
                if last:
                    self._begin(run, self._context.logits(-1))
        except DecodeError as error:
            self._broken([(slot, run)], error)
        except Failure as failure:
            self._release(run)
            self._fail(run.key, failure)

    def _prefill(self, slot: Slot, run: Run) -> None:
        if _at_image(run):
            self._prefill_image(slot, run)
            return
        prompt = run.request.prompt
        self._take_prefix(slot, run)
        if run.position == len(prompt) and slot.logits is not None:
            self._begin(run, slot.logits)
            return
        start = run.position
        until = run.pictures[0].position if run.pictures else len(prompt)
        end = min(until, start // CHUNK * CHUNK + CHUNK)
        done = end == len(prompt) and not run.pictures
        outputs = "all" if run.scored is not None else "last" if done else "none"
        self._touch(slot)
        try:
            self._adapters.use(run.request.adapter)
            self._context.decode_chunk(slot.index, prompt[start:end], start + run.shift, outputs=outputs)
            run.position = end
            if end % CHUNK == 0 and end <= run.plain:
                slot.prefix = prompt[:end]
            if run.scored is not None:
                self._score(run, run.scored, start, end)
            if done:
                logits = self._context.logits(end - start - 1)
                if self._reuses(run) and not run.request.images:
                    slot.prompt, slot.logits = prompt, logits.copy()
                self._begin(run, logits)
        except DecodeError as error:
            self._broken([(slot, run)], error)

    def _score(self, run: Run, scored: list[ScoredToken], start: int, end: int) -> None:
        """Score what the rows of a chunk predict: each the prompt token after its own."""
        prompt, alternatives = run.request.prompt, run.request.prompt_alternatives or 0
        for position in range(start, min(end, len(prompt) - 1)):
            softmax = Softmax(self._context.logits(position - start))
            scored.append(softmax.score(prompt[position + 1], alternatives))

    def _begin(self, run: Run, logits: Logits) -> None:
        """The prompt is done: the first token comes out of its last row."""
        run.decoding = True
        prompt_tokens, run.scored = run.scored, None
        if run.request.max_tokens <= 0 or run.length >= self._context_length:
            progress = Progress(run.key[1], [], EngineFinish.LENGTH, run.cached, prompt_tokens)
            self._release(run)
            self._emit(run.key, progress)
            return
        token, finish = self._sample(run, logits)
        self._emit(run.key, Progress(run.key[1], [token], finish, run.cached, prompt_tokens))

    def _sample(self, run: Run, logits: Logits) -> tuple[ScoredToken, EngineFinish | None]:
        """The next token; with the last one the run leaves its slot."""
        token = run.sampler.sample(logits)
        run.generated += 1
        run.last_token = token.id
        limit = min(run.request.max_tokens, self._context_length - run.length)
        finish: EngineFinish | None = None
        if token.id in run.request.stop_token_ids:
            finish = EngineFinish.STOP_TOKEN
        elif run.generated >= limit:
            finish = EngineFinish.LENGTH
        if finish is not None:
            self._release(run)
        return token, finish

    def _decode(self, busy: list[Work]) -> None:
        groups: dict[str | None, list[Work]] = {}
        for slot, run in busy:
            groups.setdefault(run.request.adapter, []).append((slot, run))
        for name, group in groups.items():
            # An adapter's factors are floats, whose sums depend on the number of rows.
            if self.rows_exact and name is None:
                self._decode_rows(group)
            else:
                for work in group:
                    self._decode_rows([work])

    def _decode_rows(self, busy: list[Work]) -> None:
        rows: list[tuple[int, int, int]] = []
        for slot, run in busy:
            self._touch(slot)
            rows.append((slot.index, run.last_token, len(run.request.prompt) + run.shift + run.generated - 1))
        try:
            self._adapters.use(busy[0][1].request.adapter)
            self._context.decode_rows(rows)
            for row, (_, run) in enumerate(busy):
                token, finish = self._sample(run, self._context.logits(row))
                self._emit(run.key, Progress(run.key[1], [token], finish))
        except DecodeError as error:
            self._broken(busy, error)

    def _touch(self, slot: Slot) -> None:
        self._tick += 1
        slot.used = self._tick

    def _release(self, run: Run) -> None:
        self._runs.pop(run.key, None)
        for picture in run.pictures:
            picture.cancel()
        if run.slot is None:
            self._waiting.remove(run)
            return
        run.slot.run = None
        run.slot = None
        self._seconds_per_run += 0.2 * (time.monotonic() - run.started_at - self._seconds_per_run)

    def _broken(self, busy: list[Work], error: DecodeError) -> None:
        """The library refused: what these sequences hold is unknown, so it is dropped."""
        for slot, run in busy:
            slot.keep(0)
            if run.key in self._runs:
                self._release(run)
                self._fail(run.key, Failure(FailureKind.ENGINE_FAILED, str(error)))


def _at_image(run: Run) -> bool:
    """Whether an image is what comes next of the prompt."""
    return bool(run.pictures) and run.position == run.pictures[0].position
