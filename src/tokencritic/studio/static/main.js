// The page. It builds the tabs from the server's facts about the model, and restores its state after a reload.
import {TokenCanvas} from "./canvas.js";
import {changed, looked} from "./change.js";
import {comparison} from "./compare.js";
import {classChips, classChoice, choice, firstClass, Form, number, sampler, seed} from "./controls.js";
import {ask, el, forget, memory, remember} from "./elements.js";
import {called, gallery} from "./gallery.js";
import {PictureInput} from "./picture.js";
import {RunTab} from "./run.js";

const TABS = ["generate", "compare", "refine", "edit"];
const tabs = {}, forms = {}, pictures = {};
let about;

const controlsOf = (tab) => document.querySelector(`#${tab} .controls`);

function openTab(tab) {
  for (const name of TABS) {
    const button = document.getElementById(`tab-${name}`);
    button.setAttribute("aria-selected", String(name === tab));
    button.tabIndex = name === tab ? 0 : -1;
    document.getElementById(name).hidden = name !== tab;
  }
  remember({tab});
  markShown();
}

/** Mark the run in the history that the open tab shows. */
function markShown() {
  for (const button of document.querySelectorAll("#history .strip button"))
    button.setAttribute("aria-pressed", String(tabs[memory.tab]?.run === button.dataset.run));
}

function setUpTabs() {
  for (const [place, tab] of TABS.entries()) {
    const button = document.getElementById(`tab-${tab}`);
    button.addEventListener("click", () => openTab(tab));
    button.addEventListener("keydown", (event) => {
      const far = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!far) return;
      const next = TABS[(place + far + TABS.length) % TABS.length];
      openTab(next);
      document.getElementById(`tab-${next}`).focus();
    });
  }
}

function introduce() {
  document.title = `Token-Critic studio: ${about.model}`;
  document.getElementById("model").textContent = about.model;
  document.getElementById("sizes").textContent = about.tooltip;
  document.getElementById("pitch").textContent = about.critic
    ? "The generator fills in the picture. The critic marks what looks wrong, and those parts are resampled."
    : "The generator fills in the picture. This model has no critic.";
}

const facts = (set) => [
  `${set.names.length} image${set.names.length > 1 ? "s" : ""} in ${set.seconds.toFixed(1)} s`, `${set.nfe} network evaluations each`,
  set.recognised && `${set.recognised.filter(Boolean).length} of ${set.recognised.length} recognised as the wanted class`,
].filter(Boolean).join(", ");

const whatToMake = (form) => [classChips(form, about.classes),
  number(form, "num", "How many images", {low: 1, high: about.limits.images, step: 1}), seed(form)];

function buildGenerate() {
  const form = forms.generate = new Form("generate", about.first);
  controlsOf("generate").append(...whatToMake(form), ...sampler(form, about));
  tabs.generate = new RunTab("generate", "Generate", {
    values: () => ({...form.values}),
    show: (told) => [el("p", {class: "said", role: "status"}, `${facts(told.sets[0])}.`), ...gallery(told.sets[0], (index) => [
      about.refines && use("refine", "Refine this", told.sets[0], index), about.grid && use("edit", "Edit this", told.sets[0], index)])],
    changed: showHistory,
  });
}

function buildCompare() {
  const form = forms.compare = new Form("compare", {classes: [], num: Math.min(20, about.limits.images), seed: "0", cost: about.cost,
    first: about.compared[0], second: about.compared[1]});
  const known = about.samplers.map((one) => [one.name, one.title]);
  controlsOf("compare").append(...whatToMake(form),
    number(form, "cost", "Cost of an image", {low: 1, high: Math.max(40, about.cost), step: 1, text: "At most so many generator evaluations, for both"}),
    choice(form, "first", "Above", known), choice(form, "second", "Below", known));
  tabs.compare = new RunTab("compare", "Compare", {
    values: () => {
      const {first, second, ...values} = form.values;
      return {...values, samplers: [first, second]};
    },
    show: comparison,
    changed: showHistory,
  });
  tabs.compare.hint("Press Compare to see the same seeds with and without the critic.");
}

