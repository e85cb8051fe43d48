// The scalar members of blend.h's structs that the shim shows under the same names and types:
// X(type, member). One list serves the declaration and both ways of copying, and
// bindings/common/check_fields.py compares it with blend.h. Pointers and callbacks have functions
// of their own in the classes.
#ifndef BLEND_SHIM_FIELDS_H
#define BLEND_SHIM_FIELDS_H

#define BLEND_SHIM_DECLARE(type, name) type name;

#define BLEND_MODEL_OPTIONS_FIELDS(X) X(uint32_t, max_context) X(uint32_t, weights)

#define BLEND_MODEL_INFO_FIELDS(X) \
  X(uint32_t, n_layers)            \
  X(uint32_t, d_model)             \
  X(uint32_t, n_heads)             \
  X(uint32_t, n_kv_heads)          \
  X(uint32_t, head_dim)            \
  X(uint32_t, d_ff)                \
  X(uint32_t, n_vocab)             \
  X(uint32_t, context_length)      \
  X(int32_t, bos_token)            \
  X(int32_t, eos_token)            \
  X(uint32_t, add_bos)             \
  X(double, rope_theta)            \
  X(uint64_t, n_parameters)        \
  X(uint64_t, weight_bytes)        \
  X(uint64_t, kv_bytes_per_token)  \
  X(uint32_t, weights)

#define BLEND_MODEL_DESCRIPTION_FIELDS(X) \
  X(uint32_t, n_layers)                   \
  X(uint32_t, n_heads)                    \
  X(uint32_t, n_kv_heads)                 \
  X(uint32_t, head_dim)                   \
  X(uint32_t, n_vocab)                    \
  X(uint32_t, context_length)             \
  X(uint32_t, weight_dtype)               \
  X(uint32_t, rope_layout)                \
  X(uint32_t, rotary_dim)                 \
  X(double, rope_theta)                   \
  X(double, rope_linear_scale)

#define BLEND_STORE_OPTIONS_FIELDS(X) \
  X(uint32_t, flags)                  \
  X(uint32_t, kv_dtype)               \
  X(uint64_t, quota_bytes)            \
  X(uint64_t, queue_bytes)            \
  X(uint32_t, codec)                  \
  X(uint32_t, read_mode)              \
  X(uint32_t, eviction)               \
  X(uint64_t, ttl_s)                  \
  X(uint64_t, tenant_quota_bytes)     \
  X(uint64_t, ram_bytes)

#define BLEND_CHUNK_INFO_FIELDS(X) \
  X(uint32_t, n_tokens)            \
  X(uint32_t, n_prefix_tokens)     \
  X(uint32_t, kv_dtype)            \
  X(uint32_t, n_layers)            \
  X(uint32_t, kv_dim)              \
  X(uint64_t, bytes)               \
  X(int64_t, created_unix_s)       \
  X(uint64_t, stored_bytes)        \
  X(uint32_t, codec)               \
  X(uint32_t, pinned)              \
  X(int64_t, last_used_unix_s)     \
  X(uint64_t, n_uses)

#define BLEND_STORE_STAT_FIELDS(X) \
  X(uint32_t, read_mode)           \
  X(uint64_t, n_chunks)            \
  X(uint64_t, n_tokens)            \
  X(uint64_t, bytes)               \
  X(uint64_t, file_bytes)          \
  X(uint64_t, quota_bytes)         \
  X(uint64_t, hits)                \
  X(uint64_t, misses)              \
  X(uint64_t, damaged)             \
  X(uint64_t, written)             \
  X(uint64_t, write_errors)        \
  X(double, read_bytes_per_s)      \
  X(uint64_t, stored_bytes)        \
  X(uint64_t, ram_hits)            \
  X(uint64_t, pinned_chunks)       \
  X(uint64_t, pinned_bytes)        \
  X(uint64_t, total_ram_hits)      \
  X(uint64_t, total_disk_hits)     \
  X(uint64_t, total_misses)        \
  X(uint64_t, evicted_chunks)      \
  X(uint64_t, evicted_bytes)       \
  X(uint64_t, expired_chunks)      \
  X(int64_t, oldest_use_unix_s)    \
  X(int64_t, newest_use_unix_s)    \
  X(uint64_t, ram_bytes)           \
  X(uint64_t, ram_budget_bytes)    \
  X(uint64_t, ram_chunks)          \
  X(uint64_t, prefetched_chunks)   \
  X(uint64_t, queue_bytes)

