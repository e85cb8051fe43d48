// How fast is the store? Codecs by core, cold reads and durable writes beside fio's.
//
//   bench_store --kv STORE   codecs, over the chunks of a store that `blend precompute` made
//   bench_store --dir DIR    reads and writes in DIR, and fio there in the same run
#include "store/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "store/codec/codec.h"
#include "store/codec/row_shifts.h"
#include "store/read/page_reader.h"

namespace {

using Clock = std::chrono::steady_clock;
using blend::bench::cpu_seconds;
using blend::bench::median;
using blend::bench::must;
using blend::bench::seconds_since;
using nlohmann::json;

// CPU time of this thread: other work on a shared machine does not count.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// ---- Codecs

struct Layers {
  blend::ChunkShape shape;
  std::vector<uint8_t> row_shifts;
  std::vector<std::byte> bytes;  // [n_layers][K|V][token][kv_dim]
};

std::vector<Layers> read_chunks(const std::string& path) {
  blend::StoreOptions options;
  options.read_only = true;
  const auto store = must(blend::Store::open(path, options, {}));
  std::vector<blend::Sha256> ids;
  must(store->for_each(false, [&](const blend::ChunkMeta& meta, const std::string&) {
    ids.push_back(meta.id);
    return 0;
  }));
  const auto snapshot = must(store->snapshot());
  std::vector<Layers> all;
  for (const blend::Sha256& id : ids) {
    const auto source = must(snapshot->open(id));
    Layers chunk{source->meta().shape, blend::row_shifts(source->meta().impact), {}};
    chunk.bytes.resize(chunk.shape.total_bytes());
    for (uint32_t l = 0; l < chunk.shape.n_layers; ++l) {
      must(source->read_layer(l, chunk.bytes.data() + l * chunk.shape.layer_bytes(0)));
    }
    all.push_back(std::move(chunk));
  }
  return all;
}

json measure_codecs(const std::string& path, int repeats) {
  const std::vector<Layers> chunks = read_chunks(path);
  if (chunks.empty()) throw std::runtime_error("there are no chunks in '" + path + "'");
  size_t bytes = 0;
  size_t longest = 0;
  for (const Layers& c : chunks) {
    bytes += c.bytes.size();
    longest = std::max(longest, c.shape.layer_bytes(0));
  }
  json out = {{"store", path},
              {"chunks", chunks.size()},
              {"bytes", bytes},
              {"dtype", blend::dtype_name(chunks[0].shape.dtype)}};
  std::printf(
      "%zu chunks of %s, %.1f MiB of %s; GB/s of K and V (before encoding) for a core's time\n",
      chunks.size(), path.c_str(), static_cast<double>(bytes) / (1 << 20),
      blend::dtype_name(chunks[0].shape.dtype));
  std::printf("%-6s %8s %8s %10s %10s\n", "codec", "smaller", "bits", "encode", "decode");
  const auto element_bits = 8.0 * static_cast<double>(blend::dtype_size(chunks[0].shape.dtype));
  std::vector<std::byte> layer(longest);
  for (uint32_t i = 0; i < blend::kCodecs; ++i) {
    const auto codec = static_cast<blend::Codec>(i);
    blend::CodecScratch scratch;
    std::vector<std::vector<std::byte>> stored;
    std::vector<double> encode_s, decode_s;
    size_t stored_bytes = 0;
    for (int r = 0; r < repeats; ++r) {
      stored.clear();
      stored_bytes = 0;
      double s = 0;
      for (const Layers& c : chunks) {
        for (uint32_t l = 0; l < c.shape.n_layers; ++l) {
          std::vector<std::byte> to(blend::longest_layer(codec, c.shape, 0));
          const double begin = thread_seconds();
          const size_t n = must(blend::encode_layer(codec, c.shape, 0,
                                                    c.bytes.data() + l * c.shape.layer_bytes(0),
                                                    to.data(), scratch, {1, c.row_shifts}));
          s += thread_seconds() - begin;
          to.resize(n);
          stored_bytes += n;
          stored.push_back(std::move(to));
        }
      }
      encode_s.push_back(s);
      const double begin = thread_seconds();
      size_t next = 0;
      for (const Layers& c : chunks) {
        for (uint32_t l = 0; l < c.shape.n_layers; ++l) {
          must(blend::decode_layer(codec, c.shape, 0, stored[next++], layer.data(), scratch));
        }
      }
      decode_s.push_back(thread_seconds() - begin);
    }
    const double ratio = static_cast<double>(bytes) / static_cast<double>(stored_bytes);
    const double gb = static_cast<double>(bytes) / 1e9;
    const double encode = gb / median(encode_s);
    const double decode = gb / median(decode_s);
    const double bits = element_bits / ratio;
    std::printf("%-6s %8.3f %8.3f %10.2f %10.2f\n", blend::codec_name(codec), ratio, bits, encode,
                decode);
    out["codecs"][blend::codec_name(codec)] = {{"ratio", ratio},
                                               {"bits_per_element", bits},
                                               {"encode_gb_per_s", encode},
                                               {"decode_gb_per_s", decode}};
  }
  return out;
}

// ---- Disk

// Noise: nothing on the way can compress it.
std::shared_ptr<blend::ChunkRecord> noise(uint32_t seed, const blend::ChunkShape& shape) {
  auto r = std::make_shared<blend::ChunkRecord>();
  std::mt19937_64 rng(seed);
  r->meta.shape = shape;
  r->meta.tokens.assign(shape.n_tokens, static_cast<int32_t>(seed));
  r->meta.id = blend::chunk_id({}, shape.dtype, {}, "", r->meta.tokens);
  r->data = must(blend::AlignedBuffer::allocate(shape.total_bytes()));
  for (size_t at = 0; at + 8 <= r->data.bytes(); at += 8) {
    const uint64_t word = rng();
    std::memcpy(r->data.data() + at, &word, 8);
  }
  return r;
}

void forget(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY);
  if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
    throw std::runtime_error("cannot drop '" + file + "' from the page cache");
  }
  close(fd);
}

