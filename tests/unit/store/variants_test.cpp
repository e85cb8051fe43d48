// Several chunks of one text: how many stay, which goes first, what the store says of them.
#include <lmdb.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "store/chunk/text_tag.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/retention/evictor.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr ChunkShape kChunk{1, 64, 64, DType::f16};  // 16 KiB of K and V
const uint64_t kFootprint =
    encode_chunk(*make_record(0, kChunk), Codec::none).value().manifest.footprint();

// Text `text` after `n_prefix` tokens. Every tenth is larger than the others.
std::shared_ptr<ChunkRecord> record_of(uint32_t text, uint32_t n_prefix,
                                       std::string_view tenant = "") {
  ChunkShape shape = kChunk;
  if (n_prefix % 10 == 5) shape.n_layers = 2;
  auto r = make_record(1000 * text + n_prefix, shape);
  r->meta.tokens = make_record(text, kChunk)->meta.tokens;
  r->meta.n_prefix_tokens = n_prefix;
  r->meta.tenant = tenant_tag(tenant);
  const std::vector<int32_t> prefix(n_prefix, 7);
  r->meta.id = chunk_id(r->meta.fingerprint, r->meta.shape.dtype, prefix, tenant, r->meta.tokens);
  return r;
}

// The id of record_of()'s, without its rows.
Sha256 id_of(uint32_t text, uint32_t n_prefix) {
  static std::map<std::pair<uint32_t, uint32_t>, Sha256> known;
  const auto [at, added] = known.try_emplace({text, n_prefix});
  if (added) at->second = record_of(text, n_prefix)->meta.id;
  return at->second;
}

// What a store of its chunks should say of their texts, counted from their descriptions.
TextTotals count(Store& store) {
  struct Text {
    std::map<std::pair<uint32_t, Sha256>, uint64_t> bytes;
  };
  std::map<TextTag, Text> texts;
  EXPECT_OK(store.for_each(false, [&](const ChunkMeta& meta, const std::string&) {
    const uint64_t bytes = store.use(meta.id)->footprint;
    texts[text_tag(meta)].bytes[{meta.n_prefix_tokens, meta.id}] = bytes;
    return 0;
  }));
  TextTotals t;
  for (const auto& [tag, text] : texts) {
    ++t.n_texts;
    t.n_varied += text.bytes.size() > 1 ? 1 : 0;
    t.n_variants += text.bytes.size() - 1;
    for (auto it = std::next(text.bytes.begin()); it != text.bytes.end(); ++it) {
      t.variant_bytes += it->second;
    }
  }
  return t;
}

// As `count`, but for what cannot be counted.
void expect_counted(Store& store) {
  const auto said = store.stat()->texts;
  ASSERT_TRUE(said.has_value());
  const TextTotals want = count(store);
  EXPECT_EQ(want.n_texts, said->n_texts);
  EXPECT_EQ(want.n_varied, said->n_varied);
  EXPECT_EQ(want.n_variants, said->n_variants);
  EXPECT_EQ(want.variant_bytes, said->variant_bytes);
}

struct World {
  explicit World(uint64_t most_variants, uint64_t n_chunks = 100,
                 Eviction eviction = Eviction::lru) {
    options.most_variants = most_variants;
    options.quota_bytes = n_chunks * kFootprint;
    options.eviction = eviction;
    open();
  }
  void open() {
    store.reset();
    store = open_store(dir.path(), options, [this](int32_t code, const std::string& message) {
      if (code == BLEND_EVENT_EVICTED) evictions.push_back(message);
    });
  }
  void put(uint32_t text, uint32_t n_prefix) { EXPECT_OK(store->put(*record_of(text, n_prefix))); }
  void hit(uint32_t text, uint32_t n_prefix) {
    EXPECT_OK(compare(*store, *record_of(text, n_prefix)));
  }
  // The prefixes with which the text is there.
  std::set<uint32_t> held(uint32_t text) {
    std::set<uint32_t> all;
    for (uint32_t n = 0; n <= 100; n += 5) {
      if (store->contains(id_of(text, n)).value()) all.insert(n);
    }
    return all;
  }

