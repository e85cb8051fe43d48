// In which order the segments of several chunks come.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "store/remote/remote_tier.h"
#include "store/store.h"
#include "support/temp_dir.h"
#include "unit/store/remote/value_text.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr ChunkShape kShape{3, 16, 1024, DType::f16};  // three layers of 64 KiB

// A server in memory that answers no segment before it is opened, and remembers what was asked.
class GatedEngine final : public RemoteEngine {
 public:
  Result<std::string> get(std::string_view key, size_t) override {
    const std::lock_guard lock(mutex_);
    const auto it = values_.find(std::string(key));
    if (it == values_.end()) return Status{BLEND_E_NOT_FOUND, "no such key"};
    return it->second;
  }
  Status get_into(std::string_view key, std::span<const Place> places) override {
    std::unique_lock lock(mutex_);
    asked_.emplace_back(key);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    const std::string& value = values_.at(std::string(key));
    std::memcpy(places[0].at, value.data(), value.size());
    return Status::ok();
  }
  Status put(std::string_view key, ValueSource& source) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = take(text_of(source));
    return Status::ok();
  }
  Result<uint64_t> length(std::string_view) override { return uint64_t{0}; }
  Status remove(std::string_view) override { return Status::ok(); }
  Status scan(std::string_view, const ScanLimits&,
              const std::function<Status(std::string_view)>&) override {
    return Status::ok();
  }
  Status check() override { return Status::ok(); }
  bool reachable() const override { return true; }
  void stop() override { open(); }

  void wait_until_asked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !asked_.empty(); });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // mutex_
  std::vector<std::string> asked_;             // mutex_
  bool open_ = false;                          // mutex_
};

TEST(RemoteTurns, TheFirstLayersOfAllChunksComeBeforeTheSecondOfAny) {
  TempDir directory;
  const auto store = take(Store::open(directory.path() + "/s", {}, {}));
  RemoteOptions options;
  options.segment_bytes = 64 << 10;
  options.n_connections = 1;
  options.timeout_ms = 60000;
  auto owned = std::make_unique<GatedEngine>();
  GatedEngine& engine = *owned;
  const auto tier = take(RemoteTier::create(options, std::move(owned), {}, [](const auto&) {}));
  std::vector<std::shared_ptr<Arrival>> arrivals;
  std::vector<std::string> hex;
  for (uint32_t seed = 0; seed < 2; ++seed) {
    const auto record = make_record(seed, kShape);
    EXPECT_OK(store->put(*record));
    bool existed = false;
    EXPECT_OK(tier->put(*take(store->stored(record->meta.id)), &existed));
    arrivals.push_back(take(tier->find(record->meta.id, nullptr)));
    hex.push_back(to_hex(record->meta.id));
  }
  tier->begin(arrivals[0]);
  engine.wait_until_asked();
  tier->begin(arrivals[1]);
  engine.open();
  for (const auto& arrival : arrivals) {
    EXPECT_OK(tier->wait(*arrival, 0, arrival->layout().stream_bytes()));
  }
  std::string order;
  for (const std::string& key : engine.asked()) {
    order += key.find(hex[0]) != std::string::npos ? 'a' : 'b';
    order += key.back();
  }
  EXPECT_EQ("a0b0a1b1a2b2", order);
}

}  // namespace
}  // namespace blend::test