/** Return a button that opens an image of a set in another tab. */
function use(tab, text, set, index) {
  return el("button", {type: "button", onclick: async () => {
    openTab(tab);
    if (about.classes.length > 1) forms[tab].restore({class: set.labels[index]});
    await pictures[tab].take(`${set.base}/image_${index}.png`, called(set, index));
    window.scrollTo({top: 0});
  }}, text);
}

function buildRefine() {
  if (!about.refines) return unavailable("refine", "Refining here needs a critic.");
  const form = forms.refine = new Form("refine", {class: firstClass(about), ratio: about.share, seed: "0", sampler: "critic"});
  const look = async () => {
    tabs.refine.clear("The critic looks at the picture…");
    const asked = tabs.refine.looking = pictures.refine.id;
    const told = await ask("/studio/runs", {kind: "look", values: {picture: asked, class: form.get("class")}});
    if (told.error) return tabs.refine.clear(told.error);
    let seen = await ask(`/studio/runs/${told.id}`);
    while (!seen.error && !seen.base && seen.state !== "failed") seen = await ask(`/studio/runs/${told.id}?seen=${encodeURIComponent(seen.version)}`);
    if (tabs.refine.looking === asked && !tabs.refine.run) tabs.refine.result.replaceChildren(...(seen.base ? looked(seen) : [seen.error || seen.text]));
  };
  controlsOf("refine").append(classChoice(form, about, "Class of the picture"),
    number(form, "ratio", "Share resampled", {low: 0.05, high: 1, step: 0.05, text: "Of the tokens, those that the critic trusts least"}),
    seed(form), ...sampler(form, about, {which: "refining", without: ["candidates", "reject_by"]}));
  tabs.refine = new RunTab("refine", "Refine", {
    values: () => (pictures.refine.id ? {...form.values, picture: pictures.refine.id} : {error: "Choose a picture first."}),
    show: (told) => changed(told, onward(told)),
    changed: showHistory,
  });
  pictures.refine = new PictureInput("refine", document.querySelector("#refine .picture"), about, look);
  tabs.refine.hint("Choose a picture to see what the critic thinks of it.");
  tabs.refine.again = look;
  return null;
}

/** Return the buttons for the result of a refinement or an edit. */
const onward = (told) => [
  el("button", {type: "button", onclick: () => takeOn(told.kind, told)}, "Continue with this result"),
  told.kind === "refine" && about.grid && use("edit", "Edit this", told.sets[0], 0),
  told.kind === "edit" && about.refines && use("refine", "Refine this", told.sets[0], 0),
];

const takeOn = (tab, told) => pictures[tab].take(`${told.sets[0].base}/image_0.png`, "the result");

function buildEdit() {
  if (!about.grid) return unavailable("edit", "The tokens of the model have no grid: no region of an image can be edited.");
  const form = forms.edit = new Form("edit", {class: firstClass(about), seed: "0", sampler: about.first.sampler, right: 0, down: 0, brush: 1});
  const [rows, columns] = about.grid, hint = "Choose a picture, paint on it and press Resample.";
  const painting = new TokenCanvas(document.querySelector("#edit .canvas"), about, form);
  const move = (name, label, most) => number(form, name, label, {low: 1 - most, high: most - 1, step: 1});
  const moves = el("details", {class: "advanced"}, el("summary", {}, "Move the picture"),
    el("small", {}, "In squares of the grid. What becomes uncovered is resampled too."), move("right", "Right", columns), move("down", "Down", rows));
  document.querySelector("#edit .canvas").append(number(form, "brush", "Brush", {low: 1, high: Math.min(8, rows), step: 1}), moves);
  moves.addEventListener("input", () => painting.draw());
  controlsOf("edit").append(classChoice(form, about, "Class to sample"), seed(form),
    ...sampler(form, about, {without: ["candidates", "reject_by"]}));
  tabs.edit = new RunTab("edit", "Resample", {
    values: () => {
      const {right, down, brush, ...values} = form.values;
      return pictures.edit.id ? {...values, picture: pictures.edit.id, region: painting.region, move: [right, down]} : {error: "Choose a picture first."};
    },
    show: (told) => changed(told, onward(told)),
    changed: showHistory,
  });
  pictures.edit = new PictureInput("edit", document.querySelector("#edit .picture"), about, () => {
    form.restore({right: 0, down: 0});
    painting.show(pictures.edit.id, true);
    tabs.edit.clear(hint);
  });
  tabs.edit.hint(hint);
  tabs.edit.painting = painting;
  tabs.edit.again = () => painting.show(pictures.edit.id, false);
  return null;
}

