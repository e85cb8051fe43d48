#include "eval/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace blend_cli {
namespace {

constexpr size_t kResamples = 2000;

bool is_punctuation(unsigned char c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
         (c >= 0x7B && c <= 0x7E);
}

bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Lower case of a letter of two UTF-8 bytes; others are returned unchanged.
uint32_t lower(uint32_t c) {
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 0x20;     // Latin-1
  if (c >= 0x391 && c <= 0x3A9 && c != 0x3A2) return c + 0x20;  // Greek
  if (c >= 0x410 && c <= 0x42F) return c + 0x20;                // Cyrillic
  if (c >= 0x400 && c <= 0x40F) return c + 0x50;                // Cyrillic, extensions
  return c;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool pair = (c & 0xE0u) == 0xC0u && i + 1 < text.size() &&
                      (static_cast<unsigned char>(text[i + 1]) & 0xC0u) == 0x80u;
    if (pair) {
      const uint32_t letter =
          lower((c & 0x1Fu) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3Fu));
      out += static_cast<char>(0xC0u | letter >> 6);
      out += static_cast<char>(0x80u | (letter & 0x3Fu));
    } else {
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : text[i];
    }
  }
  return out;
}

// The words that normalisation leaves.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto close = [&] {
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(word);
    word.clear();
  };
  for (const char c : lower_case(text)) {
    if (is_space(static_cast<unsigned char>(c))) {
      close();
    } else if (!is_punctuation(static_cast<unsigned char>(c))) {
      word += c;
    }
  }
  close();
  return words;
}

double f1_of(const std::vector<std::string>& prediction, const std::vector<std::string>& answer) {
  if (prediction.empty() || answer.empty()) return prediction.empty() && answer.empty() ? 1 : 0;
  std::map<std::string, size_t> left;
  for (const std::string& word : answer) ++left[word];
  size_t shared = 0;
  for (const std::string& word : prediction) {
    const auto it = left.find(word);
    if (it == left.end() || it->second == 0) continue;
    --it->second;
    ++shared;
  }
  // 2PR / (P + R) with P = shared / |prediction|, R = shared / |answer|.
  return 2.0 * static_cast<double>(shared) / static_cast<double>(prediction.size() + answer.size());
}

}  // namespace

std::string normalised_answer(std::string_view text) {
  std::string out;
  for (const std::string& word : words_of(text)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

bool exact_match(std::string_view prediction, const std::vector<std::string>& answers) {
  const std::string given = normalised_answer(prediction);
  return std::any_of(answers.begin(), answers.end(),
                     [&](const std::string& answer) { return normalised_answer(answer) == given; });
}

bool answer_found(std::string_view prediction, const std::vector<std::string>& answers) {
  const std::string given = normalised_answer(prediction);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::any_of(answers.begin(), answers.end(), [&](const std::string& text) {
    const std::string answer = normalised_answer(text);
    if (answer.empty()) return false;
    for (size_t at = given.find(answer); at != std::string::npos; at = given.find(answer, at + 1)) {
      const size_t end = at + answer.size();
      const bool begins = at == 0 || given[at - 1] == ' ';
      if (begins && !(digit(answer.back()) && end < given.size() && digit(given[end]))) return true;
    }
    return false;
  });
}

double token_f1(std::string_view prediction, const std::vector<std::string>& answers) {
  const std::vector<std::string> given = words_of(prediction);
  double best = 0;
  for (const std::string& answer : answers) best = std::max(best, f1_of(given, words_of(answer)));
  return best;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, values.size() - 1);
  const double share = place - static_cast<double>(below);
  return values[below] + share * (values[above] - values[below]);
}

Interval bootstrap_mean(const std::vector<double>& values, uint64_t seed) {
  if (values.empty()) return {};
  std::mt19937_64 engine(seed);
  std::vector<double> means;
  means.reserve(kResamples);
  for (size_t i = 0; i < kResamples; ++i) {
    double sum = 0;
    for (size_t k = 0; k < values.size(); ++k) sum += values[engine() % values.size()];
    means.push_back(sum / static_cast<double>(values.size()));
  }
  return {quantile(means, 0.025), quantile(means, 0.975)};
}

Interval bootstrap_difference(const std::vector<double>& a, const std::vector<double>& b,
                              uint64_t seed) {
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) differences.push_back(a[i] - b[i]);
  return bootstrap_mean(differences, seed);
}

std::optional<double> performance_gap_recovered(double score, double floor, double full) {
  if (full <= floor) return std::nullopt;
  return (score - floor) / (full - floor);
}

}  // namespace blend_cli