// Every layer of every chunk, `depth` layers of all chunks of a prompt in flight, as a fuse does.
double read_all(blend::Store& store, const std::vector<blend::Sha256>& ids, uint32_t depth) {
  constexpr size_t kPrompt = 6;
  const auto begin = Clock::now();
  const auto snapshot = must(store.snapshot());
  std::vector<blend::RowRun> rows;
  std::vector<blend::AlignedBuffer> space(kPrompt * depth);
  for (size_t first = 0; first < ids.size(); first += kPrompt) {
    std::vector<std::unique_ptr<blend::ChunkSource>> sources;
    for (size_t i = first; i < std::min(ids.size(), first + kPrompt); ++i) {
      sources.push_back(must(snapshot->open(ids[i])));
      // Kept from prompt to prompt, as a host keeps its memory.
      for (uint32_t d = 0; d < depth && first == 0; ++d) {
        space[i * depth + d] = must(blend::AlignedBuffer::allocate(sources[i]->stage_bytes()));
      }
    }
    const uint32_t n_layers = sources[0]->meta().shape.n_layers;
    for (uint32_t l = 0; l < n_layers + depth - 1; ++l) {
      for (size_t i = 0; i < sources.size(); ++i) {
        if (l < n_layers) {
          sources[i]->prefetch(l);
          sources[i]->start_layer(l, space[i * depth + l % depth].data());
        }
      }
      if (l + 1 < depth) continue;
      const uint32_t ready = l + 1 - depth;
      for (size_t i = 0; i < sources.size(); ++i) {
        must(sources[i]->finish_layer(ready, space[i * depth + ready % depth].data(), rows));
      }
    }
  }
  return seconds_since(begin);
}

