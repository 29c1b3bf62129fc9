// The images of a run: tiles, the chosen image enlarged, and its steps.
import {command, el} from "./elements.js";

const MILLISECONDS = 500; // per step while playing

/** Return the name of an image: its class, if the model has classes, and its seed. */
export const called = (set, index) => [set.names[index], `seed ${set.seeds[index]}`].filter(Boolean).join(", ");

/** Return the tiles of unfinished or finished images. set: the set of finished images, else null. */
function tiles(sources, set, onchoose) {
  const buttons = sources.map((source, index) => {
    const label = set ? called(set, index) : `image ${index + 1}, forming`;
    return el("button", {type: "button", class: "tile", title: label, "aria-pressed": String(index === 0),
      onclick: () => {
        buttons.forEach((other, place) => other.setAttribute("aria-pressed", String(place === index)));
        onchoose(index);
      }}, el("img", {src: source, alt: label}), el("span", {}, set ? set.names[index] : " "));
  });
  return el("div", {class: "gallery", role: "group", "aria-label": "images"}, buttons);
}

/** Return the images of a set, and the chosen image below them. actions: (index) -> buttons for that image. */
export function gallery(set, actions) {
  const below = el("div", {class: "chosen"});
  const choose = (index) => below.replaceChildren(...chosen(set, index, actions(index)));
  const shown = tiles(set.names.map((_, index) => `${set.base}/image_${index}.png`), set, choose);
  choose(0);
  return [shown, below];
}

/** Return unfinished images, in the layout of `gallery`. */
export function forming(sources) {
  const large = el("img", {class: "large", src: sources[0], alt: "the first image, forming"});
  const choose = (index) => { large.src = sources[index]; };
  return [tiles(sources, null, choose), el("div", {class: "chosen"}, el("div", {class: "beside"}, el("figure", {}, large)))];
}

function chosen(set, index, buttons) {
  const name = called(set, index);
  const found = set.recognised ? (set.recognised[index] ? "The classifier recognises it." : "The classifier takes it for something else.") : "";
  return [
    el("div", {class: "beside"},
      el("figure", {}, el("img", {class: "large", src: `${set.base}/image_${index}.png`, alt: name})),
      el("div", {}, el("h2", {}, name), el("p", {}, found), el("p", {class: "links"}, buttons), el("p", {class: "links"}, downloads(set, index)))),
    el("h2", {}, "How it was made"),
    viewer(set, index),
    command(set.command),
  ];
}

export function downloads(set, index) {
  const link = (path, file, text) => el("a", {href: `${set.base}/${path}`, download: file}, text);
  const whole = set.files[0].replace(/\.png$/, "");
  return [
    link(`image_${index}.png`, set.files[index], "Download PNG"),
    set.names.length > 1 && link("images.png", `${whole}_and_more.png`, "All in one PNG"),
    set.trace && link("gif.gif", `${whole}_steps.gif`, "Steps as GIF"),
  ];
}

/** Return the steps of an image: four panels, a slider and a Play button; a hint if the steps are not kept. */
export function viewer(set, index) {
  const counts = set.trace && set.trace.counts[index];
  if (!counts) {
    const why = set.trace ? "Of so many images and steps, those of this image are not kept."
      : "The steps are not known: images were chosen among candidates.";
    return el("p", {class: "hint"}, why);
  }
  const panels = set.trace.rows.map((name) => el("canvas", {role: "img", "aria-label": name}));
  const says = el("output", {class: "facts"});
  const range = el("input", {type: "range", min: 0, max: counts.length - 1, value: Math.floor((counts.length - 1) / 2),
    "aria-label": "Step", oninput: () => show()});
  const sheet = new Image();
  const show = () => {
    const at = Number(range.value), [step, hidden, remasked] = counts[at];
    says.textContent = hidden === 0 ? `Step ${step}: all tokens are kept.`
      : `Step ${step}: ${hidden} of ${set.tokens} tokens are resampled next, ${remasked} of them had been kept before.`;
    range.setAttribute("aria-valuetext", says.textContent);
    if (!sheet.naturalWidth) return;
    const [width, height] = [sheet.naturalWidth / counts.length, sheet.naturalHeight / panels.length];
    panels.forEach((panel, row) => {
      [panel.width, panel.height] = [width, height];
      panel.getContext("2d").drawImage(sheet, at * width, row * height, width, height, 0, 0, width, height);
    });
    made.dataset.drawn = String(at);
  };
  sheet.onload = show;
  sheet.onerror = () => made.replaceChildren(el("p", {class: "alert", role: "alert"},
    "This run has expired: its steps are not kept any more. Make it again to see them."));
  sheet.src = `${set.base}/steps_${index}.png`;
  const made = el("section", {class: "viewer", "aria-label": "steps"},
    el("div", {class: "panels"}, panels.map((panel, row) =>
      el("figure", {}, panel, el("figcaption", {}, set.trace.rows[row])))),
    el("div", {class: "scrub"}, range, player(range, show)), says, legend());
  show();
  return made;
}

function player(range, show) {
  let playing = null;
  const stop = () => {
    clearInterval(playing);
    playing = null;
    button.textContent = "Play";
  };
  const button = el("button", {type: "button", onclick: () => {
    if (playing) return stop();
    range.value = 0;
    show();
    button.textContent = "Pause";
    playing = setInterval(() => {
      range.value = Number(range.value) + 1;
      show();
      if (!range.isConnected || range.value === range.max) stop();
    }, MILLISECONDS);
  }}, "Play");
  range.addEventListener("pointerdown", stop);
  return button;
}

function legend() {
  const mark = (kind, text) => el("span", {}, el("i", {class: kind}), ` ${text}`);
  return el("p", {class: "legend"}, el("span", {}, "distrusted ", el("i", {class: "scale"}), " trusted"),
    mark("hidden-token", "resampled next"), mark("remasked-token", "kept before, resampled now"));
}
