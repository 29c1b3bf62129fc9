// Helpers for elements, for requests, and for values that persist across page reloads.

/**
 * Return a new element. attributes: `class`, `on…` listeners, `data-…`, and properties such as `value`.
 * Attributes and children that are false, null or undefined are omitted.
 */
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

/** Return the server's response as JSON; `{error}` if there is none. body: a Blob or an object, sent by POST. */
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
    // Without storage, a reload loses the values.
  }
}

/** Delete all remembered values, which belong to another model, and remember `changes`. */
export function forget(changes) {
  for (const key of Object.keys(memory)) delete memory[key];
  remember(changes);
}

/** Return a collapsed box with a command and a Copy button. Without clipboard access, Copy only selects the text. */
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
