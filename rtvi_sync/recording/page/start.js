// The start, when all parts are there.

main.replaceChildren();
({ load: loadPage, recordings: recordingsPage, turns: turnsPage })[data.kind]();
