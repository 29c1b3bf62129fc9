// What gradio's own parts cannot do: the step slider, painting tokens, before and after, pictures of the user.
// Called from the attributes of views.py's elements, so that nothing is to be set up when a result appears.
window.studio = (() => {
  const pictures = {};

  function showStep(viewer) {
    const range = viewer.querySelector("input[type=range]");
    const chosen = Number(viewer.closest(".tc-result").dataset.chosen);
    const text = JSON.parse(viewer.dataset.facts)[chosen][Number(range.value)];
    viewer.style.setProperty("--at", range.value);
    viewer.querySelector(".tc-facts").textContent = text;
    range.setAttribute("aria-valuetext", text);
  }

  function choose(button) {
    const result = button.closest(".tc-result"), index = Number(button.dataset.index);
    result.dataset.chosen = index;
    for (const other of result.querySelectorAll(".tc-thumb"))
      other.setAttribute("aria-pressed", String(other === button));
    const link = result.querySelector("a[href*='/image_']");
    if (link) link.href = `${result.dataset.base}/image_${index}.png`;
    const viewer = result.querySelector(".tc-viewer");
    if (!viewer) return;
    const facts = JSON.parse(viewer.dataset.facts)[index];
    viewer.classList.toggle("tc-unknown", facts.length === 0);
    if (facts.length === 0) {
      viewer.querySelector(".tc-facts").textContent = "the steps of this image were not recorded";
      return;
    }
    for (const panel of viewer.querySelectorAll(".tc-panel"))
      panel.style.backgroundImage = `url(${result.dataset.base}/steps_${index}.png)`;
    showStep(viewer);
  }

  function play(button) {
    const viewer = button.closest(".tc-viewer"), range = viewer.querySelector("input[type=range]");
    if (viewer.playing) {
      clearInterval(viewer.playing);
      viewer.playing = null;
      button.textContent = "Play";
      return;
    }
    range.value = 0;
    showStep(viewer);
    button.textContent = "Stop";
    viewer.playing = setInterval(() => {
      range.value = Number(range.value) + 1;
      showStep(viewer);
      if (!viewer.isConnected || range.value === range.max) play(button);
    }, 400);
  }

  async function upload(input, tab) {
    const file = input.files[0], said = input.parentElement.querySelector("[role=alert]");
    if (!file) return;
    said.textContent = "";
    try {
      const answer = await fetch("studio/pictures", {method: "POST", body: file});
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.error);
      pictures[tab] = told.id;
      document.querySelector(`#${tab}-load`).click();
    } catch (error) {
      said.textContent = error.message || "the picture could not be sent";
    }
    input.value = "";  // so that the same file can be chosen again
  }

  function mark(cell, on) {
    cell.classList.toggle("tc-marked", on);
    cell.setAttribute("aria-selected", String(on));
  }

  function count(canvas) {
    const marked = canvas.querySelectorAll(".tc-marked").length;
    canvas.parentElement.querySelector(".tc-count").textContent = `${marked} token${marked === 1 ? "" : "s"} marked`;
  }

  function paint(event) {
    const canvas = event.currentTarget;
    if (event.type === "pointermove" && event.buttons !== 1) return;
    const cell = document.elementFromPoint(event.clientX, event.clientY);
    if (!cell || !cell.classList.contains("tc-cell") || cell.parentElement !== canvas) return;
    if (event.type === "pointerdown") {
      canvas.painting = !cell.classList.contains("tc-marked");
      canvas.setPointerCapture(event.pointerId);
    }
    mark(cell, canvas.painting);
    count(canvas);
  }

  function key(event) {
    const canvas = event.currentTarget, columns = Number(canvas.dataset.columns), rows = Number(canvas.dataset.rows);
    const cells = canvas.querySelectorAll(".tc-cell");
    let at = Number(canvas.dataset.at || 0);
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (event.key === " ") mark(cells[at], !cells[at].classList.contains("tc-marked"));
    else if (moves[event.key]) {
      const row = Math.floor(at / columns) + moves[event.key][0], column = at % columns + moves[event.key][1];
      at = Math.min(rows - 1, Math.max(0, row)) * columns + Math.min(columns - 1, Math.max(0, column));
      if (event.shiftKey) mark(cells[at], true);
    } else return;
    event.preventDefault();
    canvas.dataset.at = at;
    cells.forEach((cell, i) => cell.classList.toggle("tc-cursor", i === at));
    canvas.setAttribute("aria-label", `region to resample, row ${Math.floor(at / columns) + 1}, column ${at % columns + 1}`);
    count(canvas);
  }

  function clear(button) {
    const canvas = button.closest("p").parentElement.querySelector(".tc-canvas");
    for (const cell of canvas.querySelectorAll(".tc-cell")) mark(cell, false);
    count(canvas);
  }

  async function copy(button) {
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  return {
    choose, play, upload, paint, key, clear, copy,
    step: (range) => showStep(range.closest(".tc-viewer")),
    wipe: (range) => range.closest(".tc-wipe").style.setProperty("--at", `${range.value}%`),
    picture: (tab) => pictures[tab] || "",
    region: () => [...document.querySelectorAll(".tc-canvas .tc-marked")].map((cell) => cell.dataset.i).join(" "),
    chosen: (tab) => {
      const result = document.querySelector(`#${tab}-result .tc-result`);
      return result ? `${result.dataset.run} ${result.dataset.chosen}` : "";
    },
  };
})();
