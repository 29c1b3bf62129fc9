// The input of the user's picture, which is dropped, pasted, or chosen from a file, the samples or a run.
import {ask, el, memory, remember} from "./elements.js";

export class PictureInput {
  /** Add the input to an element. onchange: called after each new or inverted picture. */
  constructor(tab, place, about, onchange) {
    Object.assign(this, {tab, onchange});
    this.file = el("input", {type: "file", id: `${tab}-file`, accept: "image/png,image/jpeg,image/gif,image/webp,image/bmp",
      onchange: () => { this.send(this.file.files[0]); this.file.value = ""; }});
    this.name = el("span", {class: "name"}, "Drop a picture here, paste one, or ");
    this.alert = el("p", {class: "alert", role: "alert"});
    this.thumb = el("img", {class: "thumb", alt: "the picture as the model sees it", hidden: true});
    this.turn = el("button", {type: "button", hidden: true, title: "For pictures on a white background",
      onclick: () => this.invert()}, "Invert light and dark");
    this.zone = el("div", {class: "drop",
      ondragover: (event) => { event.preventDefault(); this.zone.classList.add("over"); },
      ondragleave: () => this.zone.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        this.zone.classList.remove("over");
        this.send(event.dataTransfer.files[0]);
      }}, this.thumb, el("div", {}, this.name, el("label", {class: "pick"}, this.file, "choose a file")), this.turn);
    place.append(this.zone, this.alert, samples(about.samples, (path, name) => this.take(path, name)));
  }

  get id() { return memory[`picture-${this.tab}`]?.id; }

  /** Show the picture from before a reload, and return whether the server still has it. */
  async restore() {
    const kept = memory[`picture-${this.tab}`];
    if (!kept) return false;
    const told = await ask(`/studio/pictures/${kept.id}`);
    if (told.error) remember({[`picture-${this.tab}`]: null});
    else this.#show(kept.id, kept.name);
    return !told.error;
  }

  /** Use an image that the studio shows. */
  async take(path, name) {
    const answer = await fetch(path);
    if (!answer.ok) return this.say((await answer.json()).error);
    return this.send(new File([await answer.blob()], name));
  }

  async send(file) {
    if (!file) return;
    const told = await ask("/studio/pictures", file);
    if (told.error) return this.say(told.error);
    this.#show(told.id, file.name);
    await this.onchange();
  }

  async invert() {
    const told = await ask(`/studio/pictures/${this.id}/invert`, {});
    if (told.error) return this.say(told.error);
    this.#show(told.id, memory[`picture-${this.tab}`].name);
    await this.onchange();
  }

  say(text) { this.alert.textContent = text; }

  #show(id, name) {
    this.say("");
    remember({[`picture-${this.tab}`]: {id, name}});
    this.thumb.src = `/studio/pictures/${id}.png`;
    this.name.textContent = `${name}. `;
    this.thumb.hidden = this.turn.hidden = false;
  }
}

/** Return buttons for the sample pictures; null if there are none. */
function samples(count, take) {
  if (!count) return null;
  const buttons = Array.from({length: count}, (_, index) => el("button", {type: "button", title: `sample picture ${index + 1}`,
    onclick: () => take(`/studio/samples/${index}.png`, `sample ${index + 1}`)},
    el("img", {src: `/studio/samples/${index}.png`, alt: `sample picture ${index + 1}`})));
  return el("div", {class: "samples", role: "group", "aria-label": "sample pictures"}, buttons);
}
