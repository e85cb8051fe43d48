// Time to first token on a CUDA device: full prefill beside fusing at several ratios, from chunks
// in device memory, in host RAM and in the store on disk; decoding, recorded and not, and of
// several sequences at once; and what its kernels reach by themselves. bench/device/run sets it
// compares it with PyTorch's and transformers' figures for the same shapes.
//
//   bench_device --shape 8b --tokens 1024,4096,16384 --ratios 0,0.05,0.15,0.3 --json out.json
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/select.h"
#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/shapes.h"
#include "bench/timed_backend.h"
#include "engine/device_readable.h"
#include "engine/precompute.h"
#include "engine/sequence.h"
#include "fusion/run/fuse.h"
#include "store/codec/codec.h"
#include "store/store.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using blend::bench::median;
using blend::bench::must;
using blend::bench::random_tokens;

struct Settings {
  std::string shape = "8b";
  std::string backend = "cuda";
  std::vector<uint32_t> tokens{1024, 2048, 4096, 8192, 16384, 32768};
  std::vector<double> ratios{0.0, 0.05, 0.15, 0.3};
  uint32_t chunk_tokens = 512;
  uint32_t question_tokens = 64;
  uint32_t threads = 0;
  uint64_t device_bytes = uint64_t{6} << 30;  // 32 K tokens of the 8b shape take 4
  int repeat = 5;
  std::string model_path;
  std::string json_path;
  bool weights_only = false;
};

// The figures so far. The file is rewritten after each, under another name and then renamed:
// a run that is ended at any moment leaves a whole file with its figures so far.
class Report {
 public:
  Report(std::string path, json head) : path_(std::move(path)), all_(std::move(head)) {}
  // Adds to one of its lists.
  void add(const char* list, json row) {
    all_[list].push_back(std::move(row));
    write();
  }
  void complete() {
    all_["complete"] = true;
    write();
  }

 private:
  void write() const {
    if (path_.empty()) return;
    const std::string part = path_ + ".part";
    blend::bench::write_json(part, all_);
    std::filesystem::rename(part, path_);
  }

  const std::string path_;
  json all_;
};

// ---- Time to first token

class Ttft {
 public:
  Ttft(const Settings& s, std::shared_ptr<const blend::Model> model)
      : s_(s), model_(std::move(model)) {}

  // Every operation of one pass at the largest ratio, waited for one by one: shows where time goes.
  void operations(blend::bench::TimedBackend& timed, Report& report) {
    const auto n = std::find_if(s_.tokens.begin(), s_.tokens.end(), [&](uint32_t tokens) {
      return tokens + 64 <= model_->context_length() && tokens > s_.question_tokens;
    });
    if (n == s_.tokens.end()) return;
    const double ratio = *std::max_element(s_.ratios.begin(), s_.ratios.end());
    const std::vector<blend::Segment> prompt = make_prompt(*n);
    blend::FuseOptions options;
    options.policy = ratio == 0.0 ? blend::Policy::reuse : blend::Policy::hkvd;
    options.ratio = blend::RatioRequest::fixed(ratio);
    const blend::StoreAccess access{ram_.get(), false, blend::DType::bf16, nullptr};
    must(timed.settle(true));
    for (int i = 0; i < 2; ++i) {  // the first fills pools and caches
      timed.reset();
      (void)must(blend::fuse(model_, access, blend::FuseRequest{prompt, options, {}}));
    }
    must(timed.settle(false));
    const uint32_t n_layers = model_->config().n_layers;
    std::printf("\n%-34s %8s %10s %12s\n", "operation, each waited for", "times", "a layer",
                "us each");
    for (const auto& [name, op] : timed.phases().operations) {
      const double us = op.seconds * 1e6 / static_cast<double>(op.times);
      const double a_layer = static_cast<double>(op.times) / n_layers;
      std::printf("%-34s %8llu %10.2f %12.1f\n", name.c_str(),
                  static_cast<unsigned long long>(op.times), a_layer, us);
      report.add("operations", {{"operation", name},
                                {"tokens", *n},
                                {"ratio", ratio},
                                {"times", op.times},
                                {"a_layer", a_layer},
                                {"us_each", us}});
    }
    std::fflush(stdout);
  }

