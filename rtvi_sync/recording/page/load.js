// One load test: distributions, sessions in time, failures, lost audio, and a table that can be sorted.

const OUTCOMES = ["passed", "failed", "not connected", "interrupted"];
const HATCHES = { failed: 45, "not connected": -45, interrupted: 0 }; // degrees: outcomes differ without colours too
const LOSSES = { late: "User's, late in the test's process or its source", not_taken: "User's, not taken by the bot or the network", concealed: "Bot's, lost or late on the network", not_played: "Bot's, not played by the test" };
const WIDE = Math.min(1200, Math.max(320, innerWidth - 60)), PLOT = { width: 420, height: 190, left: 42, right: 12, top: 26, bottom: 28 };

const kebab = (outcome) => `out-${outcome.replace(" ", "-")}`;
const named = (measured) => measured.kind === measured.name ? measured.name : `${measured.kind} ${measured.name}`;
const hatches = () => svg("defs", {}, Object.entries(HATCHES).map(([outcome, angle]) => svg("pattern", { id: `hatch-${kebab(outcome)}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` }, svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }))));

function outcomeBox(outcome, box) {
  return [svg("rect", { ...box, class: kebab(outcome) }), outcome in HATCHES && svg("rect", { ...box, fill: `url(#hatch-${kebab(outcome)})`, "pointer-events": "none" })];
}

/** Return the histogram of a measurement, with the share that was as fast or faster as a line. */
function distribution(of, values) {
  const { width, height, left, right, top, bottom } = PLOT, sorted = [...values].sort((a, b) => a - b), name = named(of);
  const count = `${grouped(of.count)} measured, ${of.failed === of.count ? "all" : of.failed ? grouped(of.failed) : "none"} failed`;
  const parts = sorted.length ? [`p50 ${ms(of.p50)}`, `p95 ${ms(of.p95)}`, `p99 ${ms(of.p99)}`, `slowest ${ms(of.longest)} ms`, count] : [count];
  const figures = el("p", { class: "muted" }, parts.join(" · ").replace(/ (?!·)/g, "\u00a0").replace(/·\u00a0/g, "· ")); // lines end between parts
  if (!sorted.length) return el("div", {}, el("h3", {}, name), figures);
  const most = Math.max(sorted[sorted.length - 1], 0.001) * 1.02, bins = Math.min(40, Math.max(8, Math.ceil(Math.sqrt(sorted.length) * 1.5))), counts = new Array(bins).fill(0);
  for (const value of sorted) counts[Math.min(bins - 1, Math.floor(value / most * bins))]++;
  const highest = Math.max(...counts), x = (value) => left + value / most * (width - left - right), y = (share) => height - bottom - share * (height - top - bottom);
  const line = sorted.map((value, index) => `${index ? "H" : `M${x(0)} ${y(0)}H`}${x(value).toFixed(1)}V${y((index + 1) / sorted.length).toFixed(1)}`).join("") + `H${x(most)}`;
  const steps = ticks(0, most, 5).found;
  const marked = [["p50", of.p50], ["p95", of.p95], ["p99", of.p99]], labels = [];
  let free = Infinity;
  for (const [words, value] of [...marked].reverse()) { // from the right; labels that would cover each other share one
    if (free - x(value) < 28 && labels.length) labels[labels.length - 1].words = `${words}, ${labels[labels.length - 1].words}`;
    else { labels.push({ words, at: x(value) }); free = x(value); }
  }
  return el("div", { class: "plot" }, el("h3", {}, name), figures,
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: p50 ${ms(of.p50)} ms, p95 ${ms(of.p95)} ms, p99 ${ms(of.p99)} ms` },
      [0, 0.5, 1].map((share) => [svg("line", { x1: left, x2: width - right, y1: y(share), y2: y(share) }), svg("text", { x: left - 5, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}%`)]).flat(),
      counts.map((count, bin) => count ? svg("rect", { class: "hist", x: x(bin * most / bins), width: Math.max(1, (width - left - right) / bins - 1), y: y(count / highest), height: y(0) - y(count / highest) }, svg("title", {}, `${ms(bin * most / bins)} to ${ms((bin + 1) * most / bins)} ms: ${grouped(count)}`)) : null),
      svg("path", { class: "ecdf", d: line }),
      marked.map(([, value]) => svg("line", { class: "p", x1: x(value), x2: x(value), y1: y(1) - 4, y2: y(0) })),
      labels.map((label) => svg("text", { class: "p", x: Math.min(label.at, width - right), y: 14, "text-anchor": label.at > width - 60 ? "end" : "middle" }, label.words)),
      steps.map((at) => svg("text", { x: x(at), y: height - 8, "text-anchor": x(at) > width - 24 ? "end" : "middle" }, `${ms(at)}${at === steps[steps.length - 1] ? " ms" : ""}`))));
}

