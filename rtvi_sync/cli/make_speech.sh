#!/bin/sh
# Makes speech.wav from speech.txt: each line one utterance, with a pause after it that ends the speaker's turn.
# Needs espeak-ng and sox. 24000 Hz mono 16 bit is the rate at which bots speak, so that a recording of both needs no
# resampling.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

number=0
while IFS= read -r line; do
    number=$((number + 1))
    # Slower and with less gap between words than espeak's default, which is hard to follow.
    espeak-ng -v en-us+f3 -s 160 -p 45 -w "$work/raw.wav" -- "$line"
    # Silence at both ends goes, so that every pause is exactly the one below; -R makes the dither the same each time.
    sox -R "$work/raw.wav" -r 24000 -b 16 -c 1 "$work/$number.wav" \
        highpass 60 norm -3 silence 1 0.01 0.5% fade 0.01 reverse silence 1 0.01 0.5% fade 0.03 reverse pad 0.2 0.9
    set -- "$@" "$work/$number.wav"
done <"$here/speech.txt"

sox -R "$@" "$here/speech.wav"
sox --info "$here/speech.wav"
