// What chunks are called: kept with them, changed without their rows, and what finds them.
#include <atomic>
#include <span>
#include <thread>

#include "store/chunk/chunk_filter.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

std::shared_ptr<ChunkRecord> named(uint32_t seed, const char* label, const char* tags = nullptr) {
  auto record = make_record(seed);
  record->meta.name = take(read_chunk_name(label, tags));
  return record;
}

// "label|tags" of a chunk of the store.
std::string name_in(Store& store, const Sha256& id) {
  std::string found = "not there";
  EXPECT_OK(store.for_each(false, [&](const ChunkMeta& meta, const std::string&) {
    if (meta.id == id) {
      found = meta.name.label.value_or("") + "|" + meta.name.tags.value_or("");
    }
    return 0;
  }));
  return found;
}

Status rename(Store& store, const Sha256& id, const char* label, const char* tags) {
  bool changed = false;
  return store.rename(id, take(read_chunk_name(label, tags)), &changed);
}

TEST(ChunkName, IsALineOfUtf8AndItsTagsHaveAnOrder) {
  EXPECT_EQ("a b", *take(read_chunk_name(nullptr, " b  a b ")).tags);
  EXPECT_EQ("Größe#3", *take(read_chunk_name("Größe#3", nullptr)).label);
  EXPECT_FALSE(take(read_chunk_name(nullptr, nullptr)).is_given());
  EXPECT_OK(read_chunk_name(std::string(kMostLabelBytes, 'x').c_str(), nullptr).status());
  for (const std::string& bad : {std::string(kMostLabelBytes + 1, 'x'), std::string("a\nb"),
                                 std::string("\xff"), std::string("\x7f"), std::string("a\tb")}) {
    EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, read_chunk_name(bad.c_str(), nullptr).status());
    EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, read_chunk_name(nullptr, bad.c_str()).status());
  }
}

TEST(ChunkName, IsKeptAndChangedWithoutTheRows) {
  TempDir dir;
  const auto plain = make_record(1), a = named(2, "manual.pdf#1", "lang=en draft");
  for (int reopened = 0; reopened < 2; ++reopened) {
    auto store = open_store(dir.path());
    if (reopened == 0) {
      EXPECT_OK(store->put(*plain));
      EXPECT_OK(store->put(*a));
      EXPECT_EQ("|", name_in(*store, plain->meta.id));
      EXPECT_EQ("manual.pdf#1|draft lang=en", name_in(*store, a->meta.id));
      const uint64_t version = (*take(store->snapshot())->open(a->meta.id))->version();
      EXPECT_OK(rename(*store, a->meta.id, "other#2", nullptr));
      EXPECT_EQ("other#2|draft lang=en", name_in(*store, a->meta.id));
      EXPECT_OK(rename(*store, a->meta.id, nullptr, "final"));
      EXPECT_OK(rename(*store, plain->meta.id, "", ""));
      EXPECT_EQ(version, (*take(store->snapshot())->open(a->meta.id))->version());
    }
    EXPECT_EQ("other#2|final", name_in(*store, a->meta.id));
    EXPECT_OK(compare(*store, *a));
    EXPECT_OK(compare(*store, *plain));
    EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string& problem) {
      EXPECT_EQ("", problem);
      return 0;
    }));
  }
  auto store = open_store(dir.path());
  EXPECT_OK(rename(*store, a->meta.id, "", ""));
  EXPECT_EQ("|", name_in(*store, a->meta.id));
}

// A record without a name has the bytes that it always had, so that older stores stay as they are.
TEST(ChunkName, TakesNoByteWhereThereIsNone) {
  const auto bytes_of = [](const ChunkRecord& record) {
    return encode_manifest(take(encode_chunk(record, Codec::none)).manifest);
  };
  const auto plain = make_record(1), emptied = named(1, "", ""), a = named(1, "ab", "c d");
  EXPECT_EQ(bytes_of(*plain), bytes_of(*emptied));
  EXPECT_EQ(bytes_of(*plain).size() + 4 + 5, bytes_of(*a).size());
}

TEST(ChunkName, ManifestsWithImpossibleNamesAreDamaged) {
  for (const char* wrong : {"a\nb", "\xff\xfe"}) {
    auto record = make_record(1);
    for (const bool label : {true, false}) {
      record->meta.name = {};
      (label ? record->meta.name.label : record->meta.name.tags) = wrong;
      const std::string bytes = encode_manifest(take(encode_chunk(*record, Codec::none)).manifest);
      EXPECT_CODE(BLEND_E_CORRUPT,
                  decode_manifest(std::as_bytes(std::span(bytes)), record->meta.id).status());
    }
  }
}

