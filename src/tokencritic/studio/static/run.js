// A tab that makes runs: its button, its progress, its result.
import {ask, el, memory, remember} from "./elements.js";
import {forming} from "./gallery.js";

const FINISHED = ["done", "failed", "cancelled", "late"];

export class RunTab {
  /**
   * kind: of the runs, and the id of the tab. verb: on the button. values: () -> what to ask for, or {error}.
   * show: (what the server tells of a finished run) -> elements. changed: called when a run begins or ends.
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
      const typing = document.activeElement.matches("input, select"); // where Enter may start a run, and stops none
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

  /** Show a run until it is finished, unless another one is to be shown. own: whether the visitor may stop it. */
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

  /** Show nothing but a hint: what was there belongs to something else now. */
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
    this.result.classList.toggle("stale", busy); // until there is something of the new run
    delete this.result.dataset.run;
    this.button.textContent = busy ? "Stop" : this.verb;
    this.button.classList.toggle("stop", busy);
    this.meter.hidden = !busy;
    this.meter.value = 0;
  }

  /** On a phone the result is below the controls. */
  #reveal() {
    const {top} = this.result.getBoundingClientRect();
    if (top > window.innerHeight * 0.6 || top < -100) this.result.scrollIntoView({block: "start", behavior: "smooth"});
  }

  get remembered() { return memory[`run-${this.kind}`]; }
}
