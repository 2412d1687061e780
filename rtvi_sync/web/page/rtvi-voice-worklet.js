// The audio thread of <rtvi-voice>: makes 16 kHz frames of the microphone's audio, and plays the bot's audio.

export const MICROPHONE_RATE = 16000;
const FRAME_SECONDS = 0.02;
// Interval of the status messages. They are also the page's clock, because browsers slow down timers of hidden pages.
const STATUS_SECONDS = 0.05;

// -- resampling --------------------------------------------------------------------------------------------------------

// Zero crossings of the filter on each side, at the lower of both rates: 2 ms of delay at 16 kHz.
const ZEROS = 32;
// Share of the lower Nyquist frequency. The filter falls by 70 dB from 0.86 to 1.00 of that frequency.
const CUTOFF = 0.93;
const KAISER_BETA = 7;
// Limits the table for rates without a common divisor.
const MAX_PHASES = 1024;

const commonDivisor = (a, b) => (b === 0 ? a : commonDivisor(b, a % b));

/** Return the modified Bessel function of the first kind and order 0, for the Kaiser window. */
function bessel(x) {
  let sum = 1;
  for (let term = 1, k = 1; term > sum * 1e-9; k++) sum += term *= (x / (2 * k)) ** 2;
  return sum;
}

/** A sample rate converter for a stream of blocks of any size: a polyphase filter of windowed sincs. */
export class Resampler {
  constructor(from, to) {
    const divisor = commonDivisor(from, to);
    this.up = to / divisor;
    this.down = from / divisor;
    const scale = Math.min(1, to / from) * CUTOFF;
    const half = Math.ceil((ZEROS * CUTOFF) / scale);
    this.taps = 2 * half;
    this.phases = Math.min(this.up, MAX_PHASES);
    this.filters = Array.from({ length: this.phases }, (_, phase) => {
      const filter = Float32Array.from({ length: this.taps }, (_, tap) => {
        const x = tap - (half - 1) - phase / this.phases; // input samples from the output sample
        const sinc = x === 0 ? 1 : Math.sin(Math.PI * scale * x) / (Math.PI * scale * x);
        return sinc * (Math.abs(x) < half ? bessel(KAISER_BETA * Math.sqrt(1 - (x / half) ** 2)) : 0);
      });
      const gain = filter.reduce((sum, each) => sum + each, 0);
      return filter.map((each) => each / gain);
    });
    this.rest = new Float32Array(half - 1); // input that later output depends on, too
    this.at = 0; // position of the next output sample's first input sample in `rest`, times `up`
  }

  /** Return the converted block. The result of its last samples follows with the next block. */
  push(block) {
    if (this.up === this.down) return block;
    const samples = new Float32Array(this.rest.length + block.length);
    samples.set(this.rest);
    samples.set(block, this.rest.length);
    const last = (samples.length - this.taps) * this.up;
    const output = new Float32Array(Math.max(0, Math.floor((last - this.at) / this.down) + 1));
    for (let index = 0; index < output.length; index++, this.at += this.down) {
      const start = Math.floor(this.at / this.up);
      const filter = this.filters[Math.floor(((this.at % this.up) * this.phases) / this.up)];
      let sum = 0;
      for (let tap = 0; tap < filter.length; tap++) sum += filter[tap] * samples[start + tap];
      output[index] = sum;
    }
    const used = Math.min(samples.length, Math.floor(this.at / this.up));
    this.rest = samples.slice(used);
    this.at -= used * this.up;
    return output;
  }
}

/** Return PCM, signed and 16 bit, of samples from -1 to 1. */
export const toPcm = (samples) => Int16Array.from(samples, (each) => Math.max(-1, Math.min(1, each)) * 32767);

/** Return samples of PCM, signed and 16 bit. */
export const fromPcm = (pcm) => Float32Array.from(new Int16Array(pcm, 0, pcm.byteLength >> 1), (each) => each / 32768);

const power = (samples) => samples.reduce((sum, each) => sum + each * each, 0);

// -- playing -----------------------------------------------------------------------------------------------------------

// Audio queued before playback starts, so that a late message makes no gap. Less is played after WAIT_SECONDS.
const BEGIN_SECONDS = 0.04;
const WAIT_SECONDS = 0.06;
const FADE_SECONDS = 0.005;
// The server sends at most 1 s ahead; only one that breaks the protocol sends more.
const MAX_SECONDS = 10;

