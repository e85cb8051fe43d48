// Metrics of answers, and the statistics that a table of them needs. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace blend_cli {

// As SQuAD's scorer does (Rajpurkar et al., 2016): lower case, then ASCII punctuation and the
// articles a, an, the removed, then white space folded. Lower case covers ASCII, Latin-1, Greek and
// Cyrillic letters.
std::string normalised_answer(std::string_view text);

// Equal to one of the answers, both normalised.
bool exact_match(std::string_view prediction, const std::vector<std::string>& answers);
// Whether one of the answers is in the prediction, both normalised: it begins where a word begins,
// and where it ends with a digit its number ends too. An empty normalised answer is never found.
bool answer_found(std::string_view prediction, const std::vector<std::string>& answers);
// The best F1 over the answers of the words that prediction and answer share; 1 when both are empty
// after normalisation, 0 when only one is.
double token_f1(std::string_view prediction, const std::vector<std::string>& answers);

// These return 0 for no values.
double mean(const std::vector<double>& values);
// Linear between the two nearest order statistics; q in [0, 1].
double quantile(std::vector<double> values, double q);

struct Interval {
  double low = 0;
  double high = 0;
};
// 95 % confidence interval of the mean: percentile bootstrap (Efron, 1979) of 2000 resamples. The
// same values and seed give the same interval on every platform.
Interval bootstrap_mean(const std::vector<double>& values, uint64_t seed);
// The same of the mean of a - b, pair by pair; both have the same length.
Interval bootstrap_difference(const std::vector<double>& a, const std::vector<double>& b,
                              uint64_t seed);

// Share of full prefill's gain over a floor that is kept: (score - floor) / (full - floor).
// Nothing where full prefill gains nothing.
std::optional<double> performance_gap_recovered(double score, double floor, double full);

}  // namespace blend_cli