  TempDir dir;
  StoreOptions options;
  std::vector<std::string> evictions;
  std::shared_ptr<Store> store;
};

using Set = std::set<uint32_t>;

TEST(StoreVariants, TheOneThatNobodyChoseGoesThenTheOneUsedLongestAgo) {
  World w(3);
  for (const uint32_t n : {0u, 10u, 20u, 30u}) w.put(1, n);
  EXPECT_TRUE(w.evictions.empty());
  w.hit(1, 20);
  w.hit(1, 30);
  w.put(1, 40);
  EXPECT_EQ((Set{0, 20, 30, 40}), w.held(1));
  w.put(1, 50);  // the newest goes, for nobody chose it
  EXPECT_EQ((Set{0, 20, 30, 50}), w.held(1));
  ASSERT_EQ(2u, w.evictions.size());
  EXPECT_NE(std::string::npos, w.evictions[0].find("another variant of its text"))
      << w.evictions[0];
  w.hit(1, 50);
  w.hit(1, 20);
  w.open();  // use outlives the process
  w.put(1, 60);
  EXPECT_EQ((Set{0, 20, 50, 60}), w.held(1));
  w.put(1, 60);  // in its own place
  EXPECT_EQ((Set{0, 20, 50, 60}), w.held(1));
  EXPECT_EQ(3u, w.evictions.size());
  expect_counted(*w.store);
}

TEST(StoreVariants, ReuseKeepsWhatWasChosenAgain) {
  for (const Eviction kind : {Eviction::reuse, Eviction::lru}) {
    World w(2, 100, kind);
    for (const uint32_t n : {0u, 10u, 20u}) w.put(1, n);
    for (int i = 0; i < 3; ++i) w.hit(1, 10);
    w.hit(1, 20);
    w.open();
    w.put(1, 30);
    EXPECT_EQ(kind == Eviction::reuse ? (Set{0, 10, 30}) : (Set{0, 20, 30}), w.held(1));
  }
}

TEST(StoreVariants, ThePlainRecordStaysWheneverItCame) {
  World w(2);
  w.put(1, 30);
  w.put(1, 40);
  w.put(1, 5);  // 30 was the plain record until now
  EXPECT_EQ((Set{5, 30, 40}), w.held(1));
  w.put(1, 0);
  EXPECT_EQ((Set{0, 30, 40}).size(), w.held(1).size());
  for (const uint32_t n : {50u, 60u, 70u}) w.put(1, n);
  const Set held = w.held(1);
  EXPECT_EQ(3u, held.size());
  EXPECT_TRUE(held.contains(0));
  // Other texts, and the same text of other tenants, are none of its business.
  for (uint32_t text = 2; text < 8; ++text) w.put(text, 0);
  for (uint32_t n = 10; n <= 30; n += 5) EXPECT_OK(w.store->put(*record_of(1, n, "other")));
  EXPECT_EQ(held, w.held(1));
  expect_counted(*w.store);
}

TEST(StoreVariants, PinnedOnesStayAndMayLeaveNoRoom) {
  World w(2);
  for (const uint32_t n : {0u, 10u, 20u}) w.put(1, n);
  EXPECT_OK(w.store->pin(id_of(1, 10), true));
  w.put(1, 30);
  EXPECT_EQ((Set{0, 10, 30}), w.held(1));
  EXPECT_OK(w.store->pin(id_of(1, 30), true));
  const Status full = w.store->put(*record_of(1, 40));
  EXPECT_EQ(BLEND_E_FULL, full.code());
  EXPECT_NE(std::string::npos, full.message().find("most_variants")) << full.message();
  EXPECT_EQ((Set{0, 10, 30}), w.held(1));
  w.put(2, 0);
  w.options.most_variants = kAllVariants;
  w.open();
  for (uint32_t n = 40; n <= 100; n += 5) w.put(1, n);
  EXPECT_EQ(16u, w.held(1).size());
  w.options.most_variants = 3;  // lowered: the next put of the text says so
  w.open();
  EXPECT_EQ(16u, w.held(1).size());
  w.put(1, 5);
  EXPECT_EQ(4u, w.held(1).size());
  expect_counted(*w.store);
}

