/**
 * What stands within a line: emphasis, code, links. By CommonMark's own way with delimiters, so it takes linear time and
 * comes out as elsewhere; only that nothing is nested deeper than a page can bear. Links go to http, https and mailto
 * alone; a picture is a link to it and is never loaded.
 *
 * @typedef {string | {type: "em"|"strong"|"del"|"code"|"link"|"picture"|"break", children?: Piece[], deep?: number,
 *   text?: string, href?: string}} Piece
 */

const LONGEST = 20_000;
const DEEPEST = 16;
const OPEN_BRACKETS = 40;
const ENTITIES = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–", rarr: "→", larr: "←",
};
/** What follows the words of a link: an address, and a title that is passed over. */
const TARGET = new RegExp(
  String.raw`^\]\(\s*(?!\s)(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))`
  + String.raw`(?:\s+(?!\s)(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)))?\s*\)`,
);
const BARE = /^https?:\/\/[^\s<>"'`\]]+/i;
const TRAILING = ".,:;!?*_~'\"";
const SPECIAL = /[\\`*_~[\]!<&\nhH]/g;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/u;

/** The address of a link that may be followed, or "". */
export function safeAddress(written) {
  const address = written.trim();
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return "";
  try {
    new URL(/^\w+:[/\\]*[^/?#]*/.exec(address)[0]); // nothing behind the host can be wrong, and it may be long
    return /[\u0000-\u0020\u007f]/.test(address) ? "" : new URL(address).href;
  } catch {
    return "";
  }
}

/** @returns {Piece[]} */
export function inlineOf(text) {
  if (text.length > LONGEST) return [text];
  const nodes = [];
  const brackets = [];
  let at = 0;
  const push = (node) => {
    if (typeof node === "string" && typeof nodes.at(-1) === "string") nodes[nodes.length - 1] += node;
    else if (node !== "") nodes.push(node);
  };
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    if (next > at) {
      push(text.slice(at, next));
      at = next;
      continue;
    }
    const [node, after] = special(text, at, nodes, brackets);
    push(node);
    at = after;
  }
  return emphasized(nodes);
}

function special(text, at, nodes, brackets) {
  const letter = text[at];
  const rest = () => text.slice(at, at + 2_100);
  if (letter === "\\") return escaped(text, at);
  if (letter === "`") return codeSpan(text, at);
  if (letter === "\n") return lineEnd(text, at, nodes);
  if (letter === "*" || letter === "_" || letter === "~") return delimiter(text, at);
  if (letter === "&") {
    const match = /^&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{1,8}));/.exec(rest());
    const known = match && (match[3] ? ENTITIES[match[3]] : codePoint(match[1] ? Number(match[1]) : parseInt(match[2], 16)));
    return known && (!match[3] || Object.hasOwn(ENTITIES, match[3])) ? [known, at + match[0].length] : ["&", at + 1];
  }
  if (letter === "<") {
    const match = /^<((?:https?:\/\/|mailto:)[^\s<>]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/i.exec(rest());
    const href = match && safeAddress(match[1].includes(":") ? match[1] : `mailto:${match[1]}`);
    return href ? [{ type: "link", href, children: [match[1]], deep: 1 }, at + match[0].length] : ["<", at + 1];
  }
  if (letter === "h" || letter === "H") {
    const match = /\w/.test(text[at - 1] ?? "") ? null : BARE.exec(rest());
    const written = match && trimmedAddress(match[0]);
    const href = written && safeAddress(written);
    return href ? [{ type: "link", href, children: [written], deep: 1 }, at + written.length] : [letter, at + 1];
  }
  if (letter === "!" && text[at + 1] !== "[") return ["!", at + 1];
  if (letter === "!" || letter === "[") {
    const mark = { bracket: letter === "!" ? "![" : "[" };
    brackets.push([mark, nodes.length]);
    if (brackets.length > OPEN_BRACKETS) brackets.shift();
    return [mark, at + mark.bracket.length];
  }
  return closing(text, at, nodes, brackets);
}

function codePoint(number) {
  const isOne = number > 0 && number <= 0x10ffff && !(number >= 0xd800 && number < 0xe000);
  return isOne ? String.fromCodePoint(number) : "\ufffd";
}

function trimmedAddress(address) {
  let end = address.length;
  while (end > 0 && TRAILING.includes(address[end - 1])) end -= 1;
  let open = 0;
  if (address[end - 1] !== ")") return address.slice(0, end);
  for (let at = 0; at < end; at += 1) open += address[at] === "(" ? 1 : address[at] === ")" ? -1 : 0;
  for (; open < 0 && address[end - 1] === ")"; open += 1) end -= 1;
  return address.slice(0, end);
}

