// Pictures of one prompt's rows: the deviation of each, and which were computed at which layer.
#pragma once

#include <string>
#include <vector>

#include "eval_rows.h"

namespace blend_cli {

// Layers x rows as inline SVG, the deviation as a strip above it, chunks marked below.
std::string rows_svg(const RowTrace& trace);

// The tokens in reading order, one block a segment: a cell of heat above each token's text, the
// selected ones framed. A token that does not begin with a space joins the one before it.
// pieces: [n_rows], the tokens' texts. HTML, so that it flows with the window.
std::string token_strip_html(const RowTrace& trace, const std::vector<std::string>& pieces);

// Each row's heat, 0 .. 1: the root of its deviation over the 99th percentile of those measured.
// The root, as deviations are squares and a few rows outdo the rest by far. [n_rows]
std::vector<double> heat_of(const RowTrace& trace);

}  // namespace blend_cli
