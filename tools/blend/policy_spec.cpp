#include "policy_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "choices.h"
#include "command.h"
#include "fusion/request/policy_registry.h"

namespace blend_cli {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

double number_of(const std::string& text, const std::string& whole) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) {
    throw CommandError(kExitUsage, "'" + whole + "': '" + text + "' is not a number");
  }
  return value;
}

const blend::PolicyEntry& entry_of(uint32_t policy) { return *blend::find_policy(policy); }

bool stands_for(uint32_t policy) { return entry_of(policy).has(blend::policy_table::kStandsFor); }

// A union is what its terms are.
bool policy_chooses(uint32_t policy) { return entry_of(policy).ranks || stands_for(policy); }

bool policy_measures(uint32_t policy) { return entry_of(policy).needs.deviation; }

bool policy_weighs(uint32_t policy) { return entry_of(policy).has(blend::policy_table::kWeighs); }

template <typename Parse>
std::string sentence_of(const Parse& parse) {
  try {
    (void)parse();
    return {};
  } catch (const CommandError& error) {
    return error.what();
  }
}

}  // namespace

bool PolicySpec::chooses() const {
  if (policy != BLEND_POLICY_UNION) return policy_chooses(policy);
  return std::any_of(terms.begin(), terms.end(),
                     [](const blend_policy_term& term) { return policy_chooses(term.policy); });
}

bool PolicySpec::tempers() const {
  return policy == BLEND_POLICY_APE ||
         std::any_of(terms.begin(), terms.end(),
                     [](const blend_policy_term& term) { return term.policy == BLEND_POLICY_APE; });
}

bool PolicySpec::measures() const {
  return policy_measures(policy) ||
         std::any_of(terms.begin(), terms.end(),
                     [](const blend_policy_term& term) { return policy_measures(term.policy); });
}

bool PolicySpec::weighs() const {
  return policy_weighs(policy) ||
         std::any_of(terms.begin(), terms.end(),
                     [](const blend_policy_term& term) { return policy_weighs(term.policy); });
}

bool PolicySpec::cascades() const {
  return policy == BLEND_POLICY_CASCADE ||
         std::any_of(terms.begin(), terms.end(), [](const blend_policy_term& term) {
           return term.policy == BLEND_POLICY_CASCADE;
         });
}

PolicySpec parse_policy(const std::string& text) {
  PolicySpec spec;
  spec.name = text;
  const std::vector<std::string> parts = split(text, '+');
  if (parts.size() == 1) {
    spec.policy = value_of(policy_choices(), text);
    return spec;
  }
  spec.policy = BLEND_POLICY_UNION;
  for (const std::string& part : parts) {
    const size_t colon = part.find(':');
    blend_policy_term term{};
    term.policy = value_of(policy_choices(), part.substr(0, colon));
    term.share = colon == std::string::npos ? 1.0 : number_of(part.substr(colon + 1), text);
    if (stands_for(term.policy)) {
      throw CommandError(kExitUsage, "'" + text + "': " + part + " stands by itself");
    }
    if (!entry_of(term.policy).has(blend::policy_table::kJoins)) {
      throw CommandError(kExitUsage, "'" + text + "': " + part + " chooses no rows to join");
    }
    if (!(term.share > 0)) {
      throw CommandError(kExitUsage, "'" + text + "': a share must be more than 0");
    }
    spec.terms.push_back(term);
  }
  return spec;
}

std::string check_policy(const std::string& text) {
  return sentence_of([&] { return parse_policy(text); });
}

std::string policy_names() {
  std::string names, research;
  for (const auto& [name, policy] : policy_choices()) {
    std::string& list = entry_of(policy).has(blend::policy_table::kResearch) ? research : names;
    list += (list.empty() ? "" : ", ") + name;
  }
  return names + "; for comparison: " + research;
}

ApeSetting parse_ape(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw CommandError(kExitUsage, "'" + text + "' must be TEMPERATURE:SCALE");
  }
  const ApeSetting ape{number_of(text.substr(0, colon), text),
                       number_of(text.substr(colon + 1), text)};
  if (!(ape.temperature > 0 && ape.scale > 0)) {
    throw CommandError(kExitUsage, "'" + text + "': both must be more than 0");
  }
  return ape;
}

std::string check_ape(const std::string& text) {
  return sentence_of([&] { return parse_ape(text); });
}

std::vector<blend_check_layer> parse_check_layers(const std::string& text) {
  std::vector<blend_check_layer> checks;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      throw CommandError(kExitUsage, "'" + part + "' must be LAYER:RATIO");
    }
    const double layer = number_of(part.substr(0, colon), part);
    blend_check_layer check{};
    if (layer < 0 || layer > 65535 || layer != std::floor(layer)) {
      throw CommandError(kExitUsage, "'" + part + "': the layer must be a whole number");
    }
    check.layer = static_cast<uint32_t>(layer);
    check.ratio = number_of(part.substr(colon + 1), part);
    checks.push_back(check);
  }
  return checks;
}

std::string check_check_layers(const std::string& text) {
  return sentence_of([&] { return parse_check_layers(text); });
}

}  // namespace blend_cli
