// <rtvi-voice>: a conversation with a bot, by voice and in writing. The application's server relays it to the bot.
//
//   <script type="module" src="/bot/rtvi-voice.js"></script>
//   <rtvi-voice></rtvi-voice>
//
// Attributes: heading (a text above it), no-text (without a field for writing).
// Methods: start(), stop(), sendText(text). Property: muted. Its texts: customElements.get("rtvi-voice").texts.
// Event: rtvi-event, with detail {event, data}, for each event of the server.
// Style: the custom properties at the start of the style sheet below, and the parts.
// All text of the server and the bot is shown as text (textContent), never as HTML.

const BASE = new URL("./", import.meta.url);
const WORKLET = "rtvi-voice-worklet.js";
const MICROPHONE_RATE = 16000;

// -- the transcript ----------------------------------------------------------------------------------------------------

const MAX_LINES = 500;

/**
 * The words of both sides, as lines {who, text, interim, spoken}. `who` is "you", "bot" or "note", an interim line may
 * change, and `spoken` is the number of characters that were heard. A changed line is replaced by a new one.
 */
export class Transcript {
  constructor() {
    this.lines = [];
    this.chosen = {}; // many bots report the same words in several events: only the first kind of each side counts
    this.interim = null; // the line of the user's current words
    this.answer = []; // the lines of the bot's current answer
  }

  /** Update the lines for an event. */
  apply(event, data) {
    if (event === "userInput" || event === "userTranscript") this.hear(event, data);
    else if (event === "botTranscript" || event === "botOutput") this.say(event, data);
    else if (event === "relayText") this.add("you", data.text);
    else if (event === "relayGap") this.add("note", `${data.missed} earlier events are not shown`);
    else if (event === "turnEnded") this.endTurn(data);
  }

  add(who, text, interim = false) {
    const line = { who, text, interim, spoken: text.length };
    this.lines.push(line);
    this.lines = this.lines.slice(-MAX_LINES);
    return line;
  }

  replace(line, changes) {
    const changed = { ...line, ...changes };
    this.lines = this.lines.map((each) => (each === line ? changed : each));
    return changed;
  }

  isChosen(who, event) {
    return (this.chosen[who] ??= event) === event;
  }

  hear(event, { text, final, input_type = "transcription" }) {
    if (input_type !== "transcription" || !this.isChosen("you", event)) return;
    const line = this.interim ?? this.add("you", "", true);
    this.interim = this.replace(line, { text, interim: !final, spoken: text.length });
    if (final) this.interim = null;
  }

  say(event, { text, output_type, spoken_status = "new" }) {
    // botOutput reports each part again while its words are spoken.
    if (!this.isChosen("bot", event) || spoken_status !== "new" || output_type === "word") return;
    this.answer.push(this.add("bot", text));
  }

  // Bots do not report the last words of an answer that stops in mid-sentence, or where an interrupting answer starts.
  endTurn({ status, bot_text: text, spoken_text: heard }) {
    const [first, ...others] = this.answer;
    this.answer = [];
    if (!text) return;
    const spoken = status === "interrupted" && typeof heard === "string" ? spokenLength(text, heard) : text.length;
    this.replace(first ?? this.add("bot", ""), { text, spoken });
    this.lines = this.lines.filter((line) => !others.includes(line));
  }
}

/** Return the number of characters of a text that were heard. Spaces and punctuation may differ. */
export function spokenLength(text, heard) {
  const count = (words) => words.match(/[\p{L}\p{N}]/gu)?.length ?? 0;
  let rest = count(heard);
  if (rest >= count(text)) return text.length;
  let length = 0;
  for (const sign of text) {
    if (rest === 0 && /[\p{L}\p{N}\s]/u.test(sign)) break;
    length += sign.length;
    rest -= count(sign);
  }
  return rest > 0 || count(heard) === 0 ? 0 : length;
}

// -- the sound ---------------------------------------------------------------------------------------------------------

/** Ask the user for the microphone. Throws what getUserMedia() throws. */
async function openMicrophone() {
  if (!navigator.mediaDevices) throw new DOMException("", "SecurityError");
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
  return await navigator.mediaDevices.getUserMedia({ audio });
}

const stopTracks = (stream) => stream.getTracks().forEach((track) => track.stop());

/**
 * The loudspeaker and, if there is one, the microphone. rtvi-voice-worklet.js runs in the audio thread between them.
 *
 * The handlers are `frame(pcm, level)`, `status({played, playing, level})`, `lost()` and `paused(whether)`.
 */
class Sound {
  #context = new AudioContext({ latencyHint: "interactive" });
  #node = null;
  #stream = null;
  #source = null;

  constructor(handlers) {
    this.handlers = handlers;
  }

