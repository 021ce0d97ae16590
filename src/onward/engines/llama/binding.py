"""llama.cpp behind a handful of Python calls: no scheduling, no sampling, no strings.

The library is the shared object inside the `xllamacpp` wheel. It is opened without importing that
package, and only after it has shown that its structs are laid out as `declarations` says.
"""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cffi import FFI

from onward.engines.llama import declarations, multimodal

Logits = npt.NDArray[np.float32]
"""Shape (vocabulary,), float32: one row."""

Embeddings = npt.NDArray[np.float32]
"""Shape (tokens, width), float32."""


class EngineUnusableError(Exception):
    """An engine cannot run here: one line that says why. Trying again does not help."""


class DecodeError(Exception):
    """A decode call failed. The memory of the sequences in it is unknown."""


class Library:
    """The opened shared object. `errors` holds the last lines that llama.cpp logged as errors."""

    def __init__(self) -> None:
        self.ffi = FFI()
        self.ffi.cdef(declarations.C_DECLARATIONS)
        self.ffi.cdef(multimodal.C_DECLARATIONS)
        self.errors: list[str] = []
        self.c: Any = self._open()
        self._log: Any = self.ffi.callback("void(int, const char *, void *)", self._on_log)
        self.c.llama_log_set(self._log, self.ffi.NULL)
        self.c.mtmd_log_set(self._log, self.ffi.NULL)
        self._check_defaults("llama_model_default_params", declarations.MODEL_DEFAULTS)
        self._check_defaults("llama_context_default_params", declarations.CONTEXT_DEFAULTS)
        self._check_defaults("mtmd_context_params_default", multimodal.DEFAULTS)
        self.c.llama_backend_init()

    def _open(self) -> Any:
        wheel, wanted = declarations.WHEEL, declarations.WHEEL_VERSION
        try:
            found = importlib.metadata.version(wheel)
        except importlib.metadata.PackageNotFoundError:
            raise EngineUnusableError(f"{wheel} is not installed: install {wheel}=={wanted}") from None
        if found != wanted:
            raise EngineUnusableError(
                f"the package {wheel} is version {found}, but its layouts are known for {wanted} only: "
                f"install {wheel}=={wanted}"
            )
        spec = importlib.util.find_spec(wheel)
        folders = spec.submodule_search_locations if spec else None
        paths = [path for folder in folders or () for path in Path(folder).glob(f"{wheel}*.so")]
        if not paths:
            raise EngineUnusableError(f"{wheel} {found} holds no shared object for this platform")
        try:
            return self.ffi.dlopen(str(paths[0]))
        except OSError as error:
            raise EngineUnusableError(f"{wheel} {found} cannot be opened: {error}") from error

    def _on_log(self, level: int, text: Any, _user: Any) -> None:
        if level == declarations.LOG_LEVEL_ERROR:
            line: Any = self.ffi.string(text)
            self.errors.append(line.decode("utf-8", "replace").strip())
            del self.errors[:-8]

    def _check_defaults(self, function: str, expected: dict[str, object]) -> None:
        try:
            params = getattr(self.c, function)()
        except AttributeError as error:
            raise EngineUnusableError(f"{declarations.WHEEL} exports no {function}: {error}") from error
        for field, value in expected.items():
            if getattr(params, field) != value:
                raise EngineUnusableError(
                    f"{function}().{field} is {getattr(params, field)!r}, not {value!r}: the library differs "
                    f"from the {declarations.WHEEL} {declarations.WHEEL_VERSION} that its declarations are of"
                )

    @property
    def reason(self) -> str:
        """The first error since the last call of this: the later ones only repeat it."""
        reason = self.errors[0] if self.errors else "no reason given"
        self.errors.clear()
        return reason


class Model:
    """A GGUF file, mapped into memory, on the CPU alone.

    Other devices choose kernels by load, so the same seed would not give the same tokens.
    """

    def __init__(self, library: Library, path: str) -> None:
        self.library = library
        c, ffi = library.c, library.ffi
        if not Path(path).is_file():
            raise EngineUnusableError(f"there is no model file {path}")
        params = c.llama_model_default_params()
        no_devices = ffi.new("void *[1]")
        params.devices = no_devices
        params.n_gpu_layers = 0
        params.load_mode = declarations.LOAD_MODE_MMAP
        self.handle = c.llama_model_load_from_file(str(path).encode(), params)
        if self.handle == ffi.NULL:
            raise EngineUnusableError(f"llama.cpp cannot load {path}: {library.reason}")
        if c.llama_model_has_encoder(self.handle) or not c.llama_model_has_decoder(self.handle):
            raise EngineUnusableError(f"{path} is not a decoder-only language model")
        self.vocabulary = int(c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.handle)))
        self.trained_context = int(c.llama_model_n_ctx_train(self.handle))
        self.can_reuse = not (c.llama_model_is_recurrent(self.handle) or c.llama_model_is_hybrid(self.handle))
        """Whether a sequence can be cut back to a prefix; a recurrent state cannot."""

    def load_adapter(self, path: str) -> Any:
        """A LoRA adapter in GGUF form. Raises `ValueError` with llama.cpp's reason."""
        handle = self.library.c.llama_adapter_lora_init(self.handle, str(path).encode())
        if handle == self.library.ffi.NULL:
            raise ValueError(self.library.reason)
        return handle

    def free_adapter(self, handle: Any) -> None:
        self.library.c.llama_adapter_lora_free(handle)

    def close(self) -> None:
        self.library.c.llama_model_free(self.handle)