  void run(const std::string& store_path, Report& report) {
    disk_ = must(blend::Store::open(store_path, blend::StoreOptions{}, {}));
    blend::StoreOptions in_memory;  // which the device reads itself
    in_memory.ram_bytes = s_.device_bytes;
    in_memory.host_memory = blend::device_readable_memory(model_->runtime());
    ram_ = must(blend::Store::open(store_path + "-ram", in_memory, {}));
    std::printf("%-8s %-8s %-14s %10s %9s %9s %9s %9s\n", "tokens", "from", "policy", "TTFT ms",
                "speed-up", "wait ms", "GB/s in", "rows");
    for (const uint32_t n : s_.tokens) {
      if (n + 64 > model_->context_length() || n <= s_.question_tokens) continue;
      const std::vector<blend::Segment> prompt = make_prompt(n);
      blend::FuseOptions options;
      options.reserve_tokens = 32;
      options.policy = blend::Policy::full;
      const json full = measure(n, "-", "full prefill", prompt, nullptr, options, 0);
      report.add("ttft", full);
      // "device": what the runs before the measured ones have left there.
      for (const auto& [from, store] :
           {std::pair<const char*, blend::ChunkStore*>{"device", disk_.get()},
            {"ram", ram_.get()},
            {"disk", disk_.get()}}) {
        for (const double ratio : s_.ratios) {
          options.policy = ratio == 0.0 ? blend::Policy::reuse : blend::Policy::hkvd;
          options.ratio = blend::RatioRequest::fixed(ratio);
          char name[32];
          std::snprintf(name, sizeof name, ratio == 0.0 ? "reuse" : "hkvd %g %%", ratio * 100);
          report.add("ttft", measure(n, from, name, prompt, store, options, full["ttft_ms"]));
        }
      }
    }
  }

 private:
  std::vector<blend::Segment> make_prompt(uint32_t n_tokens) {
    std::vector<blend::Segment> prompt;
    const uint32_t vocab = model_->config().n_vocab;
    uint32_t left = n_tokens - s_.question_tokens;
    for (uint64_t i = 0; left > 0; ++i) {
      const uint32_t n = std::min(left, s_.chunk_tokens);
      left -= n;
      blend::Segment chunk;
      chunk.kind = blend::SegmentKind::chunk;
      chunk.tokens = random_tokens(n, vocab, 1000 + i * 70000 + n);
      blend::ChunkMeta meta =
          blend::describe_chunk(*model_, blend::DType::bf16, {}, "", *chunk.tokens);
      if (!must(ram_->contains(meta.id))) {
        const auto record = must(blend::precompute_chunk(*model_, {}, std::move(meta), {}));
        must(ram_->put(*record));
        must(disk_->put(*record));
      }
      prompt.push_back(std::move(chunk));
    }
    blend::Segment question;
    question.kind = blend::SegmentKind::question;
    question.tokens = random_tokens(s_.question_tokens, vocab, 99);
    prompt.push_back(std::move(question));
    return prompt;
  }

  json measure(uint32_t n, const std::string& from, const std::string& name,
               const std::vector<blend::Segment>& prompt, blend::ChunkStore* store,
               const blend::FuseOptions& options, const json& full_ms) {
    std::vector<double> ttft, wait;
    blend_fusion_report last{};
    blend::StoreAccess access{store, false, blend::DType::bf16, nullptr};
    access.use_device_tier = from == "device";
    for (int i = 0; i < s_.repeat + 1; ++i) {
      const blend::Fused fused =
          must(blend::fuse(model_, access, blend::FuseRequest{prompt, options, {}}));
      last = fused.info;
      if (i == 0) continue;  // fills pools and caches
      ttft.push_back(static_cast<double>(last.ttft_ns) * 1e-6);
      wait.push_back(static_cast<double>(last.wait_ns) * 1e-6);
    }
    const double ms = median(ttft);
    const double rate = static_cast<double>(last.bytes_loaded) / ms * 1e-6;
    const double full = full_ms.is_number() && full_ms > 0 ? full_ms.get<double>() : ms;
    std::printf("%-8u %-8s %-14s %10.2f %8.2fx %9.2f %9.2f %9llu\n", n, from.c_str(), name.c_str(),
                ms, full / ms, median(wait), rate,
                static_cast<unsigned long long>(last.n_rows_selected + last.n_rows_always));
    std::fflush(stdout);
    return {{"tokens", n},
            {"from", from},
            {"policy", name},
            {"ttft_ms", ms},
            {"wait_ms", median(wait)},
            {"bytes_loaded", last.bytes_loaded},
            {"bytes_from_device", last.bytes_from_device},
            {"rows_selected", last.n_rows_selected},
            {"rows_always", last.n_rows_always}};
  }