double fio(const std::string& dir, const std::string& rw, uint64_t bytes, const std::string& more) {
  const std::string file = dir + "/fio.data";
  const std::string command = "fio --name=x --filename='" + file + "' --rw=" + rw +
                              " --direct=1 --size=" + std::to_string(bytes) +
                              " --output-format=json " + more + " 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run fio");
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  if (pclose(pipe) != 0) throw std::runtime_error("fio failed: is it installed?");
  const json job = json::parse(text.substr(text.find('{'))).at("jobs").at(0);
  return job.at(rw).at("bw_bytes").get<double>() / 1e9;
}

using Records = std::vector<std::shared_ptr<blend::ChunkRecord>>;

// Durable puts of all records by n_threads threads; 0: queued, and waited for at the end.
double put_all(blend::Store& store, const Records& records, unsigned n_threads) {
  const auto begin = Clock::now();
  if (n_threads == 0) {
    for (const auto& record : records) must(store.put_async(record));
    must(store.flush());
    return seconds_since(begin);
  }
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < n_threads; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; (i = next++) < records.size();) {
        if (!store.put(*records[i]).is_ok()) failed = true;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (failed) throw std::runtime_error("a put failed");
  return seconds_since(begin);
}

// Each round writes everything in every way, so that other work on the machine affects all of
// them. The first writes new files, the others over existing data: reported apart.
json measure_writes(const std::string& dir, const std::string& path, const Records& records,
                    const blend::StoreOptions& options, int repeats) {
  uint64_t total = 0;
  for (const auto& record : records) total += record->data.bytes();
  const double gb = static_cast<double>(total) / 1e9;
  // The same guarantee: 16 MiB, then a sync; with nothing else meanwhile, or with the next under
  // way.
  const std::vector<std::pair<std::string, std::string>> peers = {
      {"fio, 16 MiB, then fdatasync", "--ioengine=psync --bs=16M --fdatasync=1"},
      {"fio, 16 x 1 MiB in flight, fdatasync each 16",
       "--ioengine=io_uring --iodepth=16 --bs=1M --fdatasync=16"}};
  const std::vector<std::pair<std::string, unsigned>> ways = {
      {"put, 1 thread", 1}, {"put, 2 threads", 2}, {"put, 4 threads", 4}, {"background puts", 0}};
  std::map<std::string, std::vector<double>> fresh, over;
  for (int r = 0; r <= repeats; ++r) {
    auto& rates = r == 0 ? fresh : over;
    for (const auto& [name, how] : peers) {
      if (r == 0) std::filesystem::remove(dir + "/fio.data");
      rates[name].push_back(fio(dir, "write", total, how));
    }
    for (const auto& [name, n_threads] : ways) {
      if (r == 0) std::filesystem::remove_all(path);
      const auto store = must(blend::Store::open(path, options, {}));
      rates[name].push_back(gb / put_all(*store, records, n_threads));
      if (r == repeats && n_threads == 0) continue;  // for the reads
      for (const auto& record : records) must(store->remove(record->meta.id));
    }
  }
  json out;
  std::printf("\n%zu chunks of 16 MiB, %-18s %8s %14s\n", records.size(), "durable writes", "GB/s",
              "into new files");
  const auto tell = [&](const std::string& name) {
    std::printf("%-46s %8.2f %14.2f\n", name.c_str(), median(over[name]), median(fresh[name]));
    out[name] = {{"gb_per_s", median(over[name])}, {"new_file_gb_per_s", median(fresh[name])}};
  };
  for (const auto& [name, how] : peers) tell(name);
  for (const auto& [name, n_threads] : ways) tell(name);
  return out;
}