/** Return the sessions as bars in time, and the failures of each second below them. */
function sessionsInTime(rows, seconds) {
  const left = 44, bottom = 24, each = Math.max(1.5, Math.min(14, 420 / rows.length)), tall = Math.ceil(each * rows.length), failures = 64, height = tall + failures + bottom + 30;
  const length = Math.max(seconds, 0.1), x = (at) => left + at / length * (WIDE - left - 8), { found } = ticks(0, length, WIDE / 120);
  const parts = found.map((at) => [svg("line", { x1: x(at), x2: x(at), y1: 0, y2: height - bottom }), svg("text", { x: x(at), y: height - 7, "text-anchor": at > 0.97 * length ? "end" : "middle" }, clock(at, 1).replace(".0", ""))]).flat();
  rows.forEach((row, index) => {
    const box = outcomeBox(row.outcome, { x: x(row.began), y: index * each, width: Math.max(1.5, x(row.began + row.seconds) - x(row.began)), height: Math.max(1, each - 1) });
    box[0].append(svg("title", {}, `session ${row.number}: ${row.outcome}, ${clock(row.began)} to ${clock(row.began + row.seconds)}${row.error ? `\n${row.error}` : ""}`));
    parts.push(...box.filter(Boolean));
  });
  const bins = new Array(Math.ceil(length) || 1).fill(0);
  for (const row of rows) if (row.outcome !== "passed") bins[Math.min(bins.length - 1, Math.floor(row.began + row.seconds))]++;
  const most = Math.max(1, ...bins), base = height - bottom;
  bins.forEach((count, second) => { if (count) parts.push(svg("rect", { class: "out-failed", x: x(second) + 0.5, width: Math.max(1, x(second + 1) - x(second) - 1), y: base - count / most * failures, height: count / most * failures }, svg("title", {}, `${second} to ${second + 1} s: ${counted(count, "failure")}`))); });
  parts.push(svg("text", { x: 0, y: 11 }, "0"), svg("text", { x: 0, y: tall }, rows.length > 1 ? rows[rows.length - 1].number : ""), svg("text", { x: left, y: base - failures - 8 }, `Failures a second, ${grouped(Math.max(0, ...bins))} at most`));
  return svg("svg", { class: "wide plot", viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": "Sessions in time, and failures a second. The table of sessions has the same as text." }, hatches(), parts);
}

function sessionsTable(rows, names) {
  const columns = [["Session", (row) => row.number], ["Outcome", (row) => row.outcome], ["Error", (row) => row.error || ""], ["Began, s", (row) => row.began], ["Took, s", (row) => row.seconds],
    ["User's lost, s", (row) => row.lost_seconds.sent], ["Bot's lost, s", (row) => row.lost_seconds.received], ...names.map((name) => [`${name}, ms`, (row) => row.durations[name] ?? null])];
  const text = (value, index) => value === null ? "–" : typeof value !== "number" || !index ? value : index === 3 || index === 4 ? value.toFixed(2) : index === 5 || index === 6 ? (value ? value.toFixed(2) : "–") : ms(value);
  const body = el("tbody"), more = el("div", { class: "more" });
  const state = { by: 1, down: false, most: 200 }; // those that failed first
  const heads = columns.map(([name], index) => el("th", { scope: "col", class: index > 2 ? "r" : null }, el("button", { type: "button", onclick: () => sort(index) }, name.replace(/, (m?s)$/, ",\u00a0$1"))));
  const render = () => {
    const key = columns[state.by][1], sign = state.down ? -1 : 1;
    const order = [...rows].sort((a, b) => { const one = key(a), other = key(b); return one === null ? 1 : other === null ? -1 : sign * (one < other ? -1 : one > other ? 1 : 0); });
    heads.forEach((node, index) => node.setAttribute("aria-sort", index !== state.by ? "none" : state.down ? "descending" : "ascending"));
    body.replaceChildren(...order.slice(0, state.most).map((row) => el("tr", {}, columns.map(([, value], index) => el(index ? "td" : "th", { scope: index ? null : "row", class: index > 2 ? "r" : null },
      index === 1 && row.outcome !== "passed" ? [el("span", { class: "tag bad" }, row.outcome), row.kind && el("small", {}, row.kind.replace(/_/g, " "))]
      : index === 2 && row.error ? el("details", { class: "error" }, el("summary", {}, row.error)) : text(value(row), index))))));
    more.replaceChildren(...(order.length > state.most ? [el("button", { type: "button", onclick: () => { state.most = Infinity; render(); } }, `Show all ${grouped(order.length)}`)] : []));
  };
  const sort = (index) => { state.down = state.by === index ? !state.down : index > 2; state.by = index; render(); };
  render();
  return el("section", { "aria-labelledby": "sessions-title" }, el("div", { class: "bar-head" }, el("h2", { id: "sessions-title" }, "Sessions"), el("p", { class: "muted hint" }, "A click on a heading sorts, one on an error shows all of it")),
    el("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Sessions" }, el("table", { id: "sessions" }, el("thead", {}, el("tr", {}, heads)), body)), more);
}

/** Return the losses of each side: seconds in all, sessions, and the most of one session. */
function lostAudio(rows) {
  const found = Object.entries(LOSSES).map(([side, words]) => {
    const losses = rows.map((row) => row.audio[side]).filter((seconds) => seconds >= 0.1);
    return losses.length && [words, losses.reduce((sum, each) => sum + each, 0).toFixed(1), losses.length, Math.max(...losses).toFixed(1)];
  }).filter(Boolean);
  return el("section", { "aria-labelledby": "lost-title" }, el("div", { class: "bar-head" }, el("h2", { id: "lost-title" }, "Lost audio")),
    found.length ? table("Lost audio", ["Side", "Seconds", "Sessions", "Most in one, s"], found) : el("p", { class: "muted" }, "No session lost audio."));
}

function loadPage() {
  const { report } = data, { rows } = report, count = {}, values = Object.create(null);
  for (const row of rows) {
    count[row.outcome] = (count[row.outcome] || 0) + 1;
    row.durations = {};
    const all = Object.create(null); // names may be any
    for (const measured of row.measurements) if (measured.error === null) (all[named(measured)] = all[named(measured)] || []).push(measured.seconds);
    for (const [name, each] of Object.entries(all)) {
      (values[name] = values[name] || []).push(...each);
      each.sort((a, b) => a - b);
      row.durations[name] = (each[Math.floor((each.length - 1) / 2)] + each[Math.ceil((each.length - 1) / 2)]) / 2;
    }
  }
  const failed = rows.length - (count.passed || 0);
  head("Load test", `${counted(rows.length, "session")}, ${failed ? `${grouped(failed)} failed` : "all passed"}`, [data.name, report.transport && `by ${report.transport}`, report.url, report.rate && `${counted(report.rate, "session")} a second at most`, report.date && report.date.replace("T", " ").replace("Z", " UTC"), `in ${clock(report.seconds, 1)}`, ...OUTCOMES.filter((outcome) => count[outcome]).map((outcome) => `${grouped(count[outcome])} ${outcome}`)], null);
  if (report.errors.length || report.sides.length) main.append(el("section", { "aria-labelledby": "findings-title" }, el("h2", { id: "findings-title" }, "What stands out"), el("ul", { class: "findings" },
    report.sides.map((words) => el("li", {}, el("span", { class: "tag bad" }, "Voice"), el("span", {}, words[0].toUpperCase() + words.slice(1)))),
    report.errors.map((line) => { const [, times, error] = line.match(/^(\d+) x (.*)$/s) || [null, null, line]; return el("li", {}, times ? el("span", { class: "tag bad" }, `${grouped(Number(times))} ×`) : el("span"), el("span", {}, error)); }))));
  if (!rows.length) return void main.append(el("section", {}, el("p", {}, "No session was run.")));
  main.append(el("section", { "aria-labelledby": "measured-title" }, el("div", { class: "bar-head" }, el("h2", { id: "measured-title" }, "Measurements"), el("p", { class: "muted" }, "Columns: how many; line: the share that took at most so long")),
    el("div", { class: "charts" }, report.percentiles.map((of) => distribution(of, values[named(of)] || [])))));
  main.append(el("section", { "aria-labelledby": "time-title" }, el("div", { class: "bar-head" }, el("h2", { id: "time-title" }, "Sessions in time"),
    el("ul", { class: "legend", "aria-label": "Legend" }, OUTCOMES.filter((outcome) => count[outcome]).map((outcome) => el("li", {}, svg("svg", { width: 22, height: 14, "aria-hidden": "true" }, outcomeBox(outcome, { x: 1, y: 2, width: 20, height: 10 })), outcome)))),
    el("div", { class: "box" }, sessionsInTime(rows, report.seconds))));
  main.append(lostAudio(rows), sessionsTable(rows, report.percentiles.map(named)));
}
