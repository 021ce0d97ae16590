"""Images in the embedded engine, with a tiny random vision model: the real library, end to end."""

import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.generate import GenerateRequest, Sampling
from onward.core.image import Image, PlacedImage
from onward.engines.llama.binding import Context, EngineUnusableError, Library, Model
from onward.engines.llama.pictures import Pictures
from onward.engines.llama.projector import Projector
from onward.engines.llama.sampling import Softmax
from onward.engines.llama.scheduler import Scheduler
from onward.rendering.images import decode
from tests.pictures import picture
from tests.unit.engines.tiny_vision import CONTEXT, END, START, write_model, write_projector

RED = decode(picture(color=(250, 0, 0), size=(60, 40)))
BLUE = decode(picture(color=(0, 0, 250), size=(60, 40)))
TALL = decode(picture(color=(0, 200, 0), size=(40, 200)))
WIDE = decode(picture(color=(0, 200, 0), size=(300, 200)))
BEFORE, AFTER = [*range(20, 90), START], [END, *range(100, 170)]


class Runs:
    """A scheduler and what it gave."""

    def __init__(self, model: Model, projector: Projector | None, slots: int) -> None:
        self.context = Context(model, sequences=slots, length=CONTEXT, threads=1, batch=64)
        self.progress = defaultdict(list)
        self.failures: dict[tuple[int, int], Failure] = {}
        self.scheduler = Scheduler(
            self.context,
            slots=slots,
            queue=8,
            context_length=CONTEXT,
            emit=lambda key, progress: self.progress[key].append(progress),
            fail=self.failures.__setitem__,
            pictures=Pictures(self.context, projector),
        )
        self._number = 0

    def submit(
        self, prompt: list[int], *images: tuple[int, Image], tokens: int = 5, **more
    ) -> tuple[int, int]:
        self._number += 1
        key = (1, self._number)
        request = GenerateRequest(
            request_id="r",
            prompt=prompt,
            images=[PlacedImage(*image) for image in images],
            max_tokens=tokens,
            **{"sampling": Sampling(temperature=0), "alternatives": 4, **more},
        )
        self.scheduler.submit(key, request)
        return key

    def finish(self) -> None:
        while not self.scheduler.idle:
            self.scheduler.step()
            if self.scheduler.stalled:
                time.sleep(0.001)

    def tokens(self, key: tuple[int, int]) -> list:
        assert key not in self.failures, self.failures[key]
        return [token for progress in self.progress[key] for token in progress.tokens]

    def run(self, prompt: list[int], *images: tuple[int, Image], **more) -> list:
        key = self.submit(prompt, *images, **more)
        self.finish()
        return self.tokens(key)

    def cached(self, key: tuple[int, int]) -> int:
        return self.progress[key][0].cached_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vision")
    write_model(folder / "model.gguf")
    write_projector(folder / "mmproj.gguf")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return Model(Library(), str(folder / "model.gguf"))


@pytest.fixture(scope="module")
def projector(folder: Path, model: Model) -> Projector:
    return Projector(model, str(folder / "mmproj.gguf"), threads=1)


@pytest.fixture
def runs(model: Model, projector: Projector) -> Runs:
    return Runs(model, projector, 2)


def test_an_image_is_measured_before_it_is_there(projector: Projector):
    """A token for each 16 x 16 pixels, and the model's own marks, which the engine does not add."""
    span = projector.measure(64, 48).span
    assert (span.tokens, span.before, span.after) == (12, [START], [END])
    assert sum(one.count for one in projector.encode(decode(picture(size=(64, 48))), 0)) == 12
    assert projector.measure(1, 1).span.tokens > 0
    assert projector.measure(4000, 4000).span.tokens <= 256


def test_another_image_gives_other_logits_and_the_same_the_same(runs: Runs):
    at = len(BEFORE)
    red, blue, again = (runs.run(BEFORE + AFTER, (at, image)) for image in (RED, BLUE, RED))
    without = runs.run(BEFORE + AFTER)
    assert red == again
    firsts = [tuple(result[0].top) for result in (red, blue, without)]
    assert len(set(firsts)) == 3


@pytest.mark.parametrize("image", [RED, TALL, WIDE], ids=["small", "tall", "several chunks"])
@pytest.mark.parametrize("after", [AFTER, [END]], ids=["in the middle", "almost at the end"])
def test_logits_are_those_of_the_library_itself(runs: Runs, model: Model, projector: Projector, image, after):
    """Against `mtmd_helper_eval_chunk_single`, which evaluates an image in one go."""
    (token,) = runs.run(BEFORE + after, (len(BEFORE), image), tokens=1, alternatives=20)
    expected = evaluated(model, projector, BEFORE, image, after)
    best = np.argsort(-expected)[:20]
    assert [one for one, _ in token.top] == list(best)
    assert token.top == Softmax(expected).score(int(best[0]), 20).top