json measure_disk(const std::string& dir, uint64_t bytes, int repeats) {
  namespace fs = std::filesystem;
  const std::string path = dir + "/bench-store";
  fs::remove_all(path);
  // 512 tokens of a model of the size of Llama 3.2 1B: 1 MiB a layer, 16 MiB a chunk.
  const blend::ChunkShape shape{16, 512, 512, blend::DType::bf16, 64};
  const auto n = static_cast<uint32_t>(std::max<uint64_t>(6, bytes / shape.total_bytes()));
  const uint64_t total = n * shape.total_bytes();
  const double gb = static_cast<double>(total) / 1e9;
  json out = {{"bytes", total}, {"chunks", n}};
  blend::StoreOptions options;
  options.quota_bytes = 2 * total + (64 << 20);

  Records records;
  std::vector<blend::Sha256> ids;
  for (uint32_t i = 0; i < n; ++i) {
    records.push_back(noise(i, shape));
    ids.push_back(records.back()->meta.id);
  }
  out["write"] = measure_writes(dir, path, records, options, repeats);
  records.clear();

  std::map<std::string, std::vector<double>> rates, cpu;
  std::vector<double> fio_reads;
  for (int r = 0; r < repeats; ++r) {
    fio_reads.push_back(fio(dir, "read", total, "--ioengine=io_uring --iodepth=16 --bs=1M"));
    for (const auto mode :
         {blend::ReadMode::uring, blend::ReadMode::threads, blend::ReadMode::mapped}) {
      blend::StoreOptions o = options;
      o.read_only = true;
      o.read_mode = mode;
      const auto store = must(blend::Store::open(path, o, {}));
      forget(path + "/data.mdb");
      const double cpu_begin = cpu_seconds();
      const std::string name = blend::read_mode_name(mode);
      rates[name].push_back(gb / read_all(*store, ids, 4));
      cpu[name].push_back((cpu_seconds() - cpu_begin) / gb);
    }
    blend::StoreOptions o = options;
    o.read_only = true;
    const auto store = must(blend::Store::open(path, o, {}));
    read_all(*store, ids, 4);  // may leave the cache cold: the map brings it in
    o.read_mode = blend::ReadMode::mapped;
    read_all(*must(blend::Store::open(path, o, {})), ids, 4);
    const double cpu_begin = cpu_seconds();
    rates["page cache"].push_back(gb / read_all(*store, ids, 4));
    cpu["page cache"].push_back((cpu_seconds() - cpu_begin) / gb);
  }
  std::printf("\n%-12s %8s %14s %10s\n", "cold reads", "GB/s", "CPU s per GB", "of fio");
  std::printf("%-12s %8.2f\n", "fio", median(fio_reads));
  out["read"]["fio_gb_per_s"] = median(fio_reads);
  for (const auto& [name, all] : rates) {
    std::printf("%-12s %8.2f %14.3f %9.0f%%\n", name.c_str(), median(all), median(cpu[name]),
                100 * median(all) / median(fio_reads));
    out["read"][name] = {{"gb_per_s", median(all)}, {"cpu_s_per_gb", median(cpu[name])}};
  }
  fs::remove_all(path);
  fs::remove(dir + "/fio.data");
  return out;
}

int run(int argc, char** argv) {
  CLI::App app("The store's codecs, reads and writes");
  std::vector<std::string> kv;
  std::string dir;
  std::string json_path;
  uint64_t bytes = 1ull << 30;
  int repeats = 5;
  app.add_option("--kv", kv, "Stores whose chunks the codecs are measured on")->type_name("STORE");
  app.add_option("--dir", dir, "Where reads and writes are measured")->type_name("DIR");
  app.add_option("--bytes", bytes, "Size of the store that is made there")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--repeats", repeats, "Of which the median is told")->check(CLI::Range(1, 100));
  app.add_option("--json", json_path, "Write the figures")->type_name("FILE");
  CLI11_PARSE(app, argc, argv);
  json out;
  for (const std::string& store : kv) out["codecs"].push_back(measure_codecs(store, repeats));
  if (!dir.empty()) out["disk"] = measure_disk(dir, bytes, repeats);
  blend::bench::write_json(json_path, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_store: %s\n", e.what());
    return 1;
  }
}
