// The results of a score, a refinement or an edit: pictures before and after the change.
import {command, el} from "./elements.js";
import {downloads, viewer} from "./gallery.js";

/**
 * Return views with a common divider: before on its left, after on its right.
 * views: [name, URL before, URL after] each. more: an element beside the views, or null.
 */
export function wipe(views, more = null) {
  const ranges = views.map(([name]) => el("input", {type: "range", min: 0, max: 100, value: 50,
    "aria-label": `${name}: before on the left of the divider, after on the right`, oninput: (event) => move(event.target.value)}));
  const made = el("div", {class: "wipes"}, views.map(([name, before, after], at) => el("figure", {},
    el("div", {class: "wipe"}, el("img", {src: before, alt: `${name} before`}), el("img", {class: "after", src: after, alt: `${name} after`}),
      el("span", {class: "divider"}), el("b", {class: "left"}, "before"), el("b", {class: "right"}, "after"), ranges[at]),
    el("figcaption", {}, name))), more);
  const move = (value) => {
    made.style.setProperty("--at", `${value}%`);
    ranges.forEach((range) => { range.value = value; });
  };
  move(50);
  return made;
}

/** Return the elements for a scored picture. */
export function looked(told) {
  return [el("p", {class: "said", role: "status"}, told.verdict), el("div", {class: "wipes"},
    figure(told, "before", "As the tokenizer gives it back"), told.scored && figure(told, "before_score", "What the critic trusts"))];
}

/** Return the elements for a refined or edited picture. actions: buttons for the result. */
export function changed(told, actions) {
  const set = told.sets[0], views = [["Picture", `${told.base}/before.png`, `${told.base}/after.png`]];
  const edited = told.kind === "edit";
  if (!edited && told.scored) views.push(["What the critic trusts", `${told.base}/before_score.png`, `${told.base}/after_score.png`]);
  return [
    el("p", {class: told.better === false ? "said worse" : "said", role: "status"}, told.verdict),
    wipe(views, edited && figure(told, "region", "Resampled")),
    el("p", {class: "links"}, actions, downloads(set, 0),
      el("a", {href: `${told.base}/given.png`, download: "picture.png"}, "Picture given")),
    el("h3", {}, "How it was made"), viewer(set, 0), command(set.command),
  ];
}

const figure = (told, name, text) => el("figure", {}, el("img", {src: `${told.base}/${name}.png`, alt: text}), el("figcaption", {}, text));
