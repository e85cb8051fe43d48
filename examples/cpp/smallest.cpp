// smallest.cpp - documents and a question in, an answer out: smallest [MODEL.gguf [STORE_DIR]]
#include <blend/blend.hpp>
#include <iostream>

int main(int argc, char** argv) try {
  const blendpp::Context ctx;
  const blendpp::Model model(ctx, argc > 1 ? argv[1] : "examples/models/blend-qa.gguf");
  const blendpp::Store store(ctx, argc > 2 ? argv[2] : "blend-store");
  blendpp::Fusion fusion(
      model, &store, {"Hugo Rask works at the south inn.", "There he guards the square anchor."},
      "What does Hugo Rask guard?");
  fusion.generate({}, [](int32_t, std::string_view text) {
    std::cout << text << std::flush;
    return true;
  });
  std::cout << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
