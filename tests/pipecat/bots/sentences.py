"""Keeps Pipecat 0.0.108 from the network: imported before it, it has sentences found without a downloaded model."""

import nltk.tokenize
from nltk.tokenize.punkt import PunktSentenceTokenizer

nltk.download = lambda *_, **__: False
nltk.tokenize.sent_tokenize = PunktSentenceTokenizer().tokenize