#define BLEND_TRANSFER_OPTIONS_FIELDS(X) X(uint32_t, flags)

#define BLEND_CODEC_STAT_FIELDS(X) \
  X(uint32_t, codec)               \
  X(uint64_t, n_chunks)            \
  X(uint64_t, bytes)               \
  X(uint64_t, stored_bytes)

#define BLEND_PRECOMPUTE_OPTIONS_FIELDS(X) \
  X(uint32_t, flags)                       \
  X(uint32_t, codec)                       \
  X(uint32_t, n_threads)

#define BLEND_FUSE_OPTIONS_FIELDS(X) \
  X(uint32_t, policy)                \
  X(uint32_t, metric)                \
  X(uint32_t, check_layer)           \
  X(double, ratio)                   \
  X(uint32_t, on_miss)               \
  X(uint32_t, reserve_tokens)        \
  X(uint32_t, norm)                  \
  X(uint32_t, relative)              \
  X(uint64_t, seed)                  \
  X(uint32_t, correction)            \
  X(uint32_t, n_threads)             \
  X(double, ape_temperature)         \
  X(double, ape_scale)

#define BLEND_FUSION_INFO_FIELDS(X) \
  X(uint32_t, flags)                \
  X(uint32_t, policy)               \
  X(uint32_t, metric)               \
  X(uint32_t, check_layer)          \
  X(uint32_t, n_layers)             \
  X(double, ratio)                  \
  X(uint64_t, n_rows)               \
  X(uint64_t, n_rows_exact)         \
  X(uint64_t, n_rows_reused)        \
  X(uint64_t, n_rows_selected)      \
  X(uint64_t, n_rows_always)        \
  X(uint64_t, n_segments)           \
  X(uint64_t, n_hits)               \
  X(uint64_t, n_misses)             \
  X(uint64_t, bytes_loaded)         \
  X(uint64_t, ttft_ns)              \
  X(uint64_t, plan_ns)              \
  X(uint64_t, miss_ns)              \
  X(uint64_t, load_ns)              \
  X(uint64_t, wait_ns)              \
  X(uint64_t, place_ns)             \
  X(uint64_t, select_ns)            \
  X(uint64_t, compute_ns)           \
  X(uint32_t, norm)                 \
  X(uint32_t, relative)             \
  X(uint32_t, n_check_layers)       \
  X(uint64_t, n_rows_resident)      \
  X(uint64_t, n_rows_corrected)     \
  X(uint64_t, correct_ns)           \
  X(uint64_t, prepare_ns)           \
  X(uint64_t, other_ns)             \
  X(uint64_t, stall_ns)             \
  X(uint64_t, bytes_shared)         \
  X(uint32_t, ring_depth)           \
  X(uint64_t, bytes_from_memory)    \
  X(uint64_t, n_rows_from_memory)   \
  X(uint64_t, n_rows_tempered)      \
  X(uint64_t, n_misses_queued)      \
  X(uint64_t, n_rows_from_device)   \
  X(uint64_t, bytes_from_device)

#define BLEND_LAYER_INFO_FIELDS(X) \
  X(uint32_t, layer)               \
  X(uint64_t, rows_kv)             \
  X(uint64_t, rows_full)           \
  X(uint64_t, rows_placed)         \
  X(uint64_t, bytes_loaded)        \
  X(uint64_t, load_begin_ns)       \
  X(uint64_t, load_end_ns)         \
  X(uint64_t, compute_begin_ns)    \
  X(uint64_t, compute_end_ns)      \
  X(uint64_t, wait_ns)             \
  X(uint64_t, place_ns)            \
  X(uint64_t, select_ns)           \
  X(uint64_t, stall_ns)            \
  X(uint64_t, bytes_shared)        \
  X(uint64_t, bytes_from_memory)