class Context:
    """`sequences` KV caches of `length` tokens each, and one batch of at most `batch` tokens.

    At most `outputs` of the batch have logits; all, if not given.

    With one thread flash attention is on: it is the faster for prefill. With more threads it is off:
    it would then split a lone sequence's keys among the threads, and so give other logits than for
    the same sequence in company.
    """

    def __init__(
        self, model: Model, *, sequences: int, length: int, threads: int, batch: int, outputs: int = 0
    ) -> None:
        self.model = model
        self.length = length
        c, ffi = model.library.c, model.library.ffi
        self._c, self._ffi = c, ffi
        params = c.llama_context_default_params()
        params.n_ctx = -(-length // 256) * 256 * sequences
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = batch
        params.n_outputs_max = outputs or batch
        params.n_outputs_max_per_seq = outputs or batch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1 if threads == 1 else 0
        params.kv_unified = False
        params.offload_kqv = False
        params.op_offload = False
        self._handle = c.llama_init_from_model(model.handle, params)
        if self._handle == ffi.NULL:
            raise EngineUnusableError(
                f"llama.cpp has no context of {sequences} x {length} tokens: {model.library.reason}"
            )
        self._memory = c.llama_get_memory(self._handle)
        self._row_bytes = model.vocabulary * 4
        self._adapter: Any = None
        self._tokens: Any = ffi.new("llama_token[]", batch)
        self._positions: Any = ffi.new("llama_pos[]", batch)
        self._counts: Any = ffi.new("int32_t[]", [1] * batch)
        self._sequences: Any = ffi.new("llama_seq_id[]", batch)
        self._pointers: Any = ffi.new("llama_seq_id *[]", [self._sequences + row for row in range(batch)])
        self._outputs: Any = ffi.new("int8_t[]", batch)
        self._batch: Any = ffi.new("llama_batch *")
        self._batch.token = self._tokens
        self._batch.pos = self._positions
        self._batch.n_seq_id = self._counts
        self._batch.seq_id = self._pointers
        self._batch.logits = self._outputs

    def decode_chunk(self, sequence: int, tokens: Sequence[int], position: int, *, outputs: str) -> None:
        """Append `tokens` at `position` of one sequence. `outputs`: "none", "last" or "all" rows."""
        count = len(tokens)
        self._tokens[0:count] = tokens
        self._positions[0:count] = range(position, position + count)
        self._sequences[0:count] = [sequence] * count
        self._outputs[0:count] = [outputs == "all"] * count
        if outputs == "last":
            self._outputs[count - 1] = 1
        self._decode(count)

    def decode_embeddings(
        self,
        sequence: int,
        embeddings: Embeddings,
        places: Sequence[tuple[int, ...]],
        *,
        outputs: str,
        causal: bool,
    ) -> None:
        """Append rows of embeddings to one sequence. `outputs`: "none" or "last".

        `places` are their positions, of as many dimensions as the model has. `causal`: a row sees
        none behind it.
        """
        count, dimensions = len(embeddings), len(places[0])
        rows: Any = np.ascontiguousarray(embeddings, dtype=np.float32)
        positions = self._ffi.new("llama_pos[]", [place[n] for n in range(dimensions) for place in places])
        self._sequences[0:count] = [sequence] * count
        self._outputs[0:count] = [0] * count
        if outputs == "last":
            self._outputs[count - 1] = 1
        batch: Any = self._ffi.new("llama_batch *")
        batch.n_tokens, batch.embd = count, self._ffi.from_buffer("float[]", rows)
        batch.pos, batch.n_seq_id, batch.seq_id = positions, self._counts, self._pointers
        batch.logits = self._outputs
        if not causal:
            self._c.llama_set_causal_attn(self._handle, False)
        try:
            self._run(batch)
        finally:
            if not causal:
                self._c.llama_set_causal_attn(self._handle, True)

    def decode_rows(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """One token for each of several sequences: (sequence, token, position). Every row is output."""
        for row, (sequence, token, position) in enumerate(rows):
            self._tokens[row] = token
            self._positions[row] = position
            self._sequences[row] = sequence
            self._outputs[row] = 1
        self._decode(len(rows))

    def _decode(self, count: int) -> None:
        self._batch.n_tokens = count
        self._run(self._batch)

    def _run(self, batch: Any) -> None:
        result = self._c.llama_decode(self._handle, batch[0])
        if result != 0:
            raise DecodeError(f"llama_decode returned {result}: {self.model.library.reason}")

    def logits(self, row: int) -> Logits:
        """The logits of a row of the last call, not copied: valid until the next one."""
        pointer = self._c.llama_get_logits_ith(self._handle, row)
        if pointer == self._ffi.NULL:
            raise DecodeError(f"row {row} has no logits")
        buffer: Any = self._ffi.buffer(pointer, self._row_bytes)
        return np.frombuffer(buffer, dtype=np.float32)

    def truncate(self, sequence: int, length: int) -> None:
        """Forget all of a sequence from position `length` on."""
        if not self._c.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise DecodeError(f"sequence {sequence} cannot be cut back to {length} tokens")

    def copy(self, source: int, target: int) -> None:
        """Make `target` hold what `source` holds."""
        self._c.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def use_adapter(self, adapter: Any) -> None:
        """Apply one adapter, or none, to all following calls."""
        if adapter is self._adapter:
            return
        adapters = self._ffi.new("struct llama_adapter_lora *[]", [] if adapter is None else [adapter])
        scales = self._ffi.new("float[]", [] if adapter is None else [1.0])
        if self._c.llama_set_adapters_lora(self._handle, adapters, len(adapters), scales) != 0:
            raise DecodeError(f"the adapter cannot be applied: {self.model.library.reason}")
        self._adapter = adapter

    def close(self) -> None:
        self._c.llama_free(self._handle)
