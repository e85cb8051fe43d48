// Prompts that are fused together.
#ifndef BLEND_CPP_BATCH_HPP
#define BLEND_CPP_BATCH_HPP

#include <memory>
#include <vector>

#include "blend/batch.h"
#include "blend/cpp/fusion.hpp"

namespace blendpp {

// Prompts that are fused together, so that chunks which they share are loaded once. See
// blend_fuse_batch. Not thread-safe.
class Batch {
 public:
  // Options with callbacks or pointers: as for a Fusion; what they point at must outlive fuse().
  Batch& add(const Prompt& prompt, const FuseOptions& options = FuseOptions()) {
    requests_.push_back({prompt, options});
    return *this;
  }
  size_t size() const noexcept { return requests_.size(); }

  // What became of one prompt: a fusion, or why there is none.
  struct Outcome {
    std::unique_ptr<Fusion> fusion;
    std::unique_ptr<Error> error;
  };
  // `store` may be null as for a Fusion. Throws what fails the whole batch, and what a callback
  // threw. Without requests it does nothing.
  std::vector<Outcome> fuse(const Model& model, const Store* store) const {
    const size_t n = requests_.size();
    if (n == 0) return {};
    detail::Outcome outcome;
    std::vector<std::unique_ptr<Callbacks>> callbacks;
    std::vector<FuseOptions> options;
    std::vector<std::vector<blend_segment>> segments;
    std::vector<blend_fuse_request> list(n);
    options.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      callbacks.push_back(std::make_unique<Callbacks>(requests_[i].options, outcome));
      options.push_back(callbacks.back()->put_in(requests_[i].options));
      detail::point_to_selection(options.back());
      segments.push_back(requests_[i].prompt.segments());
      list[i].struct_size = sizeof list[i];
      list[i].segments = segments[i].data();
      list[i].n_segments = segments[i].size();
      list[i].options = &options[i];
    }
    std::vector<blend_fusion*> fusions(n, nullptr);
    std::vector<blend_error*> errors(n, nullptr);
    std::vector<Outcome> results(n);
    const int32_t code =
        blend_fuse_batch(fusions.data(), errors.data(), model.get(),
                         store == nullptr ? nullptr : store->get(), list.data(), n, outcome.out());
    for (size_t i = 0; i < n; ++i) {
      if (fusions[i] != nullptr) {
        results[i].fusion.reset(new Fusion());
        results[i].fusion->handle_ = {fusions[i], {model.log()}};
      }
      if (errors[i] != nullptr) {
        results[i].error =
            std::make_unique<Error>(blend_error_code(errors[i]), blend_error_detail(errors[i]),
                                    blend_error_message(errors[i]));
        blend_error_free(errors[i]);
      }
    }
    outcome.check(code);
    return results;
  }

 private:
  struct Request {
    Prompt prompt;
    FuseOptions options;
  };
  // The functions of one request's options, guarded.
  struct Callbacks {
    Callbacks(const FuseOptions& options, detail::Outcome& outcome)
        : progress{options.on_progress, outcome}, score{options.on_score, outcome} {}
    FuseOptions put_in(const FuseOptions& options) {
      FuseOptions copy = detail::with_progress(options, options.on_progress, progress);
      if (options.on_score) {
        copy.selection.score = &detail::on_score;
        copy.selection.score_user = &score;
      }
      return copy;
    }
    detail::Guarded<ProgressFn> progress;
    detail::Guarded<ScoreFn> score;
  };
  std::vector<Request> requests_;
};

}  // namespace blendpp

#endif
