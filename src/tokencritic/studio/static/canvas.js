// The editor of the region to resample. A pointer, or the arrow keys and the space bar, mark places of the picture.
import {el, memory, remember} from "./elements.js";

export class TokenCanvas {
  /**
   * Add the editor to an element. A cell of its grid is a place of the picture, with `about.splits` tokens.
   * form: the form of the Edit tab. `right` and `down` move the picture, and `brush` is a width; all are in places.
   */
  constructor(place, about, form) {
    [this.rows, this.columns] = about.grid;
    Object.assign(this, {about, form, at: 0, undone: [], marked: new Set(memory.marked || [])});
    this.cells = Array.from({length: this.rows * this.columns}, () => el("div", {role: "gridcell"}));
    this.board = el("canvas");
    this.grid = el("div", {class: "grid", role: "grid", tabindex: "0", "aria-label": "region to resample",
      "aria-describedby": "paint-how", onkeydown: (event) => this.#key(event), onpointerdown: (event) => this.#down(event),
      onpointermove: (event) => this.#drag(event)}, this.cells);
    this.grid.style.setProperty("--columns", this.columns);
    this.count = el("output", {class: "count", "aria-live": "polite"});
    this.back = el("button", {type: "button", onclick: () => this.undo()}, "Undo");
    this.box = el("div", {class: "painting", hidden: true},
      el("div", {class: "board"}, this.board, this.grid),
      el("p", {class: "links"}, this.back, el("button", {type: "button", onclick: () => this.#change(() => this.marked.clear())}, "Clear"), this.count),
      el("small", {id: "paint-how"}, "Drag to paint, once more to erase. Keys: arrows move, space marks, Shift with an arrow marks on the way."));
    place.append(this.box);
    this.image = new Image();
    this.image.onload = () => this.draw();
  }

  /** The position of the first token of each marked place, in ascending order. */
  get region() { return [...this.marked].sort((one, other) => one - other).map((place) => place * this.about.splits); }

  /** Show a picture. fresh: whether to remove all marks. */
  show(id, fresh) {
    if (fresh) this.marked.clear();
    this.undone = [];
    this.box.hidden = false;
    this.image.src = `/studio/pictures/${id}.png`;
    this.draw();
  }

  /** Mark only the places of some tokens. region: positions of the tokens. */
  mark(region) { this.#change(() => { this.marked = new Set(region.map((at) => Math.floor(at / this.about.splits))); }); }

  undo() {
    if (this.undone.length) this.marked = this.undone.pop();
    this.draw();
  }

  /** Draw the moved picture, the uncovered places and the marked places. */
  draw() {
    const {size, margin} = this.about, whole = size + 2 * margin, side = whole / this.columns;
    const [right, down] = [this.form.get("right"), this.form.get("down")];
    [this.board.width, this.board.height] = [whole, whole];
    const pen = this.board.getContext("2d");
    pen.imageSmoothingEnabled = false;
    if (this.image.complete && this.image.naturalWidth) pen.drawImage(this.image, margin + right * side, margin + down * side, size, size);
    this.cells.forEach((cell, index) => {
      const [row, column] = [Math.floor(index / this.columns), index % this.columns];
      const bare = uncovered(column, right, this.columns, margin / side) || uncovered(row, down, this.rows, margin / side);
      cell.classList.toggle("bare", bare);
      cell.classList.toggle("marked", this.marked.has(index));
      cell.classList.toggle("cursor", index === this.at);
      cell.setAttribute("aria-selected", String(this.marked.has(index)));
    });
    const bare = this.cells.filter((cell) => cell.classList.contains("bare")).length;
    this.count.textContent = `${this.marked.size} marked${bare ? `, ${bare} uncovered` : ""}`;
    this.back.disabled = this.undone.length === 0;
    remember({marked: [...this.marked]});
  }

  #change(change) {
    this.undone.push(new Set(this.marked));
    change();
    this.draw();
  }

  #place(event) {
    const box = this.grid.getBoundingClientRect();
    const along = (at, from, length, most) => Math.min(most - 1, Math.max(0, Math.floor((at - from) / length * most)));
    return [along(event.clientY, box.top, box.height, this.rows), along(event.clientX, box.left, box.width, this.columns)];
  }

  #down(event) {
    if (event.button !== 0) return;
    this.grid.setPointerCapture(event.pointerId);
    this.last = this.#place(event);
    this.erases = this.marked.has(this.last[0] * this.columns + this.last[1]);
    this.#change(() => this.#stamp(...this.last));
  }

  /** Paint all cells between two events, so that a fast pointer leaves no gaps. */
  #drag(event) {
    if (!this.last || !this.grid.hasPointerCapture(event.pointerId)) return;
    const [from, to] = [this.last, this.#place(event)];
    const steps = Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]));
    for (let step = 1; step <= steps; step += 1)
      this.#stamp(Math.round(from[0] + (to[0] - from[0]) * step / steps), Math.round(from[1] + (to[1] - from[1]) * step / steps));
    this.last = to;
    this.draw();
  }

  #stamp(row, column) {
    const brush = this.form.get("brush"), before = Math.floor((brush - 1) / 2);
    for (let y = row - before; y < row - before + brush; y += 1)
      for (let x = column - before; x < column - before + brush; x += 1)
        if (y >= 0 && x >= 0 && y < this.rows && x < this.columns) this.#mark(y * this.columns + x, !this.erases);
  }

  #mark(index, on) { this.marked[on ? "add" : "delete"](index); }

  #key(event) {
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}, move = moves[event.key];
    if (event.key === "z" && (event.ctrlKey || event.metaKey)) this.undo();
    else if (event.key === " ") this.#change(() => this.#mark(this.at, !this.marked.has(this.at)));
    else if (move) {
      const row = Math.min(this.rows - 1, Math.max(0, Math.floor(this.at / this.columns) + move[0]));
      const column = Math.min(this.columns - 1, Math.max(0, this.at % this.columns + move[1]));
      this.at = row * this.columns + column;
      if (event.shiftKey) this.#change(() => this.#mark(this.at, true));
      this.draw();
      this.grid.setAttribute("aria-label", `region to resample, row ${row + 1}, column ${column + 1}`);
    } else return;
    event.preventDefault();
  }
}

/**
 * Return whether a move uncovers pixels of a place along one axis.
 * at: the index of the place. far: the move. count: the number of places. margin: of the picture, in places.
 */
function uncovered(at, far, count, margin) {
  return far > 0 ? at - margin < far : far < 0 && at + 1 > count + far - margin;
}
