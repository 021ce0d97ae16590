"""What we use of llama.cpp's multimodal library, as data; see `declarations`, whose version this is of.

Its structs are in that version's own ``tools/mtmd/mtmd.h``.
"""

C_DECLARATIONS = """
typedef struct mtmd_context mtmd_context;
typedef struct mtmd_bitmap mtmd_bitmap;
typedef struct mtmd_image_tokens mtmd_image_tokens;
typedef struct mtmd_input_chunk mtmd_input_chunk;
typedef struct mtmd_input_chunks mtmd_input_chunks;

struct mtmd_input_text {
    const char * text;
    size_t text_len;
    bool add_special;
    bool parse_special;
};

struct mtmd_context_params {
    bool use_gpu;
    void * device;
    bool print_timings;
    int n_threads;
    const char * image_marker;
    const char * media_marker;
    int flash_attn_type;
    bool warmup;
    int image_min_tokens;
    int image_max_tokens;
    void * cb_eval;
    void * cb_eval_user_data;
    int32_t batch_max_tokens;
    void * progress_callback;
    void * progress_callback_user_data;
};

struct mtmd_decoder_pos {
    uint32_t t;
    uint32_t x;
    uint32_t y;
    uint32_t z;
};

void mtmd_log_set(ggml_log_callback log_callback, void * user_data);
const char * mtmd_default_marker(void);
struct mtmd_context_params mtmd_context_params_default(void);
mtmd_context * mtmd_init_from_file(
    const char * mmproj_fname, const struct llama_model * text_model,
    const struct mtmd_context_params ctx_params);
void mtmd_free(mtmd_context * ctx);
bool mtmd_support_vision(const mtmd_context * ctx);
bool mtmd_decode_use_mrope(const mtmd_context * ctx);
bool mtmd_decode_use_non_causal(const mtmd_context * ctx, const mtmd_input_chunk * chunk);

mtmd_bitmap * mtmd_bitmap_init(uint32_t nx, uint32_t ny, const unsigned char * data);
void mtmd_bitmap_free(mtmd_bitmap * bitmap);

mtmd_input_chunks * mtmd_input_chunks_init(void);
size_t mtmd_input_chunks_size(const mtmd_input_chunks * chunks);
const mtmd_input_chunk * mtmd_input_chunks_get(const mtmd_input_chunks * chunks, size_t idx);
void mtmd_input_chunks_free(mtmd_input_chunks * chunks);

int mtmd_input_chunk_get_type(const mtmd_input_chunk * chunk);
const llama_token * mtmd_input_chunk_get_tokens_text(
    const mtmd_input_chunk * chunk, size_t * n_tokens_output);
const mtmd_image_tokens * mtmd_input_chunk_get_tokens_image(const mtmd_input_chunk * chunk);
size_t mtmd_input_chunk_get_n_tokens(const mtmd_input_chunk * chunk);
llama_pos mtmd_input_chunk_get_n_pos(const mtmd_input_chunk * chunk);
struct mtmd_decoder_pos mtmd_image_tokens_get_decoder_pos(
    const mtmd_image_tokens * image_tokens, llama_pos pos_0, size_t i);

int32_t mtmd_tokenize(
    const mtmd_context * ctx, mtmd_input_chunks * output, const struct mtmd_input_text * text,
    const mtmd_bitmap ** bitmaps, size_t n_bitmaps);
int32_t mtmd_encode_chunk(mtmd_context * ctx, const mtmd_input_chunk * chunk);
float * mtmd_get_output_embd(mtmd_context * ctx);

int32_t llama_model_n_embd_inp(const struct llama_model * model);
void llama_set_causal_attn(struct llama_context * ctx, bool causal_attn);
"""

TEXT, IMAGE = 0, 1
"""Kinds of an input chunk."""

DEFAULTS: dict[str, object] = {
    "use_gpu": True,
    "print_timings": True,
    "n_threads": 4,
    "flash_attn_type": -1,
    "warmup": True,
    "image_min_tokens": -1,
    "image_max_tokens": -1,
    "batch_max_tokens": 1024,
}
"""Of `mtmd_context_params_default()`."""