  const Settings& s_;
  const std::shared_ptr<const blend::Model> model_;
  std::shared_ptr<blend::ChunkStore> ram_, disk_;
};

// ---- Decoding

// Steps of one token after n others, each issued, and recorded once and run again.
void decode(const std::shared_ptr<const blend::Model>& model, const std::vector<uint32_t>& lengths,
            int repeat, Report& report) {
  constexpr uint32_t kSteps = 64;
  std::printf("\n%-34s %10s %12s\n", "decode, 64 steps", "ms a step", "tokens/s");
  for (const uint32_t n : lengths) {
    if (n + kSteps > model->context_length()) continue;
    const uint32_t vocab = model->config().n_vocab;
    const std::vector<int32_t> answer = random_tokens(kSteps, vocab, 7);
    for (const bool recorded : {false, true}) {
      std::vector<double> ms;
      for (int i = 0; i < std::max(2, repeat / 2) + 1; ++i) {
        const auto sequence = must(blend::Sequence::create(model, n + kSteps));
        if (!recorded) sequence->issue_every_step();
        must(sequence->append(random_tokens(n, vocab, 5), {}));
        const auto begin = Clock::now();
        for (const int32_t token : answer) must(sequence->append({&token, 1}, {}));
        const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
        if (i > 0) ms.push_back(took.count() / kSteps);
      }
      const char* const name = recorded ? "recorded" : "issued";
      const std::string title = std::string(name) + ", after " + std::to_string(n) + " tokens";
      std::printf("%-34s %10.3f %12.1f\n", title.c_str(), median(ms), 1e3 / median(ms));
      std::fflush(stdout);
      report.add("decode", {{"steps", name}, {"tokens", n}, {"ms", median(ms)}});
    }
  }
}

// Steps that several sequences share, each after n tokens of its own; one thread drives them,
// samples nothing and waits for every step's logits.
void decode_together(const std::shared_ptr<const blend::Model>& model,
                     const std::vector<uint32_t>& lengths, int repeat, Report& report) {
  constexpr uint32_t kSteps = 64;
  if (model->steps() == nullptr) return;
  std::printf("\n%-34s %10s %12s\n", "decode at once, 64 steps", "ms a step", "tokens/s");
  for (const uint32_t n : lengths) {
    if (n + kSteps > model->context_length()) continue;
    const uint32_t vocab = model->config().n_vocab;
    const std::vector<int32_t> answer = random_tokens(kSteps, vocab, 7);
    const auto first = must(blend::Sequence::create(model, n + kSteps));
    must(first->append(random_tokens(n, vocab, 5), {}));
    for (const size_t at_once : {1, 2, 4, 8, 16, 32}) {
      const std::string title =
          std::to_string(at_once) + " at once, after " + std::to_string(n) + " tokens";
      std::vector<double> ms;
      blend::Status room;
      for (int i = 0; room.is_ok() && i < std::max(2, repeat / 2) + 1; ++i) {
        std::vector<std::unique_ptr<blend::Sequence>> sequences;
        while (room.is_ok() && sequences.size() < at_once) {
          auto fork = first->fork();  // a device copies the rows
          room = fork.status();
          if (room.is_ok()) sequences.push_back(std::move(*fork));
        }
        if (!room.is_ok()) break;
        const auto begin = Clock::now();
        for (const int32_t token : answer) {
          std::vector<blend::Sequence::Append> appends;
          for (const auto& s : sequences) {
            appends.push_back({s.get(), token, {}, nullptr, blend::Status::ok(), {}});
          }
          blend::Sequence::append_each(appends);
          for (const auto& append : appends) must(append.status);
        }
        const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
        if (i > 0) ms.push_back(took.count() / kSteps);
      }
      if (!room.is_ok()) {
        std::printf("%-34s no room: %s\n", title.c_str(), room.message().c_str());
        break;
      }
      const double rate = 1e3 * static_cast<double>(at_once) / median(ms);
      std::printf("%-34s %10.3f %12.1f\n", title.c_str(), median(ms), rate);
      std::fflush(stdout);
      report.add("decode", {{"steps", "together"},
                            {"at_once", at_once},
                            {"tokens", n},
                            {"ms", median(ms)},
                            {"tokens_per_s", rate}});
    }
  }
}

