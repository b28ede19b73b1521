/**
 * A search hit in the chat: what hides its words is open, and they are marked and scrolled into view.
 *
 * The marks are ranges of the CSS Custom Highlight API, so that they work in Markdown and in highlighted code, and no
 * element is added. A browser without it scrolls to the words, too.
 */
import { createContext, useContext, useEffect, useState } from "../html.js";

const NAME = "search-hit";
/** The most marks in one message. */
const MOST = 500;

/** @typedef {{seq: number, text: string, pattern: RegExp, isShown: boolean}} Hit */

/** The hit in the message that is drawn; null if there is none. */
export const HitContext = createContext(null);

/** Return a hit. Case and the kind of white space are ignored, as in the search. @returns {Hit|null} */
export function createHit(seq, text) {
  const words = text.trim().split(/\s+/).map((each) => each.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return seq && words[0] ? { seq, text, pattern: new RegExp(words.join("\\s+"), "i"), isShown: false } : null;
}

/** Return where a hit begins in one of some texts; -1 if none has it. */
export function positionOf(hit, ...texts) {
  if (!hit) return -1;
  for (const text of texts) {
    const at = (text ?? "").search(hit.pattern);
    if (at >= 0) return at;
  }
  return -1;
}

/** Return true if the message that is drawn has a search hit in one of some texts. */
export const useHasHit = (...texts) => positionOf(useContext(HitContext), ...texts) >= 0;

/** Return whether something is open, and a function to change it. It opens when it has a hit. @param {boolean} hasHit */
export function useOpen(hasHit) {
  const [open, setOpen] = useState(hasHit);
  useEffect(() => {
    if (hasHit) setOpen(true);
  }, [hasHit]);
  return [open, setOpen];
}

/** Mark the hits in an element, and scroll to the first one once. @param {{current: HTMLElement}} element @param {Hit|null} hit */
export function useMarkedHit(element, hit, change) {
  useEffect(() => {
    if (!hit) return undefined;
    let frame = 0;
    const mark = () => {
      const ranges = element.current ? rangesOf(element.current, hit.pattern) : [];
      if (!ranges.length) return;
      globalThis.CSS?.highlights?.set(NAME, new globalThis.Highlight(...ranges));
      if (hit.isShown) return;
      hit.isShown = true;
      scrollTo(ranges[0]);
    };
    frame = requestAnimationFrame(() => { frame = requestAnimationFrame(mark); }); // the list measures its rows in between
    return () => cancelAnimationFrame(frame);
  }, [hit, change]);
}

/** Remove all marks. */
export const clearHits = () => globalThis.CSS?.highlights?.delete(NAME);

/** Return the ranges of the matches of a pattern in the text of an element. They may span several text nodes. */
function rangesOf(element, pattern) {
  const nodes = [];
  let text = "";
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest(".off-screen, .foot, figcaption, .call-line")) continue;
    nodes.push({ node, start: text.length });
    text += node.data;
  }
  const found = [];
  let at = 0; // index of the node with the current position
  const place = (offset, isEnd) => {
    while (at + 1 < nodes.length && (isEnd ? nodes[at + 1].start < offset : nodes[at + 1].start <= offset)) at += 1;
    return [nodes[at].node, offset - nodes[at].start];
  };
  for (const { 0: words, index } of text.matchAll(new RegExp(pattern, "gi"))) {
    const range = document.createRange();
    range.setStart(...place(index, false));
    range.setEnd(...place(index + words.length, true));
    found.push(range);
    if (found.length >= MOST) break;
  }
  return found;
}

/** Scroll every scrolling ancestor so that a range is in its middle. */
function scrollTo(range) {
  for (let box = range.startContainer.parentElement; box; box = box.parentElement) {
    const { overflowY, overflowX } = getComputedStyle(box);
    const isScrolling = (overflow) => overflow === "auto" || overflow === "scroll";
    const [words, frame] = [range.getBoundingClientRect(), box.getBoundingClientRect()];
    if (isScrolling(overflowY) && box.scrollHeight > box.clientHeight) {
      box.scrollTop += words.top - frame.top - (box.clientHeight - words.height) / 2;
    }
    if (isScrolling(overflowX) && (words.left < frame.left || words.right > frame.right)) {
      box.scrollLeft += words.left - frame.left - box.clientWidth / 2;
    }
  }
}
