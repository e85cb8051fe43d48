// The parts of the page, from what `blend eval --json` writes and, under "page", what only pictures need.
"use strict";

const report = JSON.parse(document.getElementById("report").textContent);
const {full, configs, questions, settings, page} = report;
const reuse = page.reuse === null ? null : configs[page.reuse];
const showcase = page.showcase === null ? null : configs[page.showcase];
const kinds = [...new Set(configs.filter(c => c.policy !== "full").map(c => c.records))];

// The name of the file or folder: what a file says of itself is often a checkpoint's.
function title() {
  const name = report.model.path.replace(/\/+$/, "").replace(/^.*\//, "").replace(/\.gguf$/i, "");
  return /^\.*$/.test(name) ? report.model.name || report.model.path : name;
}

// "hkvd v, 15 %"; the kind of record only where the run has several.
function longName(config, withKind = kinds.length > 1) {
  let name = config.name;
  if (config.chooses) name += `, ${short(100 * config.ratio)} %`;
  if (withKind && config.policy !== "full") name += ", " + config.records;
  return name;
}

function heading() {
  let text = `Answers from fused KV caches against full prefill. ${questions.length} questions of ` +
    report.data.path;
  if (report.skipped.length > 0) {
    text += `, ${report.skipped.length} more skipped: longer than the model's context`;
  }
  return [html("h1", {}, title()), html("p", {class: "soft"}, text + ".")];
}

function tiles() {
  const out = [[percent(full.found) + " %", "answers found, full prefill"]];
  if (report.floor) out.push([percent(report.floor.found) + " %", "answers found, without any chunk"]);
  const told = page.headline === null ? showcase : configs[page.headline];
  const beside = configs.find(c => c.policy === "reuse" && c.records === told?.records) ?? reuse;
  if (beside) out.push([percent(beside.found) + " %", "answers found, " + longName(beside)]);
  if (told) {
    const name = longName(told) + (page.headline === null ? "" : ", the default policy");
    out.push([percent(told.found) + " %", "answers found, " + name]);
    if (told.pgr !== null) {
      out.push([percent(told.pgr) + " %", "of what full prefill gains is kept"]);
    }
    if (told.ttft_relative > 0) {
      out.push([(1 / told.ttft_relative).toFixed(2) + "\u00d7", "faster to the first token"]);
    }
    out.push([percent(told.flops_relative) + " %", "of full prefill's operations"]);
  }
  return html("div", {class: "tiles"},
    out.map(([value, name]) => html("div", {class: "tile"}, html("b", {}, value), html("span", {}, name))));
}

// One line of the charts a policy and metric with a kind of record, over the ratios: a series without
// points, and the configurations that are its points.
function chartLines() {
  const withKind = (name, config) => kinds.length > 1 ? `${name}, ${config.records}` : name;
  const names = [...new Set(configs.filter(c => c.chooses).map(c => c.name))];
  const lines = new Map();
  for (const config of configs.filter(c => c.chooses)) {
    const key = JSON.stringify([config.name, config.records]);
    if (!lines.has(key)) {
      lines.set(key, {name: withKind(config.name, config), colour: names.indexOf(config.name),
                      dash: kinds.indexOf(config.records), square: false, configs: []});
    }
    lines.get(key).configs.push(config);
  }
  const out = [...lines.values()];
  for (const config of configs.filter(c => c.policy === "reuse")) {
    // Ratio 0 of every line of the same kind of record, and a marker of its own.
    for (const line of lines.values()) {
      const first = line.configs[0];
      if (first.records === config.records && first.ratio > 0) line.configs.unshift(config);
    }
    out.push({name: withKind("full reuse", config), dash: 0, square: true, configs: [config],
              colour: kColours - 1 - kinds.indexOf(config.records) % 2});
  }
  return out;
}

function charts() {
  const lines = chartLines();
  if (lines.length === 0) return [];
  // The line begins at reuse's point; its bar stands once, at its own marker.
  const series = point => lines.map(line => ({
    ...line,
    points: line.configs.map(config => {
      const borrowed = !line.square && config.policy === "reuse";
      const {x, y, bar} = point(config);
      return {x, y, bar: borrowed ? null : bar, hidden: borrowed};
    })}));
  const ratio = config => 100 * config.ratio;
  const hundred = ([low, high]) => [100 * low, 100 * high];
  const reference = {name: "full prefill", colour: kColours - 3, dash: 0, square: true,
                     points: [{x: full.ttft_ms_median, y: 100 * full.found}]};
  const xLabel = "recomputed share of the reused rows, %";
  const all = [
    {title: "Answers found", xLabel, yLabel: "answers found, %", yMost: 100,
     series: series(c => ({x: ratio(c), y: 100 * c.found, bar: hundred(c.found_ci95)})),
     references: [{name: "full prefill", y: 100 * full.found},
                  ...report.floor ? [{name: "no chunks", y: 100 * report.floor.found}] : []]},
    {title: "Distance along full prefill's answer", xLabel,
     yLabel: "KL(full || policy), nats, mean", logY: true,
     series: series(c => ({x: ratio(c), y: c.kl8_mean, bar: c.kl8_mean_ci95})), references: []},
    {title: "The same answer", xLabel, yLabel: "answers identical to full prefill's, %", yMost: 100,
     series: series(c => ({x: ratio(c), y: 100 * c.answer_agreement})), references: []},
    {title: "Time to the first token", xLabel, yLabel: "TTFT, ms, median", yFromZero: true,
     series: series(c => ({x: ratio(c), y: c.ttft_ms_median})),
     references: [{name: "full prefill", y: full.ttft_ms_median}]},
    {title: "Accuracy for time", xLabel: "TTFT, ms, median", yLabel: "answers found, %", yMost: 100,
     series: [...series(c => ({x: c.ttft_ms_median, y: 100 * c.found})), reference],
     references: []}];
  return [
    html("h2", {}, "Accuracy, distance and time against the recomputed share"),
    html("p", {class: "soft"}, "Ratio 0 is full reuse for " +
      "policies that measure nothing; those that do compute the layers up to the check layer for every " +
      "row, and recompute none behind it. Bars: 95 % confidence of the mean over the " +
      "questions (bootstrap). Times are of a warm store, loading included."),
    html("div", {class: "legend"},
      lines.map(line => html("span", {}, legendKey(line), line.name)),
      html("span", {}, legendKey(reference), "full prefill (dotted line)")),
    html("div", {class: "charts"}, all.map(chart => html("div", {}, drawChart(chart))))];
}

function table(classes, head, body) {
  return html("div", {class: "scroll"}, html("table", classes,
    html("thead", {}, html("tr", {}, head)), html("tbody", {}, body)));
}

function figures() {
  const several = kinds.length > 1;
  const range = interval => interval.map(percent).join("\u2013");
  const optional = share => share === null ? "" : percent(share);
  const row = c => {
    const isFull = c.policy === "full";
    const numbers = [
      c.chooses ? short(100 * c.ratio) : "", percent(c.found), range(c.found_ci95),
      isFull ? "" : percent(c.found_difference), isFull ? "" : range(c.found_difference_ci95),
      optional(c.pgr), percent(c.exact_match), percent(c.f1), percent(c.answer_agreement),
      percent(c.token_agreement), klText(c.kl_mean), klText(c.kl8_mean),
      c.kl8_mean_ci95.map(klText).join("\u2013"), klText(c.kl_p95), percent(c.top1_agreement),
      isFull ? "" : percent(c.rows_of_reused), percent(c.rows_of_all), percent(c.flops_relative),
      c.ttft_ms_median.toFixed(2), c.ttft_relative > 0 ? (1 / c.ttft_relative).toFixed(2) : ""];
    return html("tr", {}, html("td", {class: "w nb"}, c.name),
      several ? html("td", {class: "w"}, isFull ? "" : c.records) : null,
      numbers.map(number => html("td", {class: "nb"}, number)));
  };
  const names = ["Ratio %", "Found %", "95 % conf.", "\u2212 full", "95 % conf.", "PGR %",
    "Exact match %", "F1 %", "Same answer %", "Agree\u00adment %", "KL first", "KL of 8", "95 % conf.",
    "KL first, p95", "Top-1 %", "Rows, of reused %", "Rows, of all %", "FLOPs %", "TTFT ms",
    "Speed-up"];
  const head = [html("th", {class: "w"}, "Policy"), several ? html("th", {class: "w"}, "Records") : null,
    names.map(name => html("th", {}, name))];
  const floorRow = f => html("tr", {}, html("td", {class: "w nb"}, "no chunks"),
    several ? html("td", {class: "w"}, "") : null,
    ["", percent(f.found), range(f.found_ci95), "", "", "", percent(f.exact_match), percent(f.f1),
     ...Array(names.length - 8).fill("")].map(number => html("td", {class: "nb"}, number)));
  // Full prefill, run again, says something where runs are repeated.
  const shown = configs.filter(c => c.policy !== "full" || settings.repeats > 1);
  return [html("h2", {}, "All figures"), 
    table({}, head, [...[full, ...shown].map(row), report.floor ? floorRow(report.floor) : null])];
}

function groups() {
  if (report.groups.length === 0) return [];
  const row = (name, of) => html("tr", {}, html("td", {class: "w nb"}, name),
    report.groups.map(group => html("td", {class: "nb"}, percent(of(group)))));
  const head = [html("th", {class: "w"}, "Policy"), report.groups.map(group =>
    html("th", {}, group.name, html("br", {}), `${group.n} questions`))];
  const body = configs.map((c, i) =>
    c.policy === "full" ? null : row(longName(c), group => group.configs[i]));
  return [html("h2", {}, `Answers found, %, by ${report.groups[0].key}`),
    table({}, head, [row("full", group => group.full), ...body])];
}

function answerText(outcome) {
  return outcome.answer || "(nothing)";
}

function rightOrWrong(outcome) {
  return {class: outcome.found ? "ok" : "no"};
}

function prompts() {
  if (page.prompts.length === 0 || !showcase) return [];
  const deviating = {k: "K", v: "V"}[showcase.metric.split("_")[0]] ?? "K and V";
  const answer = (name, outcome) => [name + ": ", html("b", rightOrWrong(outcome), answerText(outcome))];
  const swatches = [["ramp", "low to high deviation"], ["full", "computed"],
                    ["kv", "only K and V computed"], ["stored", "taken from the store"]];
  return [
    html("h2", {}, "Which rows deviate, and which are recomputed"),
    html("p", {class: "soft"}, `${longName(showcase)}. Heat: the root of a row's deviation at layer ` +
      `${showcase.check_layer}, its fresh ${deviating} against the stored one. Framed: the selected ` +
      "rows, computed at every layer."),
    html("div", {class: "legend"}, swatches.map(([colour, name]) =>
      html("span", {}, html("i", {class: "swatch " + colour}), name))),
    page.prompts.map(({question: place, rows, tokens}) => {
      const question = questions[place];
      return [
        html("h3", {}, question.question),
        html("p", {class: "wide"}, answer("full prefill", question.full), " \u00b7 ",
          reuse ? [answer("full reuse", question.configs[page.reuse]), " \u00b7 "] : [],
          answer(longName(showcase, false), question.configs[page.showcase])),
        html("div", {class: "card"}, drawRows(rows)),
        tokenStrip(rows, tokens)];
    })];
}

function differences() {
  if (!reuse) return [];
  const heading = html("h2", {}, "Where full reuse answers otherwise than full prefill");
  const n = questions.filter(question => !question.configs[page.reuse].same_answer).length;
  if (n === 0) return [heading, html("p", {}, "Nowhere: every answer is the same.")];
  const cell = outcome => html("td", rightOrWrong(outcome), answerText(outcome));
  const body = page.differing.map(({question: place, chunks}) => {
    const question = questions[place];
    return html("tr", {},
      html("td", {}, question.question, html("details", {},
        html("summary", {}, `${chunks.length} chunks`),
        html("ol", {}, chunks.map(chunk => html("li", {}, chunk))))),
      html("td", {}, question.answers.join("\n")),
      cell(question.full), cell(question.configs[page.reuse]),
      showcase ? cell(question.configs[page.showcase]) : null);
  });
  const head = ["Question", "Expected", "Full prefill", "Full reuse"];
  if (showcase) head.push(longName(showcase, false));
  const first = n > body.length ? `; the first ${body.length}` : "";
  return [heading,
    html("p", {class: "soft"}, `${n} of ${questions.length} questions${first}. Green: a right answer stands in it.`),
    table({class: "answers"}, head.map(name => html("th", {}, name)), body)];
}

function method() {
  const {model, data} = report;
  const shuffled = data.shuffle_seed === null ? "" : `, chunks shuffled with seed ${data.shuffle_seed}`;
  const other = settings.reference_weights === settings.weights ? ""
    : `; full prefill as reference: ${settings.reference_weights}`;
  const repeats = settings.repeats > 1 ? ` of medians of ${settings.repeats} runs` : "";
  const rows = [
    ["Model", `${model.path}: ${model.n_layers} layers, ${model.n_parameters} parameters`],
    ["Data", data.path + shuffled],
    ["Library", report.version],
    ["Measured", `${report.date}, on ${report.machine}`],
    ["Weights", `kept ${settings.weights}${other}`],
    ["KV cache", settings.cache_dtype],
    ["Stored as", `${settings.kv_dtype}, codec ${settings.codec}`],
    ["Prompt", settings.chat ? "by the model's chat template" : "BOS and system text, chunks, question"],
    ["Found", "a right answer stands in the answer, both in lower case, without punctuation and articles"],
    ["\u2212 full", "found, less full prefill's, question by question"],
    ["PGR", "(found - without chunks) / (full prefill's - without chunks): what is kept of what reading gains"],
    ["Exact match, F1", "answers in lower case, without punctuation and articles, white space folded; " +
      "the best over a question's answers"],
    ["KL, top-1", "full prefill's distribution as reference; KL in nats, of the first answer token, " +
      "and its mean over the first eight along full prefill's answer"],
    ["Agreement", "tokens of full prefill's answers that are also this one's likeliest, led along them"],
    ["Rows", "selected rows, of the rows of reused chunks; selected and always computed rows, of all rows"],
    ["FLOPs", "own count of the prefill: per layer, rows times matrices and attention pairs; a " +
      "multiply-add is two; of full prefill's"],
    ["TTFT", "the whole fuse call on a warm store, loading included; median over the questions" + repeats],
    ["Command", html("code", {}, report.command)]];
  return [html("h2", {}, "How it was measured"),
    html("dl", {}, rows.map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]))];
}

document.title = "blend eval: " + title();
fill(document.getElementById("page"), {},
     [heading(), tiles(), charts(), figures(), groups(), prompts(), differences(), method()]);
