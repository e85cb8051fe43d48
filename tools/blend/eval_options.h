// What `blend eval` can be asked on its command line, beyond what every subcommand takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval_run.h"

namespace blend_cli {

// Items of a comma-separated list of chunk prefixes. A comma in "text:..." belongs to the text
// unless "none", "bos" or "text:" follows it. Throws CommandError (usage) for anything else.
std::vector<std::string> split_chunk_prefixes(std::string_view list);

// The configurations that lists of choices stand for, in the order of a reader: full prefill, then
// for each chunk prefix full reuse and each metric's ratios, smallest first. Duplicates fall away.
std::vector<EvalConfig> make_configs(const std::vector<std::string>& policies,
                                     const std::vector<std::string>& metrics,
                                     const std::vector<double>& ratios,
                                     const std::vector<std::string>& chunk_prefixes,
                                     uint32_t check_layer);

// The configuration whose rows the report shows: HKVD at the ratio nearest to 15 %, the first of
// the metrics and chunk prefixes. configs.size() if there is none.
size_t showcase_of(const std::vector<EvalConfig>& configs);

// A command line that a shell reads as `arguments`.
std::string shell_command(const std::vector<std::string>& arguments);

}  // namespace blend_cli
