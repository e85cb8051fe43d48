#include "base/files/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>

#include "support/gguf_writer.h"
#include "support/temp_dir.h"

namespace blend {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, GivesTheBytes) {
  const test::TempDir dir;
  const std::string path = dir.file("a");
  const std::string content = std::string("abc\0def", 7) + std::string(100000, 'x');
  test::write_file(path, content);
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(text_of(*file), content);
}

TEST(MappedFile, MovesWithoutUnmapping) {
  const test::TempDir dir;
  test::write_file(dir.file("a"), "one");
  test::write_file(dir.file("b"), "two");
  MappedFile a = std::move(*MappedFile::open(dir.file("a")));
  MappedFile b = std::move(*MappedFile::open(dir.file("b")));
  MappedFile c = std::move(a);
  EXPECT_EQ(text_of(c), "one");
  EXPECT_TRUE(a.bytes().empty());  // NOLINT(bugprone-use-after-move): what is left is specified
  b = std::move(c);
  EXPECT_EQ(text_of(b), "one");
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const test::TempDir dir;
  test::write_file(dir.file("empty"), "");
  auto file = MappedFile::open(dir.file("empty"));
  ASSERT_TRUE(file.is_ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, NamesWhatItCannotOpen) {
  const test::TempDir dir;
  const auto expect = [](const std::string& path, int32_t code, int64_t detail) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file.is_ok()) << path;
    EXPECT_EQ(file.status().code(), code) << path;
    EXPECT_EQ(file.status().detail(), detail) << path;
    EXPECT_NE(file.status().message().find(path.c_str()), std::string::npos)
        << file.status().message();
  };
  expect(dir.file("absent"), BLEND_E_NOT_FOUND, ENOENT);
  test::write_file(dir.file("file"), "x");
  expect(dir.file("file") + "/below", BLEND_E_NOT_FOUND, ENOTDIR);
  expect(dir.path(), BLEND_E_IO, EISDIR);
  // Must not wait for a writer.
  ASSERT_EQ(mkfifo(dir.file("fifo").c_str(), 0600), 0);
  expect(dir.file("fifo"), BLEND_E_IO, 0);
  expect(dir.file("file") + std::string("\0x", 2), BLEND_E_NOT_FOUND, 0);
}

}  // namespace
}  // namespace blend
