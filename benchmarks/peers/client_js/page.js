// Sessions of client-js, as `client_js` asks for them. Times are measured here, where a program of client-js is.

import { PipecatClient } from "@pipecat-ai/client-js";
import { WebSocketTransport } from "@pipecat-ai/websocket-transport";
import { RTCSession } from "./webrtc.js";

const FRAME_MS = 20;
const frame = new Int16Array((16000 * FRAME_MS) / 1000).map((_, i) => (i % 2 ? -4096 : 4096)).buffer;

/** What the transport has instead of devices: the interface of its media managers. */
class VirtualMedia {
  heard = [];
  heardBytes = 0;

  constructor(hearing) {
    this.hearing = hearing;
  }
  setUserAudioCallback(send) {
    this.send = send;
  }
  bufferBotAudio(pcm) {
    if (this.hearing) {
      this.heard.push(pcm);
      this.heardBytes += pcm.byteLength;
    }
  }
  setClientOptions() {}
  async initialize() {}
  async connect() {}
  async disconnect() {}
  async userStartedSpeaking() {}
  async getAllMics() {
    return [];
  }
  async getAllCams() {
    return [];
  }
  async getAllSpeakers() {
    return [];
  }
  updateMic() {}
  updateCam() {}
  updateSpeaker() {}
  selectedMic = {};
  selectedCam = {};
  selectedSpeaker = {};
  enableMic() {}
  enableCam() {}
  enableScreenShare() {}
  isMicEnabled = false;
  isCamEnabled = false;
  isSharingScreen = false;
  supportsScreenShare = false;
  tracks() {
    return { local: {} };
  }
}

class Session {
  constructor(url, { talking = false, hearing = false } = {}) {
    this.url = url;
    this.talking = talking;
    this.media = new VirtualMedia(hearing);
    this.expect(0);
    this.client = new PipecatClient({
      transport: new WebSocketTransport({ mediaManager: this.media }),
      enableMic: false,
      enableCam: false,
      callbacks: { onUserTranscript: (said) => this.take(said.timestamp) },
    });
  }

  /** Note only what comes from now on. */
  expect(number) {
    this.arrivals = [];
    this.expected = number;
    this.all = new Promise((resolve) => (this.last = resolve));
  }

  take(stamp) {
    if (this.arrivals.push([stamp, performance.now()]) === this.expected) this.last();
  }

  async connect(seconds = 60) {
    let late;
    const limit = new Promise((_, reject) => (late = setTimeout(reject, seconds * 1000, Error("the bot is not ready"))));
    await Promise.race([this.client.connect({ wsUrl: this.url }), limit]);
    clearTimeout(late);
    if (this.talking) this.timer = setInterval(() => this.send(1), FRAME_MS);
  }

  request(command, data, seconds = 60) {
    return this.client.sendClientRequest(command, data, seconds * 1000);
  }

  send(number) {
    for (let i = 0; i < number; i++) this.media.send(frame);
  }

  async close() {
    clearInterval(this.timer);
    await this.client.disconnect();
  }

  heardBytes() {
    return this.media.heardBytes;
  }

  async seconds(method, ...rest) {
    const begun = performance.now();
    await this[method](...rest);
    return (performance.now() - begun) / 1000;
  }

  /** The stamp of each of so many events, and when it came. */
  async events(number, rate) {
    this.expect(number);
    await this.request("events", { n: number, rate });
    await this.all;
    return this.arrivals;
  }

  /** The seconds that a number of audio frames took to come. */
  async down(number) {
    const begun = performance.now();
    this.expect(1);
    await this.request("audio", { n: number });
    await this.all;
    return (performance.now() - begun) / 1000;
  }

  /** When a number of frames was given to the transport, and what the server then had heard. */
  async up(number) {
    await this.request("heard");
    const begun = performance.now();
    this.send(number);
    return [begun, await this.request("heard")];
  }
}

const sessions = [];

window.open_session = (url, options) => sessions.push(new Session(url, options)) - 1;
window.open_rtc_session = (url) => sessions.push(new RTCSession(url)) - 1;
window.call = (index, method, ...rest) => sessions[index][method](...rest);
