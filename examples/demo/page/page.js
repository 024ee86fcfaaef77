// Shows each view that the server sends, and sends back what the visitor asks for.

import { Lane, euros, token } from "./board.js";

const byId = (id) => document.getElementById(id);
const sliders = ["speed", "duplicates", "crashes"];
const units = { speed: (n) => `${n} a second`, duplicates: (n) => `${n} %`, crashes: (n) => `${n} %` };
const lanes = new Map();
let running = true;
let shown = { run: 0, line: 0 };
let latest = Promise.resolve();

const setting = (name) => Number(byId(name).value);

// Requests go one after the other, so an earlier view never replaces a later one.
function ask(what) {
  latest = latest.then(() => send(what));
  return latest;
}

async function send({ turn = false, restart = false, kill = [] }) {
  const body = JSON.stringify({ turn, restart, kill, duplicates: setting("duplicates"), crashes: setting("crashes") });
  let view;
  try {
    view = await (await fetch("view", { method: "POST", body })).json();
  } catch {
    byId("gone").hidden = false;
    return;
  }
  byId("gone").hidden = true;
  show(view);
}

async function play() {
  while (true) {
    await new Promise((done) => setTimeout(done, 1000 / setting("speed")));
    if (running && !document.hidden) await ask({ turn: true });
  }
}

function show(view) {
  if (view.run !== shown.run) clear(view);
  document.documentElement.style.setProperty("--turn", `${Math.min(700, (1000 / setting("speed")) * 0.85)}ms`);
  const scale = Math.max(5000, ...view.lanes.flatMap((lane) => lane.drifts.map(Math.abs)));
  for (const lane of view.lanes) lanes.get(lane.name).show(lane, view.turn, scale);
  showSender(view);
  showLog(view.log);
  byId("verdict").replaceChildren(...view.lanes.map(verdict));
}

function clear(view) {
  shown = { run: view.run, line: 0 };
  lanes.clear();
  byId("lanes").replaceChildren();
  byId("log").replaceChildren();
  document.querySelector(".outbox").replaceChildren();
  delete document.querySelector(".outbox").dataset.payment;
  for (const { name, about } of view.lanes) {
    const lane = new Lane(name, about, () => ask({ kill: [name] }));
    lanes.set(name, lane);
    byId("lanes").append(lane.element);
  }
}

function showSlider(slider) {
  const text = units[slider.id](slider.value);
  document.querySelector(`output[for=${slider.id}]`).textContent = text;
  slider.setAttribute("aria-valuetext", text);
}

function showSender({ sent, waits }) {
  const outbox = document.querySelector(".outbox");
  if (sent && outbox.dataset.payment !== String(sent.payment)) {
    outbox.dataset.payment = sent.payment;
    outbox.replaceChildren(...(sent.twice ? [token(sent), token(sent)] : [token(sent)]));
  }
  const told = sent ? `Payment ${sent.payment}, ${euros(sent.amount)}${sent.twice ? ", sent twice" : ""}.` : "Nothing is sent yet.";
  byId("sent").textContent = waits ? "Waits: a queue is full." : told;
}

function showLog(lines) {
  const log = byId("log");
  for (const { number, lane, mood, text, why } of lines.filter((each) => each.number > shown.line)) {
    const line = document.createElement("li");
    line.className = mood;
    const details = line.appendChild(document.createElement("details"));
    const summary = details.appendChild(document.createElement("summary"));
    const who = summary.appendChild(document.createElement("b"));
    who.textContent = lane || "sender";
    summary.append(` ${text} `);
    summary.appendChild(document.createElement("span")).textContent = "why?";
    summary.title = why;
    details.appendChild(document.createElement("p")).textContent = why;
    log.prepend(line);
    shown.line = number;
  }
  while (log.children.length > 40) log.lastChild.remove();
}

function verdict({ name, balance, expected }) {
  const drift = balance - expected;
  const said = document.createElement("span");
  said.className = drift ? "bad" : "good";
  said.textContent = drift ? `${euros(Math.abs(drift))} ${drift > 0 ? "too much" : "missing"}` : "exact";
  const whole = document.createElement("span");
  whole.append(`${name}: `, said);
  return whole;
}

byId("running").addEventListener("click", () => {
  running = !running;
  byId("running").textContent = running ? "Pause" : "Go on";
  byId("step").disabled = running;
});
byId("step").addEventListener("click", () => ask({ turn: true }));
byId("restart").addEventListener("click", () => ask({ restart: true }));
byId("kill-all").addEventListener("click", () => ask({ kill: [...lanes.keys()] }));
for (const name of sliders) {
  byId(name).addEventListener("input", ({ target }) => showSlider(target));
  showSlider(byId(name));
}
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", () => lanes.forEach((lane) => lane.place()));
ask({});
play();
