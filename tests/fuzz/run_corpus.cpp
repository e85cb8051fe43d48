// Runs a fuzzer's function once on each input of a corpus, as an ordinary test with any compiler.
// An argument is a folder of inputs, or an archive of them as pack.py writes it: a ZIP file whose
// entries are stored as they are.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// From memory of its own, so that a sanitizer sees a read past the end.
void run(const char* data, size_t size) {
  const std::string bytes(data, size);
  (void)LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// How many inputs an archive had; -1: it is not one.
long run_archive(const std::string& zip) {
  constexpr size_t kHeader = 30;  // of an entry; all numbers are little-endian
  const auto number = [&](size_t at, size_t bytes) {
    size_t n = 0;
    for (size_t i = bytes; i-- > 0;) n = n << 8 | static_cast<unsigned char>(zip[at + i]);
    return n;
  };
  size_t at = 0;
  long n = 0;
  while (zip.size() - at >= kHeader && std::memcmp(&zip[at], "PK\3\4", 4) == 0) {
    const size_t method = number(at + 8, 2);
    const size_t size = number(at + 18, 4);
    const size_t begin = at + kHeader + number(at + 26, 2) + number(at + 28, 2);
    if (method != 0 || begin > zip.size() || size > zip.size() - begin) return -1;
    run(&zip[begin], size);
    at = begin + size;
    ++n;
  }
  // The directory of the archive follows the last entry.
  return zip.size() - at >= 4 && std::memcmp(&zip[at], "PK\1\2", 4) == 0 ? n : -1;
}

}  // namespace

int main(int argc, char** argv) {
  long n = 0;
  for (int i = 1; i < argc; ++i) {
    const long before = n;
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        const std::string bytes = slurp(entry.path());
        run(bytes.data(), bytes.size());
        ++n;
      }
    } else {
      const long packed = run_archive(slurp(argv[i]));
      if (packed > 0) n += packed;
    }
    if (n == before) {
      std::fprintf(stderr, "%s: no inputs, or not an archive of pack.py\n", argv[i]);
      return 1;
    }
  }
  std::printf("%ld inputs\n", n);
  return n > 0 ? 0 : 1;
}
