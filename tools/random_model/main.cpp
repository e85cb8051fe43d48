// random_model: writes a model of random weights as GGUF or as a Hugging Face directory, small by
// default, for tests, benchmarks and trying things out: docs/models.md.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "support/hf_writer.h"
#include "support/random_model.h"

namespace {

using blend::test::RandomFamily;
using blend::test::RandomModelSpec;

const char* const kUsage =
    "usage: random_model [options] PATH\n"
    "  --family NAME    what to begin with: one of the families that --list shows (llama2)\n"
    "  --list           prints the families' names\n"
    "  --format gguf|hf a GGUF file, or a Hugging Face directory (gguf)\n"
    "  --layers N  --d-model N  --heads N  --kv-heads N  --head-dim N  --d-ff N  --vocab N\n"
    "  --context N  --window N  --seed N\n"
    "  --experts N  --experts-used N  --expert-d-ff N  --shared-d-ff N  where there are experts\n"
    "  --rotary-dim N  --delta-key-heads N  --delta-heads N  --delta-dim N  of qwen35 and its kin\n"
    "  --attend-every N --ssm-groups N  --ssm-heads N  --ssm-head-dim N  --ssm-state N  of "
    "granite4_h\n"
    "  --dtype f32|f16|bf16|q8_0|q4_k|iq4_xs|...   of the matrices\n"
    "  --tied 0|1       the output is the embedding\n";

bool set_dtype(const std::string& name, RandomModelSpec& spec) {
  spec.blocks.clear();
  for (const auto type : {blend::DType::f32, blend::DType::f16, blend::DType::bf16}) {
    if (name != blend::dtype_name(type)) continue;
    spec.dtype = type;
    return true;
  }
  for (int i = 1; i < blend::kBlockTypes; ++i) {
    const auto type = static_cast<blend::BlockType>(i);
    if (name != blend::block_type_name(type)) continue;
    spec.blocks = {type};
    return true;
  }
  return false;
}

bool set_family(const std::string& name, RandomModelSpec& spec) {
  for (const RandomFamily& family : blend::test::random_families()) {
    if (family.name != name) continue;
    spec = family.spec;
    return true;
  }
  return false;
}

int usage(const std::string& what) {
  std::fprintf(stderr, "random_model: %s\n%s", what.c_str(), kUsage);
  return 2;
}

int run(int argc, char** argv) {
  RandomModelSpec spec;
  (void)set_family("llama2", spec);
  const std::map<std::string, uint32_t*> numbers = {
      {"--layers", &spec.n_layers},
      {"--d-model", &spec.d_model},
      {"--heads", &spec.n_heads},
      {"--kv-heads", &spec.n_kv_heads},
      {"--head-dim", &spec.head_dim},
      {"--d-ff", &spec.d_ff},
      {"--vocab", &spec.n_vocab},
      {"--context", &spec.context},
      {"--window", &spec.window},
      {"--experts", &spec.n_experts},
      {"--experts-used", &spec.n_used},
      {"--expert-d-ff", &spec.expert_d_ff},
      {"--shared-d-ff", &spec.shared_d_ff},
      {"--rotary-dim", &spec.rotary_dim},
      {"--delta-key-heads", &spec.delta_k_heads},
      {"--delta-heads", &spec.delta_v_heads},
      {"--delta-dim", &spec.delta_dim},
      {"--attend-every", &spec.attend_every},
      {"--ssm-groups", &spec.ssm_groups},
      {"--ssm-heads", &spec.ssm_heads},
      {"--ssm-head-dim", &spec.ssm_head_dim},
      {"--ssm-state", &spec.ssm_state},
  };
  std::string path;
  bool directory = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help") return std::fputs(kUsage, stdout) < 0 ? 1 : 0;
    if (option == "--list") {
      for (const RandomFamily& f : blend::test::random_families()) std::puts(f.name.c_str());
      return 0;
    }
    if (!option.starts_with("--")) {
      if (!path.empty()) return usage("more than one path");
      path = option;
      continue;
    }
    if (++i == argc) return usage(option + " needs a value");
    const std::string value = argv[i];
    if (option == "--family") {
      // Other options stand for themselves wherever they are, so this one must come first.
      if (i != 2) return usage("--family must come first");
      if (!set_family(value, spec)) return usage("no family '" + value + "'; see --list");
    } else if (option == "--dtype") {
      if (!set_dtype(value, spec)) return usage("no dtype '" + value + "'");
    } else if (const auto number = numbers.find(option); number != numbers.end()) {
      char* end = nullptr;
      const unsigned long parsed = std::strtoul(value.c_str(), &end, 10);
      if (end == value.c_str() || *end != '\0' || parsed > 1u << 28) {
        return usage(option + ": '" + value + "' is no number that makes sense");
      }
      *number->second = static_cast<uint32_t>(parsed);
    } else if (option == "--format") {
      if (value != "gguf" && value != "hf") return usage("no format '" + value + "'");
      directory = value == "hf";
    } else if (option == "--seed") {
      spec.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (option == "--tied") {
      spec.tied = value == "1";
    } else {
      return usage("no option '" + option + "'");
    }
  }
  if (path.empty()) return usage("no path");
  for (const auto& [name, value] : numbers) {
    // Of some families alone, or 0 has a meaning.
    const bool may_be_none = name == "--window" || name == "--rotary-dim" ||
                             name.starts_with("--expert") || name == "--shared-d-ff" ||
                             name.starts_with("--delta") || name.starts_with("--ssm");
    if (*value == 0 && !may_be_none) return usage(name + " must not be 0");
  }
  if (directory) {
    blend::test::write_random_hf(spec, path);
  } else {
    blend::test::write_random_model(spec, path);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "random_model: %s\n", e.what());
    return 1;
  }
}
