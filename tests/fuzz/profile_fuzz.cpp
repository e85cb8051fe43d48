// Reading a profile file of any content (libFuzzer). The first byte says how the file is made: of
// the input as it is; of the input between a header of any version and a checksum that fit it;
// or by encode_profile() from a profile that the input describes, of which the input then changes
// some bytes before it is sealed again. After the checksum every field may be hostile.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "base/wire.h"
#include "profile/profile.h"

namespace {

constexpr size_t kHeader = 8 + 4 + 4 + 8, kVersionAt = 8, kLengthAt = 16, kSeal = 8;

void check(bool right) {
  if (!right) std::abort();
}

std::span<const std::byte> as_bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// Puts the file's length and its checksum where a reader looks for them.
void seal(std::string& file) {
  if (file.size() < kHeader + kSeal) return;
  const uint64_t length = file.size();
  std::memcpy(file.data() + kLengthAt, &length, sizeof length);
  const uint64_t sum = blend::checksum64(file.data(), file.size() - kSeal);
  std::memcpy(file.data() + file.size() - kSeal, &sum, sizeof sum);
}

double share(blend::ByteReader& in) { return in.get<uint8_t>() / 255.0; }

uint32_t metric(blend::ByteReader& in) {
  const uint32_t code = 1 + in.get<uint8_t>() % BLEND_METRIC_KV_WEIGHED;
  return (code & BLEND_METRIC_KV) != 0 ? code : BLEND_METRIC_KV;
}

uint32_t policy(blend::ByteReader& in) {
  return (in.get<uint8_t>() & 1) != 0 ? BLEND_POLICY_CASCADE : BLEND_POLICY_HKVD;
}

// Maps of layers first_layer .. p.n_layers - 1.
blend::DriftMaps describe_maps(blend::ByteReader& in, const blend::Profile& p, uint32_t first_layer,
                               blend::DriftInputs inputs) {
  blend::DriftMaps d;
  d.inputs = inputs;
  d.kv_dim = p.kv_dim;
  d.first_layer = first_layer;
  d.n_maps = p.n_layers - first_layer;
  d.rank = in.get<uint8_t>() % (2 * p.kv_dim);
  d.dtype = static_cast<blend::DType>(in.get<uint8_t>() % 3);
  d.ridge = share(in);
  for (uint32_t i = 0; i < d.n_maps; ++i) {
    d.explained_k.push_back(static_cast<float>(share(in)));
    d.explained_v.push_back(static_cast<float>(share(in)));
  }
  d.data.resize(d.layer_bytes() * d.n_maps, std::byte{in.get<uint8_t>()});
  return d;
}

// A profile that a calibration could have written, small.
blend::Profile describe(blend::ByteReader& in) {
  blend::Profile p;
  p.fingerprint.fill(in.get<uint8_t>());
  p.n_layers = 2 + in.get<uint8_t>() % 6;
  p.kv_dim = 1 + in.get<uint8_t>() % 6;
  p.kv_dtype = static_cast<blend::DType>(in.get<uint8_t>() % 3);
  p.prefixes.resize(1 + in.get<uint8_t>() % 4);
  for (auto& prefix : p.prefixes) {
    prefix.resize(in.get<uint8_t>() % 5);
    for (int32_t& token : prefix) token = in.get<int16_t>();
  }
  const auto n_prefixes = static_cast<uint32_t>(p.prefixes.size());
  p.table.resize(in.get<uint8_t>() % 8);
  for (blend::Measurement& m : p.table) {
    m.prefix = in.get<uint8_t>() % n_prefixes;
    m.metric = metric(in);
    m.corrected = (in.get<uint8_t>() & 1) != 0;
    m.ratio = share(in);
    m.kl_mean = share(in);
    m.kl_p95 = share(in) * 8;
    m.top1 = share(in);
    m.n_positions = in.get<uint8_t>();
    m.policy = policy(in);
    m.check_layer = 1 + in.get<uint8_t>() % (p.n_layers - 1);
    m.kl_margin = share(in);
    m.top1_margin = share(in);
    m.flops = share(in);
  }
  p.prefix = in.get<uint8_t>() % n_prefixes;
  p.metric = metric(in);
  p.check_layer = 1 + in.get<uint8_t>() % (p.n_layers - 1);
  p.trusted = (in.get<uint8_t>() & 1) != 0;
  p.ratio = share(in);
  p.max_kl = share(in);
  p.min_top1 = share(in);
  p.policy = policy(in);
  const auto drift = in.get<uint8_t>();
  if ((drift & 1) != 0 && p.check_layer + 1 < p.n_layers) {
    p.drift = describe_maps(in, p, p.check_layer + 1,
                            {.fresh = (drift & 2) != 0, .constant = (drift & 4) != 0});
    p.corrected = (drift & 8) != 0;
  }
  if ((drift & 16) != 0) p.stored_drift = describe_maps(in, p, 1, {.stored = true});
  if ((drift & 32) != 0) {
    blend::LayerSteps& s = p.layer_steps;
    for (uint32_t i = 0; i < p.n_layers; ++i) {
      s.factors.push_back(0.0625f * static_cast<float>(1 + in.get<uint8_t>()));
    }
    s.kl_alike = share(in);
    s.kl_split = share(in);
    s.n_prompts = in.get<uint8_t>();
  }
  if ((drift & 64) != 0) {
    p.codec_costs.push_back({in.get<uint8_t>(), share(in), share(in), share(in), share(in), 8});
  }
  return p;
}

// Changes fields: each change is a place, a width and a value. False: there was none.
bool change(std::string& file, blend::ByteReader& in) {
  static constexpr uint64_t kOdd[] = {0,          1,          2,          0x7fffffff, 0x80000000,
                                      0xffffffff, 0x01000000, 0x01000001, ~0ull,      1ull << 63};
  bool changed = false;
  for (int i = 0; i < 8 && in.remaining() >= 4; ++i) {
    const auto at = in.get<uint16_t>();
    const auto how = in.get<uint8_t>();
    const auto what = in.get<uint8_t>();
    const size_t width = size_t{1} << (how & 3);
    const size_t place = at % (file.size() - width + 1);
    uint64_t value = 0;
    std::memcpy(&value, file.data() + place, width);
    value = (how & 4) != 0   ? value ^ (uint64_t{1} << (what & 63))
            : (how & 8) != 0 ? kOdd[what % std::size(kOdd)]
                             : value + static_cast<uint64_t>(static_cast<int8_t>(what));
    std::memcpy(file.data() + place, &value, width);
    if ((how & 0x30) == 0x30) file.resize(std::max(file.size(), kHeader + kSeal + what) - what);
    if ((how & 0x30) == 0x20) file.insert(file.size() - kSeal, what, '\0');
    changed = true;
  }
  return changed;
}

void use(const blend::DriftMaps& d) {
  const std::byte* const begin = d.data.data();
  const std::byte* const end = begin + d.data.size();
  for (uint32_t i = 0; i < d.n_maps; ++i) {
    for (const blend::TensorView& m : d.matrices(i)) {
      const auto n = static_cast<uint64_t>(m.shape[0]) * static_cast<uint64_t>(m.shape[1]) *
                     static_cast<uint64_t>(blend::dtype_size(m.dtype));
      const auto* const at = static_cast<const std::byte*>(m.data);
      check(at >= begin && at <= end && n <= static_cast<uint64_t>(end - at));
    }
  }
}

// What is asked of a profile when a model is opened with it.
void use(const blend::Profile& p) {
  check(p.prefix < p.prefixes.size() && p.check_layer >= 1 && p.check_layer < p.n_layers);
  check(p.ratio >= 0 && p.ratio <= 1 && p.max_kl >= 0);
  check(!p.corrected || !p.drift.empty());
  for (const blend::Measurement& m : p.table) {
    const blend::FusingKind kind = blend::kind_of(m);
    const auto least = blend::least_ratio(p, kind);
    check(least.has_value() && *least >= 0 && *least <= 1);
    if (!blend::vouches(p, kind, *least)) check(*least == 1);
  }
  use(p.drift);
  use(p.stored_drift);
  check(p.layer_steps.empty() || p.layer_steps.factors.size() == p.n_layers);
  for (const float factor : p.layer_steps.factors) check(blend::is_layer_step(factor));
}

// Whether it was understood; what was is written and understood the same way again.
bool read(const std::string& file) {
  const auto profile = blend::decode_profile(as_bytes(file));
  if (!profile.is_ok()) {
    const int32_t code = profile.status().code();
    check(code == BLEND_E_FORMAT || code == BLEND_E_MISMATCH || code == BLEND_E_CORRUPT);
    return false;
  }
  use(profile.value());
  const std::string written = blend::encode_profile(profile.value());
  const auto again = blend::decode_profile(as_bytes(written));
  check(again.is_ok() && blend::encode_profile(again.value()) == written);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const uint8_t how = data[0] & 3;
  std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  if (how == 0) {
    read(rest);
  } else if (how == 1) {
    std::string file("BLENDPRF\1\0\0\0\0\0\0\0", kLengthAt);
    if ((data[0] & 4) != 0) file[kVersionAt] = (data[0] & 8) != 0 ? 3 : 2;
    file.append(8, '\0').append(rest).append(kSeal, '\0');
    seal(file);
    read(file);
  } else {
    blend::ByteReader in(as_bytes(rest));
    std::string file = blend::encode_profile(describe(in));
    const bool changed = change(file, in);
    if (how == 3 || !changed) seal(file);
    const bool understood = read(file);
    check(understood || changed);
  }
  return 0;
}
