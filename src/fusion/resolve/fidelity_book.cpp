#include "fusion/resolve/fidelity_book.h"

#include <cstring>

#include "base/wire.h"
#include "fusion/prompt/prompt.h"

namespace blend {
namespace {

constexpr std::string_view kPrefix = "fidelity";

// Other processes check answers too: their notes are read again after this time.
constexpr auto kFresh = std::chrono::seconds(2);

std::string name_of(const Sha256& fingerprint) {
  return std::string(kPrefix) +
         std::string(reinterpret_cast<const char*>(fingerprint.data()), fingerprint.size());
}

std::optional<FidelityKey> read_name(const std::string& name) {
  FidelityKey key;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  ByteReader in(std::as_bytes(std::span(name)).subspan(kPrefix.size()));
  in.bytes(key.fingerprint.data(), key.fingerprint.size());
  key.policy = in.get<uint32_t>();
  key.record = in.get<uint32_t>();
  key.short_prompts = in.get<uint32_t>();
  if (!in.ok() || in.remaining() != 0 || key.short_prompts > 1) return std::nullopt;
  return key;
}

std::optional<FidelityRecord> decode(const std::string& bytes) {
  return FidelityRecord::decode(std::as_bytes(std::span(bytes)));
}

}  // namespace

FidelityKey::FidelityKey(const Sha256& of_model, uint32_t by_policy, RecordUse worst,
                         uint64_t n_rows)
    : fingerprint(of_model),
      policy(by_policy),
      record(static_cast<uint32_t>(worst)),
      short_prompts(n_rows < kUsualRows ? 1 : 0) {}

std::string FidelityKey::note_name() const {
  ByteWriter out;
  const std::string begin = name_of(fingerprint);
  out.bytes(begin.data(), begin.size());
  out.put(policy);
  out.put(record);
  out.put(short_prompts);
  return out.take();
}

uint32_t FidelityKey::first_rung() const {
  // On two real models these ratios keep nearly all right answers (docs/quality.md). The farther
  // the record is from full prefill, the larger the ratio.
  switch (static_cast<RecordUse>(record)) {
    case RecordUse::head:
      return rung_of(0.45);
    case RecordUse::alone:
      return rung_of(0.6);
    default:
      return rung_of(0.2);
  }
}

void FidelityBook::take(const std::vector<Note>& notes) {
  const MutexLock lock(mutex_);
  for (const Note& note : notes) {
    const std::optional<FidelityKey> key = read_name(note.name);
    auto record = decode(note.bytes);
    if (!key.has_value() || !record.has_value()) continue;
    Entry& entry = entries_[*key];
    if (entry.own) continue;
    // Targets that were asked for since then are not in the store before the next check.
    for (const LadderState& s : entry.record.states) {
      record->follow(s.target(), key->first_rung());
    }
    entry.record = std::move(*record);
  }
}

Status FidelityBook::refresh(const Sha256* fingerprint) {
  if (notes_ == nullptr) return Status::ok();
  if (fingerprint != nullptr) {
    const MutexLock lock(mutex_);
    const Clock::time_point now = Clock::now();
    const auto [at, first] = read_at_.try_emplace(*fingerprint, now);
    if (!first && now - at->second < kFresh) return Status::ok();
    at->second = now;
  }
  BLEND_ASSIGN(
      std::vector<Note> notes,
      notes_->notes(fingerprint == nullptr ? std::string(kPrefix) : name_of(*fingerprint)));
  take(notes);
  return Status::ok();
}

double FidelityBook::ratio(const FidelityKey& key, double target) {
  const MutexLock lock(mutex_);
  FidelityRecord& record = entries_[key].record;
  record.follow(target, key.first_rung());
  return record.ratio(target, key.first_rung());
}

uint64_t FidelityBook::n_checks(const FidelityKey& key, double ratio) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? 0 : found->second.record.rungs[rung_of(ratio)].n_checks;
}

void FidelityBook::observe(const FidelityKey& key, double ratio, const CheckedAnswer& answer) {
  look(key.fingerprint);
  std::vector<double> targets;
  {
    const MutexLock lock(mutex_);
    for (const LadderState& s : entries_[key].record.states) targets.push_back(s.target());
  }
  FidelityRecord fresh;
  const auto change = [&](std::span<const std::byte> old) {
    fresh = FidelityRecord::decode(old).value_or(FidelityRecord{});
    for (const double target : targets) fresh.follow(target, key.first_rung());
    fresh.observe(ratio, answer);
    return fresh.encode();
  };
  const bool written = writes_ && notes_->change_note(key.note_name(), change).is_ok();
  const MutexLock lock(mutex_);
  Entry& entry = entries_[key];
  if (written) {
    for (const LadderState& s : entry.record.states) {
      fresh.follow(s.target(), key.first_rung());
    }
    entry = {std::move(fresh), false};
  } else {
    entry.record.observe(ratio, answer);
    entry.own = true;
  }
}

Result<std::vector<std::pair<FidelityKey, FidelityRecord>>> FidelityBook::all(
    const Sha256* fingerprint) {
  BLEND_RETURN_IF_ERROR(refresh(fingerprint));
  std::vector<std::pair<FidelityKey, FidelityRecord>> out;
  const MutexLock lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (fingerprint == nullptr || key.fingerprint == *fingerprint) {
      out.emplace_back(key, entry.record);
    }
  }
  return out;
}

}  // namespace blend
