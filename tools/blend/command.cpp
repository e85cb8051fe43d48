#include "command.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "choices.h"
#include "interrupt.h"
#include "key_file.h"
#include "progress.h"
#include "read_file.h"

namespace blend_cli {

int exit_code_of(int32_t code) {
  switch (code) {
    case BLEND_E_INVALID_ARGUMENT:
      return kExitUsage;
    case BLEND_E_NOT_FOUND:
      return kExitNotFound;
    case BLEND_E_FORMAT:
    case BLEND_E_CORRUPT:
      return kExitDamaged;
    case BLEND_E_CANCELLED:
      return kExitCancelled;
    default:
      return kExitError;
  }
}

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_flag("--json", options.json, "Print one JSON object on stdout instead of text");
  app.add_option("--threads", options.threads, "Compute threads; 0 = the CPUs of this process")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--pin-threads", options.pin_threads,
               "Keep each compute thread but the first on a CPU of its own");
  add_backend_option(app, options);
}

void add_backend_option(CLI::App& app, CommonOptions& options) {
  app.add_option(
         "--backend", options.backend,
         "What computes: cpu, cuda (the first GPU), cuda:N, or auto (a GPU if there is one)")
      ->capture_default_str();
  app.add_option("--device-cache", options.device_bytes,
                 "Bytes of GPU memory for chunks that were used, e.g. 8GiB; default none")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  app.add_option("--cache-dtype", options.cache_dtype,
                 "Type of a prompt's K and V while it is answered: auto (f32 on a CPU, "
                 "bf16 on a GPU), f32, f16 (half the memory) or bf16")
      ->check(CLI::IsMember(names_of(kv_choices())))
      ->capture_default_str();
}

blendpp::Context make_context(const CommonOptions& options) {
  return make_context(options, BLEND_LOG_WARNING, print_record);
}

void print_record(const blend_log_record& record) {
  if (record.code >= 0) return;
  print_note(std::string(record.message) + " (" + blend_code_name(record.code) + ")");
}

blendpp::Context make_context(const CommonOptions& options, uint32_t log_level,
                              blendpp::LogFn log) {
  blendpp::ContextOptions context;
  context.n_threads = options.threads;
  if (options.pin_threads) context.flags |= BLEND_CTX_PIN_THREADS;
  context.backend = options.backend.c_str();
  context.device_bytes = options.device_bytes;
  context.cache_dtype = value_of(kv_choices(), options.cache_dtype);
  context.log_level = log_level;
  context.on_log = std::move(log);
  return blendpp::Context(context);
}

void add_store_path(CLI::App& app, StoreOptions& options) {
  app.add_option("--store", options.path, "Directory of the chunk store")
      ->required()
      ->type_name("DIR");
}

void add_store_options(CLI::App& app, StoreOptions& options) {
  add_store_path(app, options);
  app.add_option("--kv-dtype", options.kv_dtype,
                 "Type of K and V in new chunks: auto (bf16 for a bf16 model, else f16), f32, "
                 "f16 or bf16. Part of a chunk's id")
      ->check(CLI::IsMember(names_of(kv_choices())))
      ->capture_default_str();
  add_codec(app, options);
  app.add_option("--read-mode", options.read_mode,
                 "How layers are read: auto (the first that works here), io_uring, threads, mapped")
      ->check(CLI::IsMember(names_of(read_choices())))
      ->capture_default_str();
  app.add_option("--quota", options.quota_bytes,
                 "Bytes of chunks the store may hold, e.g. 8GiB; default 16 GiB")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  app.add_option(
         "--eviction", options.eviction,
         "Which chunk is evicted when the quota is full: lru, fifo, reuse, or never (a full store "
         "is then an error)")
      ->check(CLI::IsMember({"lru", "fifo", "reuse", "never"}))
      ->capture_default_str();
  app.add_option("--most-variants", options.most_variants,
                 "Copies of one text with different prefixes that the store keeps besides the "
                 "one with the shortest prefix, or all; the least useful is evicted. Default 16")
      ->check([](const std::string& text) {
        const bool whole = text.find_first_not_of("0123456789") == std::string::npos;
        return whole && text.find_first_not_of('0') != std::string::npos
                   ? std::string()
                   : "'" + text + "' is neither a whole number from 1 on nor all";
      })
      ->transform(CLI::Transformer(std::map<std::string, uint64_t>{{"all", UINT64_MAX}}))
      ->type_name("N");
  app.add_option("--ram", options.ram_bytes,
                 "Bytes of chunks kept in this process's memory, e.g. 512MiB; default none")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  add_remote(app, options.remote);
}

void add_remote(CLI::App& app, RemoteChoice& remote) {
  app.add_option("--remote", remote.url,
                 "A Valkey or Redis that several machines share: redis://HOST:PORT, rediss:// with "
                 "TLS, redis+cluster://. User, password and seal key: BLEND_REMOTE_USER, _PASSWORD "
                 "and _SEAL_KEY of the environment")
      ->type_name("URL");
  app.add_option("--remote-space", remote.space,
                 "First part of every key on the server; default blend")
      ->type_name("NAME");
  app.add_option("--remote-ca", remote.ca, "Certificates (PEM) to check the server's with")
      ->type_name("FILE");
  app.add_option("--remote-cert", remote.certificate, "This client's certificate (PEM)")
      ->type_name("FILE");
  app.add_option("--remote-key", remote.key, "The certificate's key (PEM)")->type_name("FILE");
}

