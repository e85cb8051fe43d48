// Notes: small records beside the chunks.
#include <lmdb.h>

#include <thread>

#include "store/lmdb/keys.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

Status set(StoreNotes& notes, std::string_view name, const std::string& bytes) {
  return notes.change_note(name, [&](std::span<const std::byte>) { return bytes; });
}

std::vector<std::pair<std::string, std::string>> all(StoreNotes& notes, std::string_view prefix) {
  std::vector<std::pair<std::string, std::string>> out;
  auto found = notes.notes(prefix);
  EXPECT_OK(found.status());
  if (!found.is_ok()) return out;
  for (const Note& n : *found) out.emplace_back(n.name, n.bytes);
  return out;
}

using Notes = std::vector<std::pair<std::string, std::string>>;

TEST(StoreNotes, SurviveTheStoreAndAreFoundByTheirBeginning) {
  TempDir dir;
  const std::string zero("b\0x", 3);
  {
    auto store = open_store(dir.path());
    EXPECT_EQ(all(*store, ""), Notes{});
    EXPECT_OK(set(*store, "b2", "two"));
    EXPECT_OK(set(*store, "a1", "one"));
    EXPECT_OK(set(*store, zero, "null"));
    EXPECT_OK(set(*store, "b2", "TWO"));
    EXPECT_OK(store->put(*make_record(1)));
  }
  auto store = open_store(dir.path());
  EXPECT_EQ(all(*store, "b"), (Notes{{zero, "null"}, {"b2", "TWO"}}));
  EXPECT_EQ(all(*store, ""), (Notes{{"a1", "one"}, {zero, "null"}, {"b2", "TWO"}}));
  EXPECT_EQ(all(*store, "c"), Notes{});
  EXPECT_OK(compare(*store, *make_record(1)));
  EXPECT_EQ(store->stat()->n_chunks, 1u);
}

TEST(StoreNotes, AChangeIsGivenWhatIsThere) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto append = [](std::span<const std::byte> old) {
    return std::string(reinterpret_cast<const char*>(old.data()), old.size()) + "x";
  };
  // Two handles of one file, as two processes have them.
  auto other = open_store(dir.path());
  std::thread a([&] {
    for (int i = 0; i < 20; ++i) EXPECT_OK(store->change_note("n", append));
  });
  for (int i = 0; i < 20; ++i) EXPECT_OK(other->change_note("n", append));
  a.join();
  EXPECT_EQ(all(*store, "n"), (Notes{{"n", std::string(40, 'x')}}));
}

TEST(StoreNotes, ManyOfThemStayInOrder) {
  TempDir dir;
  auto store = open_store(dir.path());
  for (int i = 0; i < 60; ++i) {
    EXPECT_OK(set(*store, "n" + std::to_string(100 + i), std::string(StoreNotes::kMostBytes, 'z')));
  }
  store = nullptr;
  store = open_store(dir.path());  // checks the pages
  const Notes found = all(*store, "n");
  ASSERT_EQ(found.size(), 60u);
  EXPECT_EQ(found[59].first, "n159");
  EXPECT_EQ(found[59].second.size(), StoreNotes::kMostBytes);
}

TEST(StoreNotes, WhatIsTooLongOrMayNotBeWrittenIsRefused) {
  TempDir dir;
  auto store = open_store(dir.path());
  EXPECT_EQ(set(*store, "", "x").code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(set(*store, std::string(65, 'n'), "x").code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(set(*store, "n", "").code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(set(*store, "n", std::string(1025, 'x')).code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_OK(set(*store, "n", "x"));
  StoreOptions options;
  options.read_only = true;
  auto reader = open_store(dir.path(), options);
  EXPECT_EQ(set(*reader, "n", "y").code(), BLEND_E_READ_ONLY);
  EXPECT_EQ(all(*reader, ""), (Notes{{"n", "x"}}));
}

TEST(StoreNotes, ADamagedOneIsNotThere) {
  TempDir dir;
  {
    auto store = open_store(dir.path());
    EXPECT_OK(set(*store, "good", "sound"));
    EXPECT_OK(set(*store, "n", "bytes"));
  }
  // As another program would: the same key with bytes that are not sealed.
  MDB_env* env = nullptr;
  ASSERT_EQ(mdb_env_create(&env), 0);
  mdb_env_set_maxdbs(env, 16);
  ASSERT_EQ(mdb_env_open(env, dir.path().c_str(), 0, 0600), 0);
  MDB_txn* txn = nullptr;
  MDB_dbi info = 0;
  ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
  ASSERT_EQ(mdb_dbi_open(txn, "info", 0, &info), 0);
  std::string name = std::string(kNoteKey) + "n", bytes = "bytes of nobody's";
  MDB_val key{name.size(), name.data()}, value{bytes.size(), bytes.data()};
  ASSERT_EQ(mdb_put(txn, info, &key, &value, 0), 0);
  ASSERT_EQ(mdb_txn_commit(txn), 0);
  mdb_env_close(env);

  auto store = open_store(dir.path());
  EXPECT_EQ(all(*store, ""), (Notes{{"good", "sound"}}));
  size_t given = 1;
  EXPECT_OK(store->change_note("n", [&](std::span<const std::byte> old) {
    given = old.size();
    return std::string("mended");
  }));
  EXPECT_EQ(given, 0u);
  EXPECT_EQ(all(*store, "n"), (Notes{{"n", "mended"}}));
}

}  // namespace
}  // namespace blend::test