  async open() {
    this.#context.onstatechange = () => this.handlers.paused(!["running", "closed"].includes(this.#context.state));
    await this.#context.audioWorklet.addModule(new URL(WORKLET, BASE));
    this.#node = new AudioWorkletNode(this.#context, "rtvi-voice", { outputChannelCount: [1] });
    this.#node.port.onmessage = ({ data }) => {
      if (data.frame) this.handlers.frame(data.frame, data.level);
      else this.handlers.status(data);
    };
    this.#node.connect(this.#context.destination);
  }

  get paused() {
    return this.#context.state !== "running";
  }

  resume() {
    return this.#context.resume();
  }

  get hasMicrophone() {
    return this.#stream !== null;
  }

  /** Send the audio of a microphone until it is unplugged. */
  connectMicrophone(stream) {
    if (this.#context.state === "closed") return stopTracks(stream); // the conversation ended before the user's answer
    this.#stream = stream;
    stream.getAudioTracks()[0].onended = () => {
      this.#disconnectMicrophone();
      this.handlers.lost();
    };
    this.#source = this.#context.createMediaStreamSource(stream);
    this.#source.connect(this.#node);
  }

  #disconnectMicrophone() {
    this.#source?.disconnect();
    if (this.#stream) stopTracks(this.#stream);
    this.#source = this.#stream = null;
  }

  /** True to record silence. The browser's own recording sign shows this, too. */
  set muted(value) {
    for (const track of this.#stream?.getTracks() ?? []) track.enabled = !value;
  }

  play(audio) {
    this.#node.port.postMessage({ audio }, [audio]);
  }

  setRate(rate) {
    this.#node.port.postMessage({ rate });
  }

  clear() {
    this.#node.port.postMessage({ clear: true });
  }

  /** Count the played audio from 0 again. */
  restart() {
    this.#node.port.postMessage({ restart: true });
  }

  close() {
    this.#disconnectMicrophone();
    if (this.#node) this.#node.port.onmessage = null;
    if (this.#context.state !== "closed") this.#context.close();
  }
}

// -- the connection ----------------------------------------------------------------------------------------------------

const RETRY_MS = 500;
const GIVE_UP_MS = 10_000;
// The server sends at least one message a second.
const SILENCE_MS = 3000;
const REQUEST_MS = 15_000;
const [PLAYED_MS, IDLE_MS] = [100, 1000];
// Audio waits at most 0.3 s, or all later audio would be late: 0.1 s in the WebSocket, and the newest 0.2 s here.
const [MAX_BUFFERED_BYTES, MAX_WAITING_FRAMES] = [MICROPHONE_RATE * 2 * 0.1, 10];
const TAKEN = 4001;
// Codes of a page that has broken the protocol. Another attempt would not help.
const REFUSED = [1002, 1003, 1007, 1008, 1009];
const OVER = [404, 409, 410];
// Errors of a server, or of a proxy in front of it, that opens no WebSocket.
const UNSUPPORTED = ["no_websocket", "not_websocket", "bad_request"];

/** An answer of the server that refuses a request. */
class Refusal extends Error {
  constructor(status, { error = "", message = "" } = {}) {
    super(message);
    this.status = status;
    this.error = error;
  }
}

async function request(route, body, timeout = REQUEST_MS) {
  const signal = AbortSignal.timeout(timeout); // a network that fails silently never answers
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(new URL(route, BASE), { signal, ...(body === undefined ? {} : post) });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, answer);
  return answer;
}

/** Return why there is no sound. Browsers do not report this: a policy forbids a worklet that can be fetched. */
async function causeOf(error) {
  const isThere = error.name === "AbortError" && (await request(WORKLET).then(() => true, () => false));
  if (!isThere) return error;
  const cure = "add 'self' to script-src, or 'strict-dynamic' to its nonce";
  return new DOMException(`the Content-Security-Policy forbids ${WORKLET}: ${cure}`, "PolicyError");
}

/** Start the session, or find the one that the server has; return the state of its client. */
async function startSession() {
  // Marked as the first, because the console shows other requests without a cookie as errors.
  const answer = await request("session", { first: true });
  if (answer.error !== "no_cookie") return answer.state;
  return (await request("session", {})).state; // with the cookie that the first answer has set
}

/** The WebSocket of a session, opened again when it is lost. */
class Connection {
  #socket = null;
  #last = ""; // the id of the last event
  #received = 0; // time of the last message
  #lostAt = null; // time of the loss; null while connected
  #triedAt = -Infinity; // time of the last attempt
  #wasOpen = false; // True after the first successful attempt
  #waiting = [];
  #played = 0;
  #reportedAt = 0;
  #retry = null;
  #clock = null;
  #closed = false;

  /** The handlers are `open()`, `event(name, data)`, `audio(pcm)`, `lost()`, `reset()` and `over(reason)`. */
  constructor(handlers) {
    this.handlers = handlers;
  }

  open() {
    this.#clock = setInterval(() => this.tick(), IDLE_MS);
    addEventListener("online", this.#online);
    this.#connect();
  }

  #online = () => {
    if (this.#lostAt !== null) this.#connect();
  };

  #connect() {
    clearTimeout(this.#retry);
    this.#abandon();
    const url = new URL("voice", BASE);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = (this.#socket = new WebSocket(url));
    socket.binaryType = "arraybuffer";
    this.#received = this.#triedAt = performance.now();
    socket.onopen = () => {
      this.#wasOpen = true;
      this.#waiting = [];
      this.#played = 0;
      this.send({ type: "start", sample_rate_hz: MICROPHONE_RATE, after: this.#last });
      this.handlers.open();
    };
    socket.onmessage = ({ data }) => {
      this.#received = performance.now();
      this.#lostAt = null;
      if (data instanceof ArrayBuffer) this.handlers.audio(data);
      else this.#take(JSON.parse(data));
    };
    socket.onclose = ({ code }) => this.#lose(code);
  }

  #take({ event, data, id }) {
    if (id !== undefined) {
      // An id of another session has another prefix. The server sends all events of that session.
      if (this.#last && id.split(".")[0] !== this.#last.split(".")[0]) this.handlers.reset();
      this.#last = id;
    }
    this.handlers.event(event, data);
    if (event === "relayEnd") this.#end(data.reason);
  }

  #lose(code) {
    this.#abandon();
    if (code === TAKEN) return this.#end("taken");
    if (REFUSED.includes(code)) return this.#end("refused");
    if (this.#lostAt === null) {
      this.#lostAt = performance.now();
      this.handlers.lost();
      // At once, unless the last attempt was just now: a server that closes each connection must not be flooded.
      if (this.#lostAt - this.#triedAt > RETRY_MS) return this.#connect();
    }
    this.#wait();
  }

  /** Wait before the next attempt, and ask why the last one was refused, because no page can read that itself. */
  async #wait() {
    const { error = null, refused } = await request("session", undefined, SILENCE_MS).catch((error) => ({ error }));
    if (this.#closed || this.#socket) return;
    if (OVER.includes(error?.status)) this.#end("gone");
    else if (UNSUPPORTED.includes(refused)) this.#end("unsupported");
    else if (performance.now() - this.#lostAt > GIVE_UP_MS) this.#end(this.#reasonOf(error, refused));
    else this.#retry = setTimeout(() => this.#connect(), RETRY_MS);
  }

  #reasonOf(error, refused) {
    if (refused === "too_many_pages") return "pages";
    // The server answers, but accepted no connection: a proxy blocks WebSockets, or the origin is wrong.
    return error === null && !this.#wasOpen ? "unsupported" : "lost";
  }

  #end(reason) {
    this.close();
    this.handlers.over(reason);
  }

  /** Close a socket that may be dead, and ignore its last messages and its end. */
  #abandon() {
    const socket = this.#socket;
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    this.#socket = null;
  }

  get #isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Report the seconds played, and check that the connection is alive. */
  tick({ played = this.#played, playing = false } = {}) {
    const now = performance.now();
    this.#played = played;
    if (this.#socket && now - this.#received > SILENCE_MS) return this.#lose(0);
    if (!this.#isOpen || now - this.#reportedAt < (playing ? PLAYED_MS : IDLE_MS) - 5) return;
    this.#reportedAt = now;
    this.send({ type: "played", seconds: Math.round(played * 1000) / 1000 });
  }

  /** Send a JSON message; return whether there is a connection. */
  send(message) {
    if (this.#isOpen) this.#socket.send(JSON.stringify(message));
    return this.#isOpen;
  }

  sendAudio(frame) {
    if (!this.#isOpen) return;
    this.#waiting = [...this.#waiting, frame].slice(-MAX_WAITING_FRAMES);
    while (this.#waiting.length > 0 && this.#socket.bufferedAmount < MAX_BUFFERED_BYTES) {
      this.#socket.send(this.#waiting.shift());
    }
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#retry);
    clearInterval(this.#clock);
    removeEventListener("online", this.#online);
    this.#abandon();
  }
}

// -- texts -------------------------------------------------------------------------------------------------------------

const TEXTS = {
  conversation: "Conversation",
  you: "You",
  bot: "Bot",
  unheard: "not heard",
  start: "Start talking",
  again: "Start again",
  retry: "Try again",
  takeBack: "Continue here",
  resume: "Turn on the sound",
  end: "End",
  mute: "Mute",
  microphone: "Use microphone",
  field: "Write to the bot",
  send: "Send",
  empty: "Press “Start talking”, or write to the bot.",
  state: {
    idle: "Not started",
    connecting: "Connecting…",
    reconnecting: "Reconnecting…",
    listening: "Listening",
    ready: "Ready",
    thinking: "Thinking…",
    speaking: "Speaking",
    ended: "Ended",
  },
  notice: {
    NotAllowedError:
      "The microphone is blocked. Allow it in the browser's address bar, then press “Try again”, or write.",
    NotFoundError: "No microphone was found. Connect one, then press “Try again”, or write.",
    NotReadableError:
      "The microphone cannot be used, perhaps because another program uses it. Press “Try again”, or write.",
    SecurityError: "Browsers give the microphone only to pages that are loaded by HTTPS. You can write.",
    microphoneLost: "The microphone was disconnected. Connect one, then press “Try again”, or write.",
    policy: "The Content-Security-Policy of this site forbids a file that this page needs. Its administrator can allow it.",
    sound: "The browser cannot play or record sound. Load the page again, or try another browser.",
    paused: "The browser has paused the sound.",
    unreachable: "The server cannot be reached. Check your connection, then try again.",
    busy: "Too many people are talking to the bot. Try again in a minute.",
    forbidden: "You may not talk to this bot.",
    cookies: "The browser blocks the cookie that this page needs. Allow cookies for this site, then try again.",
    failing: "The server has reported an error. Try again later.",
    reconnecting: "The connection was lost. Reconnecting…",
    notSent: "The message was not sent.",
    botError: "The bot reports an error:",
  },
  over: {
    user: "You have ended the conversation.",
    left: "You were away, so the conversation was ended.",
    idle: "Nothing was said for a long time, so the conversation was ended.",
    bot: "The bot has ended the conversation.",
    network: "The bot's connection was lost, so the conversation was ended.",
    shutdown: "The server was stopped, so the conversation was ended.",
    failed: "The bot cannot be reached. Try again in a minute.",
    taken: "The conversation continues in another tab.",
    takenHere: "The conversation continues elsewhere on this page.",
    gone: "The conversation is over, because the connection was lost for too long.",
    lost: "The connection was lost. Check your network, then try again.",
    refused: "The server has refused the connection. Load the page again.",
    pages: "This conversation is open in too many tabs. Close some of them, then try again.",
    unsupported: "The web server does not accept connections for the voice. Its administrator can change that.",
  },
};

/** Return the key in `TEXTS.notice` of the reason why a request failed. */
function reasonOf(error) {
  if (!(error instanceof Refusal)) return "unreachable";
  return { 403: "forbidden", 428: "cookies", 503: "busy" }[error.status] ?? "failing";
}

// -- the element -------------------------------------------------------------------------------------------------------

const STYLE = new CSSStyleSheet();
STYLE.replaceSync(`
:host {
  --accent: var(--rtvi-accent, #1f5fbf); --on-accent: var(--rtvi-on-accent, #fff);
  --ink: var(--rtvi-ink, #1b1f24); --muted: var(--rtvi-muted, #57606a); --line: var(--rtvi-line, #848d97);
  --card: var(--rtvi-card, #fff); --soft: var(--rtvi-soft, #eef1f4); --mine: var(--rtvi-mine, #dfe9f8);
  --bad: var(--rtvi-bad, #b42318); --good: var(--rtvi-good, #0a7150);
  color-scheme: light dark; display: flex; flex-direction: column; box-sizing: border-box;
  block-size: 36rem; max-block-size: 100dvh; overflow: hidden; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; font: 1rem/1.5 system-ui, sans-serif;
}
@media (prefers-color-scheme: dark) {
  :host {
    --accent: var(--rtvi-accent, #7db5ff); --on-accent: var(--rtvi-on-accent, #0b0f14);
    --ink: var(--rtvi-ink, #e6edf3); --muted: var(--rtvi-muted, #a3aeba); --line: var(--rtvi-line, #6b7683);
    --card: var(--rtvi-card, #161b22); --soft: var(--rtvi-soft, #222932); --mine: var(--rtvi-mine, #1d3252);
    --bad: var(--rtvi-bad, #ff8f86); --good: var(--rtvi-good, #55d3a0);
  }
}
:host([hidden]) { display: none; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
.unseen { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
header { display: flex; align-items: center; gap: .75rem; padding: .625rem 1rem; border-block-end: 1px solid var(--soft); }
h2 { margin: 0; font-size: 1.0625rem; font-weight: 650; overflow-wrap: anywhere; }
#state { display: flex; align-items: center; gap: .5rem; white-space: nowrap; color: var(--muted); }
#state::before { content: ""; inline-size: .625rem; block-size: .625rem; border-radius: 50%; background: var(--muted); }
#state[data-state=listening]::before, #state[data-state=ready]::before { background: var(--good); }
#state[data-state=speaking]::before { background: var(--accent); }
#state[data-state=thinking]::before, #state[data-state=connecting]::before, #state[data-state=reconnecting]::before { background: none; border: 2px solid var(--accent); animation: pulse 1s ease-in-out infinite alternate; }
@keyframes pulse { to { opacity: .25; } }
h2 + #state { margin-inline-start: auto; }
#scroll { position: relative; flex: 1 1 0; min-block-size: 3rem; overflow-y: auto; overscroll-behavior: contain; padding: .75rem 1rem; scrollbar-width: thin; }
#scroll:focus-visible { outline-offset: -3px; }
#empty { margin: 0; padding-block: 2rem; text-align: center; color: var(--muted); }
ol { list-style: none; margin: 0; padding: 0; display: flex; flex-direction: column; gap: .5rem; }
li { max-inline-size: min(85%, 36rem); padding: .4375rem .75rem; border-radius: 12px; overflow-wrap: anywhere; white-space: pre-wrap; unicode-bidi: isolate; }
li.you { align-self: flex-end; background: var(--mine); border-end-end-radius: 3px; }
li.bot { align-self: flex-start; background: var(--soft); border-end-start-radius: 3px; }
li.note { align-self: center; color: var(--muted); font-size: .875rem; }
.interim, .unheard { color: var(--muted); font-style: italic; }
#notice { display: flex; flex-wrap: wrap; align-items: center; gap: .25rem .75rem; margin: 0; padding-inline: 1rem; overflow-wrap: anywhere; }
#notice > span:not(:empty) { padding-block: .5rem; }
#notice.bad span { color: var(--bad); }
footer { display: grid; gap: .625rem; padding: .75rem 1rem; border-block-start: 1px solid var(--soft); }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: .625rem; }
button, input { font: inherit; color: inherit; min-block-size: 2.5rem; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
button { padding-inline: .875rem; cursor: pointer; white-space: nowrap; }
button:hover { border-color: var(--ink); }
button.main, button[aria-pressed=true] { background: var(--accent); border-color: var(--accent); color: var(--on-accent); font-weight: 600; }
button.stop { background: var(--card); border-color: var(--bad); color: var(--bad); }
input { flex: 1; min-inline-size: 0; padding-inline: .75rem; }
input::placeholder { color: var(--muted); opacity: 1; }
#levels { flex: 1; display: grid; grid-template-columns: auto minmax(1rem, 1fr); align-items: center; gap: 0 .5rem; min-inline-size: 5rem; max-inline-size: 16rem; margin-inline-start: auto; font-size: .75rem; line-height: 1.25; color: var(--muted); }
.level { block-size: .375rem; border-radius: .1875rem; background: var(--soft); overflow: hidden; }
.level > i { display: block; block-size: 100%; border-radius: inherit; background: var(--accent); transform: scaleX(0); transform-origin: 0 50%; transition: transform 80ms linear; }
.level > i.mine { background: var(--good); }
@media (prefers-reduced-motion: reduce) {
  #state::before { animation: none !important; }
  .level > i { transition: none; }
}
@media (forced-colors: active) { .level > i, #state::before { background: CanvasText; forced-color-adjust: none; } }
`);

/** Return an element: its properties, and its children or text. */
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  const { role, aria = {}, part, ...others } = properties;
  if (role) element.setAttribute("role", role);
  if (part) element.setAttribute("part", part);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(`aria-${name}`, value);
  Object.assign(element, others);
  element.append(...children);
  return element;
}

// The bar is empty below -50 dB, and full at 0 dB.
const barOf = (level) => Math.max(0, 1 + (20 * Math.log10(Math.max(level, 1e-6))) / 50);
// Played audio below this level counts as silence.
const AUDIBLE = 0.003;
const AUDIBLE_MS = 400;
// "Thinking" ends after this time without an answer.
const THINKING_MS = 20_000;
const END_MS = 1000;
// The transcript follows new lines if it is scrolled to within this many pixels of its end.
const NEAR_END = 48;
// In the tab's own storage, so that a reloaded page continues, and another tab does not start by itself.
const TALKING = `rtvi-voice ${BASE.pathname}`;

/** Return the tab's storage; null if the browser blocks it along with cookies. */
function storage() {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}

// The element of this page that connected last. If a page has two elements, this one has the voice.
let newest = null;

class RTVIVoice extends HTMLElement {
  static texts = TEXTS;

  #parts = {};
  #items = new WeakMap(); // of the list, by line
  #transcript = new Transcript();
  #sound = null;
  #connection = null;
  #attempt = null; // identifies the conversation for asynchronous steps; null without one
  #state = "idle";
  #ready = false;
  #muted = false;
  #thinkingSince = 0; // 0: no answer is expected
  #audibleAt = 0;
  #playing = false; // True while the bot's audio is played, including silence
  #botSpeaks = false;
  #unsent = []; // texts that wait until the bot is ready
  #sent = ""; // the last text that the server has not confirmed
  #pressed = null; // action of the button beside the notice
  #atEnd = true; // True if the transcript is scrolled to its end

  constructor() {
    super();
    this.attachShadow({ mode: "open" }).adoptedStyleSheets = [STYLE];
  }

  // -- for the application ---------------------------------------------------------------------------------------------

  /** Start a conversation, or continue the one that the server has. Call it in the handler of a click. */
  async start({ muted = false } = {}) {
    await this.#start(muted);
  }

  /** End the conversation. */
  stop() {
    const attempt = this.#attempt;
    if (attempt === null) return;
    if (this.#connection?.send({ type: "end" })) {
      this.#sound.close();
      // The last events follow, unless the connection is lost now.
      setTimeout(() => this.#attempt === attempt && this.#over("user"), END_MS);
    } else {
      request("end", {}).catch(() => {}); // the session may not have started
      this.#over("user");
    }
  }

  /** Send a text. Without a conversation, start one without the microphone. */
  sendText(text) {
    this.#unsent.push(text);
    if (this.#attempt === null) this.#start(true);
    else this.#flush();
  }

  /** True if the bot does not hear the user. Setting it to false may ask for the microphone. */
  get muted() {
    return this.#muted;
  }

  set muted(value) {
    this.#muted = Boolean(value);
    if (this.#sound?.hasMicrophone) this.#sound.muted = this.#muted;
    else if (this.#connection && !this.#muted) this.#addMicrophone();
    this.#remember();
    this.#update();
    this.#show();
  }

  // -- life in the page ------------------------------------------------------------------------------------------------

  connectedCallback() {
    if (!this.shadowRoot.firstChild) this.#build();
    addEventListener("pagehide", this.#leave);
    addEventListener("pageshow", this.#return);
    this.#return({ persisted: true });
  }

  disconnectedCallback() {
    removeEventListener("pagehide", this.#leave);
    removeEventListener("pageshow", this.#return);
    this.#leave();
  }

  /** Close everything. The server keeps the session for some seconds, for the user's next page. */
  #leave = () => {
    if (this.#attempt === null) return;
    this.#close();
    this.#set("idle");
  };

  #return = async ({ persisted }) => {
    const kept = storage()?.getItem(TALKING);
    if (!persisted || !kept || this.#attempt !== null) return;
    const live = await request("session").then(
      () => true,
      () => false,
    );
    if (this.#attempt !== null || !this.isConnected) return;
    if (live) await this.#start(kept === "muted");
    else storage()?.removeItem(TALKING);
  };

  // -- the conversation ------------------------------------------------------------------------------------------------

  async #start(muted) {
    if (this.#attempt !== null) return;
    const attempt = (this.#attempt = {});
    this.#transcript = new Transcript();
    this.#ready = this.#playing = this.#botSpeaks = false;
    this.#muted = muted;
    this.#thinkingSince = 0;
    this.#notify("");
    this.#set("connecting");
    this.#render();
    // Before the AudioContext is made, because browsers let a page that records play sound without a click.
    const stream = muted ? null : await this.#askForMicrophone(attempt);
    if (this.#attempt !== attempt) return;
    let sound;
    try {
      sound = this.#sound = this.#newSound();
      await sound.open();
    } catch (thrown) {
      if (stream) stopTracks(stream);
      const error = await causeOf(thrown);
      const reason = { PolicyError: "policy", AbortError: "unreachable" }[error.name] ?? "sound";
      if (this.#attempt === attempt) this.#fail(this.#texts.notice[reason], error);
      return;
    }
    if (this.#attempt !== attempt) return stream && stopTracks(stream);
    if (stream) this.#useMicrophone(stream);
    try {
      this.#ready = (await startSession()) === "ready";
    } catch (error) {
      if (this.#attempt === attempt) this.#fail(this.#texts.notice[reasonOf(error)], error);
      return;
    }
    if (this.#attempt !== attempt) return;
    this.#connection = new Connection({
      open: () => {
        sound.restart();
        if (this.#state === "reconnecting") this.#notify("");
        this.#set("connecting");
        this.#update();
        this.#flush();
      },
      event: (event, data) => this.#onEvent(event, data),
      audio: (audio) => sound.play(audio),
      lost: () => {
        this.#returnText();
        this.#set("reconnecting");
        this.#notify(this.#texts.notice.reconnecting, "bad");
      },
      reset: () => (this.#transcript = new Transcript()),
      over: (reason) => this.#over(reason),
    });
    this.#connection.open();
    newest = this;
    this.#remember();
    if (sound.paused) this.#paused(true);
    if (!this.#muted && !sound.hasMicrophone) this.#addMicrophone(); // the user has unmuted during the start
  }

  #newSound() {
    const { notice, retry } = this.#texts;
    return new Sound({
      frame: (frame, level) => {
        if (!this.#muted) this.#connection?.sendAudio(frame);
        this.#drawLevel("mine", level);
      },
      status: (status) => this.#played(status),
      lost: () => {
        this.muted = true;
        this.#notify(notice.microphoneLost, "bad", retry, this.#unmute);
      },
      paused: (paused) => this.#paused(paused),
    });
  }

  /** Return the microphone's stream. Null if there is none, as the notice says, or if the conversation has ended. */
  async #askForMicrophone(attempt) {
    let stream;
    try {
      stream = await openMicrophone();
    } catch (error) {
      if (this.#attempt === attempt) this.#refuse(error);
      return null;
    }
    if (this.#attempt === attempt) return stream;
    stopTracks(stream);
    return null;
  }

  /** Show why there is no microphone. A running conversation continues without it; a new one does not start. */
  #refuse(error) {
    const { notice, retry } = this.#texts;
    const text = notice[error.name] ?? notice.NotReadableError;
    if (!this.#connection) return this.#fail(text, error);
    this.#muted = true;
    this.#notify(text, "bad", retry, this.#unmute);
    this.#show();
  }

  #useMicrophone(stream) {
    this.#sound.connectMicrophone(stream);
    this.#sound.muted = this.#muted;
    this.#remember();
    this.#show();
  }

  async #addMicrophone() {
    const stream = await this.#askForMicrophone(this.#attempt);
    if (stream === null) return;
    if (this.#sound.hasMicrophone) return stopTracks(stream); // it was asked for twice
    this.#notify("");
    this.#useMicrophone(stream);
  }

  #unmute = () => {
    this.muted = false;
  };

  /** True if the bot hears the user. */
  get #isHeard() {
    return Boolean(this.#sound?.hasMicrophone) && !this.#muted;
  }

  #remember() {
    if (this.#connection) storage()?.setItem(TALKING, this.#isHeard ? "talking" : "muted");
  }

  #onEvent(event, data) {
    this.#transcript.apply(event, data);
    if (event === "relayText") this.#confirm(data.text);
    if (event === "voiceClear") this.#sound.clear();
    else if (event === "voiceFormat") this.#sound.setRate(data.sample_rate_hz);
    else if (event === "voiceRefused") this.#refused(data);
    else if (event === "transportStateChanged") this.#onTransportState(data);
    else if (event === "error") this.#notify(`${this.#texts.notice.botError} ${data.message}`, "bad");
    else if (event === "userStartedSpeaking") this.#thinkingSince = 0;
    else if (event === "userStoppedSpeaking" || event === "relayText") this.#thinkingSince = performance.now();
    else if (event === "botStartedSpeaking") this.#botSpeaks = true;
    else if (event === "botStoppedSpeaking" || event === "botInterrupted") this.#botSpeaks = false;
    else if (event === "turnEnded") this.#thinkingSince = 0;
    this.#update();
    this.#render();
    this.dispatchEvent(new CustomEvent("rtvi-event", { bubbles: true, composed: true, detail: { event, data } }));
  }

  #onTransportState(state) {
    // The reason of the end follows at once, so these states are not shown.
    if (["disconnecting", "disconnected", "error"].includes(state)) return;
    this.#ready = state === "ready";
    this.#flush();
  }

  #refused({ message }) {
    this.#notify(`${this.#texts.notice.notSent} ${message}`, "bad");
    this.#returnText();
  }

  /** Put the last text back into the field, unless the server has confirmed it. */
  #returnText() {
    this.#parts.text.value ||= this.#sent;
  }

  #confirm(text) {
    if (text !== this.#sent) return;
    if (this.#parts.text.value === text) this.#parts.text.value = "";
    this.#sent = "";
  }

  #flush() {
    while (this.#ready && this.#unsent.length > 0) {
      if (!this.#connection?.send({ type: "text", text: this.#unsent[0], audio_response: true })) return;
      this.#sent = this.#unsent.shift();
    }
  }

  #played({ played, playing, level }) {
    if (level > AUDIBLE) {
      this.#audibleAt = performance.now();
      this.#thinkingSince = 0;
    }
    this.#drawLevel("bots", level);
    this.#playing = playing;
    this.#connection?.tick({ played, playing });
    this.#update();
  }

  #paused(paused) {
    if (!this.#connection) return;
    const { notice, resume } = this.#texts;
    if (paused) this.#notify(notice.paused, "bad", resume, () => this.#sound?.resume());
    else if (this.#parts.noticeText.textContent === notice.paused) this.#notify("");
  }

  /** Show the state of the conversation. */
  #update() {
    if (this.#connection === null || this.#state === "reconnecting") return;
    const now = performance.now();
    if (now - this.#thinkingSince > THINKING_MS) this.#thinkingSince = 0;
    if (!this.#ready) this.#set("connecting");
    else if (now - this.#audibleAt < AUDIBLE_MS || (this.#playing && this.#botSpeaks)) this.#set("speaking");
    else if (this.#thinkingSince) this.#set("thinking");
    else this.#set(this.#isHeard ? "listening" : "ready");
  }

  /** Show why a conversation could not start. */
  #fail(text, error) {
    console.info(`rtvi-voice: ${error.name}: ${error.message}`);
    this.#close();
    this.#muted = false;
    this.#set("idle", "retry");
    this.#notify(text, "bad");
  }

  #over(reason) {
    const { over } = this.#texts;
    const isHere = reason === "taken" && newest !== this; // the conversation continues on this page
    this.#close();
    if (!isHere) storage()?.removeItem(TALKING);
    this.#muted &&= ["taken", "lost", "pages"].includes(reason); // then the conversation can continue unchanged
    this.#set("ended", { taken: "takeBack", failed: "retry", lost: "retry", pages: "retry", unsupported: "retry" }[reason] ?? "again");
    this.#notify((isHere ? over.takenHere : over[reason]) ?? over.bot, ["user", "taken", "bot"].includes(reason) ? "" : "bad");
  }

  #close() {
    this.#attempt = null;
    this.#connection?.close();
    this.#sound?.close();
    this.#connection = this.#sound = null;
    this.#parts.text.value ||= this.#unsent.join(" ");
    this.#unsent = [];
    this.#drawLevel("mine", 0);
    this.#drawLevel("bots", 0);
  }

  // -- the view --------------------------------------------------------------------------------------------------------

  get #texts() {
    return this.constructor.texts;
  }

  #build() {
    const texts = this.#texts;
    const parts = (this.#parts = {
      state: el("span", { id: "state", part: "state" }),
      // Not the state itself, which changes too often to be read out: only the first one of a connection.
      spoken: el("span", { className: "unseen", role: "status" }),
      empty: el("p", { id: "empty" }, texts.empty),
      lines: el("ol", { role: "list", part: "transcript" }),
      noticeText: el("span"),
      action: el("button", { type: "button", hidden: true }),
      main: el("button", { type: "button", className: "main", part: "main" }),
      mute: el("button", { type: "button", part: "mute" }),
      mine: el("i", { className: "mine" }),
      bots: el("i"),
      text: el("input", { maxLength: 2000, autocomplete: "off", placeholder: texts.field, enterKeyHint: "send" }),
    });
    parts.text.setAttribute("aria-label", texts.field);
    parts.notice = el("p", { id: "notice", role: "status", part: "notice" }, parts.noticeText, parts.action);
    const scrolled = { id: "scroll", role: "region", tabIndex: 0, aria: { label: texts.conversation } };
    parts.scroll = el("div", scrolled, parts.empty, parts.lines);
    const levels = (parts.levels = el("div", { id: "levels", aria: { hidden: true }, part: "levels" }));
    for (const [name, bar] of [[texts.you, parts.mine], [texts.bot, parts.bots]]) {
      levels.append(el("span", {}, name), el("div", { className: "level" }, bar));
    }
    parts.form = el("form", { className: "row", part: "form" }, parts.text, el("button", { part: "send" }, texts.send));
    parts.form.hidden = this.hasAttribute("no-text");
    const heading = this.hasAttribute("heading") ? [el("h2", { part: "heading" }, this.getAttribute("heading"))] : [];
    this.shadowRoot.append(
      el("header", { part: "header" }, ...heading, parts.state, parts.spoken),
      parts.scroll,
      parts.notice,
      el("footer", {}, el("div", { className: "row" }, parts.main, parts.mute, levels), parts.form),
    );
    parts.scroll.onscroll = ({ target }) => {
      this.#atEnd = target.scrollHeight - target.scrollTop - target.clientHeight < NEAR_END;
    };
    new ResizeObserver(() => this.#follow()).observe(parts.scroll);
    parts.main.onclick = () => (this.#attempt === null ? this.start({ muted: this.#muted }) : this.stop());
    parts.mute.onclick = () => (this.muted = !this.muted);
    parts.action.onclick = () => this.#pressed();
    parts.form.onsubmit = (event) => {
      event.preventDefault();
      const text = parts.text.value.trim();
      parts.text.value = "";
      if (text) this.sendText(text);
    };
    this.#set("idle");
  }

  /** Show a state, and the action of the main button. */
  #set(state, action = "start") {
    if (state === this.#state && this.#parts.state.textContent) return;
    const isReady = (each) => ["ready", "listening", "thinking", "speaking"].includes(each);
    const wasReady = isReady(this.#state);
    this.#state = state;
    const [texts, parts] = [this.#texts, this.#parts];
    parts.state.textContent = texts.state[state];
    parts.state.dataset.state = state;
    // The notice has the reason of an end, and reports a lost connection.
    if (!isReady(state)) parts.spoken.textContent = "";
    else if (!wasReady) parts.spoken.textContent = texts.state[this.#isHeard ? "listening" : "ready"];
    parts.main.textContent = this.#attempt === null ? texts[action] : texts.end;
    parts.main.classList.toggle("stop", this.#attempt !== null);
    this.#show();
  }

  #show() {
    const { mute, main, empty, levels, noticeText } = this.#parts;
    const focused = this.shadowRoot.activeElement === mute;
    const isSwitch = !this.#muted || this.#sound?.hasMicrophone; // otherwise there is nothing to mute
    mute.textContent = this.#texts[isSwitch ? "mute" : "microphone"];
    if (isSwitch) mute.setAttribute("aria-pressed", this.#muted);
    else mute.removeAttribute("aria-pressed");
    mute.hidden = this.#attempt === null;
    if (focused && mute.hidden) main.focus();
    levels.hidden = this.#attempt === null;
    empty.hidden = this.#state !== "idle" || this.#transcript.lines.length > 0 || noticeText.textContent !== "";
  }

  #notify(text, kind = "", action = "", pressed = null) {
    const parts = this.#parts;
    const focused = this.shadowRoot.activeElement === parts.action;
    if (parts.noticeText.textContent !== text) parts.noticeText.textContent = text;
    parts.notice.className = kind;
    parts.action.textContent = action;
    parts.action.hidden = !action;
    this.#pressed = pressed;
    if (focused && !action) parts.main.focus();
    this.#show();
    this.#follow();
  }

  #drawLevel(who, level) {
    this.#parts[who].style.transform = `scaleX(${barOf(level).toFixed(2)})`;
  }

  #render() {
    const { lines: list } = this.#parts;
    const items = this.#transcript.lines.map((line) => {
      if (!this.#items.has(line)) this.#items.set(line, this.#itemOf(line));
      return this.#items.get(line);
    });
    const shown = new Set(items);
    for (const item of [...list.children]) if (!shown.has(item)) item.remove();
    items.forEach((item, index) => {
      if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
    });
    this.#show();
    this.#follow();
  }

  #itemOf({ who, text, interim, spoken }) {
    const item = el("li", { className: interim ? `${who} interim` : who, part: `line ${who}` });
    if (who !== "note") item.append(el("span", { className: "unseen" }, `${this.#texts[who]}: `));
    item.append(text.slice(0, spoken));
    if (spoken < text.length) {
      const label = el("span", { className: "unseen" }, ` (${this.#texts.unheard}:) `);
      item.append(label, el("span", { className: "unheard", title: this.#texts.unheard }, text.slice(spoken)));
    }
    return item;
  }

  /** Keep the last line visible, unless the user has scrolled up. */
  #follow() {
    const { scroll } = this.#parts;
    if (this.#atEnd) scroll.scrollTop = scroll.scrollHeight;
  }
}

customElements.define("rtvi-voice", RTVIVoice);
