// What the checks of a store have seen.
#include "blend/fidelity.h"

#include <cstring>

#include "capi/error.h"
#include "capi/fuse_call.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Status;

namespace {

constexpr double kSides = 1.96;  // of a 95 % interval

blend_fidelity_row describe(const blend::FidelityKey& key, const blend::FidelityRecord& record,
                            uint32_t rung, double ratio_now) {
  const blend::RungRecord& r = record.rungs[rung];
  blend_fidelity_row row{};
  row.struct_size = sizeof row;
  row.policy = key.policy;
  row.record = key.record;
  row.short_prompts = key.short_prompts;
  row.ratio = blend::kLadder[rung];
  row.ratio_now = ratio_now;
  row.in_force = row.ratio == ratio_now ? 1 : 0;
  row.n_checks = r.n_checks;
  row.n_tokens = r.n_tokens;
  if (r.n_checks > 0) {
    const blend::Interval interval = r.evidence.interval(kSides);
    row.agreement = r.evidence.agreement();
    row.agreement_low = interval.low;
    row.agreement_high = interval.high;
    row.identical = static_cast<double>(r.identical / r.evidence.checks);
    row.mean_kl = r.mean_kl();
  }
  std::memcpy(row.fingerprint, key.fingerprint.data(), key.fingerprint.size());
  return row;
}

}  // namespace

extern "C" {

int32_t blend_store_get_fidelity(const blend_store* store, const blend_model* model,
                                 double agreement_target, blend_fidelity_fn fn, void* user,
                                 blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(fn);
    BLEND_RETURN_IF_ERROR(store->runtime->check_fork());
    BLEND_ASSIGN(const double target, blend::capi::read_agreement_target(agreement_target));
    const blend::Sha256* const of = model == nullptr ? nullptr : &model->description->fingerprint();
    BLEND_ASSIGN(const auto records, store->checks->book().all(of));
    for (const auto& [key, record] : records) {
      const double now = record.ratio(target, key.first_rung());
      for (uint32_t rung = 0; rung < blend::kLadder.size(); ++rung) {
        const blend_fidelity_row row = describe(key, record, rung, now);
        if (row.n_checks == 0 && row.in_force == 0) continue;
        if (const int32_t rc = fn(user, &row); rc != 0) {
          return {BLEND_E_CALLBACK, "the fidelity callback asked to stop", rc};
        }
      }
    }
    return Status::ok();
  });
}

int32_t blend_store_run_checks(const blend_store* store, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_RETURN_IF_ERROR(store->runtime->check_fork());
    store->checks->run_all();
    return Status::ok();
  });
}

}  // extern "C"