/** The queue of the bot's audio. It plays without gaps until it is empty. */
export class Player {
  constructor(rate) {
    this.rate = rate;
    this.setRate(rate);
    this.received = 0; // seconds
    this.chunks = [];
    this.queued = 0; // samples of all chunks
    this.playing = false;
    this.waited = 0; // samples since audio was queued
  }

  /** Set the rate of the audio that follows. */
  setRate(rate) {
    this.inputRate = rate;
    this.resampler = new Resampler(rate, this.rate);
  }

  /** Seconds that were played or discarded since `restart()`. */
  get played() {
    return Math.max(0, this.received - this.queued / this.rate);
  }

  /** Count from 0 again, for a new connection. Queued audio is still played. */
  restart() {
    this.received = 0;
  }

  push(pcm) {
    const samples = fromPcm(pcm);
    this.received += samples.length / this.inputRate;
    const chunk = this.resampler.push(samples);
    if (chunk.length === 0 || this.queued > MAX_SECONDS * this.rate) return;
    this.chunks.push(chunk);
    this.queued += chunk.length;
  }

  /** Discard the queued audio, except for a few samples that fade out. */
  clear() {
    const fade = this.playing ? Math.min(this.queued, Math.round(FADE_SECONDS * this.rate)) : 0;
    const samples = new Float32Array(fade);
    this.take(samples);
    this.resampler.rest.fill(0);
    this.chunks = fade ? [samples.map((each, index) => each * (1 - (index + 1) / fade))] : [];
    this.queued = fade;
  }

  /** Fill a block with the next audio. */
  read(block) {
    if (!this.playing && this.queued > 0) {
      this.playing = this.queued >= BEGIN_SECONDS * this.rate || this.waited >= WAIT_SECONDS * this.rate;
      this.waited = this.playing ? 0 : this.waited + block.length;
    }
    if (this.playing) {
      this.take(block);
      this.playing = this.queued > 0;
    }
  }

  take(block) {
    for (let filled = 0; filled < block.length && this.chunks.length > 0; ) {
      const chunk = this.chunks[0];
      const part = chunk.subarray(0, block.length - filled);
      block.set(part, filled);
      filled += part.length;
      this.queued -= part.length;
      if (part.length === chunk.length) this.chunks.shift();
      else this.chunks[0] = chunk.subarray(part.length);
    }
  }
}

// -- the processor -----------------------------------------------------------------------------------------------------

// Only an audio thread has processors; tests import this file elsewhere.
if (globalThis.registerProcessor) {
  class VoiceProcessor extends AudioWorkletProcessor {
    constructor() {
      super();
      this.resampler = new Resampler(sampleRate, MICROPHONE_RATE);
      this.player = new Player(sampleRate);
      this.frame = new Float32Array(MICROPHONE_RATE * FRAME_SECONDS);
      this.filled = 0;
      this.heard = 0; // power of the audio played since the last status
      this.samples = 0; // number of these samples
      this.port.onmessage = ({ data }) => {
        if (data.audio) this.player.push(data.audio);
        else if (data.rate) this.player.setRate(data.rate);
        else if (data.clear) this.player.clear();
        else this.player.restart();
      };
    }

    process([input], [output]) {
      if (input.length > 0) this.record(input[0]);
      const [first, ...others] = output;
      this.player.read(first);
      for (const channel of others) channel.set(first);
      this.heard += power(first);
      this.samples += first.length;
      if (this.samples >= STATUS_SECONDS * sampleRate) {
        const level = Math.sqrt(this.heard / this.samples);
        this.port.postMessage({ played: this.player.played, playing: this.player.queued > 0, level });
        this.heard = this.samples = 0;
      }
      return true;
    }

    record(block) {
      let samples = this.resampler.push(block);
      while (samples.length > 0) {
        const part = samples.subarray(0, this.frame.length - this.filled);
        this.frame.set(part, this.filled);
        this.filled += part.length;
        samples = samples.subarray(part.length);
        if (this.filled < this.frame.length) return;
        this.filled = 0;
        const frame = toPcm(this.frame).buffer;
        this.port.postMessage({ frame, level: Math.sqrt(power(this.frame) / this.frame.length) }, [frame]);
      }
    }
  }

  registerProcessor("rtvi-voice", VoiceProcessor);
}