TEST(StoreVariants, WhereNothingMayBeEvictedOneTooManyIsRefused) {
  World w(2, 100, Eviction::never);
  for (const uint32_t n : {0u, 10u, 20u}) w.put(1, n);
  const Status full = w.store->put(*record_of(1, 30));
  EXPECT_EQ(BLEND_E_FULL, full.code());
  EXPECT_NE(std::string::npos, full.message().find("most_variants")) << full.message();
  w.put(1, 20);
  EXPECT_EQ((Set{0, 10, 20}), w.held(1));
}

TEST(StoreVariants, AFullStoreLosesTheUnusedVariantsOfATextBeforeItsPlainRecord) {
  World w(16, 5);
  w.put(1, 0);  // the oldest
  w.put(2, 0);
  w.put(1, 10);
  w.put(1, 20);
  w.put(2, 30);
  w.hit(1, 20);
  w.put(3, 0);  // would push the oldest out: text 1's plain record
  EXPECT_EQ((Set{0, 20}), w.held(1));
  w.put(4, 0);  // a variant that was chosen is as good as any chunk
  EXPECT_EQ((Set{20}), w.held(1));
  EXPECT_EQ((Set{0, 30}), w.held(2));
  w.put(5, 0);
  EXPECT_EQ((Set{0}), w.held(2));
  EXPECT_OK(w.store->pin(id_of(3, 0), true));
  expect_counted(*w.store);
  EXPECT_EQ(5u, w.store->stat()->n_chunks);
}

// Hits are noted while a put makes room: a variant whose hit was written to the index in between
// counts as unused then, and goes with its text. Its new stamp must not bring its record back.
TEST(StoreVariants, AHitThatIsWrittenMeanwhileLeavesNoRecordOfWhatIsGone) {
  class Meanwhile final : public EvictionPolicy {
   public:
    explicit Meanwhile(Touches& touches) : touches_(touches) {}
    bool renewed_by_use() const override { return true; }
    bool spares(const UseRecord&) const override {
      (void)touches_.take();  // as another thread does that writes them
      return false;
    }
    std::optional<Need> need(const Sha256&) const override { return std::nullopt; }

   private:
    Touches& touches_;
  };
  World w(16);
  w.put(1, 10);  // the oldest, and hit
  w.put(1, 0);
  StoreCommon common;
  common.env = take(LmdbEnv::acquire(w.dir.path(), nullptr, false, 1));
  Touches touches;
  touches.add(id_of(1, 10), next_stamp_us());
  const Meanwhile policy(touches);
  ChunkWriter writer = take(ChunkWriter::begin(common));
  RoomRequest request;
  request.quota = kFootprint;
  const Room room = take(make_room(writer, request, policy, touches));
  ASSERT_EQ(1u, room.evicted.size());
  EXPECT_EQ(id_of(1, 10), room.evicted[0].id);
  EXPECT_FALSE(writer.uses().find(id_of(1, 10)).has_value());
  uint64_t n_places = 0;
  EXPECT_OK(writer.uses().walk({}, [&](const LruIndex::Place& place) {
    EXPECT_EQ(id_of(1, 0), place.id);
    ++n_places;
    return true;
  }));
  EXPECT_EQ(1u, n_places);
}

TEST(StoreVariants, ManyLeaveInBatches) {
  World w(kAllVariants, 201);
  for (uint32_t n = 0; n < 200; ++n) w.put(1, n);
  const auto large = make_record(9, {20, 256, 128, DType::f16});  // 160 times a small one
  EXPECT_OK(w.store->put(*large));
  EXPECT_OK(compare(*w.store, *large));
  EXPECT_TRUE(w.held(1).contains(0)) << "the plain record went before its variants";
  EXPECT_LE(w.store->stat()->stored_bytes, w.options.quota_bytes);
  w.options.most_variants = 3;
  w.open();
  w.put(1, 500);
  EXPECT_EQ(5u, w.store->stat()->n_chunks);  // plain, three variants, and the large one
  expect_counted(*w.store);
}

