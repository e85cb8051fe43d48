// Elements, numbers, and the pictures: charts, and one prompt's rows.
"use strict";

// ---- Elements. A text becomes a text node or the value of an attribute, never markup.

// Control characters but tab and line end have no picture.
function visible(text) {
  return String(text).replace(/[\0-\x08\x0b-\x1f\x7f]/g, "\ufffd");
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? Number(value.toFixed(2)) : visible(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null) element.append(typeof child === "object" ? child : visible(child));
  }
  return element;
}

function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function label(x, y, classes, text) {
  return svg("text", {x, y, class: classes}, text);
}

function line(x1, y1, x2, y2, classes) {
  return svg("line", {x1, y1, x2, y2, class: classes});
}

// ---- Numbers

function percent(share) {
  return (100 * share).toFixed(1);
}

function short(value, digits = 4) {
  return String(Number(value.toPrecision(digits)));
}

function klText(kl) {
  if (kl === 0) return "0";
  return kl >= 0.001 && kl < 1000 ? kl.toFixed(4) : kl.toExponential(1);
}

// Round steps that cover [low, high] with about `count` ticks: 1, 2 or 5 times a power of ten.
function axisTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0) || !isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor === 10 || factor * power >= rough * (1 - 1e-9));
  const ticks = [];
  const last = Math.ceil(high / step - 1e-9);
  for (let i = Math.floor(low / step + 1e-9); i <= last; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

// Runs of equal neighbours: [{first, last, value}], `last` not included.
function runsOf(values) {
  const runs = [];
  values.forEach((value, i) => {
    const run = runs[runs.length - 1];
    if (run && run.value === value) run.last = i + 1;
    else runs.push({first: i, last: i + 1, value});
  });
  return runs;
}

// ---- Charts: lines with confidence bars.
// {title, xLabel, yLabel, series, references: [{name, y}], logY, yFromZero, yMost}
// A series: {name, colour, dash, square, points: [{x, y, bar: [low, high] or none, hidden}]}. The line
// passes a hidden point, no marker is drawn.

const kChart = {width: 560, height: 330, left: 64, right: 16, top: 34, bottom: 50};
const kColours = 8;
const kDashes = 4;
const kDodge = 4;  // series that share an x stand this far apart, so that no bar hides another

function colourOf(series) {
  return "c" + series.colour % kColours;
}

function marker(x, y, series, ...inside) {
  const classes = "m " + colourOf(series);
  return series.square
    ? svg("rect", {x: x - 4.5, y: y - 4.5, width: 9, height: 9, class: classes}, inside)
    : svg("circle", {cx: x, cy: y, r: 4.5, class: classes}, inside);
}

function strokeClasses(series) {
  return `s ${colourOf(series)} d${series.dash % kDashes}`;
}

// The short line with a marker that stands before a series' name in a legend.
function legendKey(series) {
  return svg("svg", {width: 34, height: 14, viewBox: "0 0 34 14", class: "key"},
             series.square ? null : line(0, 7, 34, 7, strokeClasses(series)), marker(17, 7, series));
}

// A range of values on a stretch of pixels; at(): the pixel of a value.
function makeAxis(low, high, from, to, log = false) {
  const scale = value => log ? Math.log10(Math.max(value, low)) : value;
  const at = value => {
    const share = (scale(value) - scale(low)) / (scale(high) - scale(low));
    return from + (to - from) * Math.min(Math.max(share, 0), 1);
  };
  return {low, high, from, to, log, at};
}

function makeXAxis(chart) {
  const values = chart.series.flatMap(series => series.points.map(point => point.x));
  const high = Math.max(0, ...values) || 1;
  return makeAxis(-0.04 * high, 1.04 * high, kChart.left, kChart.width - kChart.right);
}

function makeYAxis(chart) {
  const values = chart.series.flatMap(
    series => series.points.flatMap(point => [point.y, ...point.bar ?? []]));
  values.push(...chart.references.map(reference => reference.y));
  const bottom = kChart.height - kChart.bottom;
  if (chart.logY) {
    const positive = values.filter(value => value > 0);
    if (positive.length === 0) return makeAxis(0.1, 1, bottom, kChart.top, true);
    // Whole powers of ten, one at least. What rounding alone makes is not worth more than ten.
    const high = 10 ** Math.ceil(Math.log10(Math.max(...positive)) - 1e-9);
    const low = 10 ** Math.floor(Math.log10(Math.min(...positive)) + 1e-9);
    return makeAxis(Math.min(Math.max(low, high * 1e-10), high / 10), high, bottom, kChart.top, true);
  }
  let low = values.length > 0 ? Math.min(...values) : 0;
  let high = values.length > 0 ? Math.max(...values) : 1;
  const negative = low < 0;
  if (chart.yFromZero) low = 0;
  if (high - low < 1e-9) {
    low -= 1;
    high += 1;
  }
  if (!negative) low = Math.max(low, 0);  // a count or a share has no other side
  const ticks = axisTicks(low, high, 5);
  low = Math.min(low, ticks[0]);
  high = Math.max(high, ticks[ticks.length - 1]);
  return makeAxis(low, chart.yMost ? Math.min(high, chart.yMost) : high, bottom, kChart.top);
}

function grid(chart, x, y) {
  const bottom = kChart.height - kChart.bottom;
  const right = kChart.width - kChart.right;
  const yTicks = [];
  if (y.log) {
    const first = Math.round(Math.log10(y.low));
    const last = Math.round(Math.log10(y.high));
    for (let power = first; power <= last; power += 1 + Math.floor((last - first) / 7)) {
      yTicks.push([10 ** power, Math.abs(power) <= 3 ? short(10 ** power) : "1e" + power]);
    }
  } else {
    for (const value of axisTicks(y.low, y.high, 5)) {
      if (value <= y.high * (1 + 1e-9)) yTicks.push([value, short(value, 9)]);
    }
  }
  return [
    yTicks.map(([value, name]) => [
      line(kChart.left, y.at(value), right, y.at(value), "g"),
      label(kChart.left - 8, y.at(value) + 4, "t e", name)]),
    line(kChart.left, bottom, right, bottom, "a"),
    axisTicks(x.low, x.high, 7).filter(value => value >= x.low && value <= x.high).map(value => [
      line(x.at(value), bottom, x.at(value), bottom + 4, "a"),
      label(x.at(value), bottom + 18, "t m", short(value, 9))]),
    label((kChart.left + right) / 2, kChart.height - 10, "l m", chart.xLabel),
    svg("text", {transform: `translate(15 ${(kChart.top + bottom) / 2}) rotate(-90)`, class: "l m"},
        chart.yLabel)];
}

// The pixel in the middle of the widest gap between points: where a label meets no bar.
function widestGap(chart, x) {
  const places = chart.series.flatMap(series => series.points.map(point => x.at(point.x)));
  places.push(x.from, x.to);
  places.sort((a, b) => a - b);
  let best = 1;
  for (let i = 2; i < places.length; ++i) {
    if (places[i] - places[i - 1] > places[best] - places[best - 1]) best = i;
  }
  return (places[best] + places[best - 1]) / 2;
}

function drawSeries(series, shift, x, y) {
  const bars = [];
  const markers = [];
  const path = [];
  for (const point of series.points) {
    const px = x.at(point.x) + (point.bar ? shift : 0);  // what has no bar hides none
    const py = y.at(point.y);
    path.push(px.toFixed(2) + "," + py.toFixed(2));
    let title = `${series.name}: ${short(point.y)}`;
    if (point.bar) {
      const [low, high] = point.bar;
      const classes = "b " + colourOf(series);
      bars.push(line(px, y.at(high), px, y.at(low), classes),
                line(px - 4, y.at(high), px + 4, y.at(high), classes),
                line(px - 4, y.at(low), px + 4, y.at(low), classes));
      title += ` [${short(low)}, ${short(high)}]`;
    }
    if (!point.hidden) markers.push(marker(px, py, series, svg("title", {}, title)));
  }
  const stroke = path.length < 2 ? []
    : svg("polyline", {points: path.join(" "), class: strokeClasses(series)});
  return [bars, stroke, markers];
}

function drawChart(chart) {
  const x = makeXAxis(chart);
  const y = makeYAxis(chart);
  const barred = chart.series.filter(series => !series.square && series.points.some(point => point.bar));
  const shift = series => {
    const place = barred.indexOf(series);
    return place < 0 ? 0 : kDodge * (place - (barred.length - 1) / 2);
  };
  return svg("svg", {viewBox: `0 0 ${kChart.width} ${kChart.height}`, class: "chart", role: "img",
                     "aria-label": chart.title},
    label(kChart.left, 18, "h", chart.title),
    grid(chart, x, y),
    chart.references.map(({y: value}) =>
      line(kChart.left, y.at(value), kChart.width - kChart.right, y.at(value), "r")),
    chart.series.map(series => drawSeries(series, shift(series), x, y)),
    chart.references.map(({name, y: value}) => {
      // Under the line where there is no room above it.
      const at = y.at(value) < kChart.top + 14 ? y.at(value) + 14 : y.at(value) - 7;
      return label(widestGap(chart, x), at, "t m o", name);
    }));
}

// ---- Pictures of one prompt's rows: {n_rows, segments, selected, deviation, heat, layers}

// "chunk 3", "prefix", "question"; a chunk's number counts chunks alone.
function segmentNames(rows) {
  let chunk = 0;
  return rows.segments.map(segment => segment.kind === "chunk" ? "chunk " + ++chunk : segment.kind);
}

function maskOf(rows, chosen) {
  const mask = new Array(rows.n_rows).fill(0);
  for (const row of chosen) mask[row] = 1;
  return mask;
}

// Layers x rows, the deviation as a strip above it, chunks marked below.
function drawRows(rows) {
  const width = 1120, left = 84, right = 10, top = 8, strip = 22, mark = 8, gap = 6;
  const rowWidth = (width - left - right) / Math.max(1, rows.n_rows);
  const nLayers = rows.layers.length;
  const layerHeight = nLayers <= 12 ? 18 : nLayers <= 24 ? 12 : 8;
  const layersTop = top + strip + mark + gap;
  const layersEnd = layersTop + layerHeight * nLayers;
  const x = row => left + rowWidth * row;
  const rect = (run, y, height, attributes) =>
    svg("rect", {x: x(run.first), y, width: Math.max(0.5, rowWidth * (run.last - run.first)), height,
                 ...attributes});
  const set = runs => runs.filter(run => run.value !== 0);

  const layers = rows.layers.map((layer, i) => {
    const y = layersTop + layerHeight * i;
    const states = maskOf(rows, layer.kv);
    for (const row of layer.full) states[row] = 2;
    return [
      nLayers <= 24 || i % 4 === 0 ? label(left - 8, y + layerHeight / 2 + 4, "t e", "layer " + i) : null,
      runsOf(states).map(run =>
        rect(run, y, layerHeight - 1, {class: ["stored", "kv", "full"][run.value]}))];
  });
  // A line at each border, a name where there is room for it.
  const names = segmentNames(rows);
  const segments = rows.segments.map((segment, i) => {
    const begin = x(segment.first_row);
    const room = rowWidth * segment.n_rows;
    return [
      segment.first_row > 0 ? line(begin, top - 4, begin, layersEnd + 18, "edge") : null,
      room >= 6.5 * names[i].length + 4 ? label(begin + room / 2, layersEnd + 15, "t m", names[i]) : null];
  });
  const ticks = axisTicks(0, Math.max(1, rows.n_rows - 1), 12)
    .filter(row => Number.isInteger(row) && row < rows.n_rows);
  return svg("svg", {viewBox: `0 0 ${width} ${layersEnd + 44}`, class: "rows", role: "img",
                     "aria-label": "layers by rows"},
    label(left - 8, top + 12, "t e", "deviation"),
    rect({first: 0, last: rows.n_rows}, top, strip, {class: "cold"}),
    // In 20 steps of heat: equal neighbours become one rectangle.
    set(runsOf(rows.heat.map(heat => Math.round(heat * 20)))).map(run =>
      rect(run, top, strip, {class: "hot", "fill-opacity": run.value / 20})),
    label(left - 8, top + strip + mark + 1, "t e", "selected"),
    set(runsOf(maskOf(rows, rows.selected))).map(run =>
      rect(run, top + strip + 2, mark - 2, {class: "pick"})),
    layers, segments,
    ticks.map(row => label(x(row) + rowWidth / 2, layersEnd + 34, "t m", row)),
    label(left - 8, layersEnd + 34, "t e", "row"));
}

// The tokens in reading order, one block a segment: a cell of heat above each token's text, the
// selected ones framed. The tokens of a word stay on one line. tokens: [{text, joins}]
function tokenStrip(rows, tokens) {
  const selected = maskOf(rows, rows.selected);
  const names = segmentNames(rows);
  return html("div", {class: "strip"}, rows.segments.map((segment, i) => {
    const first = segment.first_row;
    const last = first + segment.n_rows;
    const nSelected = selected.slice(first, last).reduce((sum, value) => sum + value, 0);
    // A chunk whose rows were all reused without loss, or that was computed: nothing to select.
    const measured = rows.deviation.slice(first, last).some(deviation => deviation > 0);
    const note = measured ? `${nSelected} of ${segment.n_rows} recomputed`
      : segment.exact ? "reused exactly" : "always computed";
    const words = [];
    for (let row = first; row < last; ++row) {
      const joins = row > first && tokens[row].joins;
      const kind = selected[row] ? " pick" : measured ? "" : " plain";
      let title = `row ${row}`;
      if (measured) title += ` | deviation ${short(rows.deviation[row], 3)}`;
      if (measured && selected[row]) title += " | recomputed";
      const token = html("span", {class: `tok${kind}${joins ? " j" : ""}`, title},
        html("i", {}, rows.heat[row] > 0 ? html("i", {style: `opacity:${rows.heat[row]}`}) : null),
        tokens[row].text);
      if (joins) words[words.length - 1].push(token);
      else words.push([token]);
    }
    return html("div", {class: "seg"},
      html("div", {class: "name"}, html("b", {}, names[i]), html("span", {}, note)),
      html("div", {class: "tokens"}, words.map(word => html("span", {class: "word"}, word))));
  }));
}
