// The handles: each a shell around shared ownership, so that closing in any order is safe: what a
// child still needs of its parent lives on inside the child.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/threads/cancel.h"
#include "base/threads/thread_cap.h"
#include "base/utf8_stream.h"
#include "capi/error.h"
#include "control/machine_profile.h"
#include "engine/model.h"
#include "engine/runtime.h"
#include "fusion/contexts/corpora.h"
#include "fusion/fidelity/fidelity_checks.h"
#include "fusion/idle/deferred_prefill.h"
#include "fusion/run/fuse.h"
#include "grammar/grammar.h"
#include "profile/profile.h"
#include "store/store.h"

struct blend_cancel {
  blend::CancelToken token;
};

struct blend_ctx {
  std::shared_ptr<blend::Runtime> runtime;
};

struct blend_model {
  std::shared_ptr<const blend::ModelDescription> description;

  // The same with its weights and tokenizer; INVALID_ARGUMENT when it is only described.
  blend::Result<std::shared_ptr<const blend::Model>> loaded() const;
  // The same of a model that is to be fused. UNSUPPORTED: it only embeds.
  blend::Result<std::shared_ptr<const blend::Model>> fusible() const;

  // `named`, or, if that is null, the profile's that lies beside the model.
  std::string profile_path(const char* named) const;

  std::string path;  // of the model; empty when it is only described
};

struct blend_store {
  // A fusion that is closed at this moment may hold `checks` a little longer.
  ~blend_store() {
    if (checks != nullptr) checks->close();
  }
  std::shared_ptr<blend::Runtime> runtime;  // its log is told until the store is closed
  std::shared_ptr<blend::Store> store;
  std::shared_ptr<blend::ReadRates> reads = std::make_shared<blend::ReadRates>();
  std::shared_ptr<blend::IdleWorker> idle;
  std::shared_ptr<blend::Corpora> corpora = std::make_shared<blend::Corpora>();
  std::unique_ptr<blend::DeferredPrefill> later;  // null: read-only. Ends before the store does
  std::shared_ptr<blend::FidelityChecks> checks;
  uint32_t kv_dtype = BLEND_DTYPE_AUTO;
  bool read_only = false;
};

struct blend_fusion {
  blend::Fused fused;
  uint32_t n_threads = 0;             // ThreadCap of the calls on it
  blend::Utf8Stream text;             // of the tokens generated so far
  std::vector<int32_t> chunk_prefix;  // that its chunks were looked for after: of later turns too
  std::optional<blend::AnswerTrace> answer;  // noted for a check; see capi/answer.h
  std::weak_ptr<blend::FidelityChecks> checks;
};

struct blend_grammar {
  std::shared_ptr<const blend::Grammar> grammar;
};

struct blend_machine {
  std::shared_ptr<const blend::Model> model;
  blend::MachineProfile profile;
  mutable blend::Pace pace = {};  // of the fuses by it
};

struct blend_profile {
  std::shared_ptr<const blend::Model> model;         // its backend holds the maps
  blend::Profile profile;                            // without the bytes of the maps
  std::shared_ptr<const blend::Drift> drift;         // null: no maps
  std::shared_ptr<const blend::Drift> stored_drift;  // likewise, of stored rows
};

namespace blend::capi {

inline Watch make_watch(const blend_cancel* cancel, blend_progress_fn progress, void* user) {
  Watch watch;
  if (cancel != nullptr) watch.cancel = &cancel->token;
  if (progress != nullptr) {
    watch.progress = [progress, user](uint64_t done, uint64_t total) {
      return progress(user, done, total);
    };
  }
  return watch;
}

// UNSUPPORTED: rows of the model see rows after them, so that none can be reused.
Status check_fusible(const ModelDescription& model);

// The host's template, or else the model's own.
inline std::string_view template_of(const Model& model, const char* given) {
  return given == nullptr || given[0] == '\0' ? std::string_view(model.chat_template()) : given;
}

// BLEND_DTYPE_* of a store resolved for a model.
DType resolve_kv_dtype(const blend_store& store, const ModelDescription& model);
DType resolve_kv_dtype(uint32_t kv_dtype, const ModelDescription& model);
uint32_t kv_dtype_code(DType dtype);
// BLEND_CODEC_*; nothing for DEFAULT. INVALID_ARGUMENT for any other value.
Result<std::optional<Codec>> read_codec(uint32_t codec);
uint32_t codec_code(Codec codec);

// A chunk with what the store knows of its use.
blend_chunk_info describe_stored(StoreAdmin& store, const ChunkMeta& meta);
// `use`: what is known of it; null: nothing.
blend_chunk_info describe_used(const ChunkMeta& meta, const UseRecord* use);

}  // namespace blend::capi
