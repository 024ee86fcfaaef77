// Shows each view that the server sends, and sends back what the visitor asks for.

import { Lane, euros, token } from "/board.js";

const byId = (id) => document.getElementById(id);
const sliders = ["speed", "duplicates", "crashes"];
const units = { speed: (n) => `${n} a second`, duplicates: (n) => `${n} %`, crashes: (n) => `${n} %` };
const lanes = new Map();
let running = true;
let shown = { run: -1, remark: 0 };

async function ask(what, values = {}) {
  try {
    await fetch(`/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values) });
  } catch {
    byId("gone").hidden = false;
  }
}

function show(view) {
  byId("gone").hidden = true;
  if (view.run !== shown.run) clear(view);
  const turn = 1000 / view.settings.speed;
  document.documentElement.style.setProperty("--turn", `${Math.min(700, turn * 0.85)}ms`);
  const scale = Math.max(5000, ...view.lanes.flatMap((lane) => lane.drifts.map(Math.abs)));
  for (const lane of view.lanes) lanes.get(lane.name).show(lane, view.tick, scale);
  showSettings(view.settings);
  showSender(view);
  showRemarks(view.remarks);
  byId("verdict").replaceChildren(...view.lanes.map(verdict));
}

function clear(view) {
  shown = { run: view.run, remark: 0 };
  lanes.clear();
  byId("lanes").replaceChildren();
  byId("log").replaceChildren();
  document.querySelector(".outbox").replaceChildren();
  delete document.querySelector(".outbox").dataset.payment;
  for (const { name, about } of view.lanes) {
    const lane = new Lane(name, about, () => ask("kill", { lane: name }));
    lanes.set(name, lane);
    byId("lanes").append(lane.element);
  }
}

function showSettings(settings) {
  running = settings.running;
  byId("running").textContent = running ? "Pause" : "Go on";
  byId("step").disabled = running;
  for (const name of sliders) {
    const slider = byId(name);
    if (slider !== document.activeElement) slider.value = settings[name];
    showSlider(slider);
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

function showRemarks(remarks) {
  const log = byId("log");
  for (const { number, lane, mood, text, why } of remarks.filter((each) => each.number > shown.remark)) {
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
    shown.remark = number;
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

byId("running").addEventListener("click", () => ask("settings", { running: !running }));
byId("step").addEventListener("click", () => ask("step"));
byId("restart").addEventListener("click", () => ask("restart"));
byId("kill-all").addEventListener("click", () => ask("kill", { lane: null }));
for (const name of sliders) {
  byId(name).addEventListener("input", ({ target }) => {
    showSlider(target);
    ask("settings", { [name]: Number(target.value) });
  });
}
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", () => lanes.forEach((lane) => lane.place()));

const events = new EventSource("/events");
events.addEventListener("message", ({ data }) => show(JSON.parse(data)));
events.addEventListener("error", () => (byId("gone").hidden = false));
