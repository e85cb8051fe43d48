/*
 * machine.h - what recomputing and loading cost here: a machine's measurement, and advice.
 */
#ifndef BLEND_MACHINE_H
#define BLEND_MACHINE_H

#include "blend/fuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A measurement ------------------------------------------------------------------------ */

#define BLEND_MACHINE_MEASURE 1u /* measure again, whatever the file holds */

typedef struct blend_machine_options {
  uint32_t struct_size;
  uint32_t flags;      /* BLEND_MACHINE_* */
  uint32_t n_threads;  /* threads that are timed; 0: all. Give the n_threads of your fuses */
  uint32_t reserved;   /* 0 */
  uint64_t max_tokens; /* longest prefill that is timed, at most the context; longer ones are
                          extrapolated. 0: 1024 */
  blend_progress_fn progress; /* prefills */
  void *progress_user;
  const blend_cancel *cancel;
} blend_machine_options;

BLEND_API int32_t blend_machine_options_init(blend_machine_options *options, size_t struct_size);

/* Reads the measurement in the file `path` if it is of this CPU, number of threads and model, and
 * returns BLEND_EXISTS. Otherwise it measures a few prefills, best on an idle machine, writes the
 * file, and returns BLEND_OK. A damaged file is replaced. `path` may be NULL: nothing is kept. One
 * file holds one measurement; put it beside the store's directory.
 * Errors: INVALID_ARGUMENT, IO (the file cannot be written), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_machine_open(blend_machine **out, const blend_model *model,
                                     const char *path, const blend_machine_options *options,
                                     blend_error **err);
BLEND_API void blend_machine_close(blend_machine *machine);

typedef struct blend_machine_info {
  uint32_t struct_size;
  uint32_t n_threads;
  uint64_t n_points; /* lengths that were measured */
  int64_t measured_unix_s;
  const char *cpu; /* valid while the machine is open */
} blend_machine_info;

BLEND_API int32_t blend_machine_get_info(const blend_machine *machine, blend_machine_info *info,
                                         blend_error **err);
/* One measured length, point < n_points, ascending. */
BLEND_API int32_t blend_machine_get_point(const blend_machine *machine, uint64_t point,
                                          uint64_t *n_tokens, uint64_t *prefill_ns,
                                          blend_error **err);
/* T_recompute(r, model, L) = r * Prefill(model, L) of CacheBlend section 5.1: ratio 1 is the whole
 * prefill. Errors: INVALID_ARGUMENT (a ratio outside [0, 1]). */
BLEND_API int32_t blend_machine_get_recompute_ns(const blend_machine *machine, uint64_t n_tokens,
                                                 double ratio, uint64_t *ns, blend_error **err);

/* ---- Advice ------------------------------------------------------------------------------- */

/* A medium on which chunks could be stored. */
typedef struct blend_storage {
  uint32_t struct_size; /* the same in every element of an array */
  double bytes_per_s;      /* reading; > 0 */
  double cost_per_gb_hour; /* of 1e9 bytes, in any currency; >= 0 */
  double latency_s;        /* before the first byte comes; >= 0, default 0 */
} blend_storage;

typedef struct blend_advise_options {
  uint32_t struct_size;
  uint32_t check_layer; /* layers before it are computed for all rows and not loaded; default 1.
                           0 is near the paper's formula */
  uint64_t n_tokens;    /* of the prompt's chunks; default 4096 */
  double ratio;         /* 0 .. 1; default 0.15 */
  uint32_t kv_dtype;    /* BLEND_DTYPE_* of the store; default AUTO */
  uint32_t codec;       /* BLEND_CODEC_* of the stored chunks; 0 (default): NONE. A codec whose size
                           depends on the content counts with its maximum */
  uint32_t chunk_tokens; /* of one chunk, which shares a codec's scales; 0 (default): 512 */
  uint32_t reserved;    /* 0 */
} blend_advise_options;

BLEND_API int32_t blend_advise_options_init(blend_advise_options *options, size_t struct_size);

#define BLEND_ADVICE_NO_DELAY 1u /* at the given ratio the compute waits for the first layer only */
#define BLEND_ADVICE_CHEAPEST 2u /* the cheapest storage with NO_DELAY; ties go to the faster, then
                                    the first */
#define BLEND_ADVICE_SLOWER_THAN_PREFILL 4u /* loading takes longer than computing everything */

typedef struct blend_advice {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t flags;       /* BLEND_ADVICE_* */
  uint64_t load_ns;
  uint64_t recompute_ns; /* at the given ratio */
  double hidden_ratio;   /* the largest ratio at which recomputing a layer takes no longer than
                            loading it */
  double ratio;          /* the ratio that a fuse's controller takes with this storage, at least the
                            given ratio */
  double cost_per_hour;  /* of keeping the chunks' bytes */
  uint64_t load_bytes;   /* as they are stored */
} blend_advice;

/* Finds the cheapest storage that adds no delay, and the ratio that each allows (CacheBlend section
 * 5.1). storages, advice: [n_storages], every element initialised. `options` may be NULL.
 * Errors: INVALID_ARGUMENT (names the storage), INVALID_STRUCT. */
BLEND_API int32_t blend_machine_advise(const blend_machine *machine, const blend_storage *storages,
                                       size_t n_storages, const blend_advise_options *options,
                                       blend_advice *advice, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_MACHINE_H */
