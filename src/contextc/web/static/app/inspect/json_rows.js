/**
 * Splits a JSON text into rows of equal height. Numbers and names keep their spelling; strings are wrapped at the width of
 * the view. The text is parsed once, without recursion and without expensive patterns. Invalid JSON becomes plain rows.
 */

/**
 * @typedef {object} Row
 * @property {number} depth
 * @property {string} path such as messages[3].content
 * @property {string|null} key a name as written, or null within a list
 * @property {"open"|"close"|"empty"|"string"|"number"|"word"|"more"} kind "more" continues the string above
 * @property {string} text @property {boolean} comma
 * @property {number} end of "open": the index of the row that closes it @property {number} parent -1 at the top
 * @property {number} size of "open": number of items; of "string": its length
 * @property {string} hint of "open": its first characters @property {boolean} [isLast] the string ends with this row
 */

const HINT = 110;
const NARROWEST = 24;

/** @returns {{rows: Row[], isJson: boolean}} */
export function rowsOf(text, wide) {
  try {
    return { rows: read(text, Math.max(NARROWEST, wide)), isJson: true };
  } catch {
    return { rows: plain(text, Math.max(NARROWEST, wide)), isJson: false };
  }
}

function plain(text, wide) {
  return text.split("\n").flatMap((line) => pieces(line, wide).map((piece, index) => ({
    depth: 0, path: "", key: null, kind: index ? "more" : "word", text: piece, comma: false, end: -1, parent: -1, size: 0, hint: "",
  })));
}

function read(text, wide) {
  const rows = [];
  /** Open objects and lists: row and number of items of each. */
  const open = [];
  let at = 0;
  let key = null;
  const skip = () => {
    while (at < text.length && " \n\r\t".includes(text[at])) at += 1;
  };
  const place = () => {
    const outer = open[open.length - 1];
    if (!outer) return "";
    const base = rows[outer.row].path;
    if (rows[outer.row].text === "[") return `${base}[${outer.count}]`;
    return base ? `${base}.${JSON.parse(key)}` : String(JSON.parse(key));
  };
  const add = (kind, value) => {
    const depth = open.length;
    const parent = depth ? open[depth - 1].row : -1;
    const row = { depth, path: place(), key, kind, text: value, comma: false, end: -1, parent, size: 0, hint: "" };
    rows.push(row);
    if (depth) open[depth - 1].count += 1;
    key = null;
    return row;
  };
  const addString = (literal) => {
    const said = JSON.parse(literal);
    const [first, ...rest] = pieces(said, wide - open.length * 2 - (key?.length ?? 0) - 6, wide - open.length * 2 - 4);
    const row = add("string", first);
    for (const piece of rest) rows.push({ ...row, key: null, kind: "more", text: piece });
    row.size = said.length;
    rows[rows.length - 1].isLast = true;
  };
  skip();
  if (at >= text.length) throw new SyntaxError("empty");
  for (skip(); at < text.length; skip()) {
    const letter = text[at];
    if (letter === "{" || letter === "[") {
      const row = add("open", letter);
      row.hint = text.slice(at, at + HINT);
      open.push({ row: rows.length - 1, count: 0 });
      at += 1;
    } else if (letter === "}" || letter === "]") {
      const outer = open.pop();
      if (!outer || (rows[outer.row].text === "{") !== (letter === "}")) throw new SyntaxError("unexpected closing bracket");
      const begun = rows[outer.row];
      at += 1;
      if (outer.row === rows.length - 1) {
        Object.assign(begun, { kind: "empty", text: letter === "}" ? "{}" : "[]" });
        continue;
      }
      begun.end = rows.length;
      begun.size = outer.count;
      rows.push({ ...begun, kind: "close", key: null, text: letter, end: -1, hint: "" });
    } else if (letter === ",") {
      rows[rows.length - 1].comma = true;
      at += 1;
    } else if (letter === '"') {
      const end = stringEnd(text, at);
      const literal = text.slice(at, end);
      at = end;
      skip();
      const inObject = open.length && rows[open[open.length - 1].row].text === "{";
      if (text[at] === ":" && inObject && key === null) {
        key = literal;
        at += 1;
      } else addString(literal);
    } else {
      const from = at;
      while (at < text.length && !" \n\r\t,]}".includes(text[at])) at += 1;
      const word = text.slice(from, at);
      if (!/^(?:true|false|null|-?\d[\d.eE+-]*)$/.test(word)) throw new SyntaxError(`unexpected token ${word.slice(0, 20)}`);
      add(/^[-\d]/.test(word) ? "number" : "word", word);
    }
  }
  if (open.length) throw new SyntaxError("unexpected end");
  return rows;
}

/** Return the index after the string literal that starts at `from`. */
function stringEnd(text, from) {
  for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return at + 1;
  }
  throw new SyntaxError("unterminated string");
}

/** Split a text into pieces that fit a row, at line ends and where the row is full. */
function pieces(text, first, later = first) {
  const found = [];
  let [from, room] = [0, Math.max(NARROWEST, first)];
  while (from < text.length) {
    const line = text.indexOf("\n", from);
    const end = line >= 0 && line - from < room ? line + 1 : wordEnd(text, from, room);
    found.push(text.slice(from, end));
    from = end;
    room = Math.max(NARROWEST, later);
  }
  return found.length ? found : [""];
}

function wordEnd(text, from, room) {
  if (text.length - from <= room) return text.length;
  const space = text.lastIndexOf(" ", from + room - 1);
  const end = space > from + room * 0.6 ? space + 1 : from + room;
  const code = text.charCodeAt(end - 1);
  return code >= 0xd800 && code < 0xdc00 ? end + 1 : end;
}

/** Return the indices of the visible rows. */
export function visibleRows(rows, folded) {
  const seen = [];
  for (let index = 0; index < rows.length; index += 1) {
    seen.push(index);
    if (folded.has(index)) index = Math.max(index, rows[index].end);
  }
  return seen;
}

/** Return the rows to fold at first: of a long text, everything below a depth. */
export function initialFolds(rows, most = 4000, depth = 2) {
  const found = new Set();
  if (rows.length <= most) return found;
  rows.forEach((row, index) => {
    if (row.kind === "open" && row.depth >= depth) found.add(index);
  });
  return found;
}

const LAST_STEP = /(?:\.[^.[\]]*|\[[^\]]*\]|^[^.[\]]+)$/;

/** Return the row of a path, or of its closest parent. */
export function rowOfPath(rows, path) {
  for (let wanted = path; wanted; wanted = wanted.replace(LAST_STEP, "")) {
    const found = rows.findIndex((row) => row.path === wanted && row.kind !== "close");
    if (found >= 0) return found;
    if (!LAST_STEP.test(wanted)) break;
  }
  return rows.length ? 0 : -1;
}

/** Return the rows that contain a text, also across wrapped rows. */
export function search(rows, sought) {
  const words = sought.toLowerCase();
  const found = [];
  if (!words) return found;
  rows.forEach((row, index) => {
    const said = row.text.toLowerCase();
    const next = rows[index + 1]?.kind === "more" ? rows[index + 1].text.toLowerCase().slice(0, words.length - 1) : "";
    if (`${said}${next}`.includes(words) || row.key?.toLowerCase().includes(words)) found.push(index);
  });
  return found;
}