#define BLEND_SEGMENT_INFO_FIELDS(X) \
  X(uint32_t, kind)                  \
  X(uint32_t, source)                \
  X(uint32_t, exact)                 \
  X(uint64_t, first_row)             \
  X(uint64_t, n_rows)                \
  X(uint64_t, n_rows_selected)

#define BLEND_GENERATE_OPTIONS_FIELDS(X) \
  X(uint32_t, max_tokens)                \
  X(float, temperature)                  \
  X(float, top_p)                        \
  X(uint32_t, top_k)                     \
  X(uint32_t, ignore_eos)                \
  X(uint64_t, seed)                      \
  X(uint32_t, n_threads)

#define BLEND_MACHINE_OPTIONS_FIELDS(X) \
  X(uint32_t, flags)                    \
  X(uint64_t, max_tokens)               \
  X(uint32_t, n_threads)

#define BLEND_MACHINE_INFO_FIELDS(X) \
  X(uint32_t, n_threads)             \
  X(uint64_t, n_points)              \
  X(int64_t, measured_unix_s)

#define BLEND_DEVICE_FIELDS(X) \
  X(double, bytes_per_s)       \
  X(double, cost_per_gb_hour)

#define BLEND_ADVISE_OPTIONS_FIELDS(X) \
  X(uint32_t, check_layer)             \
  X(uint64_t, n_tokens)                \
  X(double, ratio)                     \
  X(uint32_t, kv_dtype)

#define BLEND_ADVICE_FIELDS(X) \
  X(uint32_t, flags)           \
  X(uint64_t, load_ns)         \
  X(uint64_t, recompute_ns)    \
  X(double, hidden_ratio)      \
  X(double, ratio)             \
  X(double, cost_per_hour)

#define BLEND_PROFILE_INFO_FIELDS(X) \
  X(uint32_t, trusted)               \
  X(uint32_t, metric)                \
  X(uint32_t, check_layer)           \
  X(double, ratio)                   \
  X(double, max_kl)                  \
  X(double, min_top1)                \
  X(uint32_t, corrected)             \
  X(uint32_t, drift_inputs)          \
  X(uint32_t, drift_rank)            \
  X(uint32_t, kv_dtype)              \
  X(uint64_t, drift_bytes)           \
  X(uint64_t, n_fitted)              \
  X(uint64_t, n_measured)            \
  X(uint64_t, n_measurements)

#define BLEND_MEASUREMENT_FIELDS(X) \
  X(uint32_t, metric)               \
  X(uint32_t, corrected)            \
  X(double, ratio)                  \
  X(double, kl_mean)                \
  X(double, kl_p95)                 \
  X(double, top1)                   \
  X(uint64_t, n_positions)

#define BLEND_CALIBRATE_OPTIONS_FIELDS(X) \
  X(uint32_t, check_layer)                \
  X(uint32_t, kv_dtype)                   \
  X(uint32_t, correction)                 \
  X(uint32_t, drift_inputs)               \
  X(uint32_t, drift_rank)                 \
  X(double, ridge)                        \
  X(uint32_t, score_tokens)               \
  X(uint32_t, n_threads)                  \
  X(double, max_kl)                       \
  X(double, min_top1)

#define BLEND_VERIFY_OPTIONS_FIELDS(X) \
  X(uint32_t, score_tokens)            \
  X(double, max_kl)                    \
  X(double, min_top1)                  \
  X(uint32_t, n_threads)

#define BLEND_VERDICT_FIELDS(X) \
  X(uint32_t, trusted)          \
  X(double, ratio)              \
  X(double, kl_mean)            \
  X(double, top1)               \
  X(double, least_ratio)

#define BLEND_KV_VIEW_FIELDS(X) \
  X(uint32_t, flags)            \
  X(uint32_t, dtype)            \
  X(size_t, row_stride)         \
  X(size_t, head_stride)

#endif
