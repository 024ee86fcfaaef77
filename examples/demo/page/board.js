// One lane of the board: the copies in its queue, its worker, the tables that it writes to, and its account.

const money = new Intl.NumberFormat("en", { style: "currency", currency: "EUR", maximumFractionDigits: 0 });
export const euros = (cents) => money.format(cents / 100);
const still = matchMedia("(prefers-reduced-motion: reduce)");

const TOKEN = 56; // pixels, as in page.css
const NUMBER = 36; // pixels of a copy that show its number, where the next one lies on the rest of it
const TOP = 14;
const BOTTOM = 74;
const TABLES = { "plain write": ["orders"], "claim, then write": ["seen ids", "orders"], onewrite: ["orders + ids"] };
const SAID = { written: "added", claimed: "id stored", known: "known" };

// A message as one sees it. All copies of a payment have its number and its colour.
export function token({ payment, amount, again = false, hidden = 0 }) {
  const element = document.createElement("div");
  element.className = "token";
  element.style.setProperty("--hue", (payment * 137.5) % 360);
  element.append(document.createElement("b"), document.createElement("span"), document.createElement("i"));
  update(element, { payment, amount, again, hidden });
  return element;
}

function update(element, { payment, amount, again, hidden }) {
  element.children[0].textContent = `#${payment}`;
  element.children[1].textContent = `+${euros(amount)}`;
  element.children[2].textContent = hidden ? `${hidden} s` : again ? "again" : "";
  element.classList.toggle("hidden", hidden > 0);
  element.classList.toggle("again", again);
}