// ---- The kernels alone

class Kernels {
 public:
  Kernels(blend::Backend& backend, const blend::ModelConfig& config, int repeat)
      : b_(backend), c_(config), repeat_(repeat) {}

  void run(const std::vector<uint32_t>& lengths, Report& report) {
    std::printf("\n%-34s %10s %12s\n", "kernel", "ms", "achieved");
    for (const uint32_t n : lengths) {
      report.add("kernels", gemm(n));
      report.add("kernels", attention(n, n, "attention, all rows"));
      report.add("kernels", attention(n * 15 / 100 + 1, n, "attention, 15 % of the rows"));
      report.add("kernels", attention(1, n, "attention, decode"));
      for (const uint32_t rows : {8u, 16u}) report.add("kernels", attention_each(rows, n));
      for (const blend::Codec codec :
           {blend::Codec::none, blend::Codec::int8, blend::Codec::int4}) {
        report.add("kernels", place(n, codec));
      }
    }
  }

 private:
  struct Owned {
    std::unique_ptr<blend::DeviceBuffer> buffer;
    blend::Tensor tensor;
  };
  Owned make(int64_t rows, int64_t cols, int64_t bytes) {
    Owned o{must(b_.allocate(static_cast<size_t>(rows * cols * bytes))), {}};
    o.tensor = {o.buffer->data(), rows, cols, bytes};
    return o;
  }
  // Mean time of a call of `work` in a row of them, ended by a download that waits for all.
  template <typename Work>
  double time_ms(const Work& work) {
    Owned sentinel = make(1, 1, 4);
    float value = 0;
    const auto wait = [&] { must(b_.download(sentinel.tensor, &value)); };
    work();
    wait();
    int n = 3 * repeat_;
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i) work();
    wait();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / n;
  }
  json row(const std::string& name, uint32_t n, double ms, double amount, const char* unit) {
    const double rate = amount / (ms * 1e-3);
    std::printf("%-34s %10.3f %9.2f %s\n", (name + ", " + std::to_string(n) + " tokens").c_str(),
                ms, rate * (unit[0] == 'T' ? 1e-12 : 1e-9), unit);
    std::fflush(stdout);
    return {{"kernel", name}, {"tokens", n}, {"ms", ms}, {"per_s", rate}, {"unit", unit}};
  }
  // Rows of random K | V in every slot of a one-layer cache.
  void fill(blend::KvCache& cache, const blend::RopeTable& rope, uint32_t n) {
    std::vector<std::byte> plane(size_t{n} * c_.kv_dim() * 2);
    blend::test::SplitMix random(5);
    for (size_t i = 0; i + 2 <= plane.size(); i += 2) {
      const uint16_t h = blend::f32_to_bf16(static_cast<float>(random.normal()));
      std::memcpy(plane.data() + i, &h, 2);
    }
    const blend::StoredRun run{plane.data(), plane.data(), blend::DType::bf16, n, 0};
    must(b_.fusion().scatter(cache, 0, rope, {&run, 1}, nullptr, nullptr));
  }
  blend::ModelConfig one_layer() const {
    blend::ModelConfig c = c_;
    c.n_layers = 1;
    return c;
  }

  json gemm(uint32_t n) {
    const auto rows = static_cast<int64_t>(std::min(n, b_.traits().block_rows));
    const int64_t in = c_.d_model, out = int64_t{2} * c_.d_ff;
    const std::vector<uint16_t> zeros(static_cast<size_t>(in * out), 0x3c00);
    blend::TensorView view;
    view.name = "w";
    view.dtype = blend::DType::bf16;
    view.shape = {out, in};
    view.data = reinterpret_cast<const std::byte*>(zeros.data());
    const blend::TensorView* part = &view;
    const auto w = must(b_.load_matrix({&part, 1}, blend::WeightForm::packed));
    const Owned x = make(rows, in, b_.traits().operand_bytes),
                y = make(rows, out, b_.traits().operand_bytes);
    const double ms = time_ms([&] { must(b_.matmul(*w, x.tensor, y.tensor, false)); });
    return row("GEMM gate|up", static_cast<uint32_t>(rows), ms,
               2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out),
               "TFLOP/s");
  }

  // n_rows scattered rows, the last of them last, over n slots; counted: the unmasked part.
  json attention(uint32_t n_rows, uint32_t n, const std::string& name) {
    const auto rope = must(b_.make_rope(c_.rope, n));
    const auto cache = must(b_.make_kv_cache(one_layer(), n));
    fill(*cache, *rope, n);
    std::vector<uint32_t> pos(n_rows);
    double pairs = 0;
    for (uint32_t i = 0; i < n_rows; ++i) {
      pos[i] = static_cast<uint32_t>((uint64_t{i} + 1) * n / n_rows - 1);
      pairs += pos[i] + 1.0;
    }
    const Owned q = make(n_rows, c_.q_dim(), b_.traits().operand_bytes);
    const Owned out = make(n_rows, c_.q_dim(), b_.traits().operand_bytes);
    const double ms =
        time_ms([&] { must(b_.attention(*cache, 0, {}, q.tensor, pos.data(), out.tensor)); });
    return row(name, n, ms, 4.0 * pairs * c_.q_dim(), "TFLOP/s");
  }

  // A row each over n_rows caches of n slots; counted: the bytes of K and V that are read.
  json attention_each(uint32_t n_rows, uint32_t n) {
    const auto rope = must(b_.make_rope(c_.rope, n));
    std::vector<std::unique_ptr<blend::KvCache>> caches;
    std::vector<blend::RowOver> rows;
    for (uint32_t i = 0; i < n_rows; ++i) {
      caches.push_back(must(b_.make_kv_cache(one_layer(), n)));
      fill(*caches.back(), *rope, n);
      rows.push_back({caches.back().get(), i, n - 1});
    }
    const Owned q = make(n_rows, c_.q_dim(), b_.traits().operand_bytes);
    const double ms = time_ms([&] { must(b_.attention_each(0, {}, q.tensor, rows)); });
    return row("attention, " + std::to_string(n_rows) + " decode", n, ms,
               2.0 * n_rows * n * c_.kv_dim() * static_cast<double>(b_.traits().cache_bytes),
               "GB/s");
  }

  // A staged layer from pinned memory into the cache, packed by the store's codec;
  // counted: decoded bytes.
  json place(uint32_t n, blend::Codec codec) {
    const auto rope = must(b_.make_rope(c_.rope, n));
    const auto cache = must(b_.make_kv_cache(one_layer(), n));
    const blend::ChunkShape shape{1, n, c_.kv_dim(), blend::DType::bf16, c_.head_dim};
    std::vector<std::byte> layer(shape.layer_bytes(0), std::byte{0x3c});
    blend::CodecScratch scratch;
    const auto host = must(b_.allocate_host(blend::longest_layer(codec, shape, 0)));
    auto* const at = static_cast<std::byte*>(host->data());
    const size_t bytes = must(blend::encode_layer(codec, shape, 0, layer.data(), at, scratch));
    blend::StoredRun run{at, at + shape.plane_bytes(0), blend::DType::bf16, n, 0};
    if (codec != blend::Codec::none) {
      if (!b_.traits().decodes_packed) return nullptr;
      run.packed = must(blend::check_packed_layer(codec, shape, 0, {at, bytes}, scratch));
      run.v = at + run.packed.k_bytes;
    }
    const double ms = time_ms([&] {
      must(b_.fusion().scatter(*cache, 0, *rope, {&run, 1}, nullptr, nullptr));
    });
    return row(std::string("copy and place a layer, ") + blend::codec_name(codec), n, ms,
               static_cast<double>(shape.layer_bytes(0)), "GB/s");
  }

  blend::Backend& b_;
  const blend::ModelConfig& c_;
  const int repeat_;
};

