// The controls of a tab. Each shows and changes a value of its form. Untouched values are not rounded.
import {el, memory, remember} from "./elements.js";

/** The values of a tab's controls. They persist across page reloads. */
export class Form {
  constructor(tab, defaults) {
    this.tab = tab;
    this.values = {...defaults, ...memory[`form-${tab}`]};
    this.shows = [];
  }

  get(name) { return this.values[name]; }

  set(changes) {
    Object.assign(this.values, changes);
    remember({[`form-${this.tab}`]: this.values});
  }

  /** Set values, such as those of an earlier run, and show them. */
  restore(values) {
    this.set(values);
    for (const show of this.shows) show();
  }

  onShow(show) {
    this.shows.push(show);
    show();
  }
}

let count = 0;

function field(label, text, ...controls) {
  const id = `field-${count += 1}`;
  controls[0].id = id;
  const info = text ? el("small", {id: `${id}-info`}, text) : null;
  if (info) controls[0].setAttribute("aria-describedby", info.id);
  return el("div", {class: "field"}, el("label", {for: id}, label), info, el("div", {class: "row"}, controls));
}

/** Return the control of a number: a box, and a slider if the bounds are narrow. */
export function number(form, name, label, {low, high, step, text}) {
  const bounds = {min: low, max: high, step};
  const box = el("input", {type: "number", ...bounds, step: "any", "aria-label": label});
  const range = high - low <= 128 ? el("input", {type: "range", ...bounds, "aria-label": `${label}, slider`}) : null;
  for (const control of [box, range].filter(Boolean))
    control.addEventListener("input", () => {
      if (control.value === "") return;
      form.set({[name]: Number(control.value)});
      for (const other of [box, range]) if (other && other !== control) other.value = control.value;
    });
  const show = () => [box, range].filter(Boolean).forEach((control) => { control.value = form.get(name); });
  box.addEventListener("blur", show); // refill an empty box
  form.onShow(show);
  return field(label, text, ...(range ? [range, box] : [box]));
}

/** Return the control of a value of two numbers, at first and at last. */
function pair(form, name, label, {low, high, text}) {
  const boxes = ["at first", "at last"].map((when, place) => el("input", {
    type: "number", min: low, max: high, step: "any", "aria-label": `${label} ${when}`,
    oninput: (event) => {
      if (event.target.value === "") return;
      const value = [...form.get(name)];
      value[place] = Number(event.target.value);
      form.set({[name]: value});
    },
    onblur: () => show(),
  }));
  const show = () => boxes.forEach((box, place) => { box.value = form.get(name)[place]; });
  form.onShow(show);
  return field(label, text, ...boxes);
}

/** Return the control of the critic window: two handles on one line, in per cent of the run. */
function criticWindow(form, name, label, {text}) {
  const says = el("output", {class: "says"});
  const ranges = ["from", "until"].map((when, place) => el("input", {
    type: "range", min: 0, max: 100, step: 1, "aria-label": `${label} ${when}, per cent of the run`,
    oninput: (event) => {
      const given = Number(event.target.value), other = Number(ranges[1 - place].value);
      const kept = place === 0 ? Math.min(given, other - 1) : Math.max(given, other + 1);
      event.target.value = kept;
      const value = [...form.get(name)];
      value[place] = Math.round(100 - kept) / 100;
      form.set({[name]: value});
      show();
    },
  }));
  const line = el("div", {class: "window"}, ranges);
  const show = () => {
    const [from, until] = form.get(name).map((part) => Math.round(100 * (1 - part)));
    [ranges[0].value, ranges[1].value] = [from, until];
    line.style.setProperty("--from", `${from}%`);
    line.style.setProperty("--until", `${until}%`);
    says.textContent = `${from} % to ${until} %`;
  };
  form.onShow(show);
  return el("div", {class: "field", role: "group", "aria-label": label},
    el("span", {class: "label"}, label, " ", says), el("small", {}, text), line);
}

/** Return the control of one of several choices. choices: [value, text] each. */
export function choice(form, name, label, choices, text, onchange) {
  const select = el("select", {onchange: () => {
    form.set({[name]: choices[select.selectedIndex][0]});
    if (onchange) onchange();
  }}, choices.map(([, shown]) => el("option", {}, shown)));
  form.onShow(() => { select.selectedIndex = choices.findIndex(([value]) => value === form.get(name)); });
  return field(label, text, select);
}