@pytest.mark.parametrize("after", [AFTER, [END]], ids=["in the middle", "almost at the end"])
def test_rows_that_see_each_other_are_computed_in_one_call(model: Model, folder: Path, after: list[int]):
    """As the library's own function does. Seen causally they would come out otherwise."""
    write_projector(folder / "gemma.gguf", form="gemma")
    projector = Projector(model, str(folder / "gemma.gguf"), threads=1)
    assert projector.sees_ahead
    (token,) = Runs(model, projector, 2).run(BEFORE + after, (len(BEFORE), RED), tokens=1, alternatives=20)
    expected = evaluated(model, projector, BEFORE, RED, after)
    assert token.top == Softmax(expected).score(int(expected.argmax()), 20).top


@pytest.mark.covers("TC-10")
@pytest.mark.fault("D25")
def test_the_ids_around_are_used_exactly(runs: Runs):
    """Another cut of the same text is another prompt; nothing is tokenized again."""
    from onward.rendering.tokenizer import from_gguf
    from tests.unit.engines.tiny_vision import vocabulary

    tokenizer = from_gguf(vocabulary())
    canonical = tokenizer.encode("hello", control=False)
    spelled = [tokenizer.encode(letter, control=False)[0] for letter in "hello"]
    assert len(canonical) == 1
    assert tokenizer.decode(spelled) == tokenizer.decode(canonical) == "hello"
    results = [
        runs.run([*ids, START, END, *ids], (len(ids) + 1, RED), alternatives=3)
        for ids in (canonical, spelled)
    ]
    assert results[0][0].top != results[1][0].top


def test_several_images_in_their_places(runs: Runs):
    prompt = [START, END, 30, 31, START, END]
    both = runs.run(prompt, (1, RED), (5, BLUE))
    swapped = runs.run(prompt, (1, BLUE), (5, RED))
    assert both[0].top != swapped[0].top
    assert runs.run(prompt, (1, RED), (5, BLUE)) == both
    assert runs.run([], (0, RED), (0, BLUE))[0].top != runs.run([], (0, BLUE), (0, RED))[0].top


def test_what_is_reused_ends_at_the_first_image(runs: Runs):
    """Whole chunks in front of it: one, here. The answer is that of a fresh engine."""
    fresh = runs.submit(BEFORE + AFTER, (len(BEFORE), RED))
    runs.finish()
    assert runs.cached(fresh) == 0
    for image in (BLUE, RED):
        key = runs.submit(BEFORE + AFTER, (len(BEFORE), image))
        runs.finish()
        assert runs.cached(key) == 64
    assert runs.tokens(key) == runs.tokens(fresh)
    plain = runs.submit(BEFORE + AFTER)
    runs.finish()
    assert runs.cached(plain) == 64
    early = runs.submit(BEFORE + AFTER, (3, RED))
    runs.finish()
    assert runs.cached(early) == 0


def test_images_and_texts_side_by_side_are_as_alone(model: Model, projector: Projector):
    alone = Runs(model, projector, 4)
    expected = [
        alone.run(BEFORE + AFTER, (len(BEFORE), RED), tokens=9),
        alone.run(AFTER, tokens=9),
        alone.run(BEFORE + AFTER, (len(BEFORE), WIDE), tokens=9),
    ]
    together = Runs(model, projector, 4)
    keys = [
        together.submit(BEFORE + AFTER, (len(BEFORE), RED), tokens=9),
        together.submit(AFTER, tokens=9),
        together.submit(BEFORE + AFTER, (len(BEFORE), WIDE), tokens=9),
    ]
    together.finish()
    assert [together.tokens(key) for key in keys] == expected


def test_others_go_on_while_an_image_is_encoded(model: Model, projector: Projector, monkeypatch):
    import threading

    held = threading.Event()
    encode = projector.encode

    def slow(image: Image, start: int):
        assert held.wait(60)
        return encode(image, start)

    monkeypatch.setattr(projector, "encode", slow)
    runs = Runs(model, projector, 2)
    image = runs.submit(BEFORE + AFTER, (len(BEFORE), RED))
    for _ in range(4):
        runs.scheduler.step()
    assert runs.scheduler.stalled
    text = runs.submit(AFTER)
    while len(runs.tokens(text)) < 5:
        runs.scheduler.step()
    assert not runs.progress[image]
    given_up = runs.submit(BEFORE, (len(BEFORE), BLUE))
    for _ in range(4):
        runs.scheduler.step()
    runs.scheduler.cancel(given_up)
    held.set()
    runs.finish()
    assert len(runs.tokens(image)) == 5
    assert given_up not in runs.progress


