/**
 * A treemap of one node: its parts as tiles whose area is their value, with their own parts drawn inside. Tiles with parts
 * open on click; others lead to their messages. The same as a table.
 *
 * The map has one tab stop: arrows go to the nearest tile, Enter opens it, Escape goes back.
 */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { dollars, number, percent, tokens as short } from "../format.js";

const GAP = 2;
const HEAD = 20;
/** Smallest tile with a label, with a label and a figure, and with its own parts drawn inside, in pixels. */
const LABELLED = { width: 42, height: 18 };
const WITH_FIGURE = { width: 110, height: 18 };
const NESTED = { width: 70, height: 56 };

/**
 * Lay out values as rectangles that are as square as possible (squarified treemap).
 * @param {number[]} values the largest first @param {{x: number, y: number, width: number, height: number}} area
 * @returns {{x: number, y: number, width: number, height: number}[]}
 */
export function squarify(values, area) {
  const found = [];
  let { x, y, width, height } = area;
  let left = values.reduce((sum, value) => sum + value, 0);
  let start = 0;
  while (start < values.length && left > 0 && width > 0 && height > 0) {
    const side = Math.min(width, height);
    const scale = (width * height) / left;
    let end = start;
    let sum = 0;
    let worst = Infinity;
    while (end < values.length) {
      const next = sum + values[end];
      const thick = (next * scale) / side;
      const ratio = Math.max((values[start] * scale) / thick ** 2, thick ** 2 / Math.max(values[end] * scale, 1e-9));
      if (ratio > worst) break;
      worst = ratio;
      sum = next;
      end += 1;
    }
    const thick = (sum * scale) / side;
    let along = 0;
    for (let index = start; index < end; index += 1) {
      const long = (values[index] * scale) / thick;
      found.push(width >= height ? { x, y: y + along, width: thick, height: long } : { x: x + along, y, width: long, height: thick });
      along += long;
    }
    if (width >= height) {
      x += thick;
      width -= thick;
    } else {
      y += thick;
      height -= thick;
    }
    left -= sum;
    start = end;
  }
  while (found.length < values.length) found.push({ x, y, width: 0, height: 0 });
  return found;
}

