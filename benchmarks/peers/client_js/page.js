// Sessions of client-js, as `client_js` asks for them. Times are measured here, where a program of client-js is.

import { RTCSession } from "./webrtc.js";

const sessions = [];

window.open_rtc_session = (url) => sessions.push(new RTCSession(url)) - 1;
window.call = (index, method, ...rest) => sessions[index][method](...rest);