TEST(StoreVariants, TheAccountIsRightAfterEveryStep) {
  World w(4, 24);
  std::mt19937 rng(21);
  for (uint32_t i = 0; i < 300; ++i) {
    const uint32_t text = rng() % 5;
    const uint32_t n_prefix = 5 * (rng() % 8);
    const Sha256 id = id_of(text, n_prefix);
    uint64_t n = 0;
    bool changed = false;
    switch (rng() % 10) {
      case 0:
        (void)w.store->remove(id);
        break;
      case 1:
        (void)w.store->pin(id, rng() % 3 == 0);
        break;
      case 2: {  // a long name takes another page
        const std::string label(rng() % 2 == 0 ? 1000 : 3, 'x');
        (void)w.store->rename(id, ChunkName{label, {}}, &changed);
        break;
      }
      case 3:
        if (rng() % 8 == 0) (void)w.store->evict(rng() % (24 * kFootprint), &n);
        break;
      case 4:
        if (rng() % 8 == 0) w.open();
        break;
      case 5:
        (void)compare(*w.store, *record_of(text, n_prefix));
        break;
      default:
        (void)w.store->put(*record_of(text, n_prefix));  // full where too many are pinned
    }
    expect_counted(*w.store);
    for (uint32_t t = 0; t < 5; ++t) EXPECT_LE(w.held(t).size(), 5u);
    if (HasFailure()) FAIL() << "step " << i;
  }
  w.store->count_variant();
  EXPECT_EQ(1u, w.store->stat()->variant_hits);
  w.open();
  EXPECT_EQ(0u, w.store->stat()->variant_hits);
  EXPECT_EQ(1u, w.store->stat()->texts->variant_hits);
  EXPECT_OK(w.store->repair([](const ChunkMeta&, const std::string&) { return 0; },
                            std::make_unique<uint64_t>().get()));
  expect_counted(*w.store);
  EXPECT_EQ(1u, w.store->stat()->texts->variant_hits);
}

