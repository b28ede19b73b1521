/* The script of a shared file. It shows the data of the file as text nodes, and makes no network requests. */
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 200;
  const MOST = 20000;
  /** Hits that are marked in one text. */
  const MOST_MARKS = 2000;
  const KINDS = {
    system: "System prompt", tool: "Tool definitions", result: "Tool results", history: "History", reasoning: "Earlier reasoning",
    media: "Media", overhead: "Added by the provider", answer: "Answers", answer_reasoning: "Reasoning in answers", answer_calls: "Further calls of the provider",
  };
  const TYPES = {
    tool: "tool", text: "text", tool_call: "tool call", tool_result: "tool result", reasoning: "reasoning", media: "media",
    compaction: "summary", other: "other",
  };
  const FILTERS = [
    ["", "All parts"], ["system", "System prompt"], ["tool", "Tool definitions"], ["tool_result", "Tool results"], ["tool_call", "Tool calls"],
    ["text", "Texts"], ["reasoning", "Reasoning"], ["media", "Media"], ["reply", "Reply"], ["new", "New in this request"],
  ];
  const FILLS = ["system", "tool", "result", "history", "reasoning", "media", "overhead"];
  const FAILURES = { unfinished: "failed: the reply broke off", unanswered: "failed: no answer" };
  const isFailedStatus = (status) => status !== "ok" && status !== "unrecorded";
  const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffc\u{1d159}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
  const LINK = /https?:\/\/[^\s"'`\u003c\u003e()[\]{}\\|^⟨⟩]+/g;

  /** Return a text with invisible and direction-changing characters shown as code points. */
  const visible = (text) =>
    String(text ?? "").replace(HIDDEN, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  const oneLine = (text, limit) => {
    const flat = visible(String(text ?? "").slice(0, limit * 4).replace(/\s+/g, " ").trim());
    return flat.length > limit ? `${flat.slice(0, limit - 1)}…` : flat;
  };
  const number = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en-GB"));
  const dollars = (value) => (value == null ? "–" : value === 0 ? "$0" : value < 0.0001 ? "under $0.0001" : `$${value.toFixed(value < 0.01 ? 4 : value < 1 ? 3 : 2)}`);
  const costText = (figures) => (figures.cost_is_lower_bound && figures.cost != null ? `at least ${dollars(figures.cost)}` : dollars(figures.cost));
  const percent = (value) => (value == null ? "–" : value > 0 && value < 0.01 ? "\u003c1%" : value > 0.99 && value < 1 ? "\u003e99%" : `${Math.round(value * 100)}%`);
  /** Return the tokens of a request: those that the provider reported, or else an estimate. */
  const tokensIn = ({ input, size }) => (input == null ? `≈ ${number(size)}` : number(input));
  /** A figure of one part: only estimated, even where the provider reported the sum. */
  const estimate = (value) => (value ? `≈ ${number(value)}` : number(value));
  /** The channels in the order of the inspector, which names them with the same letters. */
  const channels = [...new Set(data.requests.map(({ channel }) => channel))];
  /**
   * Return the name of a request. One without an answer has the number of the one that was sent in its place. Channels
   * have requests of the same number.
   */
  const nameOf = (request) => {
    const at = channels.indexOf(request.channel);
    const of = channels.length > 1 ? ` of ${String.fromCharCode(65 + (at % 26))}${Math.floor(at / 26) || ""}` : "";
    return `${number(request.number)}${of}${request.status === "unanswered" ? " (failed)" : ""}`;
  };
  const plural = (count, one) => `${number(count)} ${one}${count === 1 ? "" : "s"}`;
  const time = (value) => (value ? new Date(value).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "not recorded");

  /** Return an element. Children are elements and texts, never markup. */
  function el(tag, properties, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties ?? {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, String(value));
    }
    made.append(...children.flat().filter((each) => each != null && each !== false));
    return made;
  }

  /** Return a text as nodes. Addresses of http and https are links, which send no referrer. */
  function linked(text) {
    const nodes = [];
    let at = 0;
    for (const match of text.matchAll(LINK)) {
      if (!URL.canParse(match[0])) continue;
      const url = new URL(match[0]);
      if (url.protocol !== "http:" && url.protocol !== "https:") continue;
      nodes.push(text.slice(at, match.index), el("a", { href: url.href, rel: "noreferrer noopener", target: "_blank" }, match[0]));
      at = match.index + match[0].length;
    }
    nodes.push(text.slice(at));
    return nodes;
  }

  /** Return the search as an expression that finds its hits in a text; null if there is none. */
  const hitsOf = () => (search ? new RegExp(search.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu") : null);

  /** Return nodes in which the hits of the search are marked. */
  function marked(nodes) {
    const hits = hitsOf();
    if (!hits) return nodes;
    let left = MOST_MARKS;
    const split = (text) => {
      const found = [];
      let at = 0;
      for (const match of text.matchAll(hits)) {
        if (left-- <= 0) break;
        found.push(text.slice(at, match.index), el("mark", {}, match[0]));
        at = match.index + match[0].length;
      }
      found.push(text.slice(at));
      return found;
    };
    for (const node of nodes) if (typeof node !== "string") node.replaceChildren(...split(node.textContent));
    return nodes.flatMap((node) => (typeof node === "string" ? split(node) : [node]));
  }

  /** All rows of a request. It begins like the request before it. */
  const rowsOf = [];
  data.requests.forEach((request, index) => {
    const before = index ? rowsOf[index - 1] : [];
    rowsOf.push([...before.slice(0, request.same), ...request.rows]);
  });
  /** Return the tokens of each row of a request: its share of a part of the budget, as in the inspector. They add up. */
  function tokensOf(index) {
    const tokens = [];
    for (const [count, total] of data.requests[index].parts) {
      const weights = rowsOf[index].slice(tokens.length, tokens.length + count).map(([, , weight]) => weight);
      const whole = weights.reduce((sum, each) => sum + each, 0);
      let [end, given] = [0, 0];
      for (const weight of weights) {
        end += weight;
        const upTo = whole ? Math.floor((total * end) / whole) : 0;
        tokens.push(upTo - given);
        given = upTo;
      }
      tokens[tokens.length - 1] += total - given;
    }
    return tokens;
  }
  const itemOf = (index) => {
    const [kind, type, role, name, text, size] = data.items[index];
    return { kind, type, role, name, text: text < 0 ? null : data.texts[text], size };
  };
  const lower = new Map();
  const lowerText = (item) => {
    if (item.text == null) return "";
    if (!lower.has(item.text)) lower.set(item.text, item.text.toLowerCase());
    return lower.get(item.text);
  };

  let current = data.requests.length - 1;
  let filter = "";
  let search = "";
  let shown = PAGE;
  let opened = "";

  /** What the file is about: a conversation, or one request of it. */
  const name = oneLine(data.title || data.conversation, 120);
  const title = data.is_run ? name : `Request ${nameOf(data.requests[data.requests.length - 1])} of ${name}`;

  /** What is not in this file: whole texts and results, and whatever else was found of some kinds. */
  function removedText(kinds) {
    const whole = kinds.filter((each) => each === "texts" || each === "results");
    const found = kinds.filter((each) => !whole.includes(each)).map((each) => ({ files: "names of files", mail: "mail addresses", patterns: "matches of patterns" })[each] ?? each);
    return [whole.length && `Removed from this file: ${whole.join(", ")}.`, found.length && `Removed where found: ${found.join(", ")}.`].filter(Boolean).join(" ");
  }

  function header() {
    const last = data.requests[data.requests.length - 1];
    const figures = data.is_run
      ? [["Requests", `${number(data.requests_count)}${data.failed ? `, ${number(data.failed)} failed` : ""}`],
        ["Tokens in", `${data.estimated ? "≈ " : ""}${number(data.input + data.estimated)}`],
        ["Tokens out", data.estimated && !data.input ? "–" : number(data.output)],
        ["From cache", percent(data.cache_share)], ["Cost", costText(data)], ["Findings", number(data.findings_count)]]
      : [["Request", nameOf(last)], ["Findings", number(data.findings_count)]];
    return el("header", {},
      el("h1", { dir: "auto" }, title),
      el("p", { class: "soft" }, data.title ? `${oneLine(data.conversation, 60)} · ` : "", data.source ? `${oneLine(data.source, 60)} · ` : "", `recorded with contextc ${data.version}`),
      data.tags.length > 0 && el("p", { class: "soft", dir: "auto" }, `Tags: ${data.tags.map((each) => oneLine(each, 60)).join(", ")}`),
      data.notes.length > 0 && el("ul", { "aria-label": "Notes", class: "notes" }, data.notes.map((each) => el("li", {},
        el("p", { class: "soft" }, [`Note of ${time(each.time)}`, oneLine(each.who, 60), each.request && `about request ${oneLine(each.request, 60)}`].filter(Boolean).join(" · ")),
        el("p", { class: "note-text", dir: "auto" }, visible(each.text))))),
      data.redacted.length > 0 && el("p", { class: "note" }, removedText(data.redacted)),
      facts(figures));
  }

  /** Buttons that go to the parts of the page. */
  function contents() {
    const parts = [["Findings", "findings"], ["Request", "request"], ["Messages", "messages"]];
    return el("nav", { "aria-label": "Parts of this page", class: "bar" }, parts.map(([label, id]) => el("button", { type: "button", onclick: () => {
      const target = document.getElementById(id);
      target.scrollIntoView({ block: "start" });
      target.focus({ preventScroll: true });
    } }, label)));
  }

  /** All requests as bars: their tokens, the part that was read from the cache, and a dot for those with a finding. */
  function timeline() {
    if (data.requests.length < 2) return null;
    const found = new Set(data.findings.map((each) => each.request));
    const most = Math.max(...data.requests.map((each) => each.size), 1);
    const bars = data.requests.map((each, index) => {
      const share = each.cache_read && each.input ? Math.min(1, each.cache_read / each.input) : 0;
      const isFailed = isFailedStatus(each.status);
      const label = [`Request ${nameOf(each)}`, oneLine(each.model, 50), `${tokensIn(each)} tokens in`, `${percent(share)} from cache`,
        each.cost == null ? "" : costText(each), isFailed ? FAILURES[each.status] ?? "failed" : "", found.has(index) ? "has a finding" : ""].filter(Boolean).join(", ");
      const bar = el("button", { type: "button", class: `step${isFailed ? " failed" : ""}${found.has(index) ? " found" : ""}`, title: label, "aria-label": label,
        "aria-current": index === current ? "true" : null, tabindex: index === current ? "0" : "-1", onclick: () => choose(index, "timeline") },
        el("span", { class: "fresh" }, el("span", { class: "read" })));
      bar.firstChild.style.height = `${Math.max(4, (100 * each.size) / most)}%`;
      bar.firstChild.firstChild.style.height = `${100 * share}%`;
      return bar;
    });
    return el("section", { "aria-label": "Timeline", class: "timeline" },
      el("div", { class: "steps", role: "group", "aria-label": "Requests in order" }, bars),
      el("p", { class: "soft legend" }, el("span", { class: "swatch swatch-read" }), "from cache ", el("span", { class: "swatch swatch-fresh" }), "not from cache ",
        el("span", { class: "swatch swatch-found" }), "has a finding · ← and → go from request to request, / searches"));
  }

  const facts = (pairs) => el("dl", { class: "figures" }, pairs.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));

  function findingsSection() {
    const rest = [];
    if (data.findings_count > data.findings.length) rest.push(`These are the ${number(data.findings.length)} most expensive of ${number(data.findings_count)} findings.`);
    if (data.unavoidable) rest.push(`${number(data.unavoidable)} cache ${data.unavoidable === 1 ? "miss" : "misses"} could not have been avoided: the first request of a prefix, or too few tokens for the cache.`);
    const note = rest.length > 0 && el("p", { class: "soft" }, rest.join(" "));
    if (!data.findings.length) return el("section", { "aria-label": "Findings", id: "findings", tabindex: "-1" }, el("h2", {}, "Findings"), el("p", { class: "soft" }, "No findings."), note);
    const groups = [...Map.groupBy(data.findings, (each) => each.code).values()];
    return el("section", { "aria-label": "Findings", id: "findings", tabindex: "-1" }, el("h2", {}, `Findings (${number(data.findings_count)})`), note,
      el("ol", { class: "findings" }, groups.map((group) => el("li", {}, ...finding(group[0], true),
        group.length > 1 && el("details", {}, el("summary", {}, `${number(group.length - 1)} more with this cause${groupCost(group)}`),
          el("ol", { class: "findings inner" }, group.slice(1).map((each) => el("li", {}, ...finding(each, false)))))))));
  }

  /** Return what all findings of a cause cost, or else how many tokens they are about, if any. */
  function groupCost(group) {
    const known = group.filter((each) => each.cost != null);
    const tokens = group.reduce((sum, each) => sum + each.tokens, 0);
    if (!known.length) return tokens ? `, all ${number(group.length)} together ${plural(tokens, "token")}` : "";
    return `, all ${number(group.length)} together ` + costText({ cost: known.reduce((sum, each) => sum + each.cost, 0), cost_is_lower_bound: known.some((each) => each.cost_is_lower_bound) });
  }

  const finding = (each, hasFix) => [
    el("p", { class: "finding-head" }, el("code", { class: "code" }, each.code), " ", el("b", {}, oneLine(each.title, 300)), " ",
      el("span", { class: "soft" }, [each.cost != null && costText(each), each.tokens && plural(each.tokens, "token")].filter(Boolean).join(" · "))),
    (each.before || each.after) && el("p", { class: "evidence" }, evidenceOf(each)),
    hasFix && each.fix && el("p", {}, el("b", {}, "Fix: "), oneLine(each.fix, 400)),
    each.request != null && el("button", { type: "button", onclick: () => showRow(each.request, each.path) },
      `Show request ${nameOf(data.requests[each.request])}`),
  ];

  /** The words before and after a change; without a change, what was found. */
  function evidenceOf({ before, after, is_change: isChange }) {
    if (!isChange) return [before, after].filter(Boolean).map((each) => oneLine(each, 300)).join(" · ");
    return [before && el("del", {}, oneLine(before, 300)), " ", after && el("ins", {}, oneLine(after, 300))];
  }

  function showRow(request, path) {
    current = request;
    filter = search = "";
    const found = rowsOf[current].findIndex(([, each]) => path && (each === path || path.startsWith(each)));
    shown = Math.max(PAGE, found + 1);
    opened = found < 0 ? "" : rowsOf[current][found][1];
    draw();
    const target = document.querySelector("[data-opened]") ?? document.getElementById("request");
    target.scrollIntoView({ block: "start" });
    (target.querySelector("summary") ?? target).focus();
  }

  function requestSection() {
    const request = data.requests[current];
    const select = el("select", { "aria-label": "Request", onchange: (event) => choose(Number(event.target.value)) },
      data.requests.map((each, index) => el("option", { value: index, selected: index === current },
        `Request ${nameOf(each)} · ${oneLine(each.model, 50)} · ${tokensIn(each)} in${each.cost == null ? "" : ` · ${costText(each)}`}`)));
    return el("section", { "aria-label": "Request", id: "request", tabindex: "-1" }, el("h2", {}, `Request ${nameOf(request)}`),
      data.requests.length > 1 && el("div", { class: "bar" },
        el("button", { type: "button", disabled: current === 0, onclick: () => choose(current - 1) }, "Previous"),
        select,
        el("button", { type: "button", disabled: current === data.requests.length - 1, onclick: () => choose(current + 1) }, "Next")),
      facts([["Model", oneLine(request.model, 80)], ["Tokens in", tokensIn(request)], ["Tokens out", number(request.output)],
        ["From cache", request.cache_read == null || !request.input ? "–" : percent(request.cache_read / request.input)],
        ["Cost", costText(request)], ["Time", time(request.began)]]),
      request.status === "unrecorded" && el("p", { class: "note" }, "The answer to this request was not recorded."),
      isFailedStatus(request.status) && el("p", { class: "note", dir: "auto" }, `This request ${FAILURES[request.status] ?? "failed"}. ${visible(request.error)}`),
      explanation(),
      compositionBar(request),
      composition(request),
      Object.keys(request.settings).length > 0 && el("details", {}, el("summary", {}, "Settings"),
        el("pre", { tabindex: "0" }, visible(JSON.stringify(request.settings, null, 2)))),
      rawRequest());
  }

  /** The request as JSON, made when it is opened. */
  function rawRequest() {
    const details = el("details", { "data-testid": "raw" }, el("summary", {}, "Request as JSON"));
    details.addEventListener("toggle", () => {
      if (!details.open || details.children.length > 1) return;
      details.append(el("p", { class: "soft" }, "Put together from its parts: without cache breakpoints, and without the data of media."),
        el("pre", { tabindex: "0", "aria-label": "Request as JSON", role: "group" }, visible(JSON.stringify(bodyOf(current), null, 2))));
    });
    return details;
  }

  /** Return the body of a request: its settings, and each part at its path. */
  function bodyOf(index) {
    const request = data.requests[index];
    const body = Object.assign(Object.create(null), { model: request.model.slice(request.model.indexOf(":") + 1) }, request.settings);
    for (const [item, path] of rowsOf[index]) {
      const [, , role, , text, size, call, raw] = data.items[item];
      const keys = [...path.matchAll(/([^.[\]]+)|\[(\d+)\]/g)].map((each) => (each[2] === undefined ? each[1] : Number(each[2])));
      let at = body;
      keys.slice(0, -1).forEach((key, depth) => {
        at[key] ??= typeof keys[depth + 1] === "number" ? [] : Object.create(null);
        at = at[key];
        if (depth === 1 && typeof key === "number" && keys[0] !== "tools" && keys[0] !== "system") {
          at.role ??= role;
          if (call && role === "tool" && keys[2] === "content") at.tool_call_id ??= call;
        }
      });
      at[keys.at(-1)] = text < 0 ? `[redacted: ${plural(size, "character")}]` : whole(raw);
    }
    return body;
  }

  /** Return JSON with its texts in place of their indexes. */
  function whole(value) {
    if (Array.isArray(value)) return value.map(whole);
    if (value === null || typeof value !== "object") return value;
    const names = Object.keys(value);
    if (names.length === 1 && names[0] === "\0") return data.texts[value["\0"]];
    return Object.fromEntries(names.map((name) => [name, whole(value[name])]));
  }

  /** Select a request. The focus stays in the timeline, or at the selection. */
  function choose(index, from = "") {
    current = Math.max(0, Math.min(data.requests.length - 1, index));
    shown = PAGE;
    opened = "";
    const [top, left] = [scrollY, document.querySelector(".steps")?.scrollLeft ?? 0];
    draw();
    scrollTo(0, top);
    const bar = document.querySelector(".step[aria-current]");
    if (bar) bar.parentElement.scrollLeft = left;
    bar?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (from === "timeline") bar?.focus({ preventScroll: true });
    else if (from === "") document.querySelector("#request select")?.focus({ preventScroll: true });
  }

  /** What a request has in common with the one before it in this file, and where both part. */
  function explanation() {
    if (!current) return el("p", { class: "soft", "data-testid": "explanation" }, data.is_run ? "This is the first request." : "");
    const { same, again } = data.requests[current];
    const before = data.requests[current - 1];
    const [all, earlier] = [rowsOf[current], rowsOf[current - 1]];
    const equal = same + again.length;
    const head = `${number(equal)} of ${plural(all.length, "part")} ${equal === 1 ? "is" : "are"} the same as in request ${nameOf(before)}`;
    const isOther = before.model !== data.requests[current].model ? `, which was of another model (${oneLine(before.model, 60)})` : "";
    if (same === earlier.length) return el("p", { "data-testid": "explanation" }, `${head}${isOther}: it was extended, and nothing before changed.`);
    return el("p", { "data-testid": "explanation" }, `${head}${isOther}. The first difference is at `, el("code", {}, (all[same] ?? earlier[same])[1]),
      again.length ? `: ${number(same)} before it, ${number(again.length)} after it.` : ".");
  }

  /** The parts of the input as a bar, and how full the context window is. */
  function compositionBar(request) {
    const input = request.costs.filter(([kind, , tokens]) => !kind.startsWith("answer") && tokens > 0);
    const bar = el("div", { class: "parts", "aria-hidden": "true" }, input.map(([kind, name, tokens]) => {
      const part = el("span", { class: `fill fill-${FILLS.includes(kind) ? kind : "overhead"}`, title: `${KINDS[kind] ?? kind} ${oneLine(name, 60)}: ${estimate(tokens)} tokens` });
      part.style.flexGrow = String(tokens);
      return part;
    }));
    const room = request.window ? `${request.input == null ? "≈ " : ""}${number(request.size)} of ${number(request.window)} tokens of the context window (${percent(request.size / request.window)})` : "";
    return el("div", {}, bar, room && el("p", { class: "soft" }, room));
  }

  function composition(request) {
    const input = request.costs.filter(([kind]) => !kind.startsWith("answer"));
    const total = input.reduce((sum, [, , tokens]) => sum + tokens, 0) || 1;
    return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Composition" }, el("table", { class: "composition" },
      el("caption", {}, "Composition"),
      el("thead", {}, el("tr", {}, ["Cause", "Tokens", "Share", "Cost"].map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, request.costs.map(([kind, name, tokens, cost]) => {
        const isInput = !kind.startsWith("answer");
        const bar = el("span", { class: "share" });
        bar.style.width = `${isInput ? Math.max(1, (tokens / total) * 100) : 0}%`;
        return el("tr", {}, el("th", { scope: "row" }, el("span", { class: `swatch fill fill-${FILLS.includes(kind) ? kind : "overhead"}`, hidden: !isInput }), `${KINDS[kind] ?? kind}${name ? ` ${oneLine(name, 60)}` : ""}`),
          el("td", {}, isInput ? estimate(tokens) : number(tokens)), el("td", {}, isInput ? percent(tokens / total) : "", bar), el("td", {}, dollars(cost)));
      }))));
  }

  function rowsSection() {
    const list = el("ol", { class: "rows", "aria-label": "Parts" });
    const status = el("p", { class: "soft", role: "status" });
    const more = el("button", { type: "button", hidden: true, onclick: () => grow() }, "Show more");
    let timer = 0;
    let found = [];
    /** The row of the current hit, and the hit in it; -1 before the first. */
    let place = [-1, -1];
    const input = el("input", { type: "search", "aria-label": "Search", placeholder: "Search", value: search, oninput: (event) => {
      search = event.target.value;
      shown = PAGE;
      clearTimeout(timer);
      timer = setTimeout(fill, 120);
    }, onkeydown: (event) => {
      if (event.key !== "Enter" || !search) return;
      event.preventDefault();
      clearTimeout(timer);
      if (filled !== search) fill();
      go(event.shiftKey ? -1 : 1);
    } });
    const moves = el("span", { class: "moves", hidden: true },
      el("button", { type: "button", title: "Shift and Enter in the search field", onclick: () => go(-1) }, "Previous hit"), " ",
      el("button", { type: "button", title: "Enter in the search field", onclick: () => go(1) }, "Next hit"));
    let filled = "";
    const select = el("select", { "aria-label": "Filter", onchange: (event) => { filter = event.target.value; shown = PAGE; fill(); } },
      FILTERS.map(([value, label]) => el("option", { value, selected: value === filter }, label)));
    function fill() {
      const request = data.requests[current];
      const again = new Set(request.again.map((at) => request.same + at));
      const wanted = search.toLowerCase();
      const tokens = tokensOf(current);
      const all = [
        ...rowsOf[current].map(([item, path], at) => ({ ...itemOf(item), path, tokens: tokens[at], isSame: at < request.same || again.has(at) })),
        ...request.reply.map((item) => ({ ...itemOf(item), path: "reply", tokens: null, isSame: false })),
      ];
      found = all.filter((each) => matches(each) && (!wanted || lowerText(each).includes(wanted) || each.name.toLowerCase().includes(wanted)));
      list.replaceChildren(...found.slice(0, shown).map(row));
      more.hidden = found.length <= shown;
      [filled, place, moves.hidden] = [search, [-1, -1], !search || !found.length];
      const parts = plural(all.length - request.reply.length, "part");
      const reply = request.reply.length ? `; and ${plural(request.reply.length, "part")} of the reply` : "";
      status.textContent = `${found.length === all.length ? "" : `${number(found.length)} found among `}${parts} of the request: tools, system prompt, and each part of a message${reply}`
        + (request.overhead ? `. ${number(request.overhead)} tokens were added by the provider or program, and are not recorded` : "");
    }
    /** Show further rows; those above stay as they are. */
    function grow() {
      list.append(...found.slice(shown, shown + PAGE).map(row));
      shown += PAGE;
      more.hidden = found.length <= shown;
    }
    /** Go to the next hit, or to the previous one: open its row and scroll there. */
    function go(by) {
      if (!found.length) return;
      let [at, hit] = place;
      const marks = () => [...list.children[at].querySelectorAll("pre mark")];
      if (at >= 0 && hit + by >= 0 && hit + by < marks().length) hit += by;
      else {
        at = at < 0 && by < 0 ? found.length - 1 : (at + by + found.length) % found.length;
        while (at >= shown) grow();
        list.children[at].firstChild.open = true;
        list.children[at].firstChild.fill();
        hit = by > 0 ? 0 : Math.max(0, marks().length - 1);
      }
      place = [at, hit];
      list.querySelector("mark.current")?.classList.remove("current");
      const target = marks()[hit] ?? list.children[at];
      target.classList.add("current");
      target.scrollIntoView({ block: "center" });
    }
    fill();
    return el("section", { "aria-label": "Messages", id: "messages", tabindex: "-1" }, el("h2", {}, "Messages as sent"), el("div", { class: "bar" }, input, moves, select), status, list, more);
  }

  function matches({ kind, type, isSame }) {
    if (!filter) return true;
    if (filter === "new") return !isSame && kind !== "reply";
    if (filter === "system" || filter === "reply" || filter === "tool") return kind === filter;
    return kind !== "system" && type === filter;
  }

  function row(each) {
    const isOpen = opened !== "" && each.path === opened;
    const label = each.kind === "tool" ? "tool" : each.kind === "system" ? "system prompt"
      : each.type === "text" ? each.role || "text" : TYPES[each.type] ?? each.type;
    const details = el("details", { open: isOpen, "data-opened": isOpen, "data-testid": "row", class: each.isSame ? "" : "new" }, el("summary", {},
      el("span", { class: `kind kind-${each.kind}` }, each.kind === "reply" ? `reply: ${label}` : label), " ",
      data.requests.length > 1 && each.kind !== "reply" && el("span", { class: "sign", title: each.isSame ? "Sent before" : "New in this request" }, each.isSame ? "=" : "+"), " ",
      each.name && el("b", {}, oneLine(each.name, 60)), " ",
      el("span", { class: "preview", dir: "auto" }, each.text == null ? `[redacted: ${plural(each.size, "character")}]` : marked([preview(each)])), " ",
      el("span", { class: "soft tokens" }, each.tokens == null ? "" : plural(each.tokens, "token"))));
    const fill = () => {
      if (details.open && details.children.length === 1) details.append(body(each));
    };
    details.addEventListener("toggle", fill);
    details.fill = fill;
    fill();
    return el("li", {}, details);
  }

  /** Return the beginning of a text, or the text around the first hit of the search. */
  function preview(each) {
    const at = search ? lowerText(each).indexOf(search.toLowerCase()) : -1;
    return at > 120 ? `…${oneLine(each.text.slice(at - 40), 159)}` : oneLine(each.text, 160);
  }

  function body(each) {
    const holder = el("div", {}, el("p", { class: "soft" }, each.path));
    if (each.text == null) return holder;
    const isHidden = search && lowerText(each).indexOf(search.toLowerCase(), MOST - search.length) >= 0;
    const text = el("pre", { dir: "auto", tabindex: "0" }, marked(isHidden ? [visible(each.text)] : linked(visible(each.text.slice(0, MOST)))));
    holder.append(text);
    if (each.text.length > MOST && !isHidden) {
      const all = el("button", { type: "button", onclick: () => {
        text.replaceChildren(...marked([visible(each.text)]));
        all.remove();
      } }, `Show all ${number(each.text.length)} characters`);
      holder.append(all);
    }
    return holder;
  }

  function draw() {
    document.getElementById("page").replaceChildren(el("main", {}, header(), timeline(), contents(), findingsSection(), requestSection(), rowsSection()));
  }

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && data.requests.length > 1) choose(current + by, event.target.closest(".step") ? "timeline" : "keys");
    else if (event.key === "/") document.querySelector("#messages input")?.focus();
    else return;
    event.preventDefault();
  });

  document.title = `${oneLine(title, 80)} – contextc`;
  draw();
})();