TEST(ChunkName, APutThatSaysNothingLeavesIt) {
  TempDir dir;
  auto store = open_store(dir.path());
  EXPECT_OK(store->put(*named(1, "first#1", "a")));
  EXPECT_OK(store->put(*make_record(1)));
  EXPECT_EQ("first#1|a", name_in(*store, make_record(1)->meta.id));
  EXPECT_OK(store->put(*named(1, "second#1")));
  EXPECT_EQ("second#1|a", name_in(*store, make_record(1)->meta.id));
  EXPECT_OK(store->put_async(named(1, "", "b")));
  EXPECT_OK(store->flush());
  EXPECT_EQ("|b", name_in(*store, make_record(1)->meta.id));
  EXPECT_OK(compare(*store, *make_record(1)));
}

TEST(ChunkName, OneThatTakesAPageCountsTowardsTheQuota) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto record =
      make_record(1, {1, 960, 1, DType::f16});  // its description nearly fills a page
  EXPECT_OK(store->put(*record));
  EXPECT_OK(store->pin(record->meta.id, true));
  const uint64_t before = take(store->stat()).stored_bytes;
  const std::string label(kMostLabelBytes, 'x');
  EXPECT_OK(rename(*store, record->meta.id, label.c_str(), nullptr));
  StoreStat stat = take(store->stat());
  EXPECT_EQ(before + 4096, stat.stored_bytes);
  EXPECT_EQ(before + 4096, stat.totals.pinned_bytes);
  EXPECT_EQ(1u, stat.n_chunks);
  EXPECT_OK(store->remove(record->meta.id));
  stat = take(store->stat());
  EXPECT_EQ(0u, stat.stored_bytes);
  EXPECT_EQ(0u, stat.totals.pinned_bytes);
}

TEST(ChunkName, IsGivenToWhoIsThereAndMayBeWritten) {
  TempDir dir;
  auto record = named(1, "mine", "a");
  record->meta.tenant = tenant_tag("acme");
  {
    auto store = open_store(dir.path());
    EXPECT_OK(store->put(*record));
    bool changed = true;
    const ChunkName name = take(read_chunk_name("theirs", nullptr));
    EXPECT_CODE(BLEND_E_NOT_FOUND,
                store->rename(record->meta.id, tenant_tag("evil"), name, &changed));
    EXPECT_FALSE(changed);
    EXPECT_CODE(BLEND_E_NOT_FOUND, rename(*store, make_record(9)->meta.id, "x", nullptr));
    EXPECT_OK(store->rename(record->meta.id, tenant_tag("acme"), name, &changed));
    EXPECT_TRUE(changed);
    // On its way to the disk it is waited for.
    EXPECT_OK(store->put_async(make_record(2)));
    EXPECT_OK(rename(*store, make_record(2)->meta.id, "late", nullptr));
    EXPECT_EQ("late|", name_in(*store, make_record(2)->meta.id));
  }
  StoreOptions options;
  options.read_only = true;
  auto store = open_store(dir.path(), options);
  EXPECT_CODE(BLEND_E_READ_ONLY, rename(*store, record->meta.id, "other", nullptr));
  EXPECT_OK(rename(*store, record->meta.id, "theirs", "a"));  // it is called so
}

TEST(ChunkName, TravelsInFilesOfChunks) {
  TempDir dir;
  auto store = open_store(dir.file("a"));
  EXPECT_OK(store->put(*named(1, "manual#1", "x y")));
  EXPECT_OK(store->put(*make_record(2)));
  EXPECT_OK(export_chunks(*store, {}, dir.file("chunks"), {}).status());
  auto other = open_store(dir.file("b"));
  EXPECT_OK(other->put(*named(2, "kept", "t")));
  Transfer done;
  EXPECT_OK(import_chunks(*other, dir.file("chunks"), true, {}, &done));
  EXPECT_EQ("manual#1|x y", name_in(*other, make_record(1)->meta.id));
  EXPECT_EQ("kept|t", name_in(*other, make_record(2)->meta.id));
  EXPECT_OK(compare(*other, *make_record(1)));
}

