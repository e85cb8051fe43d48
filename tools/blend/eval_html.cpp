#include "eval_html.h"

#include <algorithm>
#include <utility>

#include "choices.h"
#include "eval_html_chart.h"
#include "eval_html_rows.h"
#include "eval_html_style.h"
#include "eval_html_text.h"
#include "table.h"

namespace blend_cli {
namespace {

// What of a row a metric looks at.
const char* deviating(uint32_t metric) {
  switch (metric & BLEND_METRIC_KV) {
    case BLEND_METRIC_K:
      return "K";
    case BLEND_METRIC_V:
      return "V";
    default:
      return "K and V";
  }
}

constexpr size_t kPrompts = 3;       // drawn row by row
constexpr size_t kDifferences = 60;  // questions in the table of answers

std::string percent(double share) { return format("%.1f", 100 * share); }

std::string element(const char* name, const std::string& inside, const char* classes = nullptr) {
  const std::string attribute = classes == nullptr ? "" : " class=\"" + std::string(classes) + "\"";
  return "<" + std::string(name) + attribute + ">" + inside + "</" + name + ">";
}

// "hkvd v, 15 %"; the chunk prefix only where the run has several.
std::string long_name(const EvalConfig& config, bool with_prefix) {
  std::string name = config_name(config);
  if (config.chooses()) name += format(", %g %%", 100 * config.ratio);
  if (with_prefix && config.policy != BLEND_POLICY_FULL) name += ", prefix " + config.chunk_prefix;
  return name;
}

template <typename T>
size_t place_in(std::vector<T>& values, const T& value) {
  const auto it = std::find(values.begin(), values.end(), value);
  if (it != values.end()) return static_cast<size_t>(it - values.begin());
  values.push_back(value);
  return values.size() - 1;
}

// One line of the charts: a policy and metric with a chunk prefix, over the ratios.
struct Line {
  ChartSeries series;  // without points
  std::vector<const Summary*> summaries;
};

class Page {
 public:
  Page(const EvalContext& context, const EvalPlan& plan, const std::vector<Record>& records,
       const EvalResult& result, const EvalSummary& summary, const PieceFn& piece)
      : context_(context),
        plan_(plan),
        records_(records),
        result_(result),
        summary_(summary),
        piece_(piece) {
    std::vector<std::string> prefixes;
    for (const EvalConfig& config : plan.configs) {
      if (config.policy != BLEND_POLICY_FULL) place_in(prefixes, config.chunk_prefix);
    }
    several_prefixes_ = prefixes.size() > 1;
    make_lines();
  }

  std::string str() const {
    return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
           html_text("blend eval: " + title()) + "</title>\n<style>" + kEvalStyle +
           "</style>\n</head>\n<body>\n" + heading() + tiles() + charts() + table() + groups() +
           prompts() + differences() + method() + "</body>\n</html>\n";
  }

 private:
  std::string title() const {
    return context_.model_name.empty() ? context_.model_path : context_.model_name;
  }
  const EvalConfig* showcase() const {
    return plan_.showcase < plan_.configs.size() ? &plan_.configs[plan_.showcase] : nullptr;
  }
  // Full reuse with the showcase's chunk prefix, or any.
  size_t reuse() const {
    size_t found = plan_.configs.size();
    for (size_t i = 0; i < plan_.configs.size(); ++i) {
      const EvalConfig& config = plan_.configs[i];
      if (config.policy != BLEND_POLICY_REUSE) continue;
      if (found == plan_.configs.size()) found = i;
      if (showcase() != nullptr && config.chunk_prefix == showcase()->chunk_prefix) return i;
    }
    return found;
  }

