// What all kinds of pages share: elements, numbers, and the head.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const SVG = "http://www.w3.org/2000/svg";

/** Return a text as it is shown: characters that would hide or turn others around it are seen as escapes. */
function shown(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g,
    (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : shown(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const grouped = (number) => number.toLocaleString("en-US");
const spaced = (value) => JSON.stringify(value, null, 1).replace(/([{[])\n\s*|\n\s*([}\]])/g, "$1$2").replace(/\n\s*/g, " "); // on one line
const ms = (seconds) => seconds === null || seconds === undefined ? "–" : grouped(Math.round(seconds * 1000));
const counted = (number, what) => `${grouped(number)} ${what}${number === 1 ? "" : "s"}`;
const MEASURES = { voice_to_voice: "Voice to voice", time_to_first_token: "First token", time_to_first_audio: "First audio" };

/** Return a moment or a duration: "12.34 s", and from a minute on "3:05.2". */
function clock(seconds, digits = 2) {
  if (Math.abs(seconds) < 60) return `${seconds.toFixed(digits)} s`;
  const whole = Math.floor(seconds / 60), hours = Math.floor(whole / 60);
  const rest = (seconds - 60 * whole).toFixed(Math.max(0, digits - 1)).padStart(digits > 1 ? digits + 2 : 2, "0");
  return hours ? `${hours}:${String(whole % 60).padStart(2, "0")}:${rest}` : `${whole}:${rest}`;
}

/** Return even steps between two values: about one for each `room` of the width. */
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const nice = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
  const step = nice.find((each) => each >= rough) || Math.ceil(rough / power) * power;
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + 1e-9; at += step) found.push(at + 0); // never -0
  return { step, found };
}

function head(kind, title, facts, findings) {
  document.getElementById("head").replaceChildren(
    el("p", { class: "muted" }, kind), el("h1", {}, title),
    el("p", { class: "facts" }, facts.filter(Boolean).map((fact) => el("span", {}, fact))),
    ...(findings ? [findings] : []));
}

function cells(tag, values, attributes = {}) {
  return values.map((value) => el(tag, attributes, value));
}

/** Return a table whose rows are lists of texts; all columns but the first `texts` are numbers. */
function table(caption, headers, rows, texts = 1) {
  const cell = (tag, more) => (value, index) => el(tag, { ...more(index), class: index < texts ? null : "r" }, value);
  return el("div", { class: "box", tabindex: 0, role: "region", "aria-label": caption }, el("table", {}, el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, headers.map(cell("th", () => ({ scope: "col" }))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, index) => index
      ? cell("td", () => ({}))(value, index) : el("th", { scope: "row" }, value)))))));
}

/** Show a text beside the pointer; null: none. */
function tip(text, event) {
  let node = document.getElementById("tip");
  if (text === null) return void (node && node.remove());
  node = node || document.body.appendChild(el("div", { id: "tip" }));
  node.textContent = shown(text);
  const box = node.getBoundingClientRect();
  node.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
  node.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 8 : event.clientY + 18}px`;
}

/** Return the names of the measures; of bots that were only heard, as by telephone, those of what is heard. */
const measuresOf = (recordings) => Object.keys(MEASURES).filter((measure) => measure !== "time_to_first_token" || !recordings.every((recording) => recording.only_heard));

/** Return percentiles as figures, each with a dot for every turn. */
function tiles(percentiles, turns, measures) {
  const longest = Math.max(...Object.values(percentiles).map((each) => each.max || 0)) || 1;
  const place = (value) => `${(1 + 98 * value / longest).toFixed(2)}%`;
  return el("div", { class: "tiles" }, measures.map((measure) => {
    const each = percentiles[measure], name = MEASURES[measure];
    if (!each.count) return el("div", { class: "tile" }, el("h3", {}, name), el("p", { class: "muted" }, "not measured in any turn"));
    const values = turns.map((turn) => turn[measure]).filter((value) => value !== null);
    const most = Math.max(...values);
    return el("div", { class: "tile" }, el("h3", {}, name),
      el("p", { class: "big" }, ms(each.p50), el("small", {}, " ms, the median")),
      el("p", { class: "muted" }, `p95 ${ms(each.p95)} ms · slowest ${ms(each.max)} ms · ${counted(each.count, "turn")}`),
      svg("svg", { "aria-hidden": "true" }, svg("line", { x1: "0%", x2: "100%", y1: 10, y2: 10 }),
        values.map((value) => svg("circle", { cx: place(value), cy: 10, r: 4, class: value === most ? "most" : null })),
        svg("text", { x: "0%", y: 28 }, "0"), svg("text", { x: "100%", y: 28, "text-anchor": "end" }, `${ms(longest)} ms`)));
  }));
}

/** Return how the latencies differ from those of a baseline. */
function changes(baseline, leftOut) {
  const words = { slower: "slower", faster: "faster", same: "same", not_judged: "not judged: too few turns" };
  const rows = [];
  for (const [measure, name] of Object.entries(MEASURES))
    for (const [percentile, each] of Object.entries(baseline[measure])) {
      const sign = each.change > 0 ? "+" : "";
      rows.push([`${name}, ${percentile}`, el("span", { class: each.verdict === "slower" ? "tag bad" : "tag" }, words[each.verdict]),
        ms(each.before), ms(each.after), each.change === null ? "–" : sign + ms(each.change),
        each.low === null ? "–" : `${ms(each.low)} to ${ms(each.high)}`]);
    }
  const missing = (texts, side) => texts.length ? el("p", { class: "muted" }, `Only ${side}, so not compared: ${texts.map((text) => `“${text}”`).join(", ")}`) : null;
  return el("section", { "aria-labelledby": "baseline-title" }, el("div", { class: "bar-head" }, el("h2", { id: "baseline-title" }, "Compared with the baseline, ms")),
    table("Compared with the baseline", ["Latency", "Verdict", "Before", "After", "Change", "95 % interval"], rows, 2),
    missing(leftOut.before, "before"), missing(leftOut.after, "after"));
}
