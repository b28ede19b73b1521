/**
 * TeX math as MathML: a useful subset, built node by node. Text never becomes markup, and no attribute contains text of the
 * formula except `alttext`. A formula with anything else in it returns null, and the caller shows its source.
 */
import { h } from "./html.js";
import { visible } from "./format.js";
import { ACCENTS, BIG, DELIMITERS, ENVIRONMENTS, FONTS, FUNCTIONS, LETTERS, LIMIT_FUNCTIONS, OPERATORS, SPACES } from "./tex_symbols.js";

/** Longer, deeper or larger formulas are shown as source. */
const LONGEST = 4_000;
const DEEPEST = 40;
const MOST_NODES = 4_000;
const TOKENS = /\\operatorname\*|\\[a-zA-Z]+|\\[^]|\d+(?:\.\d+)?|\s+|[^]/gu;
const SIZES = { big: "1.2em", Big: "1.8em", bigg: "2.4em", Bigg: "3em" };
const TEXTS = new Set(["\\text", "\\textrm", "\\textnormal", "\\mbox", "\\textit", "\\textbf", "\\texttt", "\\textsf", "\\hbox"]);
const SKIPPED = new Set(["\\limits", "\\nolimits", "\\nonumber", "\\notag", "\\displaystyle", "\\textstyle", "\\scriptstyle", "\\hline"]);
const CLASSES = new Set(["\\mathop", "\\mathbin", "\\mathrel", "\\mathord", "\\mathopen", "\\mathclose", "\\mathpunct", "\\mathinner"]);
const FRACTIONS = { "\\frac": null, "\\tfrac": "false", "\\dfrac": "true", "\\cfrac": "true" };

class Unsupported extends Error {}

/**
 * Return a formula as a vnode; null if it is not supported.
 * @param {string} source @param {boolean} isDisplay true for a formula on its own line
 */
export function mathNode(source, isDisplay) {
  if (source.length > LONGEST) return null;
  try {
    const parser = new Parser(source);
    const content = parser.row([]);
    if (parser.peek() !== undefined || !content.length) return null;
    return h("math", { display: isDisplay ? "block" : "inline", alttext: visible(source) }, h("mrow", null, content));
  } catch (error) {
    if (error instanceof Unsupported) return null;
    throw error;
  }
}

class Parser {
  constructor(source) {
    this.tokens = source.match(TOKENS) ?? [];
    this.at = 0;
    this.depth = 0;
    this.nodes = 0;
    this.font = null;
  }

  make(name, attributes, ...children) {
    this.nodes += 1;
    if (this.nodes > MOST_NODES) throw new Unsupported();
    return h(name, attributes, ...children);
  }

  /** Return the next token without white space, and keep it. */
  peek() {
    while (/^\s/.test(this.tokens[this.at] ?? "")) this.at += 1;
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    this.at += 1;
    return token;
  }

  expect(token) {
    if (this.next() !== token) throw new Unsupported();
  }

  /** Parse up to one of some tokens, which stays. @returns {object[]} */
  row(ends) {
    this.depth += 1;
    if (this.depth > DEEPEST) throw new Unsupported();
    const found = [];
    for (let token = this.peek(); token !== undefined && !ends.includes(token); token = this.peek()) {
      if (token === "}" || token === "&" || token === "\\\\" || token === "\\right" || token === "\\end" || token === "\\middle") break;
      found.push(...this.scripted());
    }
    this.depth -= 1;
    return found;
  }

  one(nodes) {
    return nodes.length === 1 ? nodes[0] : this.make("mrow", null, nodes);
  }

  /** Parse an argument: a group or a single atom. */
  argument() {
    if (this.peek() === "{") return this.one(this.group());
    const { node } = this.atom();
    return node ?? this.make("mrow", null);
  }

  group() {
    this.expect("{");
    const found = this.row([]);
    this.expect("}");
    return found;
  }

  /** Return the source of a group in braces. */
  raw() {
    this.expect("{");
    const begin = this.at;
    for (let depth = 1; this.at < this.tokens.length; this.at += 1) {
      const token = this.tokens[this.at];
      if (token === "{") depth += 1;
      if (token === "}") depth -= 1;
      if (!depth) return this.tokens.slice(begin, this.at++).join("");
    }
    throw new Unsupported();
  }

