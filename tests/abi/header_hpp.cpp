// blend.hpp stands alone, twice included.
#include "blend/blend.hpp"

int main() {
  blendpp::Prompt prompt;
  prompt.chunk(blendpp::Tokens{1, 2}).question(blendpp::Tokens{3});
  return prompt.size() == 2 ? 0 : 1;
}
