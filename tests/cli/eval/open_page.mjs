// As much of a document as a report's scripts use, and no browser: elements with attributes and
// children, printed as HTML.
import fs from "node:fs";
import vm from "node:vm";

const kVoid = new Set(["br"]);

function escaped(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

export class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  append(...children) {
    this.children.push(...children);
  }
  get textContent() {
    return this.children.map(child => child instanceof Element ? child.textContent : child).join("");
  }
  // Every element below this one for which `wanted` is true, in order.
  all(wanted) {
    return this.children.filter(child => child instanceof Element)
      .flatMap(child => [...wanted(child) ? [child] : [], ...child.all(wanted)]);
  }
  toString() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escaped(value)}"`);
    const begin = `<${this.tag}${attributes.join("")}>`;
    if (kVoid.has(this.tag)) return begin;
    const inside = this.children.map(child => child instanceof Element ? String(child) : escaped(child));
    return `${begin}${inside.join("")}</${this.tag}>`;
  }
}

// A context in which scripts find a document of these elements, by their ids.
export function makeContext(elements) {
  return vm.createContext({document: {
    title: "",
    getElementById: id => elements[id],
    createElement: tag => new Element(tag),
    createElementNS: (_, tag) => new Element(tag)}});
}

// The page of a report as its scripts draw it.
export function openPage(path) {
  const text = fs.readFileSync(path, "utf8");
  const report = new Element("script");
  report.append(text.match(/<script type="application\/json" id="report">(.*?)<\/script>/s)[1]);
  const page = new Element("main");
  const context = makeContext({page, report});
  for (const [, script] of text.matchAll(/<script>\n(.*?)<\/script>/gs)) vm.runInContext(script, context);
  return page;
}
