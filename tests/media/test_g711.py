"""The tables of µ-law and A-law, against another implementation; tests/media/test_convert.py has the functions."""

from __future__ import annotations

import io

import pytest

from rtvi_sync.media.g711 import Law, alaw, mulaw
from tests.support.wavs import compressed_wav

pytestmark = pytest.mark.inside

CODES = bytes(range(256))


@pytest.mark.parametrize(("kind", "law"), [(6, alaw()), (7, mulaw())])
def test_libsndfile_decodes_the_same(kind: int, law: Law):
    """All 256 codes, as an independent implementation reads them from a file."""
    soundfile = pytest.importorskip("soundfile")
    samples, _ = soundfile.read(io.BytesIO(compressed_wav(kind, CODES)), dtype="int16")
    assert law.decode(CODES) == samples.astype("<i2").tobytes()
