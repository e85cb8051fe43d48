#include "profile/profile.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/files/eintr.h"
#include "base/files/file_size_signal.h"
#include "base/files/mapped_file.h"
#include "base/files/part_file.h"
#include "base/wire.h"
#include "blend/precompute.h"

namespace blend {
namespace {

constexpr char kMagic[8] = {'B', 'L', 'E', 'N', 'D', 'P', 'R', 'F'};
constexpr uint32_t kVersion = 4;
constexpr uint32_t kOldest = 1;             // still read
constexpr uint32_t kWithoutLayerSteps = 2;  // and written without layer scales
constexpr uint32_t kWithoutRecords = 3;     // likewise: contexts, codecs
constexpr size_t kCodecCostBytes = 4 + 4 * 8 + 8;
constexpr size_t kHeaderBytes = sizeof kMagic + 4 + 4 + 8;  // magic, version, 0, length of the file
constexpr size_t kChecksumBytes = 8;
constexpr uint64_t kMaxDimension = 1u << 24;  // keeps every product below 2^64

Status contradiction(const char* what) {
  return make_error(BLEND_E_FORMAT, "its %s cannot be: calibrate the model again", what);
}

void put(ByteWriter& out, double value) { out.put(std::bit_cast<uint64_t>(value)); }
double get_double(ByteReader& in) { return std::bit_cast<double>(in.get<uint64_t>()); }

void put_tokens(ByteWriter& out, const std::vector<int32_t>& tokens) {
  out.put(static_cast<uint32_t>(tokens.size()));
  for (const int32_t token : tokens) out.put(token);
}

void put_measurement(ByteWriter& out, const Measurement& m) {
  out.put(m.prefix);
  out.put(m.metric);
  out.put(static_cast<uint32_t>(m.corrected));
  put(out, m.ratio);
  put(out, m.kl_mean);
  put(out, m.kl_p95);
  put(out, m.top1);
  out.put(m.n_positions);
  out.put(m.policy);
  out.put(m.check_layer);
  put(out, m.kl_margin);
  put(out, m.top1_margin);
  put(out, m.flops);
}

// check_layer: common to all lines in version 1.
Measurement get_measurement(ByteReader& in, uint32_t version, uint32_t check_layer) {
  Measurement m;
  m.prefix = in.get<uint32_t>();
  m.metric = in.get<uint32_t>();
  m.corrected = in.get<uint32_t>() != 0;
  m.ratio = get_double(in);
  m.kl_mean = get_double(in);
  m.kl_p95 = get_double(in);
  m.top1 = get_double(in);
  m.n_positions = in.get<uint64_t>();
  m.check_layer = check_layer;
  if (version == 1) return m;
  m.policy = in.get<uint32_t>();
  m.check_layer = in.get<uint32_t>();
  m.kl_margin = get_double(in);
  m.top1_margin = get_double(in);
  m.flops = get_double(in);
  return m;
}

void put_drift(ByteWriter& out, const DriftMaps& drift) {
  out.put(drift.n_maps);
  if (drift.empty()) return;
  out.put((drift.inputs.fresh ? 1u : 0u) | (drift.inputs.constant ? 2u : 0u) |
          (drift.inputs.stored ? 4u : 0u));
  out.put(drift.rank);
  out.put(static_cast<uint32_t>(drift.dtype));
  put(out, drift.ridge);
  for (uint32_t i = 0; i < drift.n_maps; ++i) {
    out.put(std::bit_cast<uint32_t>(drift.explained_k[i]));
    out.put(std::bit_cast<uint32_t>(drift.explained_v[i]));
  }
  out.bytes(drift.data.data(), drift.data.size());
}

void put_layer_steps(ByteWriter& out, const LayerSteps& steps) {
  out.put(static_cast<uint32_t>(steps.factors.size()));
  for (const float factor : steps.factors) out.put(std::bit_cast<uint32_t>(factor));
  for (const double value :
       {steps.kl_alike, steps.kl_split, steps.gain_margin, steps.bits_alike, steps.bits_split}) {
    put(out, value);
  }
  out.put(steps.n_prompts);
}

void put_records(ByteWriter& out, uint32_t n_contexts, const std::vector<CodecCost>& costs) {
  out.put(n_contexts);
  out.put(static_cast<uint32_t>(costs.size()));
  for (const CodecCost& cost : costs) {
    out.put(cost.codec);
    for (const double value : {cost.kl, cost.kl_margin, cost.kl_fuse, cost.bits}) put(out, value);
    out.put(cost.n_prompts);
  }
}

bool is_metric(uint32_t code) {
  return (code & BLEND_METRIC_KV) != 0 && code <= BLEND_METRIC_KV_WEIGHED;
}

bool is_policy(uint32_t code) {
  return code == BLEND_POLICY_HKVD || code == BLEND_POLICY_CASCADE ||
         code == BLEND_POLICY_ATTENTION;
}

bool is_share(double value) { return value >= 0 && value <= 1; }

// Everything before the drift maps. Counts are checked against the bytes left in the file before
// anything is allocated for them.
Status get_description(ByteReader& in, uint32_t version, Profile& p) {
  in.bytes(p.fingerprint.data(), p.fingerprint.size());
  p.n_layers = in.get<uint32_t>();
  p.kv_dim = in.get<uint32_t>();
  const auto dtype = in.get<uint32_t>();
  if (p.n_layers == 0 || p.n_layers > kMaxDimension) return contradiction("number of layers");
  if (p.kv_dim == 0 || p.kv_dim > kMaxDimension) return contradiction("KV width");
  if (dtype > static_cast<uint32_t>(DType::bf16)) return contradiction("KV type");
  p.kv_dtype = static_cast<DType>(dtype);
  const auto n_prefixes = in.get<uint32_t>();
  if (n_prefixes == 0 || n_prefixes > in.remaining() / 4)
    return contradiction("number of prefixes");
  for (uint32_t i = 0; i < n_prefixes; ++i) {
    const auto n = in.get<uint32_t>();
    if (n > in.remaining() / 4) return contradiction("chunk prefix");
    std::vector<int32_t>& tokens = p.prefixes.emplace_back(n);
    for (int32_t& token : tokens) token = in.get<int32_t>();
  }
  p.prefix = in.get<uint32_t>();
  p.metric = in.get<uint32_t>();
  p.check_layer = in.get<uint32_t>();
  if (version > 1) p.policy = in.get<uint32_t>();
  const auto flags = in.get<uint32_t>();
  p.trusted = (flags & 1) != 0;
  p.corrected = (flags & 2) != 0;
  p.ratio = get_double(in);
  p.max_kl = get_double(in);
  p.min_top1 = get_double(in);
  p.n_fitted = in.get<uint64_t>();
  p.n_measured = in.get<uint64_t>();
  if (p.prefix >= n_prefixes) return contradiction("chunk prefix");
  if (!is_metric(p.metric)) return contradiction("metric");
  if (!is_policy(p.policy)) return contradiction("policy");
  if (p.check_layer < 1 || p.check_layer >= p.n_layers) return contradiction("check layer");
  if (flags > 3) return contradiction("set of flags");
  if (!is_share(p.ratio)) return contradiction("ratio");
  if (!(p.max_kl >= 0) || !is_share(p.min_top1)) return contradiction("limits");
  return Status::ok();
}

Status get_table(ByteReader& in, uint32_t version, Profile& p) {
  const size_t measurement_bytes = version == 1 ? 3 * 4 + 5 * 8 : 5 * 4 + 8 * 8;
  const auto n = in.get<uint32_t>();
  if (n > in.remaining() / measurement_bytes) return contradiction("table");
  for (uint32_t i = 0; i < n; ++i) {
    const Measurement m = get_measurement(in, version, p.check_layer);
    if (m.prefix >= p.prefixes.size() || !is_metric(m.metric) || !is_policy(m.policy) ||
        m.check_layer < 1 || m.check_layer >= p.n_layers || !is_share(m.ratio) ||
        !is_share(m.top1) || !is_share(m.top1_margin) || !(m.kl_mean >= 0) || !(m.kl_p95 >= 0) ||
        !(m.kl_margin >= 0) || !(m.flops >= 0)) {
      return contradiction("table");
    }
    p.table.push_back(m);
  }
  return Status::ok();
}

// Maps of layers first_layer .. n_layers - 1.
Status get_drift(ByteReader& in, uint32_t version, const Profile& p, uint32_t first_layer,
                 DriftMaps& d) {
  const auto n_maps = in.get<uint32_t>();
  if (n_maps == 0) return Status::ok();
  if (n_maps != p.n_layers - first_layer) return contradiction("number of drift maps");
  const auto inputs = in.get<uint32_t>();
  d.rank = in.get<uint32_t>();
  const auto dtype = in.get<uint32_t>();
  if (version > 1) d.ridge = get_double(in);
  d.n_maps = n_maps;
  d.kv_dim = p.kv_dim;
  d.first_layer = first_layer;
  d.inputs = {(inputs & 1) != 0, (inputs & 2) != 0, (inputs & 4) != 0};
  if (inputs > (version == 1 ? 3u : 4u)) return contradiction("set of drift inputs");
  if (d.rank >= d.n_out()) return contradiction("drift rank");
  if (!(d.ridge >= 0)) return contradiction("ridge");
  if (dtype > static_cast<uint32_t>(DType::bf16)) return contradiction("drift type");
  d.dtype = static_cast<DType>(dtype);
  if (n_maps > in.remaining() / 8) return contradiction("number of drift maps");
  for (uint32_t i = 0; i < n_maps; ++i) {
    d.explained_k.push_back(std::bit_cast<float>(in.get<uint32_t>()));
    d.explained_v.push_back(std::bit_cast<float>(in.get<uint32_t>()));
  }
  if (d.layer_bytes() > in.remaining() / n_maps) return contradiction("length of the drift maps");
  d.data.resize(d.layer_bytes() * n_maps);
  in.bytes(d.data.data(), d.data.size());
  return Status::ok();
}

Status get_maps(ByteReader& in, uint32_t version, Profile& p) {
  BLEND_RETURN_IF_ERROR(get_drift(in, version, p, p.check_layer + 1, p.drift));
  if (p.drift.inputs.stored) return contradiction("set of drift inputs");
  if (version > 1) BLEND_RETURN_IF_ERROR(get_drift(in, version, p, 1, p.stored_drift));
  if (!p.stored_drift.empty() && !p.stored_drift.inputs.stored) {
    return contradiction("set of drift inputs");
  }
  if (p.corrected && p.drift.empty()) return contradiction("want of drift maps");
  return Status::ok();
}

Status get_layer_steps(ByteReader& in, uint32_t version, Profile& p) {
  if (version <= kWithoutLayerSteps) return Status::ok();
  LayerSteps& steps = p.layer_steps;
  const auto n = in.get<uint32_t>();
  if ((n != 0 && n != p.n_layers) || n > in.remaining() / 4) {
    return contradiction("number of layers' steps");
  }
  for (uint32_t i = 0; i < n; ++i) {
    steps.factors.push_back(std::bit_cast<float>(in.get<uint32_t>()));
    if (!is_layer_step(steps.factors.back())) return contradiction("step of a layer");
  }
  for (double* const value : {&steps.kl_alike, &steps.kl_split, &steps.gain_margin,
                              &steps.bits_alike, &steps.bits_split}) {
    *value = get_double(in);
    if (!(*value >= 0 && std::isfinite(*value))) return contradiction("gain of the layers' steps");
  }
  steps.n_prompts = in.get<uint64_t>();
  return Status::ok();
}

Status get_records(ByteReader& in, uint32_t version, Profile& p) {
  if (version <= kWithoutRecords) return Status::ok();
  p.n_contexts = in.get<uint32_t>();
  if (p.n_contexts > BLEND_MOST_CONTEXTS) return contradiction("number of context passages");
  const auto n = in.get<uint32_t>();
  if (n > in.remaining() / kCodecCostBytes) return contradiction("number of codecs");
  for (uint32_t i = 0; i < n; ++i) {
    CodecCost& cost = p.codec_costs.emplace_back();
    cost.codec = in.get<uint32_t>();
    for (double* const value : {&cost.kl, &cost.kl_margin, &cost.kl_fuse, &cost.bits}) {
      *value = get_double(in);
      if (!(*value >= 0 && std::isfinite(*value))) return contradiction("cost of a codec");
    }
    cost.n_prompts = in.get<uint64_t>();
  }
  return Status::ok();
}

// Writes all of `bytes` and makes them durable. The name is in the caller's message.
Status write_all(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return make_errno(BLEND_E_IO, errno, "cannot write");
    at += static_cast<size_t>(n);
  }
  if (retry_interrupted([&] { return ::fsync(fd); }) != 0)
    return make_errno(BLEND_E_IO, errno, "cannot sync");
  return Status::ok();
}

Status sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = retry_interrupted(
      [&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return make_errno(BLEND_E_IO, errno, "cannot open its directory");
  const int rc = retry_interrupted([&] { return ::fsync(fd); });
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a directory (EINVAL): the rename is done all the same.
  if (rc != 0 && error != EINVAL) return make_errno(BLEND_E_IO, error, "cannot sync its directory");
  return Status::ok();
}

}  // namespace

double least_trusted_ratio(std::span<const Measurement> table, const FusingKind& kind,
                           double max_kl, double min_top1) {
  double least = -1, worst = -1;
  for (const Measurement& m : table) {
    if (kind_of(m) == kind && !m.keeps(max_kl, min_top1)) worst = std::max(worst, m.ratio);
  }
  // A ratio that passes below one that fails has passed by luck.
  for (const Measurement& m : table) {
    if (kind_of(m) != kind) continue;
    if (m.ratio > worst && (least < 0 || m.ratio < least)) least = m.ratio;
  }
  return least;
}

std::optional<uint32_t> prefix_index(const Profile& profile,
                                     std::span<const int32_t> chunk_prefix) {
  for (uint32_t i = 0; i < profile.prefixes.size(); ++i) {
    const std::vector<int32_t>& prefix = profile.prefixes[i];
    if (std::equal(prefix.begin(), prefix.end(), chunk_prefix.begin(), chunk_prefix.end())) {
      return i;
    }
  }
  return std::nullopt;
}

namespace {

// Like least_ratio(), but negative when none keeps the limits.
std::optional<double> least_kept(const Profile& profile, const FusingKind& kind) {
  const bool measured = std::any_of(profile.table.begin(), profile.table.end(),
                                    [&](const Measurement& m) { return kind_of(m) == kind; });
  if (!measured) return std::nullopt;
  return least_trusted_ratio(profile.table, kind, profile.max_kl, profile.min_top1);
}

}  // namespace

std::optional<double> least_ratio(const Profile& profile, const FusingKind& kind) {
  const auto least = least_kept(profile, kind);
  if (least.has_value() && *least < 0) return 1.0;
  return least;
}

bool vouches(const Profile& profile, const FusingKind& kind, double ratio) {
  const auto least = least_kept(profile, kind);
  return least.has_value() && *least >= 0 && ratio >= *least;
}

std::string encode_profile(const Profile& p) {
  ByteWriter out;
  out.bytes(p.fingerprint.data(), p.fingerprint.size());
  out.put(p.n_layers);
  out.put(p.kv_dim);
  out.put(static_cast<uint32_t>(p.kv_dtype));
  out.put(static_cast<uint32_t>(p.prefixes.size()));
  for (const auto& tokens : p.prefixes) put_tokens(out, tokens);
  out.put(p.prefix);
  out.put(p.metric);
  out.put(p.check_layer);
  out.put(p.policy);
  out.put((p.trusted ? 1u : 0u) | (p.corrected ? 2u : 0u));
  put(out, p.ratio);
  put(out, p.max_kl);
  put(out, p.min_top1);
  out.put(p.n_fitted);
  out.put(p.n_measured);
  out.put(static_cast<uint32_t>(p.table.size()));
  for (const Measurement& m : p.table) put_measurement(out, m);
  put_drift(out, p.drift);
  put_drift(out, p.stored_drift);
  const bool says_records = p.n_contexts > 0 || !p.codec_costs.empty();
  const uint32_t version = says_records             ? kVersion
                           : !p.layer_steps.empty() ? kWithoutRecords
                                                    : kWithoutLayerSteps;
  if (version > kWithoutLayerSteps) put_layer_steps(out, p.layer_steps);
  if (version > kWithoutRecords) put_records(out, p.n_contexts, p.codec_costs);

  ByteWriter file;
  file.reserve(kHeaderBytes + out.view().size() + kChecksumBytes);
  file.bytes(kMagic, sizeof kMagic);
  file.put(version);
  file.put(uint32_t{0});
  file.put(static_cast<uint64_t>(kHeaderBytes + out.view().size() + kChecksumBytes));
  file.bytes(out.view().data(), out.view().size());
  file.put(checksum64(file.view().data(), file.view().size()));
  return file.take();
}

Result<Profile> decode_profile(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return Status{BLEND_E_FORMAT, "it is not a blend profile; make one with blend calibrate"};
  }
  ByteReader header(bytes.subspan(sizeof kMagic));
  const auto version = header.get<uint32_t>();
  (void)header.get<uint32_t>();
  const auto length = header.get<uint64_t>();
  if (!header.ok()) return Status{BLEND_E_FORMAT, "the profile is cut off"};
  if (version < kOldest || version > kVersion) {
    return make_error(
        BLEND_E_MISMATCH,
        "it is a profile of format version %u, this library reads %u to %u; calibrate again",
        version, kOldest, kVersion);
  }
  if (length != bytes.size() || length < kHeaderBytes + kChecksumBytes) {
    return make_error(BLEND_E_FORMAT, "the profile has %zu bytes instead of %llu: it is cut off",
                      bytes.size(), static_cast<unsigned long long>(length));
  }
  const size_t checked = bytes.size() - kChecksumBytes;
  ByteReader trailer(bytes.subspan(checked));
  if (trailer.get<uint64_t>() != checksum64(bytes.data(), checked)) {
    return Status{BLEND_E_CORRUPT, "the profile fails its checksum: calibrate the model again"};
  }
  // A matching checksum proves no good intent: the rest is read as if written by an enemy.
  ByteReader in(bytes.subspan(kHeaderBytes, checked - kHeaderBytes));
  Profile p;
  BLEND_RETURN_IF_ERROR(get_description(in, version, p));
  BLEND_RETURN_IF_ERROR(get_table(in, version, p));
  BLEND_RETURN_IF_ERROR(get_maps(in, version, p));
  BLEND_RETURN_IF_ERROR(get_layer_steps(in, version, p));
  BLEND_RETURN_IF_ERROR(get_records(in, version, p));
  if (!in.ok() || in.remaining() != 0) return contradiction("length");
  return p;
}

Status write_profile(const Profile& profile, const std::string& path) {
  const FileSizeSignalHeld held;
  const std::string bytes = encode_profile(profile);
  std::string part;
  const int fd = open_part_file(path, 0666, &part);
  if (fd < 0) return make_errno(BLEND_E_IO, errno, "cannot write the profile '%s'", part.c_str());
  Status status = write_all(fd, bytes);
  ::close(fd);
  if (status.is_ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = make_errno(BLEND_E_IO, errno, "cannot put it into its place");
  }
  if (status.is_ok()) return sync_directory_of(path).with_context("profile '" + path + "'");
  ::unlink(part.c_str());
  return status.with_context("profile '" + path + "'");
}

Result<Profile> read_profile(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.is_ok()) return file.status();
  auto profile = decode_profile(file->bytes());
  if (!profile.is_ok()) return profile.status().with_context("profile '" + path + "'");
  return profile;
}

}  // namespace blend
