// A tab that starts runs, with its button, its progress and its result.
import {ask, el, memory, remember} from "./elements.js";
import {forming} from "./gallery.js";

const FINISHED = ["done", "failed", "cancelled", "late"];

export class RunTab {
  /**
   * kind: the kind of the runs, and the id of the tab. verb: the text of the button.
   * values: () -> the values of a new run, or {error}. show: (the server's values of a finished run) -> elements.
   * changed: called when a run ends.
   */
  constructor(kind, verb, {values, show, changed}) {
    Object.assign(this, {kind, verb, values, show, changed, run: null, busy: false});
    const panel = document.getElementById(kind);
    this.result = panel.querySelector(".result");
    this.button = el("button", {class: "primary", id: `${kind}-go`}, verb);
    this.status = el("p", {class: "status", role: "status"});
    this.alert = el("p", {class: "alert", role: "alert"});
    this.meter = el("progress", {max: 1, value: 0, hidden: true, "aria-label": "steps done"});
    panel.querySelector(".bar").append(this.button, this.meter, this.status, this.alert);
    panel.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const typing = document.activeElement.matches("input, select"); // Enter in a field may only start a run
      if (!this.busy) this.start();
      else if (!typing) this.stop();
    });
  }

  async start() {
    const values = this.values();
    this.say("", values.error);
    if (values.error) return;
    this.#setBusy(true);
    this.#reveal();
    const told = await ask("/studio/runs", {kind: this.kind, values});
    if (told.error) {
      this.#setBusy(false);
      this.say("", told.error);
    } else await this.follow(told.id);
  }

  async stop() {
    this.say("Stopping");
    await ask(`/studio/runs/${this.run}/stop`, {});
  }

  /** Show a run until it ends or another run is shown. own: whether the visitor may stop it. */
  async follow(id, own = true) {
    this.run = id;
    remember({[`run-${this.kind}`]: id});
    this.#setBusy(own);
    let seen = "";
    for (;;) {
      const told = await ask(`/studio/runs/${id}?seen=${encodeURIComponent(seen)}`);
      if (this.run !== id) return;
      if (told.error || FINISHED.includes(told.state)) {
        this.#finish(told);
        return;
      }
      seen = told.version;
      this.say(told.text);
      this.meter.value = told.share;
      if (told.images.length) {
        this.result.replaceChildren(...forming(told.images));
        this.result.classList.remove("stale");
      }
    }
  }

  /** Replace the run by a hint, because it belongs to an earlier picture. */
  clear(hint) {
    this.run = null;
    remember({[`run-${this.kind}`]: null});
    this.#setBusy(false);
    this.say("");
    this.hint(hint);
  }

  hint(text) { this.result.replaceChildren(el("p", {class: "hint"}, text)); }

  say(status, alert = "") {
    this.status.textContent = status;
    this.alert.textContent = alert;
  }

  #finish(told) {
    this.#setBusy(false);
    if (told.error) {
      this.say("", told.error);
      remember({[`run-${this.kind}`]: null});
    } else {
      if (told.state === "cancelled") this.say(told.text);
      else this.say("", told.text);
      if (told.sets.length || told.base) this.result.replaceChildren(...this.show(told));
      this.result.dataset.run = told.id;
    }
    this.changed();
  }

  #setBusy(busy) {
    this.busy = busy;
    this.result.setAttribute("aria-busy", String(busy));
    this.result.classList.toggle("stale", busy); // until the new run has images
    delete this.result.dataset.run;
    this.button.textContent = busy ? "Stop" : this.verb;
    this.button.classList.toggle("stop", busy);
    this.meter.hidden = !busy;
    this.meter.value = 0;
  }

  /** Scroll to the result, which is below the controls on a phone. */
  #reveal() {
    const {top} = this.result.getBoundingClientRect();
    if (top > window.innerHeight * 0.6 || top < -100) this.result.scrollIntoView({block: "start", behavior: "smooth"});
  }

  get remembered() { return memory[`run-${this.kind}`]; }
}