TEST(StoreVariants, TwoProcessesKeepOneBound) {
  World w(3);
  w.put(1, 0);
  w.store.reset();
  std::vector<pid_t> children;
  for (uint32_t p = 0; p < 2; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      auto own = Store::open(w.dir.path(), w.options, {});
      if (!own.is_ok()) _exit(1);
      for (uint32_t i = 1; i <= 40; ++i) {
        const auto record = record_of(1, 2 * i + p);
        const Status put = i % 2 == 0 ? (*own)->put(*record) : (*own)->put_async(record);
        if (!put.is_ok()) _exit(2);
        (void)compare(**own, *record);
      }
      const bool flushed = (*own)->flush().is_ok();
      own.value().reset();
      _exit(flushed ? 0 : 3);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  w.open();
  EXPECT_EQ(4u, w.store->stat()->n_chunks);
  EXPECT_TRUE(w.held(1).contains(0));
  EXPECT_EQ(3u, w.store->stat()->texts->n_variants);
  EXPECT_EQ(80u - 3u, w.store->stat()->totals.evicted_chunks);
  expect_counted(*w.store);
}

// Another process has enlarged the file past this one's map: a new transaction waits for the end of
// those there are.
// Another process that enlarges the store's file, once it is told to.
class EnlargedByAnother {
 public:
  explicit EnlargedByAnother(const std::string& path) {
    EXPECT_EQ(0, pipe(begin_));
    child_ = fork();
    if (child_ != 0) return;
    char byte = 0;
    if (read(begin_[0], &byte, 1) != 1) _exit(1);
    StoreOptions large;
    large.quota_bytes = 1 << 30;
    auto other = Store::open(path, large, {});
    if (!other.is_ok()) _exit(2);
    for (uint32_t i = 0; i < 12; ++i) {
      if (!(*other)->put(*make_record(100 + i, {4, 1024, 512, DType::f16})).is_ok()) _exit(3);
    }
    other.value().reset();
    _exit(0);
  }
  ~EnlargedByAnother() {
    close(begin_[0]);
    close(begin_[1]);
  }
  void enlarge() {
    EXPECT_EQ(1, write(begin_[1], "x", 1));
    int status = 0;
    EXPECT_EQ(child_, waitpid(child_, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

 private:
  int begin_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST(StoreVariants, ASnapshotTellsWhatItHoldsWhateverBecomesOfTheFile) {
  World w(16, 200);
  w.put(1, 0);
  w.put(1, 10);
  EnlargedByAnother other(w.dir.path());
  const auto snapshot = take(w.store->snapshot());
  other.enlarge();
  EXPECT_TRUE(take(snapshot->holds(id_of(1, 10))));
  EXPECT_FALSE(take(snapshot->holds(id_of(1, 20))));
}

TEST(StoreVariants, AListingTellsTheUseWhateverBecomesOfTheFile) {
  World w(16, 200);
  w.put(1, 0);
  w.put(1, 10);
  EnlargedByAnother other(w.dir.path());
  int n = 0;
  EXPECT_OK(w.store->for_each_used(
      false, [&](const ChunkMeta&, const UseRecord* use, const std::string& problem) {
        if (n++ == 0) other.enlarge();
        EXPECT_TRUE(use != nullptr && use->stamp_us != 0) << problem;
        return 0;
      }));
  EXPECT_EQ(2, n);
}

// The contents of the database `texts` and its record, read and written as another program would.
class RawTexts {
 public:
  explicit RawTexts(const std::string& path) {
    EXPECT_EQ(0, mdb_env_create(&env_));
    mdb_env_set_maxdbs(env_, 8);
    EXPECT_EQ(0, mdb_env_open(env_, path.c_str(), 0, 0666));
    EXPECT_EQ(0, mdb_txn_begin(env_, nullptr, 0, &txn_));
    EXPECT_EQ(0, mdb_dbi_open(txn_, "info", 0, &info_));
    EXPECT_EQ(0, mdb_dbi_open(txn_, "texts", 0, &texts_));
  }
  ~RawTexts() {
    EXPECT_EQ(0, mdb_txn_commit(txn_));
    mdb_env_close(env_);
  }
  using All = std::map<std::string, std::string>;  // under "": the record
  All read() {
    All all;
    MDB_val k = name();
    MDB_val v{};
    EXPECT_EQ(0, mdb_get(txn_, info_, &k, &v));
    all[""] = text_of(v);
    MDB_cursor* cursor = nullptr;
    EXPECT_EQ(0, mdb_cursor_open(txn_, texts_, &cursor));
    while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) all[text_of(k)] = text_of(v);
    mdb_cursor_close(cursor);
    return all;
  }
  void write(const All& all) {
    EXPECT_EQ(0, mdb_drop(txn_, texts_, 0));
    for (const auto& [key, value] : all) {
      MDB_val k = key.empty() ? name() : val(key);
      MDB_val v = val(value);
      EXPECT_EQ(0, mdb_put(txn_, key.empty() ? info_ : texts_, &k, &v, 0));
    }
  }
  // As a store that was made before there were texts.
  void drop() {
    MDB_val k = name();
    EXPECT_EQ(0, mdb_del(txn_, info_, &k, nullptr));
    EXPECT_EQ(0, mdb_drop(txn_, texts_, 1));
  }

 private:
  static std::string text_of(const MDB_val& v) {
    return {static_cast<char*>(v.mv_data), v.mv_size};
  }
  static MDB_val val(const std::string& s) { return {s.size(), const_cast<char*>(s.data())}; }
  static MDB_val name() { return {5, const_cast<char*>("texts")}; }
  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  MDB_dbi info_ = 0;
  MDB_dbi texts_ = 0;
};

TEST(StoreVariants, AnOldStoreIsCountedWhenItIsOpenedForWriting) {
  World w(2);
  for (const uint32_t n : {0u, 10u, 20u}) w.put(1, n);
  w.put(2, 0);
  w.store.reset();
  RawTexts(w.dir.path()).drop();
  StoreOptions read_only = w.options;
  read_only.read_only = true;
  {
    const auto reader = open_store(w.dir.path(), read_only);
    EXPECT_FALSE(reader->stat()->texts.has_value());
    EXPECT_EQ(1u, reader->use(id_of(1, 0))->footprint / kFootprint);
    EXPECT_OK(compare(*reader, *record_of(1, 10)));
    w.open();  // beside the reader, in one environment
    EXPECT_TRUE(reader->stat()->texts.has_value());
  }
  expect_counted(*w.store);
  w.put(1, 30);
  EXPECT_EQ(3u, w.held(1).size());
  w.store.reset();
  expect_counted(*open_store(w.dir.path(), read_only));
}

TEST(StoreVariants, AStoreThatAnOlderBuildChangedIsCountedAnew) {
  World w(2);
  w.put(1, 0);
  w.put(1, 10);
  w.store.reset();
  const RawTexts::All before = RawTexts(w.dir.path()).read();
  for (const bool read_first : {false, true}) {
    // A put and a removal that leave the texts as they were.
    w.open();
    w.put(1, 20);
    w.put(2, 0);
    EXPECT_OK(w.store->remove(id_of(1, 10)));
    w.store.reset();
    RawTexts(w.dir.path()).write(before);
    if (read_first) {
      StoreOptions read_only = w.options;
      read_only.read_only = true;
      EXPECT_FALSE(open_store(w.dir.path(), read_only)->stat()->texts.has_value());
    }
    w.open();
    expect_counted(*w.store);
    w.put(1, 30);
    w.put(1, 40);
    EXPECT_EQ((Set{0, 30, 40}), w.held(1));  // 20 is known to be there, and went
    EXPECT_OK(w.store->remove(id_of(1, 30)));
    EXPECT_OK(w.store->remove(id_of(1, 40)));
    EXPECT_OK(w.store->remove(id_of(2, 0)));
    w.put(1, 10);
    expect_counted(*w.store);
  }
}

TEST(StoreVariants, AChunkWhoseDescriptionIsDamagedIsLeftOut) {
  World w(4);
  for (const uint32_t n : {0u, 10u, 20u}) w.put(1, n);
  w.store.reset();
  {
    MDB_env* env = nullptr;
    ASSERT_EQ(0, mdb_env_create(&env));
    mdb_env_set_maxdbs(env, 8);
    ASSERT_EQ(0, mdb_env_open(env, w.dir.path().c_str(), 0, 0666));
    MDB_txn* txn = nullptr;
    MDB_dbi meta = 0;
    ASSERT_EQ(0, mdb_txn_begin(env, nullptr, 0, &txn));
    ASSERT_EQ(0, mdb_dbi_open(txn, "meta", 0, &meta));
    Sha256 id = id_of(1, 10);
    MDB_val k{id.size(), id.data()};
    MDB_val v{};
    ASSERT_EQ(0, mdb_get(txn, meta, &k, &v));
    std::string bytes(static_cast<char*>(v.mv_data), v.mv_size);
    bytes[100] = static_cast<char>(bytes[100] ^ 1);
    v = {bytes.size(), bytes.data()};
    ASSERT_EQ(0, mdb_put(txn, meta, &k, &v, 0));
    ASSERT_EQ(0, mdb_txn_commit(txn));
    mdb_env_close(env);
  }
  w.open();
  EXPECT_OK(w.store->remove(id_of(1, 10)));
  expect_counted(*w.store);
  EXPECT_EQ(1u, w.store->stat()->texts->n_variants);
}

}  // namespace
}  // namespace blend::test