const within = ({ x, y, width, height }) => ({ x, y, width: Math.max(0, width - GAP), height: Math.max(0, height - GAP) });
const box = ({ x, y, width, height }) => ({ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
const isAtLeast = (rect, { width, height }) => rect.width >= width && rect.height >= height;

/** Return the value of a node as text. */
const valueText = (node, by, figure) => (by === "cost" ? `≈ ${dollars(node.cost)}` : figure(node.tokens));
const shortValue = (node, by) => (by === "cost" ? dollars(node.cost) : short(node.tokens));

/** Return all figures of a tile as text. */
function tileFacts(node, by, figure, share) {
  const facts = [`${figure(node.tokens)} tokens`];
  if (node.cost != null) facts.push(`≈ ${dollars(node.cost)}`);
  if (node.cached != null) facts.push(`${figure(node.cached)} from cache, ${figure(node.written)} written, ${figure(node.uncached)} uncached`);
  facts.push(`${percent(share)} of this ${by === "cost" ? "cost" : "map"}`);
  if (node.children) facts.push(`${number(node.children.length)} parts`);
  return facts.join("; ");
}

/**
 * @param {{node: object, by: "tokens"|"cost", figure: (tokens: number) => string, open: (child: object) => void,
 *   up: (() => void)|null}} props
 */
export function Treemap({ node, by, figure, open, up }) {
  const map = useRef(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [active, setActive] = useState(0);
  const [hover, setHover] = useState(null);
  const [focused, setFocused] = useState(false);
  const wantsFocus = useRef(false);
  useLayoutEffect(() => {
    const measure = () => map.current && setSize({ width: map.current.clientWidth, height: map.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(map.current);
    measure();
    return () => observer.disconnect();
  }, []);
  const { children } = node;
  const places = useMemo(() => squarify(children.map((each) => each.value), { x: 0, y: 0, ...size }), [children, size.width, size.height]);
  useEffect(() => setActive(0), [node.key, node.label]);
  useEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    map.current?.querySelector("[tabindex='0']")?.focus();
  }, [node]);
  const current = Math.min(active, children.length - 1);
  const focus = (index) => {
    setActive(index);
    map.current.querySelectorAll("[role=treeitem]")[index]?.focus();
  };
  const go = (step) => {
    wantsFocus.current = true;
    step();
  };
  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key.startsWith("Arrow")) focus(nearest(places, current, event.key) ?? current);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(children.length - 1);
    else if ((event.key === "Escape" || event.key === "Backspace") && up) go(up);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const seen = children[hover ?? (focused ? current : -1)];
  return html`<div class="treemap-frame">
    <div class="treemap" role="tree" aria-label=${`Composition of ${node.label} by ${by}`} ref=${map} onKeyDown=${onKeyDown} data-testid="treemap"
        onFocusIn=${() => setFocused(true)} onFocusOut=${() => setFocused(false)} onPointerLeave=${() => setHover(null)}>
      ${!children.length && html`<p class="nothing">Nothing to show.</p>`}
      ${size.width > 0 && children.map((child, index) => html`<${Tile} key=${`${child.cause} ${child.key} ${index}`} child=${child} rect=${within(places[index])}
          share=${child.value / (node.value || 1)} by=${by} figure=${figure} isActive=${index === current}
          onEnter=${() => setHover(index)} onFocus=${() => setActive(index)} onOpen=${() => (child.children ? go(() => open(child)) : open(child))} />`)}
    </div>
    <p class="treemap-detail" aria-hidden="true">${seen ? `${seen.label}: ${tileFacts(seen, by, figure, seen.value / (node.value || 1))}` : `${node.label}: ${valueText(node, by, node.isMeasured ? number : figure)}${by === "cost" ? "" : " tokens"}`}</p>
  </div>`;
}

function Tile({ child, rect, share, by, figure, isActive, onEnter, onFocus, onOpen }) {
  const isNested = child.children && isAtLeast(rect, NESTED);
  const inner = useMemo(() => (isNested ? squarify(child.children.map((each) => each.value), { x: 3, y: HEAD, width: rect.width - 8, height: rect.height - HEAD - 5 }) : []),
    [child, isNested, rect.width, rect.height]);
  return html`<button type="button" role="treeitem" aria-level="1" aria-selected="false" aria-expanded=${child.children ? "false" : undefined} class=${`tile cause-${child.cause}`}
      style=${box(rect)} tabindex=${isActive ? 0 : -1} onPointerEnter=${onEnter} onFocus=${onFocus}
      onClick=${onOpen} data-part=${child.key} data-tokens=${child.tokens}>
    <span class=${isAtLeast(rect, LABELLED) ? "tile-label" : "off-screen"}>${child.label} <span class="tile-value"
        aria-hidden="true">${shortValue(child, by)} · ${percent(share)}</span></span>
    <span class="off-screen">${tileFacts(child, by, figure, share)}</span>
    ${isNested && inner.map((place, index) => place.width > 3 && place.height > 3 && html`<span key=${index} class="tile-inner" style=${box(within(place))}
        aria-hidden="true">${isAtLeast(place, LABELLED) && child.children[index].label}${isAtLeast(place, WITH_FIGURE) && html` <span
        class="tile-value">${shortValue(child.children[index], by)}</span>`}</span>`)}
  </button>`;
}

/** Return the index of the nearest tile in a direction; null if there is none. */
function nearest(places, from, key) {
  const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
  const [x, y] = middle(places[from]);
  let [best, least] = [null, Infinity];
  places.forEach((each, index) => {
    const [dx, dy] = middle(each).map((value, axis) => value - (axis ? y : x));
    const [along, across] = { ArrowRight: [dx, dy], ArrowLeft: [-dx, dy], ArrowDown: [dy, dx], ArrowUp: [-dy, dx] }[key];
    const distance = along + 2 * Math.abs(across);
    if (index !== from && along > 0.5 && distance < least) [best, least] = [index, distance];
  });
  return best;
}

const COLUMNS = ["Part", "Tokens", "From cache", "Written", "Uncached", "Cost", "Share"];

/** The parts of a node as a table. */
export function CompositionTable({ node, by, figure, open }) {
  return html`<div class="composition-table" tabindex="0" role="region" aria-label="Composition as a table">
    <table data-testid="composition-table">
      <thead><tr>${COLUMNS.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
      <tbody>${node.children.map((child, index) => html`<tr key=${index}>
        <th scope="row"><span class=${`swatch cause-${child.cause}`} aria-hidden="true"></span><button type="button" class="inline-link" disabled=${child.cause === "overhead"}
            onClick=${() => open(child)}>${child.label}</button>${child.children && html` <span class="muted">${number(child.children.length)} parts</span>`}</th>
        <td>${figure(child.tokens)}</td><td>${child.cached == null ? "–" : figure(child.cached)}</td>
        <td>${child.written == null ? "–" : figure(child.written)}</td><td>${child.uncached == null ? "–" : figure(child.uncached)}</td>
        <td>${child.cost == null ? "–" : `≈ ${dollars(child.cost)}`}</td><td>${percent(child.value / (node.value || 1))}</td>
      </tr>`)}</tbody>
    </table>
  </div>`;
}
