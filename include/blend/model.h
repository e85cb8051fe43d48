/*
 * model.h - a model's weights, tokenizer and description.
 */
#ifndef BLEND_MODEL_H
#define BLEND_MODEL_H

#include "blend/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights, tokenizer and description of one model. Immutable; all functions may run
 * concurrently. */
typedef struct blend_model blend_model;

/* How the weights' matrices are kept in memory. */
#define BLEND_WEIGHTS_AUTO 0u   /* MAPPED for a quantized file on a CPU, else PACKED */
#define BLEND_WEIGHTS_PACKED 1u /* a copy in the form that computes fastest: on a CPU the file's f16
                                   or bf16, else f32 (4 bytes a weight); bf16 on a GPU */
#define BLEND_WEIGHTS_MAPPED 2u /* as in the file, decoded while they are used: only the page cache
                                   holds them, and processes share it. CPU only, else UNSUPPORTED.
                                   The file must not be truncated while the model is open */
#define BLEND_WEIGHTS_INT8 3u   /* a copy of 8 bits a weight with one scale per output; activations
                                   are rounded to 8 bits too, with one scale per row. Faster where
                                   blend_ctx_backend() names VNNI or the dot product. Answers differ
                                   a little: docs/quality.md. CPU only, else UNSUPPORTED */

/* A LoRA adapter: fine-tuning that is added to the model's matrices while they compute, which stay
 * as they are. docs/models.md says which adapters there are. */
typedef struct blend_lora {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t reserved;    /* 0 */
  const char *path;     /* a GGUF file as llama.cpp's converter writes it, or a PEFT directory
                           (adapter_config.json and adapter_model.safetensors) */
  double scale;         /* of what it adds, besides its own alpha; 0 (default): 1. To switch an
                           adapter off, leave it out of the array */
} blend_lora;

typedef struct blend_model_options {
  uint32_t struct_size;
  uint32_t weights;           /* BLEND_WEIGHTS_* */
  uint32_t max_context;       /* rows a fusion may have; 0 = what the model was trained for */
  blend_progress_fn progress; /* bytes of weights read */
  void *progress_user;
  const blend_cancel *cancel;
  const blend_lora *loras; /* [n_loras]; they add up. Contents and scales are part of the
                              model's fingerprint, the order is not: chunks that were stored
                              without these adapters, or with others, are not found */
  size_t n_loras;
} blend_model_options;

BLEND_API int32_t blend_model_options_init(blend_model_options *options, size_t struct_size);

/* Opens a GGUF file (v2 or v3), or a Hugging Face directory (config.json, tokenizer.json and
 * model.safetensors or its shards). docs/models.md lists the families of models, types of weights
 * and tokenizers. Files are mapped, every offset and shape in them is checked, and the weights are
 * packed for this machine. A model whose rows see the rows after them (EmbeddingGemma) only embeds:
 * what fuses, stores, restores, generates, calibrates or times gives UNSUPPORTED.
 * Errors: NOT_FOUND, IO, FORMAT (names the file and the offset, member or tensor), UNSUPPORTED
 * (names what is unknown), NUMERIC (a NaN or infinity in the weights), MISMATCH (a LoRA adapter of
 * another model), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_model_open(blend_model **out, const blend_ctx *ctx, const char *path,
                                   const blend_model_options *options, blend_error **err);
BLEND_API void blend_model_close(blend_model *model);

typedef struct blend_model_info {
  uint32_t struct_size;
  uint32_t n_layers;
  uint32_t d_model;    /* width of the residual stream */
  uint32_t n_heads;    /* query heads */
  uint32_t n_kv_heads; /* key/value heads; query heads h*g .. h*g+g-1 share KV head h (GQA); 1 where
                          rows are latent (MLA) */
  uint32_t head_dim;   /* half of a row where rows are latent */
  uint32_t d_ff;       /* inner width of the feed-forward: of all that one row goes through,
                          mean over layers, where it is a mixture of experts */
  uint32_t n_vocab;
  uint32_t context_length; /* rows a fusion may have */
  int32_t bos_token;       /* -1: none */
  int32_t eos_token;       /* -1: none */
  uint32_t add_bos;        /* 1: the model expects BOS at the start of a prompt */
  uint32_t weights;        /* BLEND_WEIGHTS_PACKED, _MAPPED or _INT8; 0 where there are none */
  double rope_theta;
  uint64_t n_parameters;
  uint64_t weight_bytes;       /* the process's own memory for weights: little if they are
                                  mapped */
  uint64_t kv_bytes_per_token; /* in the fused cache, all layers; without the states of Gated
                                  DeltaNets and Mamba-2s, whose size does not depend on the tokens */
  /* Strings are valid while the model is open. */
  const char *architecture;  /* "llama", "qwen2", ... */
  const char *name;          /* general.name or "" */
  const char *weight_dtype;  /* "f32", "f16", "bf16", "q8_0", ...: the file's matrices */
  const char *chat_template; /* Jinja source, which blend_chat_render renders; "": none */
  uint8_t fingerprint[32];   /* SHA-256 over weights, tokenizer, hyperparameters and adapters */
  uint64_t n_loras;          /* LoRA adapters that it was opened with */
} blend_model_info;

BLEND_API int32_t blend_model_get_info(const blend_model *model, blend_model_info *info,
                                       blend_error **err);

/* One of the LoRA adapters that a model was opened with. */
typedef struct blend_lora_info {
  uint32_t struct_size;
  uint32_t rank;       /* the largest of its matrices */
  uint64_t n_matrices; /* of the model, that it changes */
  double scale;
  const char *path;    /* as it was given; valid while the model is open */
  uint8_t digest[32];  /* SHA-256 over what it adds, whatever its file's format */
} blend_lora_info;

/* `index` counts them in the order of blend_model_options.loras. Errors: INVALID_ARGUMENT (there are
 * not as many). */
BLEND_API int32_t blend_model_get_lora(const blend_model *model, size_t index, blend_lora_info *info,
                                       blend_error **err);

#define BLEND_TOKENIZE_BOS 1u     /* put BOS in front, if the model expects it (add_bos) */
#define BLEND_TOKENIZE_SPECIAL 2u /* recognise special tokens such as "</s>" in the text; without
                                     it they are plain text (safe for untrusted input) */
#define BLEND_TOKENIZE_RAW 4u     /* do not add the space that SentencePiece puts before a text */

/* Tokens of a UTF-8 text (invalid bytes become byte tokens). Writes up to `capacity` ids and the
 * full count to *n_tokens. Errors: BUFFER_TOO_SMALL (call again with *n_tokens), INVALID_ARGUMENT,
 * UNSUPPORTED (the patterns of the model's tokenizer take too long on this text). */
BLEND_API int32_t blend_model_tokenize(const blend_model *model, const char *text,
                                       size_t text_bytes, uint32_t flags, int32_t *tokens,
                                       size_t capacity, size_t *n_tokens, blend_error **err);

/* Text of tokens: bytes, not NUL-terminated, possibly cut inside a UTF-8 sequence. The space that
 * SentencePiece put before the first token is dropped unless BLEND_TOKENIZE_RAW. Control tokens
 * give no text unless BLEND_TOKENIZE_SPECIAL is set. Errors: BUFFER_TOO_SMALL (needs *n_bytes),
 * INVALID_ARGUMENT (a token outside the vocabulary). */
BLEND_API int32_t blend_model_detokenize(const blend_model *model, const int32_t *tokens,
                                         size_t n_tokens, uint32_t flags, char *text,
                                         size_t capacity, size_t *n_bytes, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_MODEL_H */