  void make_lines() {
    std::vector<std::string> names;
    std::vector<std::string> prefixes;
    std::vector<std::pair<std::string, std::string>> keys;
    for (const Summary& s : summary_.configs) {
      if (!s.config.chooses()) continue;
      const std::string name = config_name(s.config);
      const size_t line = place_in(keys, std::make_pair(name, s.config.chunk_prefix));
      if (line == lines_.size()) {
        Line fresh;
        fresh.series.name = several_prefixes_ ? name + ", prefix " + s.config.chunk_prefix : name;
        fresh.series.colour = place_in(names, name);
        fresh.series.dash = place_in(prefixes, s.config.chunk_prefix);
        lines_.push_back(std::move(fresh));
      }
      lines_[line].summaries.push_back(&s);
    }
    for (const Summary& s : summary_.configs) {
      if (s.config.policy != BLEND_POLICY_REUSE) continue;
      // Ratio 0 of every line with the same chunk prefix, and a marker of its own.
      for (size_t i = 0; i < keys.size(); ++i) {
        std::vector<const Summary*>& line = lines_[i].summaries;
        if (keys[i].second == s.config.chunk_prefix && line.front()->config.ratio > 0) {
          line.insert(line.begin(), &s);
        }
      }
      Line own;
      own.series.name =
          several_prefixes_ ? "full reuse, prefix " + s.config.chunk_prefix : "full reuse";
      own.series.colour = kChartColours - 1 - place_in(prefixes, s.config.chunk_prefix) % 2;
      own.series.square = true;
      own.summaries = {&s};
      lines_.push_back(std::move(own));
    }
  }

  std::string heading() const {
    std::string line = format("%zu questions of ", result_.questions.size());
    line += context_.data_path;
    if (!result_.skipped.empty()) {
      line += format(", %zu more skipped: longer than the model's context", result_.skipped.size());
    }
    return element("h1", html_text(title())) +
           element("p",
                   html_text("Answers from fused KV caches against full prefill. " + line + "."),
                   "soft");
  }

  static std::string tile(const std::string& value, const std::string& label) {
    return "<div class=\"tile\"><b>" + html_text(value) + "</b><span>" + html_text(label) +
           "</span></div>";
  }

  std::string tiles() const {
    std::string out = tile(percent(summary_.full.exact_match) + " %", "exact match, full prefill");
    if (reuse() < summary_.configs.size()) {
      out += tile(percent(summary_.configs[reuse()].exact_match) + " %", "exact match, full reuse");
    }
    if (showcase() != nullptr) {
      const Summary& s = summary_.configs[plan_.showcase];
      const std::string name = long_name(s.config, several_prefixes_);
      out += tile(percent(s.exact_match) + " %", "exact match, " + name);
      if (s.has_recovered) {
        out += tile(percent(s.recovered) + " %", "of what reuse loses is recovered");
      }
      if (s.ttft_relative > 0) {
        out += tile(format("%.2f\xC3\x97", 1 / s.ttft_relative), "faster to the first token");
      }
      out += tile(percent(s.flops_relative) + " %", "of full prefill's operations");
    }
    return "<div class=\"tiles\">" + out + "</div>\n";
  }

  template <typename Fill>
  Chart chart_of(const char* name, const char* x_label, const char* y_label, Fill fill) const {
    Chart chart;
    chart.title = name;
    chart.x_label = x_label;
    chart.y_label = y_label;
    for (const Line& line : lines_) {
      ChartSeries series = line.series;
      for (const Summary* s : line.summaries) {
        // The line begins at reuse's point; its bar stands once, at its own marker.
        const bool borrowed = !series.square && s->config.policy == BLEND_POLICY_REUSE;
        ChartPoint point = fill(*s);
        point.has_bar = point.has_bar && !borrowed;
        point.hidden = borrowed;
        series.points.push_back(point);
      }
      chart.series.push_back(std::move(series));
    }
    return chart;
  }

