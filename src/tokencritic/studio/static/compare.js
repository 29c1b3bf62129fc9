// The comparison of two samplers on the same seeds: a table of measurements, and pairs of images.
import {command, el} from "./elements.js";
import {called, viewer} from "./gallery.js";

export function comparison(told) {
  if (told.sets.length < 2) return [el("p", {class: "hint"}, "Stopped before both had images.")];
  const below = el("div", {class: "columns"});
  const choose = (index) => below.replaceChildren(...told.sets.map((set) => el("div", {class: "chosen"},
    el("h3", {}, swatch(set), set.title),
    el("figure", {}, el("img", {class: "large", src: `${set.base}/image_${index}.png`, alt: `${called(set, index)}, ${set.title}`})),
    viewer(set, index), command(set.command))));
  choose(0);
  const marks = told.sets[0].recognised && el("p", {class: "hint"}, "✗: the classifier takes the image for another class.");
  return [measures(told), pairs(told.sets, choose), marks || "", el("h2", {}, "How the chosen pair was made"), below];
}

const swatch = (set) => {
  const mark = el("i", {class: "swatch"});
  mark.style.setProperty("--colour", set.colour);
  return mark;
};

/**
 * Return a table with one column per sampler. The better FID is marked if both are of equally many images.
 * No other value is marked, because a comparison has few images.
 */
function measures({sets, fid}) {
  const rows = [];
  if (fid && fid.some(Boolean)) {
    const both = fid.every(Boolean) && fid[0].images === fid[1].images;
    const shown = fid.map((one) => (one ? `${one.value.toFixed(3)} on ${one.images.toLocaleString("en")} images` : "not measured"));
    rows.push(["FID of these settings, measured when they were tuned; lower is better", shown, both ? fid.map((one) => one.value) : null]);
  }
  if (sets.every((set) => set.recognised)) {
    const counts = sets.map((set) => set.recognised.filter(Boolean).length);
    rows.push(["Recognised as the wanted class, of these images", counts.map((n, at) => `${n} of ${sets[at].recognised.length}`), null]);
  }
  rows.push(["Cost of an image, in generator evaluations", sets.map((set) => set.cost.toFixed(2)), null]);
  rows.push(["Steps; network evaluations", sets.map((set) => `${set.steps}; ${set.nfe}`), null]);
  rows.push([`Time for ${sets[0].names.length} images`, sets.map((set) => `${set.seconds.toFixed(2)} s`), null]);
  return el("table", {class: "measures"},
    el("thead", {}, el("tr", {}, el("td"), sets.map((set) => el("th", {scope: "col"}, swatch(set), set.title)))),
    el("tbody", {}, rows.map(([name, values, order]) => el("tr", {}, el("th", {scope: "row"}, name),
      values.map((value, at) => el("td", {class: order && order[at] < order[1 - at] ? "better" : null}, value))))));
}

/** Return the pairs. The images of one seed are stacked, so that they stay together at any page width. */
function pairs(sets, choose) {
  const cards = sets[0].names.map((name, index) => el("button", {
    type: "button", class: "pair", "aria-pressed": String(index === 0), title: called(sets[0], index),
    onclick: () => {
      cards.forEach((card, place) => card.setAttribute("aria-pressed", String(place === index)));
      choose(index);
    }}, sets.map((set) => image(set, index)), el("span", {}, name)));
  return el("div", {class: "pairs", role: "group", "aria-label": "pairs of images from one seed"}, cards);
}

function image(set, index) {
  const found = set.recognised && !set.recognised[index];
  const frame = el("span", {class: "framed"}, el("img", {src: `${set.base}/image_${index}.png`,
    alt: `${called(set, index)}, ${set.title}${found ? ", not recognised" : ""}`}), found && el("b", {title: "not recognised"}, "✗"));
  frame.style.setProperty("--colour", set.colour);
  return frame;
}
