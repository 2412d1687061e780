// The start, when all parts are there.

main.replaceChildren();
if (data.kind === "load") loadPage(); else recordingsPage();
