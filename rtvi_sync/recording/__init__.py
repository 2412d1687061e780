"""Recording and analysis of conversations: transcript, latencies, and the audio of both sides."""
