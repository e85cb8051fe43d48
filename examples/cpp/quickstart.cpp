// quickstart.cpp - the main job of libblend in C++17: precompute, fuse, generate.
//
//   quickstart MODEL.gguf STORE_DIR [QUESTION]
//
// As examples/c/quickstart.c, with handles that close themselves and exceptions instead of codes.
#include <blend/blend.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

const std::vector<std::string> kPassages = {
    "Lily had a red ball. She kept it in a box under her bed.",
    "One day, Tom came to play. He put the ball on top of the tree house.",
    "Lily looked in the box. The ball was not there. She was sad.",
};

void run(const std::string& model_path, const std::string& store_path,
         const std::string& question) {
  const blendpp::Context ctx;
  const blendpp::Model model(ctx, model_path);
  const blendpp::Store store(ctx, store_path);

  // A fuse does so by itself, one passage at a time, with those that it does not find; all of them
  // at once serve each other as context.
  blendpp::CorpusOptions corpus;
  corpus.on_record = [](const blend_corpus_record& record) {
    std::printf("%.16s %s\n", blendpp::ChunkId(record.id).hex().c_str(),
                record.existed ? "was there" : "stored");
    return true;  // false would stop
  };
  model.precompute_texts(store, kPassages, {}, corpus);

  blendpp::FuseOptions options;
  options.reserve_tokens = 64;
  blendpp::Fusion fusion(model, &store, kPassages, question, {}, options);

  blendpp::GenerateOptions generate;
  generate.max_tokens = 64;
  fusion.generate(generate, [](int32_t, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return true;  // false would stop the generation
  });
  const blendpp::FusionInfo info = fusion.info();
  std::printf(
      "\n\nfirst token after %.2f ms: %llu rows, %llu from the store, %llu of them recomputed\n",
      static_cast<double>(info.ttft_ns) / 1e6, static_cast<unsigned long long>(info.n_rows),
      static_cast<unsigned long long>(info.n_rows_reused),
      static_cast<unsigned long long>(info.n_rows_selected));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s MODEL.gguf STORE_DIR [QUESTION]\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1], argv[2], argc > 3 ? argv[3] : "Where is the ball?");
    return 0;
  } catch (const blendpp::Error& error) {
    std::fprintf(stderr, "%s (%s)\n", error.what(), error.name());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
