// A machine profile of any text (libFuzzer): it is refused, or is written and understood the same
// way again, and its times make sense.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "control/machine_profile.h"

namespace {

void check(bool right) {
  if (!right) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto profile = blend::MachineProfile::parse(text);
  if (!profile) return 0;
  const auto again = blend::MachineProfile::parse(profile->serialize());
  check(again && again->key() == profile->key());
  check(again->prefill().points() == profile->prefill().points());
  check(again->measured_unix_s() == profile->measured_unix_s());
  for (const uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{100}, uint64_t{1} << 17}) {
    const double s = profile->prefill().seconds(n);
    check(std::isfinite(s) && s >= 0);
  }
  for (const auto& p : profile->prefill().points()) {
    const double s = profile->prefill().seconds(p.n_tokens);
    check(std::isfinite(s) && s >= 0);
  }
  return 0;
}