export function seed(form) {
  const box = el("input", {type: "text", inputmode: "numeric", autocomplete: "off", oninput: () => form.set({seed: box.value})});
  form.onShow(() => { box.value = form.get("seed"); });
  const next = el("button", {type: "button", onclick: () => {
    form.restore({seed: String(Math.floor(Math.random() * 1e6))});
  }}, "New seed");
  return field("Seed", "Image i has seed + i. The same seed makes the same images.", box, next);
}

/** Return check boxes for the classes, with a search box if there are many; "" with fewer than two classes. */
export function classChips(form, classes) {
  if (classes.length < 2) return "";
  const boxes = classes.map((name, label) => el("input", {type: "checkbox", value: String(label), onchange: () => {
    form.set({classes: boxes.flatMap((box, chosen) => (box.checked ? [chosen] : []))});
  }}));
  form.onShow(() => boxes.forEach((box, label) => { box.checked = form.get("classes").includes(label); }));
  const chips = classes.map((name, label) => el("label", {class: "chip"}, boxes[label], el("span", {}, name)));
  const filter = classes.length > 24 && el("input", {type: "search", "aria-label": "Find a class", placeholder: "Find a class",
    oninput: (event) => chips.forEach((chip, label) => {
      chip.hidden = !boxes[label].checked && !classes[label].toLowerCase().includes(event.target.value.toLowerCase());
    })});
  return el("fieldset", {class: "field"}, el("legend", {}, "Classes"), el("small", {}, "None chosen: all take turns"),
    filter, el("div", {class: "chips"}, chips));
}

/** Return the initial class: null with a classifier, or with fewer than two classes. */
export const firstClass = (about) => (about.classifier || about.classes.length < 2 ? null : 0);

/** Return the control of one class, or of null to ask the classifier; "" with fewer than two classes. */
export function classChoice(form, about, label) {
  if (about.classes.length < 2) return "";
  const choices = about.classes.map((name, number) => [number, name]);
  return choice(form, "class", label, about.classifier ? [[null, "Ask the classifier"], ...choices] : choices);
}

/**
 * Return the controls of a sampler and its settings. Choosing a sampler fills in the settings that suit it.
 * which: the key of these settings, `settings` or `refining`. without: the names of settings to omit.
 */
export function sampler(form, about, {which = "settings", without = []} = {}) {
  const known = about.samplers.filter((one) => one[which]);
  const said = el("small", {class: "explained"}), steps = el("div"), more = el("div", {class: "more"});
  const settingsOf = (name) => {
    const entries = Object.entries(known.find((one) => one.name === name)[which]);
    return Object.fromEntries(entries.filter(([key]) => !without.includes(key)));
  };
  if (!known.some((one) => one.name === form.get("sampler"))) form.set({sampler: known[0].name});
  const fill = () => {
    const one = known.find((found) => found.name === form.get("sampler"));
    const suited = settingsOf(one.name);
    for (const {name} of about.forms) if (!(name in suited)) delete form.values[name];
    form.set({...suited, ...form.values});
    said.textContent = one.text;
    const shown = form.shows.length;
    steps.replaceChildren(number(form, "steps", "Steps", {low: 1, high: about.limits.steps, step: 1}));
    more.replaceChildren(...about.forms.filter(({name}) => name in suited).map((one) => setting(form, one)));
    form.shows.length = shown; // without these controls, because each `restore` calls `fill`, which rebuilds them
  };
  form.onShow(fill);
  const picked = choice(form, "sampler", "Sampler", known.map((one) => [one.name, one.title]), null, () => {
    Object.assign(form.values, settingsOf(form.get("sampler")));
    fill();
  });
  picked.append(said);
  return [picked, steps, el("details", {class: "advanced"}, el("summary", {}, "Advanced settings"), more)];
}

function setting(form, one) {
  if (one.choices) return choice(form, one.name, one.label, one.choices, one.text);
  const make = one.name === "critic_window" ? criticWindow : one.name === "temperature" ? pair : number;
  return make(form, one.name, one.label, one);
}
