// The pictures of a report: the geometry that a chart stands on, and a prompt's rows.
//   node draw_test.mjs DRAW_JS
import assert from "node:assert/strict";
import fs from "node:fs";
import vm from "node:vm";
import {makeContext} from "./open_page.mjs";

const draw = makeContext({});
vm.runInContext(fs.readFileSync(process.argv[2], "utf8"), draw);
// Objects of another context have another prototype: compared as JSON.
const plain = value => JSON.parse(JSON.stringify(value));
const withClass = (element, name) => element.all(e => e.attributes.class === name);

function ticksAreRound() {
  assert.deepEqual(plain(draw.axisTicks(0, 100, 5)), [0, 20, 40, 60, 80, 100]);
  assert.equal(draw.axisTicks(0, 0.9, 5).length, 6);  // steps of 0.2
  assert.equal(draw.axisTicks(3, 3, 5).length, 1);
  for (const high of [0.013, 1.7, 42, 9999]) {
    const ticks = draw.axisTicks(0, high, 5);
    assert.ok(ticks[ticks.length - 1] >= high * (1 - 1e-9));
    assert.ok(ticks.length >= 3 && ticks.length <= 8, ticks);
  }
}

function numbersAreShort() {
  const circle = draw.svg("circle", {a: 1.5, b: 2, c: 1 / 3, d: -0.001, e: 100});
  assert.deepEqual(plain(circle.attributes), {a: "1.5", b: "2", c: "0.33", d: "0", e: "100"});
  assert.deepEqual([0, 0.0123, 1.2e-5, 1234].map(draw.klText), ["0", "0.0123", "1.2e-5", "1.2e+3"]);
}

function controlCharactersAreSeen() {
  assert.equal(draw.html("p", {title: "\x1b"}, "\0\x1b\n<b>").textContent, "\ufffd\ufffd\n<b>");
  assert.equal(String(draw.html("p", {title: "\"\x1b"}, "<b>")), "<p title=\"&quot;\ufffd\">&lt;b&gt;</p>");
}

function chartOf(points, more = {}) {
  return {title: "a < b", xLabel: "x", yLabel: "y", references: [], ...more,
          series: points ? [{name: "s", colour: 0, dash: 0, square: false, points}] : []};
}

function morePointsUp() {
  const points = [{x: 0, y: 1}, {x: 0.5, y: 10}, {x: 1, y: 100}];
  const picture = draw.drawChart(chartOf(points, {logY: true}));
  assert.match(String(picture), /a &lt; b/);
  const [a, b, c] = picture.all(e => e.tag === "circle").map(e => Number(e.attributes.cy));
  assert.ok(a - b > 10, `${a} ${b}`);
  assert.ok(Math.abs((b - c) - (a - b)) < 0.02, `${a} ${b} ${c}`);  // powers of ten: equal steps
}

function everyNumberIsOne() {
  const pictures = [draw.drawChart(chartOf(null))];
  for (const y of [0, 1e-14, 5]) {
    for (const logY of [false, true]) {
      pictures.push(draw.drawChart(chartOf([{x: 0.2, y, bar: [0, y]}], {logY})));
    }
  }
  for (const picture of pictures) assert.doesNotMatch(String(picture), /NaN|Infinity|undefined/);
}

const rows = {
  n_rows: 5,
  segments: [{kind: "chunk", exact: false, first_row: 0, n_rows: 3},
             {kind: "question", exact: false, first_row: 3, n_rows: 2}],
  selected: [1],
  deviation: [0, 4, 1, 0, 0],
  heat: [0, 1, 0.5, 0, 0],
  layers: [{kv: [0, 1, 2, 3, 4], full: [0, 1, 2, 3, 4]}, {kv: [0, 1, 2, 3, 4], full: [1, 3, 4]},
           {kv: [1, 3, 4], full: [4]}],
};

function rowsAreDrawnByTheirState() {
  const picture = draw.drawRows(rows);
  // Layer 0: one run. Layer 1: K,V | full | K,V | full. Layer 2: stored | K,V | stored | K,V | full.
  assert.equal(withClass(picture, "full").length, 4);
  assert.equal(withClass(picture, "kv").length, 4);
  assert.equal(withClass(picture, "stored").length, 2);
  assert.equal(withClass(picture, "pick").length, 1);
  assert.equal(withClass(picture, "hot").length, 2);
}

function tokensStandUnderTheirHeat() {
  const tokens = [["a", false], ["<b>", false], ["c", true], ["d", false], ["e", false]]
    .map(([text, joins]) => ({text, joins}));
  const strip = draw.tokenStrip(rows, tokens);
  assert.equal(withClass(strip, "tok pick").length, 1);
  assert.match(strip.textContent, /1 of 3 recomputed/);
  assert.match(strip.textContent, /always computed/);
  assert.match(String(strip), /&lt;b&gt;/);
  assert.equal(strip.all(e => e.attributes.style?.startsWith("opacity:")).length, 2);
  assert.equal(withClass(strip, "tok j").length, 1);  // "c" goes on where "<b>" ends
  assert.equal(withClass(strip, "word").length, 4);
}

for (const test of [ticksAreRound, numbersAreShort, controlCharactersAreSeen, morePointsUp, everyNumberIsOne,
                    rowsAreDrawnByTheirState, tokensStandUnderTheirHeat]) {
  test();
  console.log("passed", test.name);
}
