// A session of client-js over WebRTC: a voice and a camera that the page makes, and players as a page has them.

import { PipecatClient } from "@pipecat-ai/client-js";
import { SmallWebRTCTransport, WavMediaManager } from "@pipecat-ai/small-webrtc-transport";

const RATE = 48000;
const WIDTH = 640;
const HEIGHT = 480;

const context = new AudioContext({ sampleRate: RATE });

/** In place of a microphone: what is played into it, from the page's clock of audio. */
const microphone = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
const getUserMedia = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
const microphones = { made: async () => microphone.stream.clone(), device: getUserMedia };

/** Chromium's own tone, as loud as that of the other clients. */
function hum() {
  const tone = new OscillatorNode(context, { frequency: 440 });
  const volume = new GainNode(context, { gain: 0.5 });
  tone.connect(volume).connect(microphone);
  tone.start();
  return tone;
}

/** A camera whose picture moves a little. */
function camera(fps) {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const paper = canvas.getContext("2d");
  const image = paper.createImageData(2 * WIDTH, HEIGHT);
  for (let i = 0; i < 2 * WIDTH * HEIGHT; i++) {
    const x = i % (2 * WIDTH);
    image.data.set([x % 256, Math.floor(x / 5) % 256, 255 - (x % 256), 255], 4 * i);
  }
  let taken = 0;
  const timer = setInterval(() => paper.putImageData(image, -((4 * ++taken) % WIDTH), 0), 1000 / fps);
  return { track: canvas.captureStream(fps).getVideoTracks()[0], stop: () => clearInterval(timer) };
}

/** The transport's own media, which know no camera. */
class Media extends WavMediaManager {
  camera = null;
  tracks() {
    const { local } = super.tracks();
    return { local: this.camera ? { ...local, video: this.camera.track } : local };
  }
  get isCamEnabled() {
    return !!this.camera;
  }
}

export class RTCSession {
  constructor(url) {
    this.url = url;
    this.media = new Media();
    this.players = [];
    this.client = new PipecatClient({
      transport: new SmallWebRTCTransport({ mediaManager: this.media }),
      enableMic: true,
      enableCam: false,
      callbacks: {
        onTrackStarted: (track, who) => who?.local || this.play(track),
      },
    });
  }

  play(track) {
    const player = Object.assign(document.createElement(track.kind), { autoplay: true });
    player.srcObject = new MediaStream([track]);
    document.body.append(player);
    this.players.push(player);
    if (track.kind === "audio") this.heard = player.srcObject;
  }

  /** Find the devices, which is not a part of connecting. */
  async prepare(kind) {
    navigator.mediaDevices.getUserMedia = microphones[kind];
    await context.resume();
    await this.client.initDevices();
  }

  async connect() {
    const begun = performance.now();
    await this.client.connect({ webrtcRequestParams: { endpoint: `${this.url}/api/offer` } });
    return (performance.now() - begun) / 1000;
  }

  async close() {
    const begun = performance.now();
    await this.client.disconnect();
    const taken = (performance.now() - begun) / 1000;
    this.tone?.stop();
    this.media.camera?.stop();
    for (const player of this.players) player.remove();
    return taken;
  }

  hum() {
    this.tone = hum();
  }

  request(command) {
    return this.client.sendClientRequest(command, null, 60_000);
  }

  async show(fps) {
    this.media.camera = camera(fps);
    await this.connection.getTransceivers()[1].sender.replaceTrack(this.media.camera.track);
    this.client.transport.sendSignallingMessage({ type: "trackStatus", receiver_index: 1, enabled: true });
  }

  get connection() {
    return this.client.transport.pc;
  }

  /** What Chromium counts of one direction and kind. */
  async counters(direction, kind) {
    const reports = [...(await this.connection.getStats()).values()];
    return reports.find((report) => report.type === `${direction}-rtp` && report.kind === kind) ?? {};
  }

  /** Say some samples, and return what is heard from now until `seconds` after the end, with both begins. */
  async echo(base64, rate, seconds) {
    const samples = new Int16Array(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer);
    const buffer = new AudioBuffer({ length: samples.length, sampleRate: rate });
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
    const said = new AudioBufferSourceNode(context, { buffer });
    said.connect(microphone);

    await context.audioWorklet.addModule(URL.createObjectURL(new Blob([RECORDER], { type: "text/javascript" })));
    const recorder = new AudioWorkletNode(context, "recorder", { channelCount: 1, channelCountMode: "explicit" });
    const source = new MediaStreamAudioSourceNode(context, { mediaStream: this.heard });
    const blocks = [];
    recorder.port.onmessage = ({ data }) => blocks.push(data);
    source.connect(recorder);

    const begun = context.currentTime + 0.2;
    said.start(begun);
    await new Promise((done) => setTimeout(done, (buffer.duration + seconds + 0.2) * 1000));
    source.disconnect();
    const all = new Int16Array(blocks.reduce((sum, { pcm }) => sum + pcm.length, 0));
    blocks.reduce((at, { pcm }) => (all.set(pcm, at), at + pcm.length), 0);
    let text = "";
    for (const byte of new Uint8Array(all.buffer)) text += String.fromCharCode(byte);
    return { said: begun, heard: blocks[0].at, rate: RATE, pcm: btoa(text) };
  }
}

const RECORDER = `
registerProcessor("recorder", class extends AudioWorkletProcessor {
  process([[samples]]) {
    const pcm = Int16Array.from(samples ?? new Float32Array(128), (sample) => 32767 * sample);
    this.port.postMessage({ at: currentFrame / sampleRate, pcm });
    return true;
  }
});`;
