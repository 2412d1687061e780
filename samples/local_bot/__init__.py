"""A voice bot without key and cloud: Pipecat with PocketSphinx, rules and espeak-ng."""