namespace {

// Opening a model or store ends by itself soon after a signal, unless it waits for a mount or a
// server that does not answer.
template <typename T, typename Open>
T opened(const Open& open) {
  constexpr auto kPatience = std::chrono::seconds(5);
  std::optional<T> result;
  interruptibly([&] { result.emplace(open()); }, kPatience);
  return std::move(*result);
}

void set_remote(blendpp::StoreOptions& store, const RemoteChoice& remote) {
  if (remote.url.empty()) return;
  note_open_key_file(remote.key);
  store.remote.url = remote.url.c_str();
  store.remote.space = remote.space.c_str();
  store.remote.ca = remote.ca.c_str();
  store.remote.certificate = remote.certificate.c_str();
  store.remote.key = remote.key.c_str();
}

}  // namespace

void add_codec(CLI::App& app, StoreOptions& options) {
  app.add_option("--codec", options.codec,
                 "Encoding of new chunks: " + codec_names() +
                     "; see docs/quality.md. Not part of a chunk's id")
      ->check(CLI::IsMember(names_of(codec_choices())))
      ->capture_default_str();
  app.add_option("--codec-step", options.codec_step,
                 "Multiplier on rans's quantization scale; smaller is more precise and larger")
      ->check(CLI::Range(0.0625, 16.0))
      ->capture_default_str();
}

blendpp::Store open_store(const blendpp::Context& ctx, const StoreOptions& options) {
  blendpp::StoreOptions store;
  store.kv_dtype = value_of(kv_choices(), options.kv_dtype);
  store.codec = value_of(codec_choices(), options.codec);
  store.codec_step = options.codec_step;
  store.read_mode = value_of(read_choices(), options.read_mode);
  if (options.quota_bytes != 0) store.quota_bytes = options.quota_bytes;
  static const std::unordered_map<std::string, uint32_t> kEvictions = {
      {"lru", BLEND_EVICT_LRU},
      {"fifo", BLEND_EVICT_FIFO},
      {"reuse", BLEND_EVICT_REUSE},
      {"never", BLEND_EVICT_NEVER}};
  store.eviction = kEvictions.at(options.eviction);
  store.most_variants = options.most_variants;
  store.ram_bytes = options.ram_bytes;
  if (!options.checks) store.check_every = UINT32_MAX;
  set_remote(store, options.remote);
  return opened<blendpp::Store>([&] { return blendpp::Store(ctx, options.path, store); });
}

blendpp::Store open_existing_store(const blendpp::Context& ctx, const std::string& path,
                                   bool read_only, const RemoteChoice& remote) {
  blendpp::StoreOptions store;
  set_remote(store, remote);
  store.check_every = UINT32_MAX;
  store.most_variants = UINT64_MAX;  // imports keep all that the other store had
  store.flags = BLEND_STORE_NO_CREATE | (read_only ? BLEND_STORE_READ_ONLY : 0u);
  return opened<blendpp::Store>([&] { return blendpp::Store(ctx, path, store); });
}

void wait_for_uploads(const blendpp::Store& store) {
  std::tuple<uint64_t, uint64_t, uint64_t> before;
  for (blendpp::RemoteStat s = store.remote_stat(); s.queued > 0 && !interrupted();) {
    store.flush();  // for a while
    s = store.remote_stat();
    const std::tuple now{s.queued, s.written_bytes, s.existing};
    if (std::exchange(before, now) == now) return;
  }
}

namespace {

// FILE or FILE:SCALE; a file whose name ends like that is given with its scale.
blendpp::Lora lora_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return {text};
  const char* const begin = text.c_str() + colon + 1;
  char* end = nullptr;
  const double scale = std::strtod(begin, &end);
  if (*end != '\0') return {text};
  if (!std::isfinite(scale) || scale == 0) {
    throw CLI::ValidationError("--lora", "'" + text + "': the scale is a number other than 0");
  }
  return {text.substr(0, colon), scale};
}

}  // namespace

void add_model(CLI::App& app, ModelChoice& model) {
  app.add_option("--model", model.path, "GGUF file or Hugging Face directory of the model")
      ->required()
      ->type_name("FILE");
  app.add_option_function<std::vector<std::string>>(
         "--lora",
         [&model](const std::vector<std::string>& given) {
           model.loras.clear();
           for (const std::string& one : given) model.loras.push_back(lora_of(one));
         },
         "LoRA adapter that is added to the model: GGUF file or PEFT directory; :SCALE after it "
         "multiplies what it adds. Several add up")
      ->allow_extra_args(false)
      ->type_name("FILE[:SCALE]");
  app.add_option("--weights", model.weights,
                 "How weights are kept: packed (a copy, the fastest), mapped (as the file has "
                 "them, decoded as they are used), int8 (8 bits, activations too: faster, not "
                 "quite the same answers), or auto: mapped for a quantized file, else packed")
      ->check(CLI::IsMember(names_of(weights_choices())))
      ->capture_default_str();
}

blendpp::Model open_model(const blendpp::Context& ctx, const ModelChoice& model) {
  return opened<blendpp::Model>([&] {
    ProgressBar bar("Reading the model");
    blendpp::ModelOptions options;
    options.on_progress = bar.callback();
    options.cancel = interrupt_token();
    options.weights = value_of(weights_choices(), model.weights);
    options.loras = model.loras;
    return blendpp::Model(ctx, model.path, options);
  });
}

}  // namespace blend_cli