def test_a_cancelled_image_leaves_nothing_behind(runs: Runs):
    expected = runs.run(AFTER)
    key = runs.submit(BEFORE + AFTER, (len(BEFORE), WIDE))
    while not any(run.shift or run.pictures[0].done for run in runs.scheduler._runs.values()):
        runs.scheduler.step()
    runs.scheduler.cancel(key)
    assert runs.scheduler.idle
    assert runs.run(AFTER) == expected


@pytest.mark.parametrize(
    ("prompt", "images", "more", "words"),
    [
        ([], [], {}, "no tokens"),
        ([5], [(2, RED)], {}, "behind the prompt"),
        ([5, 6], [(1, RED), (0, RED)], {}, "out of order"),
        ([5], [(0, Image(4, 4, b"abc"))], {}, "3 bytes"),
        ([5], [(0, RED)], {"prompt_alternatives": 1}, "not computed"),
    ],
)
def test_what_cannot_be_computed_is_refused(runs: Runs, prompt, images, more, words: str):
    with pytest.raises(Failure, match=words) as caught:
        runs.submit(prompt, *images, **more)
    assert caught.value.kind is FailureKind.INVALID_REQUEST


def test_images_count_towards_the_context(runs: Runs, projector: Projector):
    tokens = projector.measure(RED.width, RED.height).span.tokens
    room = CONTEXT - tokens
    assert len(runs.run([30] * (room - 2), (1, RED), tokens=50)) == 2
    with pytest.raises(Failure, match=f"{CONTEXT + 1} tokens") as caught:
        runs.submit([30] * (room + 1), (1, RED))
    assert caught.value.kind is FailureKind.CONTEXT_LENGTH_EXCEEDED


def test_without_a_projector_every_image_is_refused(model: Model):
    runs = Runs(model, None, 1)
    with pytest.raises(Failure, match="takes no images"):
        runs.submit([5], (0, RED))
    with pytest.raises(Failure, match="takes no images"):
        runs.scheduler.pictures.measure([(4, 4)])


def test_a_projector_that_does_not_fit(model: Model, folder: Path):
    write_projector(folder / "other.gguf", 96)
    with pytest.raises(EngineUnusableError, match="mismatch"):
        Projector(model, str(folder / "other.gguf"), threads=1)
    with pytest.raises(EngineUnusableError, match="there is no projector"):
        Projector(model, str(folder / "nothing.gguf"), threads=1)
    with pytest.raises(EngineUnusableError, match="cannot load"):
        Projector(model, str(folder / "model.gguf"), threads=1)


def evaluated(model: Model, projector: Projector, before, image: Image, after) -> np.ndarray:
    """The last logits, by the library's own function for whole images."""
    ffi = model.library.ffi
    with_helper = type(ffi)()
    with_helper.include(ffi)
    with_helper.cdef(
        "int32_t mtmd_helper_eval_chunk_single(mtmd_context *, struct llama_context *, const mtmd_input_chunk *,"
        " llama_pos, llama_seq_id, int32_t, bool, llama_pos *);"
    )
    helper = with_helper.dlopen(library_path())
    context = Context(model, sequences=1, length=CONTEXT, threads=1, batch=64)
    try:
        for start in range(0, len(before), 64):
            context.decode_chunk(0, before[start : start + 64], start, outputs="none")
        reached = with_helper.new("llama_pos *", len(before))
        with projector._chunks(image.width, image.height, image.rgb) as chunks:
            (chunk,) = [one for one in chunks if not projector._is_text(one)]
            helper.mtmd_helper_eval_chunk_single(
                projector._handle, context._handle, chunk, len(before), 0, 64, False, reached
            )
        cut = 64 - len(before) % 64  # the engine's chunks end at multiples of 64 of the given IDs
        context.decode_chunk(0, after[:cut], reached[0], outputs="last")
        if after[cut:]:
            context.decode_chunk(0, after[cut:], reached[0] + cut, outputs="last")
        return context.logits(-1).copy()
    finally:
        context.close()


def library_path() -> str:
    import importlib.util

    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    return str(next(Path(spec.submodule_search_locations[0]).glob("xllamacpp*.so")))