export class Lane {
  constructor(name, about, kill) {
    this.name = name;
    this.tokens = new Map();
    this.turn = -1;
    this.element = document.getElementById("lane").content.cloneNode(true).firstElementChild;
    this.track = this.find(".track");
    this.find("h2").textContent = name;
    this.find(".about").textContent = about;
    this.element.dataset.lane = name;
    this.element.setAttribute("aria-label", name);
    this.button = this.find("button.kill");
    this.button.lastElementChild.textContent = ` of ${name}`;
    this.button.addEventListener("click", () => this.button.getAttribute("aria-disabled") === "true" || kill());
    this.tables = TABLES[name].map((label) => this.table(label));
    if (this.tables.length > 1) this.tables.forEach((table, n) => table.classList.add(n ? "last" : "first"));
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  table(label) {
    const element = document.createElement("div");
    element.className = "table";
    element.textContent = label;
    this.track.append(element);
    return element;
  }

  show(view, turn, scale) {
    const isNew = turn !== this.turn;
    this.turn = turn;
    this.view = view;
    this.showWorker(view.worker);
    this.place();
    this.showAccount(view, scale);
    if (isNew && view.request && !still.matches) this.showRequest(view.request);
  }

  showWorker({ dead, doomed, copy, doing }) {
    const worker = this.find(".worker");
    worker.classList.toggle("dead", dead);
    worker.classList.toggle("doomed", doomed);
    worker.classList.toggle("busy", Boolean(copy));
    this.find(".doing").textContent = `Worker: ${doing}.`;
    this.button.firstChild.textContent = dead ? "The worker is dead" : doomed ? "Will die at a bad moment" : "Kill the worker";
    this.button.setAttribute("aria-disabled", dead || doomed);
  }

  // Where the worker and the tables stand depends on the width of the track.
  get middle() {
    return this.track.clientWidth * (this.track.clientWidth < 480 ? 0.55 : 0.62);
  }

  place() {
    if (!this.view) return;
    const { queue, worker, acknowledged } = this.view;
    this.track.style.setProperty("--middle", `${this.middle}px`);
    const left = new Set(this.tokens.keys());
    const put = (copy, x, y, layer) => {
      left.delete(copy.copy);
      this.put(copy, x, y, layer);
    };
    if (worker.copy) put({ ...worker.copy, hidden: 0, again: false }, this.middle - TOKEN / 2, TOP, 50);
    const head = this.middle - TOKEN * 1.7;
    const room = Math.max(1, Math.floor((head - 14) / NUMBER) + 1);
    const row = (copies, y, caption, word) => {
      const shown = copies.slice(0, room);
      const pitch = Math.min(TOKEN + 6, (head - 14) / Math.max(1, shown.length - 1));
      shown.forEach((copy, n) => put({ ...copy, crowded: n > 0 && pitch < TOKEN }, head - n * pitch, y, 40 - n));
      this.find(caption).textContent = copies.length > room ? `${word}, ${copies.length - room} more` : word;
    };
    row(queue.filter(({ hidden }) => !hidden), TOP, ".caption.queued", "queue");
    row(queue.filter(({ hidden }) => hidden), BOTTOM, ".caption.delivered", "not acknowledged");
    for (const number of left) this.remove(number, number === acknowledged);
  }

  put(copy, x, y, layer) {
    let element = this.tokens.get(copy.copy);
    if (!element) {
      element = token(copy);
      element.style.transform = `translate(${-TOKEN}px, ${y}px)`;
      this.tokens.set(copy.copy, element);
      this.track.append(element);
      element.getBoundingClientRect(); // so it moves from there
    }
    update(element, copy);
    element.classList.toggle("crowded", Boolean(copy.crowded));
    element.style.zIndex = layer;
    element.style.transform = `translate(${x}px, ${y}px)`;
  }

  remove(number, acknowledged) {
    const element = this.tokens.get(number);
    this.tokens.delete(number);
    if (!acknowledged || still.matches) return element.remove();
    element.classList.add("done");
    element.children[2].textContent = "done";
    setTimeout(() => element.remove(), 600);
  }

  // A dot goes from the worker to the table, and the table says what came of the request.
  showRequest(answer) {
    const table = answer === "written" ? this.tables.at(-1) : this.tables[0];
    const dot = document.createElement("div");
    dot.className = `dot ${answer}`;
    this.track.append(dot);
    const y = table.offsetTop + table.offsetHeight / 2 - 6;
    const way = [`translate(${this.middle + 18}px, 64px)`, `translate(${table.offsetLeft - 6}px, ${y}px)`];
    const turn = parseFloat(getComputedStyle(this.track).getPropertyValue("--turn"));
    const flight = dot.animate({ transform: way, opacity: [0.3, 1] }, { duration: turn * 0.55, easing: "ease-in" });
    flight.finished.then(() => {
      dot.remove();
      this.say(table, answer);
    });
  }

  say(table, answer) {
    const word = document.createElement("div");
    word.className = `word ${answer}`;
    word.textContent = SAID[answer];
    word.style.left = `${table.offsetLeft}px`;
    word.style.width = `${table.offsetWidth}px`;
    word.style.top = `${table.offsetTop - 18}px`;
    this.track.append(word);
    table.animate({ scale: [1, 1.08, 1] }, 260);
    const rise = word.animate({ transform: ["translateY(0)", "translateY(-8px)"], opacity: [1, 1, 0] }, 1100);
    rise.finished.then(() => word.remove());
  }

  showAccount({ balance, expected, doubled, lost, dropped, perMessage, drifts }, scale) {
    const drift = balance - expected;
    this.element.classList.toggle("wrong", drift !== 0 || doubled > 0 || lost > 0);
    this.find(".balance b").textContent = euros(balance);
    this.find(".expected span").textContent = euros(expected);
    this.find(".drift").textContent = drift ? `${euros(Math.abs(drift))} ${drift > 0 ? "too much" : "missing"}` : "exact";
    if (drift !== this.drift && !still.matches) this.find(".drift").animate({ scale: [1, 1.12, 1] }, 400);
    this.drift = drift;
    this.find(".doubled").textContent = doubled;
    this.find(".lost").textContent = lost;
    this.find(".dropped").textContent = dropped;
    this.find(".per-message").textContent = perMessage === null ? "–" : perMessage.toFixed(2);
    const points = drifts.map((each, n) => `${(n / Math.max(1, drifts.length - 1)) * 120} ${20 - (each / scale) * 18}`);
    const line = `M${points.length > 1 ? points.join("L") : "0 20L120 20"}`;
    this.find(".stroke").setAttribute("d", line);
    this.find(".area").setAttribute("d", `${line}L120 20L0 20Z`);
  }
}