  std::string charts() const {
    if (lines_.empty()) return {};
    const auto ratio = [](const Summary& s) { return 100 * s.config.ratio; };
    const char* const kRatio = "recomputed share of the reused rows, %";
    const auto match = [](const Summary& s, double x) {
      return ChartPoint{x, 100 * s.exact_match, true, 100 * s.exact_match_ci.low,
                        100 * s.exact_match_ci.high};
    };
    const Summary& full = summary_.full;

    Chart accuracy = chart_of("Exact match", kRatio, "exact match, %",
                              [&](const Summary& s) { return match(s, ratio(s)); });
    accuracy.references.push_back({"full prefill", 100 * full.exact_match});
    accuracy.y_most = 100;
    Chart kl = chart_of("Distance of the first token's distribution", kRatio,
                        "KL(full || policy), nats, mean", [&](const Summary& s) {
                          return ChartPoint{ratio(s), s.kl_mean, true, s.kl_ci.low, s.kl_ci.high};
                        });
    kl.log_y = true;
    Chart ttft =
        chart_of("Time to the first token", kRatio, "TTFT, ms, median", [&](const Summary& s) {
          return ChartPoint{ratio(s), s.ttft_ms_median, false, 0, 0};
        });
    ttft.y_from_zero = true;
    ttft.references.push_back({"full prefill", full.ttft_ms_median});
    Chart trade =
        chart_of("Accuracy for time", "TTFT, ms, median", "exact match, %", [&](const Summary& s) {
          ChartPoint point = match(s, s.ttft_ms_median);
          point.has_bar = false;
          return point;
        });
    trade.y_most = 100;
    ChartSeries reference;
    reference.name = "full prefill";
    reference.colour = kChartColours - 3;
    reference.square = true;
    ChartPoint at = match(full, full.ttft_ms_median);
    at.has_bar = false;
    reference.points = {at};
    trade.series.push_back(reference);

    std::string legend;
    for (const Line& line : lines_) {
      legend += "<span>" + legend_key_svg(line.series) + html_text(line.series.name) + "</span>";
    }
    legend += "<span>" + legend_key_svg(reference) + "full prefill (dotted line)</span>";
    std::string out =
        "<h2>Accuracy, distance and time against the recomputed share</h2>\n"
        "<p class=\"soft\">Ratio 0 is full reuse. Bars: 95 % confidence of the mean "
        "over the questions (bootstrap). Times are of a warm store, loading "
        "included.</p>\n<div class=\"legend\">" +
        legend + "</div>\n<div class=\"charts\">";
    for (const Chart* chart : {&accuracy, &kl, &ttft, &trade}) {
      out += "<div>" + chart_svg(*chart) + "</div>\n";
    }
    return out + "</div>\n";
  }

  std::string table_row(const Summary& s) const {
    const bool full = s.config.policy == BLEND_POLICY_FULL;
    const bool chooses = s.config.chooses();
    const std::vector<std::string> numbers = {
        chooses ? format("%g", 100 * s.config.ratio) : "",
        percent(s.exact_match),
        percent(s.exact_match_ci.low) + "\xE2\x80\x93" + percent(s.exact_match_ci.high),
        s.has_recovered ? percent(s.recovered) : "",
        percent(s.f1),
        kl_text(s.kl_mean),
        kl_text(s.kl_median),
        kl_text(s.kl_p95),
        percent(s.top1_agreement),
        percent(s.answer_agreement),
        full ? "" : percent(s.rows_of_reused),
        percent(s.rows_of_all),
        percent(s.flops_relative),
        format("%.2f", s.ttft_ms_median),
        s.ttft_relative > 0 ? format("%.2f", 1 / s.ttft_relative) : ""};
    std::string out = element("td", html_text(config_name(s.config)), "w nb");
    if (several_prefixes_) out += element("td", full ? "" : html_text(s.config.chunk_prefix), "w");
    for (const std::string& number : numbers) out += element("td", number, "nb");
    return element("tr", out) + "\n";
  }

  std::string table() const {
    std::string head = element("th", "Policy", "w");
    if (several_prefixes_) head += element("th", "Chunk prefix", "w");
    for (const char* name :
         {"Ratio %", "Exact match %", "95 % conf.", "Recov&shy;ered %", "F1 %", "KL mean",
          "KL median", "KL p95", "Top-1 %", "Same answer %", "Rows, of reused %", "Rows, of all %",
          "FLOPs %", "TTFT ms", "Speed-up"}) {
      head += element("th", name);
    }
    std::string body = table_row(summary_.full);
    for (const Summary& s : summary_.configs) {
      if (s.config.policy != BLEND_POLICY_FULL || plan_.repeats > 1) body += table_row(s);
    }
    return "<h2>All figures</h2>\n<div class=\"scroll\"><table><thead>" + element("tr", head) +
           "</thead><tbody>" + body + "</tbody></table></div>\n";
  }

