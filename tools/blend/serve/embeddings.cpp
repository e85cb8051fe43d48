#include "embeddings.h"

#include <charconv>
#include <cstring>
#include <numeric>

namespace blend_cli::serve {
namespace {

// Bytes of a number as text with its comma, at most, and of four in base64.
constexpr size_t kNumberBytes = 16;
constexpr size_t kBase64Bytes = 6;

void write_numbers(blendpp::Span<const float> vector, std::string& out) {
  char number[32];
  for (size_t i = 0; i < vector.size(); ++i) {
    out += i == 0 ? '[' : ',';
    const std::to_chars_result end = std::to_chars(number, number + sizeof number, vector[i]);
    out.append(number, end.ptr);
  }
  out += ']';
}

// The bytes of little-endian floats (RFC 4648, section 4).
void write_base64(blendpp::Span<const float> vector, std::string& out) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = 0, n_bits = 0;
  out += '"';
  for (const float value : vector) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    for (int byte = 0; byte < 4; ++byte) {
      bits = bits << 8 | (word >> 8 * byte & 0xff);
      for (n_bits += 8; n_bits >= 6; n_bits -= 6) out += kDigits[bits >> (n_bits - 6) & 63];
      bits &= 0xff;
    }
  }
  if (n_bits > 0) out += kDigits[bits << (6 - n_bits) & 63];
  while ((out.size() - 1) % 4 != 0) out += '=';
  out += '"';
}

void charge(const EmbeddingRequest& request, size_t width, MemoryBudget::Share& share) {
  const size_t each = sizeof(float) + (request.base64 ? kBase64Bytes : kNumberBytes);
  if (share.take(request.size() * width * each)) return;
  throw HttpError(503, "the memory for requests (--request-memory) is taken: send fewer texts");
}

}  // namespace

EmbeddingAnswer embed(const Engine& engine, const EmbeddingRequest& request,
                      MemoryBudget::Share& share, const std::function<bool()>& alive) {
  require_model(engine, request.model);
  const size_t most = engine.model->info().d_model;
  if (request.n_dimensions > most) {
    throw HttpError(400, "'dimensions' is more than the " + std::to_string(most) + " of this model",
                    {}, "dimensions");
  }
  charge(request, request.n_dimensions == 0 ? most : request.n_dimensions, share);
  blendpp::EmbedOptions options;
  options.n_dimensions = request.n_dimensions;
  options.cancel = engine.cancel;
  bool left = false;
  options.on_progress = [&](uint64_t, uint64_t) { return !(left = !alive()); };
  blendpp::Embeddings made;
  try {
    made = request.tokens.empty() ? engine.model->embed(request.texts, options)
                                  : engine.model->embed_tokens(request.tokens, options);
  } catch (const blendpp::Error&) {
    if (left) throw HttpError(kGone, "the client has gone");
    throw;
  }
  EmbeddingAnswer out;
  out.n_tokens = std::accumulate(made.n_tokens.begin(), made.n_tokens.end(), uint64_t{0});
  out.body = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < request.size(); ++i) {
    out.body += i == 0 ? "" : ",";
    out.body += "{\"object\":\"embedding\",\"index\":" + std::to_string(i) + ",\"embedding\":";
    std::string vector;
    (request.base64 ? write_base64 : write_numbers)(made.of(i), vector);
    out.body += vector + "}";
  }
  out.body += "],\"model\":" + dump(engine.name) + ",\"usage\":" +
              dump(Json{{"prompt_tokens", out.n_tokens}, {"total_tokens", out.n_tokens}}) + "}";
  return out;
}

}  // namespace blend_cli::serve
