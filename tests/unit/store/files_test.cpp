// The files of a store: who may open them, what is not followed, what does not outlive an exec.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>

#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

namespace fs = std::filesystem;

unsigned mode_of(const std::string& path) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0 ? st.st_mode & 0777u : 0xffffu;
}

// The process's umask, until the end of a test.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  ~Umask() { umask(before_); }

 private:
  mode_t before_;
};

TEST(StoreFiles, AreTheOwnersAloneWhateverTheUmask) {
  const Umask open_to_all(0);
  TempDir dir;
  const std::string path = dir.file("a/b/store");
  auto store = open_store(path);
  EXPECT_OK(store->put(*make_record(1)));
  EXPECT_OK(store->copy_to(dir.file("copy")));
  EXPECT_TRUE(export_chunks(*store, {}, dir.file("exported"), {}).is_ok());
  store.reset();
  EXPECT_EQ(0700u, mode_of(path));
  EXPECT_EQ(0700u, mode_of(dir.file("copy")));
  for (const char* name :
       {"a/b/store/data.mdb", "a/b/store/lock.mdb", "copy/data.mdb", "exported"}) {
    EXPECT_EQ(0600u, mode_of(dir.file(name))) << name;
  }
  uint64_t before = 0, after = 0;
  EXPECT_OK(compact_store(path, &before, &after));
  EXPECT_EQ(0600u, mode_of(path + "/data.mdb"));
}

TEST(StoreFiles, AGroupMayShareThemIfAsked) {
  const Umask closed_to_others(077);
  TempDir dir;
  const std::string path = dir.file("store");
  StoreOptions options;
  options.group = true;
  auto store = open_store(path, options);
  EXPECT_OK(store->put(*make_record(1)));
  EXPECT_OK(store->copy_to(dir.file("copy")));
  store.reset();
  uint64_t before = 0, after = 0;
  EXPECT_OK(compact_store(path, &before, &after));
  for (const std::string& d : {path, dir.file("copy")}) {
    EXPECT_EQ(0770u, mode_of(d));
    EXPECT_EQ(0660u, mode_of(d + "/data.mdb"));
  }
  EXPECT_EQ(0660u, mode_of(path + "/lock.mdb"));
  // Existing files keep their modes.
  open_store(path).reset();
  EXPECT_EQ(0770u, mode_of(path));
  EXPECT_EQ(0660u, mode_of(path + "/data.mdb"));
}

TEST(StoreFiles, NoLinkIsFollowedInside) {
  TempDir dir;
  EXPECT_OK(open_store(dir.file("real"))->put(*make_record(1)));
  for (const char* name : {"data.mdb", "lock.mdb"}) {
    const std::string victim = dir.file(std::string("victim-") + name);
    fs::copy_file(dir.file(std::string("real/") + name), victim);
    const auto before = fs::last_write_time(victim);
    const std::string path = dir.file(std::string("store-") + name);
    fs::create_directory(path);
    fs::create_symlink(victim, path + "/" + name);
    const Status s = Store::open(path, {}, {}).status();
    EXPECT_EQ(BLEND_E_FORMAT, s.code()) << name;
    EXPECT_NE(std::string::npos, s.message().find("symbolic link")) << s.message();
    EXPECT_EQ(before, fs::last_write_time(victim)) << name;
  }
  // A link that leads nowhere makes nothing there.
  fs::create_directory(dir.file("dangling"));
  fs::create_symlink(dir.file("planted"), dir.file("dangling/data.mdb"));
  EXPECT_CODE(BLEND_E_FORMAT, Store::open(dir.file("dangling"), {}, {}).status());
  EXPECT_FALSE(fs::exists(dir.file("planted")));
  // The directory itself may be one.
  fs::create_directory_symlink(dir.file("real"), dir.file("link"));
  EXPECT_OK(compare(*open_store(dir.file("link")), *make_record(1)));
}

// Removed, or replaced by a file of another name: what would be put there nobody could find again.
TEST(StoreFiles, AStoreThatWasRemovedTakesNoMoreAndSaysSo) {
  for (const bool replaced : {false, true}) {
    SCOPED_TRACE(replaced ? "replaced" : "removed");
    TempDir dir;
    const std::string path = dir.file("store");
    std::mutex mutex;
    std::vector<std::string> events;
    const auto store = open_store(path, {}, [&](int32_t, const std::string& message) {
      const std::lock_guard lock(mutex);
      events.push_back(message);
    });
    EXPECT_OK(store->put(*make_record(1)));
    EXPECT_OK(open_store(dir.file("other"))->put(*make_record(2)));
    if (replaced) {
      fs::rename(dir.file("other/data.mdb"), path + "/data.mdb");
    } else {
      fs::remove_all(path);
    }
    const Status put = store->put(*make_record(3));
    EXPECT_EQ(BLEND_E_IO, put.code()) << put.message();
    EXPECT_NE(std::string::npos, put.message().find(path)) << put.message();
    EXPECT_NE(std::string::npos, put.message().find("removed")) << put.message();
    EXPECT_OK(store->put_async(make_record(4)));
    EXPECT_CODE(BLEND_E_IO, store->flush());
    EXPECT_CODE(BLEND_E_IO, store->remove(make_record(1)->meta.id));
    EXPECT_OK(compare(*store, *make_record(1)));  // what it has it gives
    const std::lock_guard lock(mutex);
    ASSERT_EQ(1u, events.size());
    EXPECT_NE(std::string::npos, events[0].find(path)) << events[0];
  }
}

TEST(StoreFiles, NoDescriptorOutlivesAnExec) {
  TempDir dir;
  for (const ReadMode mode : {ReadMode::best, ReadMode::threads, ReadMode::mapped}) {
    StoreOptions options;
    options.read_mode = mode;
    auto store = open_store(dir.path(), options);
    EXPECT_OK(store->put(*make_record(1)));
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const fs::path target = fs::read_symlink(entry.path(), gone);
      if (gone || target.string().rfind(dir.path(), 0) != 0) continue;
      ++n;
      const int flags = fcntl(std::stoi(entry.path().filename()), F_GETFD);
      EXPECT_NE(0, flags & FD_CLOEXEC) << target;
    }
    EXPECT_GE(n, 2u);
  }
}

TEST(StoreFiles, AReaderThatMayNotRegisterIsToldWhy) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  TempDir dir;
  EXPECT_OK(open_store(dir.path())->put(*make_record(1)));
  chmod(dir.file("lock.mdb").c_str(), 0400);
  StoreOptions options;
  options.read_only = true;
  const Status s = Store::open(dir.path(), options, {}).status();
  EXPECT_EQ(BLEND_E_IO, s.code());
  EXPECT_NE(std::string::npos, s.message().find("lock.mdb")) << s.message();
}

}  // namespace
}  // namespace blend::test
