// Writes the golden stores of tests/golden-store again: a good one and damaged variants.
//
//   make_golden_store DIR
//
// Only for a new format version: the files that are committed must be read for ever. version-1.mdb
// was written by the release that had format version 1, and cannot be made again; version-3 has the
// records that need it, all others are of version 2.
#include <zstd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "golden_store.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& dir, const std::string& name, const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 19));
  std::ofstream(dir + "/" + name + ".mdb.zst", std::ios::binary) << packed;
  std::printf("%-18s %7zu bytes, %6zu packed\n", name.c_str(), bytes.size(), packed.size());
}

// Flips a bit in every copy of `needle`: pages that are free now may hold older ones.
std::string flipped(std::string bytes, const std::string& needle) {
  size_t n = 0;
  for (size_t at = 0; (at = bytes.find(needle, at)) != std::string::npos; ++n) {
    bytes[at + 9] = static_cast<char>(bytes[at + 9] ^ 4);
  }
  if (n == 0) std::fprintf(stderr, "there is nothing to damage\n");
  return bytes;
}

int run(const std::string& dir) {
  TempDir store_dir;
  {
    const auto store = open_store(store_dir.path());
    for (const auto& record : golden_records()) {
      if (!store->put(*record).is_ok()) return 1;
    }
  }
  {
    // From the time when chunks had names.
    TempDir named_dir;
    {
      const auto store = open_store(named_dir.path());
      const auto record = golden_records()[0];
      record->meta.name.label = "manual.pdf#1";
      record->meta.name.tags = "draft lang=en";
      if (!store->put(*record).is_ok()) return 1;
    }
    write(dir, "named", slurp(named_dir.file("data.mdb")));
  }
  {
    TempDir kinds_dir;
    {
      const auto store = open_store(kinds_dir.path());
      for (const auto& record : golden_kinds_records()) {
        if (!store->put(*record).is_ok()) return 1;
      }
    }
    write(dir, "kinds", slurp(kinds_dir.file("data.mdb")));
  }
  {
    TempDir rans_dir;
    {
      const auto store = open_store(rans_dir.path());
      for (const auto& record : golden_rans_records()) {
        if (!store->put(*record).is_ok()) return 1;
      }
    }
    write(dir, "version-3", slurp(rans_dir.file("data.mdb")));
  }
  const std::string good = slurp(store_dir.file("data.mdb"));
  const auto record = golden_records()[0];
  write(dir, "good", good);
  write(dir, "flipped-piece",
        flipped(good, std::string(reinterpret_cast<const char*>(record->v(1)), 32)));
  write(dir, "flipped-manifest",
        flipped(good, std::string(reinterpret_cast<const char*>(record->meta.tokens.data()), 16)));
  write(dir, "truncated", good.substr(0, good.size() * 2 / 5 / 4096 * 4096));
  std::string foreign = good.substr(0, 16384);
  std::memcpy(foreign.data() + 16, "SQLite format 3", 16);
  write(dir, "foreign", foreign);
  return 0;
}

}  // namespace
}  // namespace blend::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "make_golden_store DIR\n");
    return 2;
  }
  return blend::test::run(argv[1]);
}
