"""Speech without a cloud: PocketSphinx recognizes sentences of a grammar, espeak-ng speaks. No Pipecat in here."""

from __future__ import annotations

import ctypes
import threading

import espeakng_loader
import numpy as np
import pocketsphinx

RECOGNIZER_RATE_HZ = 16000
_NOISE = 20.0  # root mean square, of 32768
_WORDS_PER_MINUTE = 150

# Of espeak-ng's speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_RATE = 1
_POS_CHARACTER = 1
_CHARS_UTF8 = 1
_SYNTH_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Recognizer:
    """PocketSphinx with its own model. Its methods may be called on any thread.

    Args:
        grammar: the sentences that are recognized, in the JSpeech Grammar Format.
    """

    def __init__(self, grammar: str) -> None:
        self._decoder = pocketsphinx.Decoder(lm=None, loglevel="FATAL", cmn="batch")
        self._decoder.add_jsgf_string("grammar", grammar)
        self._decoder.activate_search("grammar")
        self._lock = threading.Lock()

    def recognize(self, pcm: bytes) -> str:
        """Return the words of an utterance, 16-bit mono PCM at `RECOGNIZER_RATE_HZ`; empty if there are none."""
        audible = _with_noise(pcm)
        with self._lock:
            self._decoder.start_utt()
            self._decoder.process_raw(audible, full_utt=True)
            self._decoder.end_utt()
            hypothesis = self._decoder.hyp()
        return hypothesis.hypstr if hypothesis is not None else ""


def _with_noise(pcm: bytes) -> bytes:
    """Add the noise of a quiet microphone.

    Digital silence, which synthetic voices have around them, has no spectrum: of 11 sentences in two voices, with more
    or less silence around them, one in ten was misheard without noise, and one in 20 with PocketSphinx's dithering.
    """
    samples = np.frombuffer(pcm, np.int16)
    noise = np.random.default_rng(1).normal(0.0, _NOISE, len(samples))
    return np.clip(samples + noise, -32768, 32767).astype(np.int16).tobytes()


class Voice:
    """A voice of espeak-ng. Its methods may be called on any thread.

    Args:
        name: of the voice, with its variant: ``en-us+f3``.

    Attributes:
        sample_rate_hz: the sample rate of everything that is spoken.
    """

    _lock = threading.Lock()  # the library has one state for the whole process

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        with self._lock:
            data = espeakng_loader.get_data_path().encode()
            self.sample_rate_hz: int = self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, data, 0)
        if self.sample_rate_hz <= 0:
            raise RuntimeError("espeak-ng finds no data; install espeakng-loader again")

    def speak(self, text: str) -> bytes:
        """Return a text as speech, 16-bit mono PCM."""
        pcm = bytearray()

        @_SYNTH_CALLBACK
        def collect(samples: ctypes._Pointer[ctypes.c_short], count: int, _events: int | None) -> int:
            if samples and count:
                pcm.extend(ctypes.string_at(samples, 2 * count))
            return 0

        encoded = text.encode()
        with self._lock:
            self._library.espeak_SetSynthCallback(collect)
            if self._library.espeak_SetVoiceByName(self._name):
                raise ValueError(f"espeak-ng has no voice {self._name.decode()!r}; see espeak-ng --voices")
            self._library.espeak_SetParameter(_RATE, _WORDS_PER_MINUTE, 0)
            self._library.espeak_Synth(encoded, len(encoded) + 1, 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None)
        return bytes(pcm)