  std::string groups() const {
    if (summary_.groups.empty()) return {};
    std::string head = element("th", "Policy", "w");
    std::string body = element("td", "full", "w nb");
    for (const EvalSummary::Group& group : summary_.groups) {
      head += element("th", html_text(group.name) + format("<br>%zu questions", group.n));
      body += element("td", percent(group.full), "nb");
    }
    body = element("tr", body);
    for (size_t i = 0; i < summary_.configs.size(); ++i) {
      const EvalConfig& config = summary_.configs[i].config;
      if (config.policy == BLEND_POLICY_FULL) continue;
      std::string row = element("td", html_text(long_name(config, several_prefixes_)), "w nb");
      for (const EvalSummary::Group& group : summary_.groups) {
        row += element("td", percent(group.configs[i]), "nb");
      }
      body += element("tr", row) + "\n";
    }
    return "<h2>Exact match, %, by " + html_text(context_.group_by) +
           "</h2>\n<div class=\"scroll\"><table><thead>" + element("tr", head) + "</thead><tbody>" +
           body + "</tbody></table></div>\n";
  }

  // The telling ones first: that is what a reader wants to see.
  std::vector<const QuestionResult*> drawn() const {
    std::vector<const QuestionResult*> out;
    for (const bool telling : {true, false}) {
      for (const QuestionResult& question : result_.questions) {
        const bool fits = question.telling == telling && question.trace.n_rows > 0;
        if (fits && out.size() < kPrompts) out.push_back(&question);
      }
    }
    return out;
  }

  std::string answers_line(const QuestionResult& question) const {
    const auto one = [](const std::string& name, const Outcome& outcome) {
      return html_text(name) + ": <b class=\"" + (outcome.exact_match ? "ok" : "no") + "\">" +
             answer_html(outcome) + "</b>";
    };
    std::string out = one("full prefill", question.full);
    if (reuse() < question.outcomes.size()) {
      out += " &middot; " + one("full reuse", question.outcomes[reuse()]);
    }
    return out + " &middot; " +
           one(long_name(*showcase(), false), question.outcomes[plan_.showcase]);
  }

  std::string prompts() const {
    const std::vector<const QuestionResult*> questions = drawn();
    if (questions.empty() || showcase() == nullptr) return {};
    std::string out =
        "<h2>Which rows deviate, and which are recomputed</h2>\n<p class=\"soft\">" +
        html_text(long_name(*showcase(), several_prefixes_)) +
        format(
            ". Heat: the root of a row's deviation at layer %u, its fresh %s against the stored "
            "one. Framed: the selected rows, computed at every layer.</p>\n",
            showcase()->check_layer, deviating(showcase()->metric)) +
        "<div class=\"legend\"><span><i class=\"swatch ramp\"></i>low to high deviation</span>";
    for (const auto& [colour, name] :
         {std::pair("full", "computed"), std::pair("kv", "only K and V computed"),
          std::pair("stored", "taken from the store")}) {
      out += std::string("<span><i class=\"swatch\" style=\"background:var(--") + colour +
             ")\"></i>" + name + "</span>";
    }
    out += "</div>\n";
    for (const QuestionResult* question : questions) {
      std::vector<std::string> pieces;
      for (const int32_t token : question->tokens) pieces.push_back(piece_(token));
      const Record& record = records_[question->record];
      out += "<h3>" + html_text(record.question) + "</h3>\n<p class=\"wide\">" +
             answers_line(*question) + "</p>\n<div class=\"card\">" + rows_svg(question->trace) +
             "</div>\n" + "<p class=\"soft\"></p>" + token_strip_html(question->trace, pieces) +
             "\n";
    }
    return out;
  }

  static std::string answer_html(const Outcome& outcome) {
    return outcome.answer.empty() ? "(nothing)" : html_text(outcome.answer);
  }