  /** Parse an atom with its scripts. @returns {object[]} */
  scripted() {
    const { node = null, hasLimits = false, isFunction = false } = /^[\^_']$/.test(this.peek()) ? {} : this.atom();
    let [below, above, limits] = [null, null, hasLimits];
    for (let token = this.peek(); /^[\^_']$/.test(token ?? "") || token === "\\limits" || token === "\\nolimits"; token = this.peek()) {
      this.at += 1;
      if (token === "\\limits") limits = true;
      else if (token === "\\nolimits") limits = false;
      else if (token === "'") {
        let primes = "′";
        while (this.peek() === "'") {
          this.at += 1;
          primes += "′";
        }
        const prime = this.make("mo", null, primes);
        above = this.peek() === "^" ? (this.next(), this.one([prime, this.argument()])) : above ? this.one([above, prime]) : prime;
      } else if (token === "_" && !below) below = this.argument();
      else if (token === "^" && !above) above = this.argument();
      else throw new Unsupported();
    }
    if (!node && !below && !above) return [];
    const base = node ?? this.make("mrow", null);
    const [sub, sup, both] = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    const whole = below && above ? this.make(both, null, base, below, above)
      : below ? this.make(sub, null, base, below)
      : above ? this.make(sup, null, base, above) : base;
    const follows = isFunction && /^(?:[\p{L}\d]|\\[a-zA-Z])/u.test(this.peek() ?? "") && !/^\\(?:left|big|Big)/.test(this.peek());
    return follows ? [whole, this.space("0.167em")] : [whole];
  }

  space(width) {
    return this.make("mspace", { width });
  }

  operator(text, attributes = null) {
    return this.make("mo", attributes, visible(text));
  }

  fence(text) {
    return this.operator(text, { stretchy: "false" });
  }

  /** Parse one atom. @returns {{node?: object, hasLimits?: boolean, isFunction?: boolean}} */
  atom() {
    const token = this.next();
    if (token === undefined) throw new Unsupported();
    if (token === "{") {
      this.at -= 1;
      return { node: this.make("mrow", null, this.group()) };
    }
    if (token.startsWith("\\")) return this.command(token);
    if (/^\d/.test(token)) return { node: this.make("mn", null, this.inFont(token)) };
    if (/^\p{L}/u.test(token)) return { node: this.letter(token) };
    if ("()[]|".includes(token)) return { node: this.fence(token) };
    if (token === "~") return { node: this.space("0.25em") };
    if ("$#%&^_}".includes(token)) throw new Unsupported();
    return { node: this.operator({ "-": "−", "*": "∗", ":": "∶", "`": "‘" }[token] ?? token) };
  }

  letter(text) {
    if (this.font === "normal") return this.make("mi", { mathvariant: "normal" }, visible(text));
    return this.make("mi", null, this.inFont(visible(text)));
  }

  /** Return letters and digits of the current font, which are characters of their own. */
  inFont(text) {
    const font = FONTS[this.font];
    if (!font) return text;
    return [...text].map((each) => {
      const kind = /[A-Z]/.test(each) ? "A" : /[a-z]/.test(each) ? "a" : /\d/.test(each) ? "0" : "";
      if (font.others?.[each]) return font.others[each];
      return font[kind] ? String.fromCodePoint(font[kind] + each.codePointAt(0) - kind.codePointAt(0)) : each;
    }).join("");
  }

  command(token) {
    const name = token.slice(1);
    const has = (table) => Object.hasOwn(table, name);
    if (has(LETTERS)) return { node: this.make("mi", /^[A-Z∞∅ℏ…∂∇]/u.test(LETTERS[name]) ? { mathvariant: "normal" } : null, LETTERS[name]) };
    if (has(BIG)) return { node: this.operator(BIG[name]), hasLimits: !name.includes("int") };
    if (has(OPERATORS)) return { node: this.operator(OPERATORS[name]) };
    if (FUNCTIONS.has(name)) return { node: this.make("mi", { mathvariant: "normal" }, name), isFunction: true };
    if (has(LIMIT_FUNCTIONS)) {
      return { node: this.make("mi", { mathvariant: "normal" }, LIMIT_FUNCTIONS[name]), hasLimits: true, isFunction: true };
    }
    if (has(SPACES)) return SPACES[name] ? { node: this.space(SPACES[name]) } : {};
    if (has(DELIMITERS)) return { node: this.fence(DELIMITERS[name]) };
    if (has(ACCENTS)) {
      const [sign, isBelow = false, isWide = false] = ACCENTS[name];
      const accent = this.make("mo", { stretchy: String(isWide) }, sign);
      const [tag, attribute] = isBelow ? ["munder", "accentunder"] : ["mover", "accent"];
      const node = this.make(tag, { [attribute]: "true" }, this.argument(), accent);
      return { node, hasLimits: name.endsWith("brace") };
    }
    if (SKIPPED.has(token)) return {};
    if (CLASSES.has(token)) return { node: this.argument(), hasLimits: token === "\\mathop" };
    if (TEXTS.has(token)) return { node: this.make("mtext", null, visible(unescaped(this.raw()))) };
    if (Object.hasOwn(FRACTIONS, token)) return { node: this.fraction(FRACTIONS[token]) };
    return this.special(token, name);
  }

  fraction(displaystyle) {
    const node = this.make("mfrac", null, this.argument(), this.argument());
    return displaystyle ? this.make("mstyle", { displaystyle }, node) : node;
  }

  special(token, name) {
    if (/^math(?:rm|bf|bb|cal|scr|frak|sf|tt|it|normal)$|^(?:boldsymbol|bm|pmb)$/.test(name)) return { node: this.styled(name) };
    if (token === "\\operatorname" || token === "\\operatorname*") {
      const text = unescaped(this.raw().replace(/\\[,;: !]/g, " "));
      return { node: this.make("mi", { mathvariant: "normal" }, visible(text)), hasLimits: token.endsWith("*"), isFunction: true };
    }
    if (name === "sqrt") return { node: this.root() };
    if (/^[dt]?binom$/.test(name)) {
      const inner = this.make("mfrac", { linethickness: "0" }, this.argument(), this.argument());
      return { node: this.make("mrow", null, this.operator("("), inner, this.operator(")")) };
    }
    if (name === "left") return { node: this.fenced() };
    const size = /^(big|Big|bigg|Bigg)[lrm]?$/.exec(name);
    if (size) {
      const text = this.delimiter();
      return text ? { node: this.operator(text, { stretchy: "true", minsize: SIZES[size[1]], maxsize: SIZES[size[1]] }) } : {};
    }
    if (name === "overset" || name === "stackrel") return { node: this.over() };
    if (name === "underset") {
      const below = this.argument();
      return { node: this.make("munder", null, this.argument(), below) };
    }
    if (name === "xrightarrow" || name === "xleftarrow") {
      const arrow = this.make("mo", { stretchy: "true" }, name === "xrightarrow" ? "→" : "←");
      return { node: this.make("mover", null, arrow, this.argument()) };
    }
    if (name === "not") return { node: this.negated() };
    if (name === "pmod") {
      const inner = this.argument();
      return { node: this.make("mrow", null, this.space("1em"), this.fence("("), this.make("mi", null, "mod"), this.space("0.33em"), inner, this.fence(")")) };
    }
    if (name === "tag") return { node: this.make("mtext", null, `\u2003(${visible(unescaped(this.raw()))})`) };
    if (name === "boxed") return { node: this.make("mrow", { class: "math-boxed" }, this.argument()) };
    if (name === "phantom") return { node: this.make("mphantom", null, this.argument()) };
    if (name === "substack") {
      this.expect("{");
      const rows = this.rows();
      this.expect("}");
      return { node: this.table(rows, "") };
    }
    if (name === "begin") return { node: this.environment() };
    if (/^[{}$%&#_]$/.test(name)) return { node: "{}".includes(name) ? this.fence(name) : this.operator(name) };
    throw new Unsupported();
  }

  styled(name) {
    const before = this.font;
    const styles = { mathrm: "normal", mathnormal: null, mathit: null, mathcal: "script", mathscr: "script" };
    this.font = Object.hasOwn(styles, name) ? styles[name] : { mathbf: "bold", mathbb: "double", mathfrak: "fraktur", mathsf: "sans", mathtt: "mono" }[name] ?? "bold";
    try {
      const start = this.at;
      const word = name === "mathrm" && this.peek() === "{" ? this.raw() : "";
      if (/^[A-Za-z]{2,}$/.test(word)) return this.make("mi", { mathvariant: "normal" }, word);
      this.at = start;
      return this.argument();
    } finally {
      this.font = before;
    }
  }

  root() {
    if (this.peek() !== "[") return this.make("msqrt", null, this.argument());
    this.next();
    const degree = this.one(this.row(["]"]));
    this.expect("]");
    return this.make("mroot", null, this.argument(), degree);
  }

  /** Return the text of the next delimiter; "" for none. */
  delimiter() {
    const token = this.next() ?? "";
    if (token === ".") return "";
    const found = "()[]|/<>".includes(token) && token ? { "<": "⟨", ">": "⟩" }[token] ?? token : DELIMITERS[token.slice(1)] ?? { "\\{": "{", "\\}": "}" }[token];
    if (!found) throw new Unsupported();
    return found;
  }

  fenced() {
    const fence = (text, form) => (text ? [this.operator(text, { form, stretchy: "true", fence: "true" })] : []);
    const found = fence(this.delimiter(), "prefix");
    for (;;) {
      found.push(...this.row([]));
      const token = this.next();
      if (token === "\\right") return this.make("mrow", null, found, fence(this.delimiter(), "postfix"));
      if (token !== "\\middle") throw new Unsupported();
      found.push(this.operator(this.delimiter(), { stretchy: "true" }));
    }
  }

  over() {
    const above = this.argument();
    return this.make("mover", null, this.argument(), above);
  }

  negated() {
    const token = this.next() ?? "";
    const sign = OPERATORS[token.slice(1)] ?? (/^[=<>|]$/.test(token) ? token : "");
    if (!sign) throw new Unsupported();
    return this.make("mo", null, `${sign}\u0338`.normalize("NFC"));
  }

  /** Parse rows of cells up to a closing token, which stays. @returns {object[][][]} */
  rows() {
    const rows = [[[]]];
    for (;;) {
      rows.at(-1)[rows.at(-1).length - 1] = this.row([]);
      const token = this.peek();
      if (token === "&") rows.at(-1).push([]);
      else if (token === "\\\\") rows.push([[]]);
      else break;
      this.at += 1;
      if (token === "\\\\" && this.tokens[this.at] === "[") while (this.tokens[this.at++] !== "]") if (this.at > this.tokens.length) throw new Unsupported();
    }
    if (rows.length > 1 && rows.at(-1).length === 1 && !rows.at(-1)[0].length) rows.pop();
    return rows;
  }

  /** @param {string} aligned classes of the columns in turn: "rl", "l" or "" for centred */
  table(rows, aligned) {
    const classOf = (column) => ({ r: "math-right", l: "math-left" })[aligned[column % (aligned.length || 1)]];
    return this.make("mtable", { class: aligned === "rl" ? "math-aligned" : undefined }, rows.map((cells) =>
      this.make("mtr", null, cells.map((cell, column) => this.make("mtd", { class: classOf(column) }, cell)))));
  }

  environment() {
    const name = this.raw();
    if (!Object.hasOwn(ENVIRONMENTS, name)) throw new Unsupported();
    const { open = "", close = "", aligned = "", hasArgument = false } = ENVIRONMENTS[name];
    if (hasArgument) this.raw();
    const rows = this.rows();
    this.expect("\\end");
    if (this.raw() !== name) throw new Unsupported();
    const table = this.table(rows, aligned);
    if (!open && !close) return table;
    return this.make("mrow", null, open && this.operator(open, { form: "prefix", stretchy: "true" }), table,
      close && this.operator(close, { form: "postfix", stretchy: "true" }));
  }
}

/** Return the text of a group of text, without commands. */
function unescaped(text) {
  const plain = text.replace(/\\([{}$%&#_ ])/g, "$1").replace(/[~]/g, "\u00a0").replace(/[{}]/g, "");
  if (/[\\$]/.test(plain.replaceAll("\\", ""))) return plain.replaceAll("\\", "");
  if (plain.includes("\\")) throw new Unsupported();
  return plain.replace(/^ | $/g, "\u00a0");
}
