"use strict";
// The page of one conversation. Whatever the server says is put on it as text (textContent), never as HTML.

const $ = (id) => document.getElementById(id);
const bot = document.body.dataset.bot.replace(/session$/, "");
let stream = null;
let retry = null; // the timer of a page that may not follow now, because too many others do
let interim = null; // the line of what the user is saying just now
let chosen = {}; // many bots tell the same words by several events: the first kind is listened to
let answer = []; // the lines of what the bot is saying just now

const endings = {
  user: "The conversation was ended.",
  left: "You were away, so the conversation was ended.",
  idle: "Nobody said anything for long, so the conversation was ended.",
  bot: "The bot has ended the conversation.",
  network: "The connection to the bot was lost.",
  failed: "The bot could not be reached. Try again later.",
};

function line(kind, text) {
  const item = document.createElement("li");
  item.className = kind;
  item.textContent = text;
  $("transcript").append(item);
  item.scrollIntoView({ block: "end" });
  return item;
}

const first = (who, event) => (chosen[who] ??= event) === event;

function heard(event, data) {
  if ((data.input_type ?? "transcription") !== "transcription" || !first("you", event)) return;
  interim ??= line("you interim", "");
  interim.textContent = data.text;
  if (data.final) {
    interim.className = "you";
    interim = null;
  }
}

function said(event, data) {
  // A part of botOutput is told again with each word that is spoken.
  const again = (data.spoken_status ?? "new") !== "new" || data.output_type === "word";
  if (first("bot", event) && !again) answer.push(line("bot", data.text));
}

// Bots tell neither the end of an answer that ends with no sentence, nor where one begins that interrupts another.
function turned(turn) {
  if (turn.bot_text) {
    (answer.shift() ?? line("bot", "")).textContent = turn.bot_text;
    answer.forEach((rest) => rest.remove());
  }
  answer = [];
}

const handlers = {
  transportStateChanged: (state) => show(state),
  userInput: (data) => heard("userInput", data),
  userTranscript: (data) => heard("userTranscript", data),
  botTranscript: (data) => said("botTranscript", data),
  botOutput: (data) => said("botOutput", data),
  error: (data) => note(`The bot reports an error: ${data.message}`),
  relayText: (data) => line("you", data.text),
  turnEnded: turned,
  relayGap: (data) => line("note", `(${data.missed} earlier events are not shown)`),
  relayEnd: (data) => over(endings[data.reason] ?? "The conversation is over."),
};

function show(state) {
  $("state").textContent = state;
  $("send").disabled = state !== "ready";
  $("end").disabled = stream === null || stream.readyState === EventSource.CLOSED;
}

function note(text) {
  $("notice").textContent = text;
}

function leave() {
  clearTimeout(retry);
  stream?.close();
}

function over(text) {
  leave();
  show("ended");
  note(text);
  $("again").hidden = false;
}

async function call(route, body) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(bot + route, body === undefined ? {} : post);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.message);
  return answer;
}

async function start() {
  $("again").hidden = true;
  note("");
  show("connecting");
  try {
    show((await call("session", {})).state);
  } catch (error) {
    return over(error.message);
  }
  follow();
}

function follow() {
  $("transcript").replaceChildren(); // a new stream tells everything again
  interim = null;
  chosen = {};
  answer = [];
  stream = new EventSource(bot + "events");
  stream.onopen = () => {
    $("end").disabled = false;
    note("");
  };
  stream.onmessage = (message) => {
    const { event, data } = JSON.parse(message.data);
    if (Object.hasOwn(handlers, event)) handlers[event](data);
  };
  stream.onerror = () => {
    // The browser reconnects by itself, unless it was refused; then the state tells why.
    if (stream.readyState !== EventSource.CLOSED) return;
    call("session").then(
      () => {
        note("This page follows the conversation as soon as you close one of the others.");
        retry = setTimeout(follow, 2000);
      },
      (error) => over(error.message),
    );
  };
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value;
  $("text").value = "";
  call("text", { text }).catch((error) => note(error.message));
});
$("end").addEventListener("click", () => call("end", {}).catch((error) => note(error.message)));
$("again").addEventListener("click", start);
// A page that the browser keeps for the way back must not keep the session.
addEventListener("pagehide", leave);
addEventListener("pageshow", (event) => event.persisted && start());
start();
