"""llama.cpp's own tokenizer, as an oracle: a model file loaded for its vocabulary alone."""

import importlib.util
from pathlib import Path

from cffi import FFI

_DECLARATIONS = """
    struct llama_model_params {
        void * devices; void * overrides; int32_t n_gpu_layers; int split_mode; int load_mode; int lazy_mode;
        int32_t main_gpu; void * tensor_split; void * progress; void * progress_data; void * kv_overrides;
        bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
    };
    void llama_log_set(void (*callback)(int, const char *, void *), void * data);
    struct llama_model_params llama_model_default_params(void);
    void * llama_model_load_from_file(const char * path, struct llama_model_params params);
    void llama_model_free(void * model);
    const void * llama_model_get_vocab(const void * model);
    int32_t llama_vocab_n_tokens(const void * vocab);
    bool llama_vocab_is_eog(const void * vocab, int32_t token);
    bool llama_vocab_get_add_bos(const void * vocab);
    int32_t llama_vocab_bos(const void * vocab);
    int32_t llama_tokenize(const void * vocab, const char * text, int32_t size, int32_t * tokens, int32_t room,
                           bool add_special, bool parse_special);
    int32_t llama_token_to_piece(const void * vocab, int32_t token, char * buf, int32_t size, int32_t lstrip,
                                 bool special);
"""


class LlamaVocabulary:
    """The vocabulary of a GGUF as llama.cpp reads it."""

    def __init__(self, path: Path) -> None:
        self._ffi = FFI()
        self._ffi.cdef(_DECLARATIONS)
        spec = importlib.util.find_spec("xllamacpp")
        assert spec is not None
        assert spec.origin is not None
        library = next(Path(spec.origin).parent.glob("xllamacpp*.so"))
        self._lib = self._ffi.dlopen(str(library))
        self._quiet = self._ffi.callback("void(int, const char *, void *)", lambda *_: None)
        self._lib.llama_log_set(self._quiet, self._ffi.NULL)
        params = self._lib.llama_model_default_params()
        params.vocab_only = True
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), params)
        assert self._model != self._ffi.NULL, path
        self._vocab = self._lib.llama_model_get_vocab(self._model)

    def close(self) -> None:
        self._lib.llama_model_free(self._model)

    @property
    def size(self) -> int:
        return self._lib.llama_vocab_n_tokens(self._vocab)

    @property
    def add_bos(self) -> bool:
        return self._lib.llama_vocab_get_add_bos(self._vocab)

    @property
    def bos(self) -> int:
        return self._lib.llama_vocab_bos(self._vocab)

    @property
    def ends(self) -> set[int]:
        return {token for token in range(self.size) if self._lib.llama_vocab_is_eog(self._vocab, token)}

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool) -> list[int]:
        data = text.encode()
        room = len(data) + 8
        tokens = self._ffi.new("int32_t[]", room)
        count = self._lib.llama_tokenize(
            self._vocab, data, len(data), tokens, room, add_special, parse_special
        )
        assert count >= 0
        return list(tokens[0:count])

    def piece(self, token: int) -> bytes:
        buffer = self._ffi.new("char[]", 1024)
        count = self._lib.llama_token_to_piece(self._vocab, token, buffer, 1024, 0, True)
        assert count >= 0
        return bytes(self._ffi.buffer(buffer, count))
