// Elements without strings of HTML: text of the service is never parsed as HTML.

export const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// Sets the text only if it differs, so that a screen reader does not repeat it.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A bar for the share of a limit, with its text for screen readers.
export function meter(name, share, text) {
  const node = el("div", { class: "track", role: "meter", "aria-label": name, "aria-valuemin": 0,
                           "aria-valuemax": 100 }, el("span", { class: "bar" }));
  setMeter(node, share, text);
  return node;
}

export function setMeter(node, share, text) {
  const shown = Math.min(1, Math.max(0, share));
  node.firstChild.style.width = `${100 * shown}%`;
  node.firstChild.hidden = !(shown > 0);
  node.firstChild.dataset.level = shown > 0.95 ? "high" : shown > 0.8 ? "raised" : "usual";
  node.setAttribute("aria-valuenow", Math.round(100 * shown));
  node.setAttribute("aria-valuetext", text);
}

// Arrow keys move the focus among `items`, a grid of `columns`; Tab leaves it. One item is a stop
// of Tab.
export function rove(items, columns) {
  items.forEach((item, index) => {
    item.tabIndex = index === 0 ? 0 : -1;
    item.addEventListener("focus", () => {
      for (const other of items) other.tabIndex = other === item ? 0 : -1;
    });
    item.addEventListener("keydown", (event) => {
      const steps = {
        ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
        Home: -index, End: items.length - 1 - index,
      };
      const to = items[index + steps[event.key]];
      if (to === undefined) return;
      event.preventDefault();
      to.focus();
    });
  });
}