// Whoever comes first: one name or the other, never half of each, and the counters fit.
TEST(ChunkName, IsChangedBesidePutsAndRemovals) {
  TempDir dir;
  auto store = open_store(dir.path());
  const std::string long_label(kMostLabelBytes, 'y');
  const auto record = make_record(1, {1, 960, 1, DType::f16});
  const Sha256 id = record->meta.id;
  EXPECT_OK(store->put(*record));
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        Status status;
        bool changed = false;
        const bool first = (t + i) % 2 == 0;
        ChunkName name{first ? "x" : long_label, first ? "x" : "y"};
        if (t < 2) status = store->rename(id, name, &changed);
        if (t == 2) status = i % 3 == 0 ? store->remove(id) : store->put(*record);
        if (t == 3) status = store->pin(id, i % 2 == 0);
        if (!status.is_ok() && status.code() != BLEND_E_NOT_FOUND) ++bad;
        (void)store->for_each(false, [&](const ChunkMeta& meta, const std::string& problem) {
          const std::string label = meta.name.label.value_or("");
          const std::string tags = meta.name.tags.value_or("");
          if (!problem.empty() || tags != label.substr(0, 1)) ++bad;
          return 0;
        });
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(0, bad);
  EXPECT_OK(store->put(*record));
  EXPECT_OK(store->pin(id, false));
  EXPECT_OK(store->remove(id));
  const StoreStat stat = take(store->stat());
  EXPECT_EQ(0u, stat.n_chunks + stat.stored_bytes + stat.totals.pinned_bytes);
}

TEST(ChunkFilter, PatternsFitWholeTexts) {
  for (const auto& [pattern, text] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", ""},
                                                                  {"*", ""},
                                                                  {"*", "any"},
                                                                  {"a*", "abc"},
                                                                  {"*c", "abc"},
                                                                  {"a*c", "ac"},
                                                                  {"a*b*c", "a-b-b-c"},
                                                                  {"a?c", "abc"},
                                                                  {"?", "ö"},
                                                                  {"\\*", "*"},
                                                                  {"a\\?", "a?"},
                                                                  {"*ab", "aab"},
                                                                  {"\\", "\\"}}) {
    EXPECT_TRUE(fits_pattern(pattern, text)) << pattern << " " << text;
  }
  for (const auto& [pattern, text] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", "a"},
                                                                  {"a", ""},
                                                                  {"a", "ab"},
                                                                  {"?", ""},
                                                                  {"a*c", "ab"},
                                                                  {"\\*", "a"},
                                                                  {"a?", "a"},
                                                                  {"?", "ab"},
                                                                  {"*b", "ba"},
                                                                  {"A", "a"}}) {
    EXPECT_FALSE(fits_pattern(pattern, text)) << pattern << " " << text;
  }
  // No pattern takes long.
  std::string stars;
  for (int i = 0; i < 500; ++i) stars += "*a";
  EXPECT_FALSE(fits_pattern(stars + "b", std::string(1000, 'a')));
}

TEST(ChunkFilter, AsksForLabelTagsModelAndTenant) {
  auto record = named(1, "dir/manual.pdf#12", "draft lang=en");
  record->meta.tenant = tenant_tag("acme");
  const ChunkMeta& meta = record->meta;  // fingerprint 5a5a...
  const auto fits = [&](const char* tenant, const char* label, const char* tags,
                        const char* model) {
    return take(read_chunk_filter(tenant, label, tags, model)).fits(meta);
  };
  EXPECT_TRUE(fits(nullptr, nullptr, nullptr, nullptr));
  EXPECT_TRUE(fits("acme", "dir/manual.pdf", "lang=*", "5a5a"));
  EXPECT_TRUE(fits(nullptr, "dir/manual.pdf#12", "draft lang=en", ""));
  EXPECT_TRUE(fits(nullptr, "*.pdf", nullptr, nullptr));
  EXPECT_TRUE(fits(nullptr, "*#12", nullptr, nullptr));
  EXPECT_FALSE(fits("", nullptr, nullptr, nullptr));
  EXPECT_FALSE(fits(nullptr, "manual.pdf", nullptr, nullptr));
  EXPECT_FALSE(fits(nullptr, "dir/manual.pdf#1", nullptr, nullptr));
  EXPECT_FALSE(fits(nullptr, nullptr, "draft lang=de", nullptr));
  EXPECT_FALSE(fits(nullptr, nullptr, nullptr, "5b"));
  ChunkFilter unlabelled;
  unlabelled.unlabelled = true;
  EXPECT_FALSE(unlabelled.fits(meta));
  EXPECT_TRUE(unlabelled.fits(make_record(1)->meta));
  EXPECT_FALSE(take(read_chunk_filter(nullptr, "*", nullptr, nullptr)).fits(ChunkMeta()));
  for (const char* wrong : {"5A", "model.gguf", "g"}) {
    EXPECT_CODE(BLEND_E_INVALID_ARGUMENT,
                read_chunk_filter(nullptr, nullptr, nullptr, wrong).status());
  }
}

}  // namespace
}  // namespace blend::test
