#include "control/machine_profile.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>

#include "base/files/file_size_signal.h"
#include "base/files/part_file.h"
#include "base/threads/thread_cap.h"
#include "engine/sequence.h"

namespace blend {
namespace {

constexpr char kHeader[] = "blend-machine 1";
constexpr size_t kMostPoints = 64;
constexpr size_t kMostBytes = 64 << 10;

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<uint64_t> lengths_to_measure(uint64_t max_tokens) {
  std::vector<uint64_t> lengths;
  for (uint64_t n = 64; n < max_tokens; n *= 4) lengths.push_back(n);
  lengths.push_back(max_tokens);
  return lengths;
}

// The time does not depend on the tokens, so these are any ids of the vocabulary.
Result<uint64_t> time_prefill(const std::shared_ptr<const Model>& model, uint64_t n,
                              const Watch& watch) {
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) {
    tokens[i] = static_cast<int32_t>(i * 7919 % model->config().n_vocab);
  }
  BLEND_ASSIGN(const auto sequence, Sequence::create(model, static_cast<uint32_t>(n)));
  const auto begin = std::chrono::steady_clock::now();
  BLEND_RETURN_IF_ERROR(sequence->append(tokens, watch));
  const auto took = std::chrono::steady_clock::now() - begin;
  return static_cast<uint64_t>(
      std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()));
}

// Replaces the file atomically. No fsync: if a power cut loses it, it is measured again.
Status write_file(const std::string& path, const std::string& text) {
  const FileSizeSignalHeld held;
  std::string part;
  const int fd = open_part_file(path, 0666, &part);
  std::FILE* const file = fd < 0 ? nullptr : fdopen(fd, "w");
  if (file == nullptr) return make_errno(BLEND_E_IO, errno, "cannot create '%s'", part.c_str());
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = written ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return Status::ok();
  (void)std::remove(part.c_str());
  return make_errno(BLEND_E_IO, error, "cannot write '%s'", path.c_str());
}

// Fields of a line, read in the classic locale, whatever the host's is.
std::istringstream plain(const std::string& line) {
  std::istringstream in(line);
  in.imbue(std::locale::classic());
  return in;
}

std::string read_file(const std::string& path) {
  std::error_code none;
  // Reading a pipe could wait for ever.
  if (!std::filesystem::is_regular_file(path, none)) return {};
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

}  // namespace

MachineKey machine_key(const Model& model) {
  // The CPU's own name, or for a GPU the backend's name.
  const std::string backend = model.backend().name();
  return {backend.starts_with("cpu") ? cpu_name() : backend,
          ThreadCap::of(model.runtime().pool().n_threads()), model.fingerprint()};
}

Result<PrefillTimes> measure_prefill(const std::shared_ptr<const Model>& model, uint64_t max_tokens,
                                     const Watch& watch) {
  const uint64_t longest = std::clamp<uint64_t>(max_tokens, 1, model->context_length());
  const std::vector<uint64_t> lengths = lengths_to_measure(longest);
  const uint64_t total = 2 * lengths.size();
  const Watch quiet{watch.cancel, {}};
  BLEND_ASSIGN(uint64_t warm, time_prefill(model, lengths.front(), quiet));
  std::vector<PrefillTimes::Point> points;
  for (size_t i = 0; i < lengths.size(); ++i) {
    uint64_t best = i == 0 ? warm : UINT64_MAX;
    for (uint64_t run = 0; run < 2; ++run) {
      BLEND_RETURN_IF_ERROR(watch.report(2 * i + run, total));
      BLEND_ASSIGN(const uint64_t ns, time_prefill(model, lengths[i], quiet));
      best = std::min(best, ns);
    }
    points.push_back({lengths[i], best});
  }
  BLEND_RETURN_IF_ERROR(watch.report(total, total));
  return PrefillTimes::create(std::move(points));
}

Result<MachineProfile> MachineProfile::open(const std::shared_ptr<const Model>& model,
                                            const std::string& path, const Options& options,
                                            const Watch& watch) {
  const MachineKey key = machine_key(*model);
  if (!path.empty() && !options.measure) {
    std::optional<MachineProfile> kept = parse(read_file(path));
    if (kept && kept->key_ == key) {
      kept->kept_ = true;
      return std::move(*kept);
    }
  }
  BLEND_ASSIGN(PrefillTimes times, measure_prefill(model, options.max_tokens, watch));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  MachineProfile fresh(key, std::move(times),
                       std::chrono::duration_cast<std::chrono::seconds>(now).count());
  if (!path.empty()) BLEND_RETURN_IF_ERROR(write_file(path, fresh.serialize()));
  return fresh;
}

std::string MachineProfile::serialize() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // the host's may group digits
  out << kHeader << "\ncpu " << key_.cpu << "\nthreads " << key_.n_threads << "\nmodel "
      << to_hex(key_.fingerprint) << "\nmeasured " << measured_unix_s_ << '\n';
  for (const PrefillTimes::Point& p : prefill_.points()) {
    out << "prefill " << p.n_tokens << ' ' << p.ns << '\n';
  }
  out << "end\n";
  return out.str();
}

std::optional<MachineProfile> MachineProfile::parse(const std::string& text) {
  std::istringstream in(text);
  std::string line, word;
  MachineKey key;
  int64_t measured = 0;
  std::string model;
  const auto field = [&](const char* name, auto& value) {
    return std::getline(in, line) && (plain(line) >> word >> value) && word == name;
  };
  if (!std::getline(in, line) || line != kHeader) return std::nullopt;
  if (!std::getline(in, line) || !line.starts_with("cpu ")) return std::nullopt;
  key.cpu = line.substr(4);
  if (!field("threads", key.n_threads) || !field("model", model) || !field("measured", measured)) {
    return std::nullopt;
  }
  auto fingerprint = sha256_from_hex(model);
  if (!fingerprint.is_ok()) return std::nullopt;
  key.fingerprint = *fingerprint;
  std::vector<PrefillTimes::Point> points;
  while (std::getline(in, line) && line != "end") {
    PrefillTimes::Point p;
    std::istringstream fields = plain(line);
    if (!(fields >> word >> p.n_tokens >> p.ns) || word != "prefill") return std::nullopt;
    points.push_back(p);
    if (points.size() > kMostPoints) return std::nullopt;
  }
  if (line != "end") return std::nullopt;
  auto times = PrefillTimes::create(std::move(points));
  if (!times.is_ok()) return std::nullopt;
  return MachineProfile(std::move(key), std::move(*times), measured);
}

}  // namespace blend