function escaped(text, at) {
  const next = text[at + 1] ?? "";
  if (next === "\n") return [{ type: "break" }, at + 2];
  return /[!-/:-@[-`{-~]/.test(next) ? [next, at + 2] : ["\\", at + 1];
}

function codeSpan(text, at) {
  const marks = /^`+/.exec(text.slice(at, at + 200))[0];
  let end = at + marks.length;
  for (;;) {
    end = text.indexOf(marks, end);
    if (end < 0) return [marks, at + marks.length];
    const run = /^`+/.exec(text.slice(end, end + 200))[0].length;
    if (run === marks.length) break;
    end += run;
  }
  const inside = text.slice(at + marks.length, end).replace(/\n/g, " ");
  const padded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim();
  return [{ type: "code", text: padded ? inside.slice(1, -1) : inside }, end + marks.length];
}

function lineEnd(text, at, nodes) {
  const last = nodes.at(-1);
  if (typeof last === "string" && text.slice(Math.max(at - 2, 0), at) === "  ") {
    nodes[nodes.length - 1] = last.trimEnd();
    return [{ type: "break" }, at + 1];
  }
  return ["\n", at + 1];
}

function delimiter(text, at) {
  const letter = text[at];
  let end = at;
  while (text[end] === letter) end += 1;
  const [before, after] = [text[at - 1] ?? " ", text[end] ?? " "];
  const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
  const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
  const within = letter === "_";
  const opens = left && (!within || !right || PUNCTUATION.test(before));
  const closes = right && (!within || !left || PUNCTUATION.test(after));
  if (letter === "~" && end - at !== 2) return [text.slice(at, end), end];
  return [{ delimiter: letter, count: end - at, opens, closes, whole: end - at }, end];
}

/** A "]": the end of a link where one began and an address follows. */
function closing(text, at, nodes, brackets) {
  const [mark, begun] = brackets.pop() ?? [];
  const match = mark && text[at + 1] === "(" ? TARGET.exec(text.slice(at, at + 4_000)) : null;
  if (!match) return ["]", at + 1];
  const written = (match[1] ?? match[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1");
  const children = emphasized(nodes.splice(begun).slice(1));
  const href = safeAddress(written);
  const isPicture = mark.bracket === "![";
  if (!href) nodes.push(...children, written && !isPicture ? ` (${written})` : "");
  else if (isPicture) nodes.push({ type: "picture", href, ...nested(children.length ? children : [written]) });
  else nodes.push({ type: "link", href, ...nested(flat(children)) });
  return ["", at + match[0].length];
}

/** Pieces as what is within another one, and how deep they go; from some depth on without the emphasis in them. */
function nested(children) {
  const deepOf = (pieces) => pieces.reduce((most, piece) => Math.max(most, piece.deep ?? 0), 0);
  const kept = deepOf(children) < DEEPEST ? children : plain(words(children));
  return { children: kept, deep: deepOf(kept) + 1 };
}

function words(pieces, found = []) {
  for (const piece of pieces) {
    if (!piece.children || (piece.type === "link" && piece.deep === 1)) found.push(piece);
    else if (piece.type === "link") found.push({ ...piece, children: plain(words(piece.children)), deep: 1 });
    else words(piece.children, found);
  }
  return found;
}

/** A link holds no other link. */
function flat(pieces) {
  return pieces.flatMap((piece) => {
    if (piece.type === "link") return piece.children;
    return [piece.children ? { ...piece, children: flat(piece.children) } : piece];
  });
}

/**
 * Delimiters in pairs: CommonMark's "process emphasis". What has no partner is text. `found` only ever changes at its end,
 * and a delimiter that nothing fits is not looked at again by others of its kind: `bottoms` says how far down they look.
 */
function emphasized(nodes) {
  const found = [];
  const openers = []; // where in `found`
  const bottoms = new Map();
  for (const node of nodes) {
    while (node.closes && node.count) {
      const key = `${node.delimiter}${node.opens}${node.whole % 3}`;
      const bottom = bottoms.get(key) ?? 0;
      let top = openers.length - 1;
      while (top >= bottom && !fits(found[openers[top]], node)) top -= 1;
      if (top < bottom) {
        bottoms.set(key, openers.length);
        break;
      }
      pair(found, openers[top], node);
      openers.length = found[openers[top]].count ? top + 1 : top;
      for (const [each, value] of bottoms) bottoms.set(each, Math.min(value, openers.length));
    }
    if (node.delimiter && !node.count) continue;
    if (node.opens) openers.push(found.length);
    found.push(node);
  }
  return plain(found);
}

/** What stands behind an opener becomes one piece; both have so many marks less. */
function pair(found, from, closer) {
  const opener = found[from];
  const used = closer.delimiter === "~" ? 2 : opener.count >= 2 && closer.count >= 2 ? 2 : 1;
  const type = closer.delimiter === "~" ? "del" : used === 2 ? "strong" : "em";
  const inside = found.splice(from + 1);
  opener.count -= used;
  closer.count -= used;
  found.push({ type, ...nested(plain(inside)) });
}

function fits(opener, closer) {
  if (!opener?.opens || !opener.count || opener.delimiter !== closer.delimiter) return false;
  const odd = (opener.closes || closer.opens) && (opener.whole + closer.whole) % 3 === 0;
  return !odd || (opener.whole % 3 === 0 && closer.whole % 3 === 0);
}

/** What is left of delimiters and brackets as the letters they are. */
function plain(nodes) {
  const found = [];
  for (const node of nodes) {
    const piece = node?.delimiter ? node.delimiter.repeat(node.count) : (node?.bracket ?? node);
    if (piece === "") continue;
    if (typeof piece === "string" && typeof found.at(-1) === "string") found[found.length - 1] += piece;
    else found.push(piece);
  }
  return found;
}