function unavailable(tab, text) {
  document.getElementById(tab).replaceChildren(el("p", {class: "hint"}, text));
  return null;
}

/** Show a run of the history in its tab, with its picture and its values. */
async function showRun(run) {
  openTab(run.kind);
  const {picture, samplers, move, region, ...values} = run.asked;
  if (picture) await pictures[run.kind].take(`/studio/runs/${run.id}/given.png`, "The picture of this run");
  if (samplers) [values.first, values.second] = samplers;
  if (move) [values.right, values.down] = move;
  forms[run.kind].restore(values);
  if (region) tabs.edit.painting.mark(region);
  await tabs[run.kind].follow(run.id);
  tabs[run.kind].result.scrollIntoView({block: "start"});
}

async function showHistory() {
  const {runs = []} = await ask("/studio/runs");
  const shown = runs.filter((run) => run.kind !== "look" && ["done", "cancelled"].includes(run.state));
  const names = {generate: "Generate", compare: "Compare", refine: "Refine", edit: "Edit"};
  const buttons = shown.reverse().map((run) => el("button", {type: "button", title: `${names[run.kind]}, seed ${run.seed}`,
    "data-run": run.id, onclick: () => showRun(run)},
    el("img", {src: `/studio/runs/${run.id}/0/image_0.png`, alt: "", onerror: (event) => event.target.remove()}), el("span", {}, `${names[run.kind]}, seed ${run.seed}`)));
  document.querySelector("#history .strip").replaceChildren(...buttons);
  document.getElementById("history").hidden = buttons.length === 0;
  markShown();
  return runs;
}

/**
 * Restore what the tabs showed before a reload, if the server still has it.
 * Else the Generate tab shows its last run, at first the images that the studio opens with.
 */
async function findAgain() {
  const runs = await showHistory(), kept = (id) => runs.some((run) => run.id === id);
  for (const tab of ["refine", "edit"]) {
    if (!tabs[tab]) continue;
    const run = tabs[tab].remembered;
    if (!await pictures[tab].restore()) continue;
    if (tab === "edit" || !kept(run)) tabs[tab].again();
    if (kept(run)) tabs[tab].follow(run);
  }
  if (kept(tabs.compare.remembered)) tabs.compare.follow(tabs.compare.remembered);
  const opened = runs.find((run) => run.id === tabs.generate.remembered) || runs.findLast((run) => run.kind === "generate");
  if (opened) tabs.generate.follow(opened.id, opened.own);
}

document.addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
  const open = TABS.find((tab) => !document.getElementById(tab).hidden);
  if (file && pictures[open]) pictures[open].send(file);
});

setUpTabs();
openTab(TABS.includes(memory.tab) ? memory.tab : "generate");
about = await ask("/studio/about");
if (about.error) document.getElementById("pitch").textContent = about.error;
else {
  if (memory.model !== about.model) forget({model: about.model, tab: memory.tab || "generate"});
  introduce();
  buildGenerate();
  buildCompare();
  buildRefine();
  buildEdit();
  await findAgain();
  document.body.dataset.ready = "yes";
}
