// Small helpers: elements, requests, and what the page remembers over a reload.

/** An element. attributes: `class`, `on…` listeners, `data-…`, properties such as `value`; false and null leave one out. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (["value", "checked", "disabled", "hidden", "open"].includes(key)) made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** An answer of the server as JSON; `{error}` if there is none. body: sent by POST, an object as JSON. */
export async function ask(path, body) {
  const sent = body === undefined || body instanceof Blob ? body : JSON.stringify(body);
  try {
    const answer = await fetch(path, sent === undefined ? {} : {method: "POST", body: sent});
    return await answer.json();
  } catch {
    return {error: "The studio does not answer. Is it still running?"};
  }
}

const KEY = "token-critic-studio";
export const memory = read();

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) || {};
  } catch {
    return {};
  }
}

export function remember(changes) {
  Object.assign(memory, changes);
  try {
    localStorage.setItem(KEY, JSON.stringify(memory));
  } catch {
    // A browser that keeps nothing forgets it with a reload.
  }
}

/** Forget everything but the tab: what was remembered belongs to another model. */
export function forget(changes) {
  for (const key of Object.keys(memory)) delete memory[key];
  remember(changes);
}

/** The command that makes the same, folded. Where a page may not write the clipboard, Copy selects the text. */
export function command(text) {
  const code = el("code", {tabindex: "0"}, text);
  const copy = el("button", {type: "button", onclick: async () => {
    window.getSelection().selectAllChildren(code);
    if (!navigator.clipboard) return;
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  }}, "Copy");
  return el("details", {class: "command"}, el("summary", {}, "The command that makes the same"), el("div", {}, code, copy));
}