// Writes the weights, unless a run before has.
void write_weights(const Settings& s, const std::string& path) {
  if (std::filesystem::exists(path)) return;
  blend::test::RandomModelSpec random = blend::bench::shape_of(s.shape, "bf16");
  random.rope_theta = 500000;
  random.context = 40960;  // the longest prompt, and some room
  // Under another name first, as a run may end in the middle.
  blend::test::write_random_model(random, path + ".part");
  std::filesystem::rename(path + ".part", path);
  std::printf("weights in %s\n", path.c_str());
  std::fflush(stdout);
}

int run(const Settings& s) {
  const blend::BackendSpec spec = must(blend::parse_backend(s.backend.c_str()));
  blend::bench::TimedBackend* timed = nullptr;
  const blend::Runtime::MakeBackend make =
      [&](blend::ThreadPool& pool) -> blend::Result<std::unique_ptr<blend::Backend>> {
    BLEND_ASSIGN(auto inner, blend::make_backend(spec, pool, nullptr));
    auto outer = std::make_unique<blend::bench::TimedBackend>(std::move(inner));
    timed = outer.get();
    return std::unique_ptr<blend::Backend>(std::move(outer));
  };
  const auto runtime = must(blend::Runtime::create(s.threads, {}, make, s.device_bytes));
  std::printf("%s, shape %s, bf16 weights; chunks of %u tokens, a question of %u; median of %d\n",
              runtime->backend().name(), s.shape.c_str(), s.chunk_tokens, s.question_tokens,
              s.repeat);
  std::fflush(stdout);
  const blend::test::TempDir dir;
  std::string path = s.model_path;
  if (path.empty()) path = dir.file("model.gguf");
  write_weights(s, path);
  const auto model = must(blend::Model::load(runtime, path, {}, {}));
  Report report(s.json_path, {{"bench", "device"},
                              {"backend", runtime->backend().name()},
                              {"shape", s.shape},
                              {"ttft", json::array()},
                              {"operations", json::array()},
                              {"decode", json::array()},
                              {"kernels", json::array()},
                              {"complete", false}});
  Ttft ttft(s, model);
  ttft.run(dir.file("store"), report);
  ttft.operations(*timed, report);
  decode(model, s.tokens, s.repeat, report);
  decode_together(model, s.tokens, s.repeat, report);
  Kernels(runtime->backend(), model->config(), s.repeat).run(s.tokens, report);
  report.complete();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Time to first token on a CUDA device, and what its kernels reach."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--backend", s.backend, "cuda, cuda:N or cpu")->capture_default_str();
  app.add_option("--tokens", s.tokens, "lengths of prompts, comma-separated")->delimiter(',');
  app.add_option("--ratios", s.ratios, "recompute ratios, comma-separated")->delimiter(',');
  app.add_option("--chunk-tokens", s.chunk_tokens)->capture_default_str();
  app.add_option("--question-tokens", s.question_tokens)->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--device-bytes", s.device_bytes, "of chunks kept in device memory")
      ->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--model", s.model_path,
                 "a GGUF file; written with random weights of the shape if it is not there");
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_flag("--weights-only", s.weights_only, "write the --model file, and stop");
  CLI11_PARSE(app, argc, argv);
  try {
    if (s.weights_only) {
      if (s.model_path.empty()) throw std::runtime_error("--weights-only needs --model");
      write_weights(s, s.model_path);
      return 0;
    }
    return run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_device: %s\n", e.what());
    return 1;
  }
}
