// One recording: its timeline, turns, messages and player; and a list of several.

const IS_PART = data.kind === "turns"; // of another page: turns without what only a recording has
const LANES = [["user-audio", "User's audio", 46], ["user", "User", 28], ["model", "Model", 22], ["functions", "Functions", 24],
  ["bot", "Bot", 44], ["bot-audio", "Bot's audio", 46], ["marks", "Marks", 24]].filter(([lane]) => !IS_PART || ["user", "functions", "bot", "marks"].includes(lane));
const UNHEARD = ["model", "functions"]; // lanes of what a telephone does not carry
const SHAPES = { interruption: "M-5-5H5L0 5Z", error: "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z", lost: "M0-6L6 5H-6Z", failed: "M-6 0L0-6L6 0L0 6Z", mark: "M0-6L6 0L0 6L-6 0Z", end: "M-5-5H5V5H-5Z" };
const NARROW = 640, GUTTER = 104, AXIS = 24, CUT = 20, ZOOM = 1.6, PAGE = 200, LATEST = 60;
const WHO = { text: "user typed", audio: "user spoke" };

class Timeline {
  constructor(recording, picked) {
    this.recording = recording;
    this.picked = picked; // called with a moment, and a turn's number or null
    this.from = 0;
    this.until = this.length = Math.max(recording.seconds, 0.5);
    this.turn = null;
    this.now = null;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.picture = svg("svg", { role: "img", "aria-label": recording.outline });
    this.node = el("div", { class: "chart" }, this.canvas, this.picture);
    this.waves = {};
    for (const side of ["user", "bot"])
      if (recording.waves) this.waves[side] = Int8Array.from(atob(recording.waves[side]), (sign) => sign.charCodeAt(0));
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.node);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => { this.show(0, this.length); this.paint(980); });
  }

  get width() { return this.node.clientWidth || 980; }
  time(x) { return this.from + (x - this.left) / (this.drawn - this.left) * (this.until - this.from); }
  x(time) { return this.left + (time - this.from) / (this.until - this.from) * (this.drawn - this.left); }

  /** Show a part of the time, which is moved and cut so that it lies in the recording. */
  show(from, until) {
    const length = Math.min(Math.max(until - from, 0.05), this.length);
    this.from = Math.min(Math.max(from, 0), this.length - length);
    this.until = this.from + length;
    this.draw();
  }

  zoom(factor, at = (this.from + this.until) / 2) { this.show(at - (at - this.from) * factor, at + (this.until - at) * factor); }
  move(share) { const by = share * (this.until - this.from); this.show(this.from + by, this.until + by); }

  /** Bring a moment, or a span, into view. */
  reveal(start, end) {
    const length = this.until - this.from;
    if (end - start > length) this.show(start - 0.05 * (end - start), end + 0.05 * (end - start));
    else if (start < this.from || end > this.until) this.show((start + end - length) / 2, (start + end + length) / 2);
  }

  select(turn) {
    this.turn = turn;
    if (turn) this.reveal(turn.start, turn.end);
    this.draw();
  }

  listen() {
    let down = null;
    const place = (event) => this.time(event.clientX - this.node.getBoundingClientRect().left);
    this.node.addEventListener("wheel", (event) => {
      if (event.deltaY > 0 && this.until - this.from >= this.length) return; // the whole is seen: the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event));
    }, { passive: false });
    this.node.addEventListener("pointerdown", (event) => { down = { x: event.clientX, from: this.from, until: this.until, moved: false }; });
    addEventListener("pointermove", (event) => {
      if (!down) return;
      const by = (down.x - event.clientX) / (this.drawn - this.left) * (down.until - down.from);
      if (!down.moved && Math.abs(down.x - event.clientX) < 5) return;
      down.moved = true;
      this.node.classList.add("moves");
      this.show(down.from + by, down.until + by);
    });
    addEventListener("pointerup", (event) => {
      if (down && !down.moved) {
        const turn = event.target.closest && event.target.closest("[data-turn]");
        this.picked(Math.max(0, place(event)), turn ? Number(turn.dataset.turn) : null);
      }
      down = null;
      this.node.classList.remove("moves");
    });
    this.node.addEventListener("pointermove", (event) => {
      if (down && down.moved) return tip(null);
      const told = event.target.closest("[data-tip]");
      tip(`${clock(place(event), 3)}${told ? `\n${told.dataset.tip}` : ""}`, event);
    });
    this.node.addEventListener("pointerleave", () => tip(null));
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint(this.width));
  }

  paint(whole) {
    const ends = this.recording.is_cut && this.until >= this.length, width = whole - (ends ? CUT : 0);
    const narrow = whole < NARROW, visible = (start, end) => end >= this.from && start <= this.until;
    this.drawn = width;
    this.left = narrow ? 0 : GUTTER;
    const parts = [], tops = {};
    let y = AXIS;
    for (const [lane, name, height] of LANES) {
      if (this.recording.only_heard && UNHEARD.includes(lane)) continue;
      const label = narrow ? 15 : 0;
      tops[lane] = { top: y + label, height };
      const group = svg("g", { class: "lane", "data-lane": lane }, svg("line", { class: "rule", x1: 0, x2: whole, y1: y, y2: y }),
        svg("text", { class: "label", x: 0, y: narrow ? y + 13 : y + height / 2 + 4 }, name));
      tops[lane].group = group;
      y += height + label + (narrow ? 3 : 0);
      parts.push(group);
    }
    const height = y + 2, behind = [], over = [];
    behind.push(this.axis(width, height));
    for (const bar of this.recording.bars) if (tops[bar.lane] && visible(bar.start, bar.end)) this.bar(bar, tops[bar.lane], width);
    for (const wait of this.recording.waits) if (visible(wait.start, wait.end)) this.wait(wait, tops.bot, width);
    for (const mark of this.recording.marks) {
      if (!visible(mark.at, mark.at)) continue;
      const x = Math.min(this.x(mark.at), width - 7), lane = tops.marks;
      over.push(svg("line", { class: `mark-line ${mark.kind}`, x1: x, x2: x, y1: AXIS, y2: lane.top }));
      lane.group.append(svg("path", { class: `mark ${mark.kind}`, d: SHAPES[mark.kind], transform: `translate(${x} ${lane.top + 13})`,
        "data-tip": `${mark.kind}: ${mark.text}`, "data-turn": mark.turn }));
    }
    if (ends) { // nothing is known from here on
      const middle = (AXIS + height) / 2, x = width + CUT / 2;
      over.push(svg("rect", { class: "cut", x: width, y: AXIS, width: CUT, height: height - AXIS }),
        svg("text", { class: "label", x, y: middle, "text-anchor": "middle", "dominant-baseline": "central", transform: `rotate(90 ${x} ${middle})` }, "cut here"));
    }
    this.line = svg("line", { class: "now", y1: 0, y2: height });
    this.picture.setAttribute("viewBox", `0 0 ${whole} ${height}`);
    this.picture.setAttribute("width", whole);
    this.picture.setAttribute("height", height);
    const hatch = svg("defs", {}, svg("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 7 })));
    this.picture.replaceChildren(hatch, ...behind, ...parts, ...over, this.line);
    this.sound(whole, width, height, tops);
    this.play(this.now);
  }

  axis(width, height) {
    const { step, found } = ticks(this.from, this.until, (width - this.left) / 90), digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
    return svg("g", { class: "axis" }, found.map((at) => {
      const x = this.x(at), anchor = x > width - 24 ? "end" : x < this.left + 16 ? "start" : "middle";
      return [svg("line", { x1: x, x2: x, y1: AXIS - 6, y2: height }), svg("text", { x, y: 13, "text-anchor": anchor }, this.until < 60 ? `${at.toFixed(digits)} s` : clock(at, digits > 0 ? 2 : 1).replace(/\.0( s)?$/, "$1"))];
    }).flat());
  }

  bar(bar, lane, width) {
    const from = Math.max(this.x(bar.start), this.left), to = Math.min(this.x(bar.end), width);
    const size = Math.max(to - from, 2), tall = bar.lane === "bot" ? lane.height - 20 : lane.height - 8;
    const top = lane.top + lane.height - tall - 4, tipped = `${clock(bar.start, 2)} to ${clock(bar.end, 2)}${bar.turn ? `, turn ${bar.turn}` : ""}\n${bar.text.slice(0, 300)}`;
    const one = { x: from, y: top, width: size, height: tall, rx: Math.min(3, size / 2) };
    const chosen = this.turn && bar.turn === this.turn.number ? " selected" : "";
    lane.group.append(svg("rect", { ...one, class: `bar ${bar.lane}${chosen}`, "data-turn": bar.turn, "data-tip": tipped }));
    if (bar.unheard) { // the end, at which the user spoke over the bot
      const part = Math.min(size, 14);
      lane.group.append(svg("rect", { ...one, x: from + size - part, width: part, fill: "url(#hatch)", "pointer-events": "none" }));
    }
    const room = Math.floor((size - 12) / 6.4);
    if (room < 4 || tall < 14) return;
    const words = bar.text.replace(/\s+/g, " "), text = words.length > room ? words.slice(0, room - 1) + "…" : words;
    lane.group.append(svg("text", { class: "in", x: from + 6, y: top + tall / 2 + 4, "aria-hidden": "true" }, text));
  }

  wait(wait, lane, width) {
    const from = Math.max(this.x(wait.start), this.left), to = Math.min(this.x(wait.end), width), y = lane.top + 12;
    const style = wait.slowest ? "wait slowest" : "wait", words = `${ms(wait.end - wait.start)} ms`;
    lane.group.append(svg("path", { class: style, d: `M${from} ${y - 4}V${y + 4}M${from} ${y}H${to}M${to} ${y - 4}V${y + 4}` }));
    const text = [words, ms(wait.end - wait.start)].find((each) => 6.6 * each.length < to - from);
    if (text) lane.group.append(svg("text", { class: style, x: (from + to) / 2, y: y + 17, "text-anchor": "middle", "aria-hidden": "true" }, text));
  }

  /** Draw the waveforms: for each pixel the lowest and the highest sample. */
  sound(whole, width, height, tops) {
    const scale = window.devicePixelRatio || 1, context = this.canvas.getContext("2d"), style = getComputedStyle(this.node);
    Object.assign(this.canvas, { width: Math.round(whole * scale), height: Math.round(height * scale) });
    Object.assign(this.canvas.style, { width: `${whole}px`, height: `${height}px` });
    context.scale(scale, scale);
    if (this.turn) { // behind the waveforms
      const from = Math.max(this.left, this.x(this.turn.start)), until = Math.min(width, this.x(this.turn.end));
      context.fillStyle = style.getPropertyValue("--select");
      if (until > from) context.fillRect(from, AXIS, until - from, height - AXIS);
    }
    for (const [side, wave] of Object.entries(this.waves)) {
      const { top, height: tall } = tops[`${side}-audio`], middle = top + tall / 2, seconds = this.recording.waves.column;
      context.fillStyle = style.getPropertyValue(`--${side}`);
      for (let x = this.left; x < width; x++) {
        const first = Math.floor(this.time(x) / seconds), last = Math.max(first + 1, Math.ceil(this.time(x + 1) / seconds));
        let low = 0, high = 0;
        for (let column = Math.max(0, first); column < last && 2 * column < wave.length; column++) {
          low = Math.min(low, wave[2 * column]);
          high = Math.max(high, wave[2 * column + 1]);
        }
        const up = high / 128 * (tall / 2 - 3), down = -low / 128 * (tall / 2 - 3);
        context.fillRect(x, middle - up - 0.5, 1, up + down + 1);
      }
    }
  }

  /** Show where the player is; null: nowhere. */
  play(now) {
    this.now = now;
    const hidden = now === null || now < this.from || now > this.until, x = hidden ? -9 : this.x(now);
    this.line.setAttribute("x1", x);
    this.line.setAttribute("x2", x);
  }
}

/** The player of the WAV file, which is beside the page or in it. */
class Player {
  constructor(recording, timeline) {
    this.timeline = timeline;
    this.audio = recording.audio ? el("audio", { src: recording.audio.source, preload: "metadata" }) : null;
    this.button = el("button", { type: "button", disabled: !this.audio, onclick: () => this.toggle() }, "Play");
    this.clock = el("time", {}, `0.00 / ${clock(recording.seconds, 1)}`);
    this.note = el("p", { id: "note", class: "muted", role: "status" }, recording.audio ? "" : "There is no audio to play: this recording has no WAV file.");
    this.length = recording.seconds;
    if (!this.audio) return;
    this.audio.addEventListener("error", () => {
      this.button.disabled = true;
      this.note.textContent = shown(`The audio cannot be played: put ${recording.audio.name} beside this page, or make the page with --embed-audio.`);
    });
    for (const event of ["play", "pause", "ended"]) this.audio.addEventListener(event, () => this.follow());
  }

  toggle() {
    if (!this.audio || this.button.disabled) return;
    if (this.audio.paused) this.audio.play().catch(() => {}); // the error event says why
    else this.audio.pause();
  }

  seek(at) {
    if (this.audio && !this.button.disabled) this.audio.currentTime = at;
    this.tell(at);
  }

  tell(at) {
    this.clock.textContent = `${clock(at, 2)} / ${clock(this.length, 1)}`;
    this.timeline.play(at);
  }

  follow() {
    this.button.textContent = this.audio.paused ? "Play" : "Pause";
    const step = () => {
      this.tell(this.audio.currentTime);
      if (!this.audio.paused) { this.timeline.reveal(this.audio.currentTime, this.audio.currentTime); requestAnimationFrame(step); }
    };
    step();
  }
}

/** Everything of one recording. */
class Conversation {
  constructor(recording) {
    this.recording = recording;
    this.turns = new Map(recording.turns.map((turn) => [turn.number, turn]));
    this.timeline = new Timeline(recording, (at, number) => { this.select(number, false); this.player.seek(at); });
    this.player = new Player(recording, this.timeline);
    this.rows = new Map();
    this.nodes = [this.timelineSection(), this.turnsSection(), ...(IS_PART ? [] : [this.messagesSection()])];
  }

  timelineSection() {
    const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    const swatch = (draw, text) => el("li", {}, svg("svg", { width: 22, height: 14, "aria-hidden": "true" }, draw), text);
    const box = (lane, more) => [svg("rect", { class: `bar ${lane}`, x: 1, y: 2, width: 20, height: 10, rx: 2 }), more];
    const kinds = new Set(this.recording.marks.map((mark) => mark.kind));
    const names = { interruption: "interruption", error: "error", lost: "audio lost", failed: "the test failed", mark: "mark of the test", end: "end of the session" };
    return el("section", { id: "timeline", "aria-labelledby": "timeline-title" }, el("div", { class: "bar-head" }, el("h2", { id: "timeline-title" }, "Timeline"),
      el("div", { class: "tools" }, !IS_PART && [this.player.clock, this.player.button], button("−", "Zoom out", () => this.timeline.zoom(ZOOM)), button("+", "Zoom in", () => this.timeline.zoom(1 / ZOOM)),
        button("Whole", "Show the whole time", () => this.timeline.show(0, this.timeline.length)), button("?", "Keys", () => this.help()))),
      this.timeline.node, !IS_PART && this.player.note,
      el("ul", { class: "legend", "aria-label": "Legend" }, swatch(box("user"), "user"), !IS_PART && !this.recording.only_heard && swatch(box("model"), "model runs"), !this.recording.only_heard && swatch(box("functions"), "function call"), swatch(box("bot"), "bot"),
        swatch(box("bot", svg("rect", { x: 1, y: 2, width: 20, height: 10, fill: "url(#hatch)" })), "interrupted"),
        swatch(svg("path", { class: "wait", d: "M2 3V11M2 7H20M20 3V11" }), "until the bot is heard"),
        Object.keys(names).filter((kind) => kinds.has(kind)).map((kind) => swatch(svg("path", { class: `mark ${kind}`, d: SHAPES[kind], transform: "translate(11 7)" }), names[kind]))));
  }

  turnsSection() {
    const { turns } = this.recording, title = el("h2", { id: "turns-title" }, "Turns");
    if (!turns.length) return el("section", { "aria-labelledby": "turns-title" }, el("div", { class: "bar-head" }, title),
      el("p", { class: "muted" }, "There was no turn."));
    const withCalls = turns.some((turn) => turn.calls.length), measures = measuresOf([this.recording]);
    const slowestOf = (measure) => turns.reduce((one, other) => (other[measure] ?? -1) > (one[measure] ?? -1) ? other : one);
    const most = Object.fromEntries(measures.map((measure) => [measure, slowestOf(measure)]));
    const column = (text, style) => el("th", { scope: "col", role: "columnheader", class: style }, text);
    // Where the window is narrow each cell is a line with its name before it, so what is in it is one element.
    const cell = (name, style, ...content) => el("td", { role: "cell", "data-name": name, class: style }, el("div", {}, content));
    const body = el("tbody", { role: "rowgroup" }, turns.map((turn, index) => {
      const latency = (measure) => {
        if (turn[measure] === null) return cell(MEASURES[measure], "r none", "–");
        const slowest = turns.length > 1 && turn === most[measure];
        return slowest ? cell(MEASURES[measure], "r slowest", el("b", {}, ms(turn[measure])), el("small", {}, "slowest")) : cell(MEASURES[measure], "r", ms(turn[measure]));
      };
      const asked = turn.modality !== null;
      const row = el("tr", { role: "row", "data-turn": turn.number, tabindex: index ? -1 : 0 },
        el("th", { scope: "row", role: "rowheader", "data-name": "Turn" }, turn.number), cell("Who began", null, WHO[turn.modality] || "bot"),
        cell("User", asked ? "say" : "say none", turn.user_text || (asked && el("span", { class: "muted" }, turn.user_text === null ? "not known" : "no words"))), cell("Bot", "say", this.said(turn)),
        withCalls && cell("Calls", turn.calls.length ? null : "none", turn.calls.map((call) => this.call(call))), measures.map(latency), cell("Status", "status", this.status(turn)));
      this.rows.set(turn.number, row);
      return row;
    }));
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-turn]");
      if (row && !String(getSelection())) this.select(Number(row.dataset.turn), true);
    });
    body.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr[data-turn]");
      if (row && event.key === "Enter") this.select(Number(row.dataset.turn), true);
    });
    return el("section", { "aria-labelledby": "turns-title" }, el("div", { class: "bar-head" }, title, el("p", { class: "muted" }, "Latencies in ms")),
      el("div", { class: "box" }, el("table", { id: "turns", class: "stack", role: "table" }, el("caption", { class: "hidden" }, "Turns, with latencies in milliseconds"),
        el("colgroup", {}, ["n", "who", "", "", ...(withCalls ? ["calls"] : []), "ms", "ms", "ms", "status"].map((name) => el("col", { class: name }))),
        el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, column("#"), column("Who began"), column("User"), column("Bot"), withCalls && column("Calls"), column(["Voice to", el("br"), "voice"], "r"), column(["First", el("br"), "token"], "r"), column(["First", el("br"), "audio"], "r"), column("Status", "status"))),
        body)));
  }

  said(turn) {
    const text = turn.bot_text, heard = turn.spoken_text;
    if (!text) return el("span", { class: "muted" }, text === null ? "not known" : "nothing");
    if (turn.status !== "interrupted" || heard === text) return text;
    if (!text.startsWith(heard)) return [heard, " ", el("del", { title: "not heard" }, text)];
    return [heard, el("del", { title: "not heard" }, text.slice(heard.length))];
  }

  call(call) {
    const taken = call.seconds === null ? "no result" : `${ms(call.seconds)} ms`;
    const result = call.result === null ? "" : ` → ${spaced(call.result)}`;
    return el("div", { class: "call" }, el("code", {}, `${call.name ?? "(no name)"}(${call.arguments === null ? "…" : spaced(call.arguments)})${result}`), el("small", {}, call.cancelled ? "cancelled" : taken));
  }

  status(turn) {
    const words = turn.status.replace("_", " "), bad = turn.status === "failed" || turn.status === "in_progress" || turn.errors.length;
    return [bad || turn.status === "interrupted" ? el("span", { class: bad ? "tag bad" : "tag" }, words) : words, turn.assumed && el("small", {}, `assumed: ${turn.assumed}`), (turn.failure ? [turn.failure] : turn.errors).map((words) => el("small", { class: "bad" }, words))];
  }

  /** Select a turn, and show what happened in it; null: none. */
  select(number, seeks) {
    const turn = number === null ? null : this.turns.get(number);
    for (const [each, row] of this.rows) {
      const chosen = turn && each === turn.number;
      if (chosen) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
      row.tabIndex = chosen || (!turn && row === [...this.rows.values()][0]) ? 0 : -1;
    }
    if (this.steps) this.steps.remove();
    this.timeline.select(turn || null);
    if (!turn) return;
    const row = this.rows.get(turn.number);
    this.steps = el("tr", { class: "steps", role: "row" }, el("td", { colspan: row.cells.length, role: "cell" }, el("ol", { "aria-label": `What happened in turn ${turn.number}` },
      turn.timeline.map(([at, who, words]) => el("li", {}, el("time", {}, clock(at, 3)), el("span", { class: "muted" }, who), el("span", {}, words))))));
    row.after(this.steps);
    if (seeks) this.player.seek(turn.start);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    row.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
    if (seeks) row.focus({ preventScroll: true });
  }

  step(by) {
    const numbers = [...this.turns.keys()], at = this.timeline.turn ? numbers.indexOf(this.timeline.turn.number) : by > 0 ? -1 : numbers.length;
    const next = numbers[Math.min(numbers.length - 1, Math.max(0, at + by))];
    if (next !== undefined) this.select(next, true);
  }

  messagesSection() {
    const { messages } = this.recording, types = [...new Set(messages.map(([, , message]) => String(message.type)))].sort();
    const list = el("ol"), more = el("div", { class: "more" }), state = { type: "", text: "", at: 0, found: messages };
    const render = () => {
      for (const [at, direction, message] of state.found.slice(state.at, state.at + PAGE)) {
        const node = el("details", {}, el("summary", {}, el("time", {}, at.toFixed(3)), el("span", { class: "muted" }, direction === "in" ? "from bot" : "to bot"), el("code", {}, message.type), el("code", {}, spaced(message.data ?? {}).slice(0, 160))));
        node.addEventListener("toggle", () => node.children.length > 1 || node.append(el("pre", {}, JSON.stringify(message, null, 1))));
        list.append(el("li", {}, node));
      }
      state.at = Math.min(state.at + PAGE, state.found.length);
      const left = state.found.length - state.at;
      more.replaceChildren(el("span", { class: "muted", role: "status" }, `${grouped(state.at)} of ${counted(state.found.length, "message")} `),
        ...(left ? [el("button", { type: "button", onclick: render }, `Show ${grouped(Math.min(PAGE, left))} more`)] : []));
    };
    const search = () => {
      const wanted = state.text.toLowerCase();
      state.found = messages.filter(([, , message]) => (!state.type || String(message.type) === state.type) && (!wanted || JSON.stringify(message).toLowerCase().includes(wanted)));
      state.at = 0;
      list.replaceChildren();
      render();
    };
    const filter = el("select", { onchange: (event) => { state.type = event.target.value; search(); } }, el("option", { value: "" }, "all"), types.map((type) => el("option", { value: type }, type)));
    const field = el("input", { type: "search", oninput: (event) => { state.text = event.target.value; search(); } });
    this.messages = el("details", { id: "messages", class: "card" }, el("summary", {}, `Messages (${grouped(messages.length)})`));
    this.messages.addEventListener("toggle", () => {
      if (!this.messages.open || this.messages.children.length > 1) return;
      this.messages.append(el("div", { class: "tools" }, el("label", {}, "Type", filter), el("label", {}, "Search", field)), list, more);
      search();
    });
    return this.messages;
  }

  help() {
    const keys = [["+  −", "zoom in, zoom out"], ["←  →", "move"], ["Home  End", "the beginning, the end"], ["j  k", "next turn, previous turn"],
      ...(IS_PART ? [] : [["Space", "play or pause"], ["m", "messages"]]), ["?", "this help"]];
    const dialog = el("dialog", { "aria-label": "Keys" }, el("h2", {}, "Keys"),
      el("dl", {}, keys.map(([names, what]) => [el("dt", {}, names.split("  ").map((name) => [el("kbd", {}, name), " "]).flat()), el("dd", {}, what)]).flat()),
      el("p", { class: "muted" }, `In the timeline the wheel zooms, a drag moves, and a click ${IS_PART ? "selects a turn" : "plays from there"}.`), el("form", { method: "dialog", class: "more" }, el("button", {}, "Close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  key(event) {
    const whole = this.timeline.length, length = this.timeline.until - this.timeline.from;
    const acts = { "+": () => this.timeline.zoom(1 / ZOOM), "=": () => this.timeline.zoom(1 / ZOOM), "-": () => this.timeline.zoom(ZOOM), ArrowLeft: () => this.timeline.move(-0.2), ArrowRight: () => this.timeline.move(0.2),
      Home: () => this.timeline.show(0, length), End: () => this.timeline.show(whole - length, whole), j: () => this.step(1), k: () => this.step(-1), "?": () => this.help(),
      ...(IS_PART ? {} : { " ": () => this.player.toggle(), m: () => { this.messages.open = !this.messages.open; this.messages.scrollIntoView({ block: "nearest" }); } }) };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
    if (event.target.closest("input, select, textarea") || (event.key === " " && event.target.closest("button, summary"))) return;
    event.preventDefault();
    act();
  }
}

let current = null;
document.addEventListener("keydown", (event) => current && current.key(event));

function findingsOf(recordings) {
  const items = recordings.flatMap((recording, index) => recording.findings.map((finding) => el("li", {},
    el("span", { class: finding.bad ? "tag bad" : "tag" }, finding.kind),
    el("span", {}, recordings.length > 1 ? `${recording.name}: ` : "", finding.text, " ", finding.turn !== null && el("button", { type: "button", class: "link", onclick: () => { open(index); current.select(finding.turn, true); } }, `Show turn ${finding.turn}`)))));
  const all = el("ul", { class: "findings" }, items.slice(0, 12));
  if (items.length > 12) all.append(el("li", {}, el("span"), el("button", { type: "button", class: "link", onclick: (event) => { event.target.closest("li").remove(); all.append(...items.slice(12)); } }, `${items.length - 12} more`)));
  return items.length ? el("section", { "aria-labelledby": "findings-title" }, el("h2", { id: "findings-title" }, "What stands out"), all) : null;
}

/** Show one of the recordings. */
function open(index) {
  if (current && current.recording === data.recordings[index]) return;
  if (current) current.nodes.forEach((node) => node.remove());
  current = new Conversation(data.recordings[index]);
  if (data.recordings.length > 1) current.nodes.unshift(el("section", { class: "chosen" }, el("h2", {}, data.recordings[index].name), el("p", { class: "muted" }, factsOf(data.recordings[index]).join(" · "))));
  main.append(...current.nodes);
  document.querySelectorAll("#recordings tr[data-index]").forEach((row) => row.toggleAttribute("aria-current", Number(row.dataset.index) === index));
}

function factsOf(recording) {
  return [recording.bot || (recording.rtvi && `RTVI ${recording.rtvi}`), recording.wall && recording.wall.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC"), clock(recording.seconds, 1), counted(recording.turns.length, "turn"), recording.library && `recorded by ${recording.library}`].filter(Boolean);
}

function smallTimeline(recording) {
  const place = (at) => 100 * at / Math.max(recording.seconds, 0.1);
  return svg("svg", { class: "small", viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" }, recording.bars.filter((bar) => bar.lane === "user" || bar.lane === "bot").map((bar) =>
    svg("rect", { class: `bar ${bar.lane}`, x: place(bar.start), y: bar.lane === "user" ? 2 : 12, width: Math.max(0.3, place(bar.end) - place(bar.start)), height: 8 })));
}

function recordingsPage() {
  const { recordings } = data, only = recordings.length === 1 ? recordings[0] : null, turns = recordings.flatMap((recording) => recording.turns);
  head(only ? "Recorded conversation" : "Recorded conversations", only ? only.name : counted(recordings.length, "recording"), only ? factsOf(only) : [counted(turns.length, "turn"), clock(recordings.reduce((sum, each) => sum + each.seconds, 0), 0)], null);
  const findings = findingsOf(recordings);
  if (findings) main.append(findings);
  if (data.baseline) main.append(changes(data.baseline, data.left_out));
  if (turns.length) main.append(el("section", { "aria-labelledby": "latencies-title" }, el("h2", { class: "hidden", id: "latencies-title" }, "Latencies"), tiles(data.percentiles, turns, measuresOf(recordings))));
  if (!only) {
    main.append(el("section", { id: "recordings", "aria-labelledby": "recordings-title" }, el("div", { class: "bar-head" }, el("h2", { id: "recordings-title" }, "Recordings")),
      table("Recordings", ["Recording", "Timeline", "Length", "Turns", "Voice to voice, p50", "Findings"], recordings.map((recording, index) => [
        el("button", { type: "button", class: "link", onclick: () => { open(index); main.querySelector(".chosen").scrollIntoView({ block: "start" }); } }, recording.name), smallTimeline(recording), clock(recording.seconds, 1), recording.turns.length,
        recording.percentiles.voice_to_voice.p50 === null ? "–" : `${ms(recording.percentiles.voice_to_voice.p50)} ms`, recording.findings.filter((finding) => finding.bad).length || "–"]), 2)));
  }
  if (recordings.length) open(0);
}

/** Show turns as a part of another page, without a head: at first the latest, because between two may be any time. */
function turnsPage() {
  document.documentElement.classList.add("part");
  open(0);
  const { timeline } = current;
  timeline.show(timeline.length - LATEST, timeline.length);
}