  std::string differences() const {
    if (reuse() >= plan_.configs.size()) return {};
    size_t n_differ = 0;
    std::string body;
    for (const QuestionResult& question : result_.questions) {
      const Outcome& reused = question.outcomes[reuse()];
      if (reused.same_answer || ++n_differ > kDifferences) continue;
      const Record& record = records_[question.record];
      std::string chunks;
      for (const std::string& chunk : record.chunks) chunks += element("li", html_text(chunk));
      std::string expected;
      for (const std::string& answer : record.answers) {
        expected += (expected.empty() ? "" : "<br>") + html_text(answer);
      }
      const auto cell = [](const Outcome& outcome) {
        return element("td", answer_html(outcome), outcome.exact_match ? "ok" : "no");
      };
      body += "<tr><td>" + html_text(record.question) +
              format("<details><summary>%zu chunks</summary><ol>", record.chunks.size()) + chunks +
              "</ol></details></td>" + element("td", expected) + cell(question.full) +
              cell(reused) +
              (showcase() != nullptr ? cell(question.outcomes[plan_.showcase]) : "") + "</tr>\n";
    }
    std::string out = "<h2>Where full reuse answers otherwise than full prefill</h2>\n";
    if (n_differ == 0) return out + "<p>Nowhere: every answer is the same.</p>\n";
    std::string head = "<th>Question</th><th>Expected</th><th>Full prefill</th><th>Full reuse</th>";
    if (showcase() != nullptr) head += element("th", html_text(long_name(*showcase(), false)));
    out += format("<p class=\"soft\">%zu of %zu questions%s. Green is an exact match.</p>\n",
                  n_differ, result_.questions.size(),
                  n_differ > kDifferences ? format("; the first %zu", kDifferences).c_str() : "");
    return out + "<div class=\"scroll\"><table class=\"answers\"><thead>" + element("tr", head) +
           "</thead><tbody>" + body + "</tbody></table></div>\n";
  }

  std::string method() const {
    std::string rows;
    const auto row = [&](const char* name, const std::string& value) {
      rows += element("dt", name) + element("dd", html_text(value));
    };
    row("Model", format("%s: %u layers, %llu parameters", context_.model_path.c_str(),
                        context_.model.n_layers,
                        static_cast<unsigned long long>(context_.model.n_parameters)));
    row("Data",
        context_.data_path + (context_.shuffled
                                  ? format(", chunks shuffled with seed %llu",
                                           static_cast<unsigned long long>(context_.shuffle_seed))
                                  : ""));
    row("Library", blend_version());
    std::string weights = "kept " + name_of(weights_choices(), context_.model.weights);
    if (!context_.reference_weights.empty()) {
      weights += "; full prefill as reference: " + context_.reference_weights;
    }
    row("Weights", weights);
    row("KV cache", context_.cache_dtype);
    row("Stored as", context_.kv_dtype + ", codec " + context_.codec);
    row("Exact match, F1",
        "answers in lower case, without punctuation and articles, white space "
        "folded; the best over a question's answers");
    row("Recovered", "(exact match - full reuse's) / (full prefill's - full reuse's)");
    row("KL, top-1",
        "of the distribution of the first answer token, full prefill's as reference; "
        "KL in nats");
    row("Rows",
        "selected rows, of the rows of reused chunks; selected and always computed rows, "
        "of all rows");
    row("FLOPs",
        "own count of the prefill: per layer, rows times matrices and attention pairs; "
        "a multiply-add is two; of full prefill's");
    row("TTFT",
        format("the whole fuse call on a warm store, loading included; median over the "
               "questions%s",
               plan_.repeats > 1 ? format(" of medians of %zu runs", plan_.repeats).c_str() : ""));
    rows += element("dt", "Command") + element("dd", element("code", html_text(context_.command)));
    return "<h2>How it was measured</h2>\n<dl>" + rows + "</dl>\n";
  }

  const EvalContext& context_;
  const EvalPlan& plan_;
  const std::vector<Record>& records_;
  const EvalResult& result_;
  const EvalSummary& summary_;
  const PieceFn& piece_;
  bool several_prefixes_ = false;
  std::vector<Line> lines_;
};

}  // namespace

std::string eval_html(const EvalContext& context, const EvalPlan& plan,
                      const std::vector<Record>& records, const EvalResult& result,
                      const EvalSummary& summary, const PieceFn& piece) {
  return Page(context, plan, records, result, summary, piece).str();
}

}  // namespace blend_cli
