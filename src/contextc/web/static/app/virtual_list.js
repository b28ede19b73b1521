/**
 * Virtual list: only visible rows are in the document.
 *
 * Rows are requested by index and measured when rendered; before that, `estimate` is their height. The row at the top of
 * the viewport is the anchor: it keeps its position when heights above it change. With `follow`, the list stays at its end
 * while it grows, until the user scrolls away or expands something. What is pressed stays below the pointer until it is
 * released, whatever grows around it, and `onEnd` waits for that too: a click would be lost if something else came between.
 */
import { html, useCallback, useImperativeHandle, useLayoutEffect, useMemo, useRef, useState } from "./html.js";

const BEYOND = 600;
/** Milliseconds after a wheel, key or pointer event in which scrolling is the user's, even if the content changes too. */
const INPUT = 1_000;
/** The most rows in the document at once. */
const MOST = 240;

/** Row heights in a Fenwick tree: updates and searches take O(log n). */
export class Heights {
  constructor(estimate) {
    this.estimate = estimate;
    this.count = 0;
    this.measured = new Map();
    this.tree = new Float64Array(1024);
  }

  resize(count) {
    if (count + 1 > this.tree.length || count < this.count) {
      this.tree = new Float64Array(Math.max(this.tree.length, 2 ** Math.ceil(Math.log2(count + 2))));
      for (const index of this.measured.keys()) if (index >= count) this.measured.delete(index);
      this.count = count;
      for (const [index, height] of this.measured) this._add(index, height - this.estimate);
    }
    this.count = count;
  }

  of(index) {
    return this.measured.get(index) ?? this.estimate;
  }

  /** Set a height and return the change. */
  set(index, height) {
    const change = height - this.of(index);
    this.measured.set(index, height);
    if (change) this._add(index, change);
    return change;
  }

  forget() {
    this.measured.clear();
    this.tree.fill(0);
  }

  /** Return the offset of row `index`. */
  top(index) {
    let sum = index * this.estimate;
    for (let at = index; at > 0; at -= at & -at) sum += this.tree[at];
    return sum;
  }

  get total() {
    return this.top(this.count);
  }

  /** Return the row at an offset from the top. */
  at(offset) {
    let low = 0;
    let high = Math.max(0, this.count - 1);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.top(middle) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  _add(index, change) {
    for (let at = index + 1; at < this.tree.length; at += at & -at) this.tree[at] += change;
  }
}

/**
 * @param {object} props
 * @param {number} props.count
 * @param {(index: number) => any} props.row the content of a row
 * @param {(index: number) => string|number} [props.keyOf] the key of a row; default: its index
 * @param {(index: number) => object} [props.attributes] attributes of the row's element, such as role and aria-label
 * @param {number} [props.estimate] estimated height of a row
 * @param {(first: number, last: number) => void} [props.onRange] called when the range of visible rows changes
 * @param {(atEnd: boolean) => void} [props.onEnd] called when the end becomes visible or hidden
 * @param {boolean} [props.follow] stay at the end while it grows
 * @param {"top"|"end"} [props.start]
 * @param {any} [props.handle] a ref that gets `{scrollTo(index, where), toEnd(), element}`
 * @param {any} [props.identity] another value means another list: its state is reset
 */
export function VirtualList({
  count, row, keyOf = (index) => index, attributes = () => ({}), estimate = 80, onRange, onEnd, follow = false,
  start = "top", handle, identity = "", class: className = "", ...rest
}) {
  const scroller = useRef(null);
  const spacer = useRef(null);
  const heights = useMemo(() => new Heights(estimate), [identity, estimate]);
  const place = useMemo(() => ({ anchor: 0, offset: 0, sticks: start === "end", told: "", fresh: true, top: 0, height: 0, view: 0, input: -Infinity, pressed: null }), [identity]);
  const [, redraw] = useState(0);
  const again = useCallback(() => redraw((each) => each + 1), []);

  /**
   * Record the user's scroll position before anything moves. If the content or the viewport has changed, the browser may have
   * moved it, for example because content became shorter for a moment. That does not count as scrolling up.
   */
  function sync(always = false) {
    const element = scroller.current;
    if (!element || place.fresh || (!always && Math.abs(element.scrollTop - place.top) <= 0.5)) return;
    const isSame = element.scrollHeight === place.height && element.clientHeight === place.view;
    const isUser = isSame || performance.now() - place.input < INPUT;
    const up = element.scrollTop < place.top - 0.5;
    if (place.pressed) place.pressed.top -= element.scrollTop - place.top;
    place.top = element.scrollTop;
    setAnchor();
    const distance = element.scrollHeight - element.clientHeight - element.scrollTop;
    if (distance < 2) place.sticks = start === "end" || follow;
    else if (isUser && (up || distance > 40)) place.sticks = false;
    [place.height, place.view] = [element.scrollHeight, element.clientHeight];
  }

  function setAnchor() {
    const within = scroller.current.scrollTop - spacer.current.offsetTop;
    place.anchor = heights.at(Math.max(0, within));
    place.offset = within - heights.top(place.anchor);
  }

  sync();
  heights.resize(count);

  const view = scroller.current?.clientHeight || 900;
  const offset = place.sticks && !place.pressed ? Math.max(0, heights.total - view) : Math.max(0, heights.top(place.anchor) + place.offset);
  const first = count ? heights.at(Math.max(0, offset - BEYOND)) : 0;
  const last = count ? Math.min(count - 1, heights.at(offset + view + BEYOND), first + MOST) : -1;

  [place.first, place.last] = [first, last];

  /** Restore the scroll position after a change. */
  const settle = useCallback(() => {
    const element = scroller.current;
    if (!element) return;
    const { pressed } = place;
    let wanted = heights.top(place.anchor) + place.offset + spacer.current.offsetTop;
    if (pressed?.element?.isConnected) wanted = element.scrollTop + pressed.element.getBoundingClientRect().top - pressed.top;
    else if (place.sticks && !pressed) wanted = element.scrollHeight - element.clientHeight;
    if (Math.abs(element.scrollTop - wanted) > 0.5) element.scrollTop = wanted;
    place.top = element.scrollTop;
    [place.height, place.view] = [element.scrollHeight, element.clientHeight];
  }, [heights, place]);

  const measure = useCallback(() => {
    let changed = false;
    for (const element of spacer.current?.children ?? []) {
      const index = Number(element.dataset.index);
      const height = element.getBoundingClientRect().height;
      if (index < heights.count && Math.abs(height - heights.of(index)) > 0.25) {
        heights.set(index, height);
        changed = true;
      } else if (!heights.measured.has(index) && index < heights.count) heights.set(index, height);
    }
    return changed;
  }, [heights]);

  const observer = useMemo(
    () => new ResizeObserver(() => {
      sync();
      if (measure()) again();
      settle();
    }),
    [measure, settle],
  );

  useLayoutEffect(() => {
    const changed = measure();
    if (place.fresh && count) {
      place.fresh = false;
      if (scroller.current && !place.sticks) scroller.current.scrollTop = 0;
    }
    settle();
    if (changed) again();
    for (const element of spacer.current.children) observer.observe(element);
    const seen = `${first}.${last}.${count}`;
    if (last >= first && seen !== place.told) {
      place.told = seen;
      onRange?.(first, last);
    }
  });

  useLayoutEffect(() => {
    observer.observe(scroller.current);
    return () => observer.disconnect();
  }, [observer]);

  const noteEnd = useCallback((atEnd) => {
    if (place.ended !== atEnd && !place.pressed) {
      place.ended = atEnd;
      onEnd?.(atEnd);
    }
  }, [place, onEnd]);

  const noteScroll = useCallback(() => {
    const element = scroller.current;
    if (element) noteEnd(element.scrollHeight - element.clientHeight - element.scrollTop < 40);
  }, [noteEnd]);

  const onInput = useCallback(() => {
    place.input = performance.now();
  }, [place]);

  const onPress = useCallback(({ target }) => {
    sync();
    onInput();
    setAnchor();
    const element = target.closest("button, a, summary, .virtual-row");
    place.pressed = { element, top: element?.getBoundingClientRect().top };
    const release = () => {
      place.pressed = null;
      for (const name of ["pointerup", "pointercancel"]) removeEventListener(name, release);
      setTimeout(() => {  // after the click
        settle();
        noteScroll();
      });
    };
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, release);
  }, [heights, place, settle, noteScroll]);

  const onScroll = useCallback(() => {
    const element = scroller.current;
    if (!element) return;  // the list was left while it scrolled
    if (element.matches(":active")) onInput();  // the scroll bar is dragged
    sync();
    noteScroll();
    const within = element.scrollTop - spacer.current.offsetTop;
    const seen = [heights.at(within - BEYOND / 2), heights.at(within + element.clientHeight + BEYOND / 2)];
    if (seen[0] < place.first || seen[1] > place.last) again();
  }, [heights, place, noteScroll]);

  /** Stop following when the user expands something, so that it can be read. */
  const onClick = useCallback((event) => {
    if (event.target.closest?.("summary, [aria-expanded]")) {
      sync(true);
      place.sticks = false;
    }
  }, [place]);

  useImperativeHandle(handle ?? { current: null }, () => ({
    element: scroller.current,
    toEnd() {
      place.sticks = true;
      noteEnd(true);
      again();
      settle();
    },
    scrollTo(index, where = "start") {
      place.sticks = false;
      place.anchor = Math.max(0, Math.min(index, heights.count - 1));
      place.offset = where === "center" ? -(scroller.current.clientHeight - heights.of(place.anchor)) / 2 : 0;
      again();
      requestAnimationFrame(settle);
    },
  }), [heights, place, settle, noteEnd]);

  const rows = [];
  for (let index = first; index <= last; index += 1) {
    rows.push(html`<div key=${keyOf(index)} data-index=${index} class="virtual-row" ...${attributes(index)}>${row(index)}</div>`);
  }
  const before = heights.top(first);
  const after = Math.max(0, heights.total - heights.top(last + 1));
  return html`
    <div ref=${scroller} class="virtual ${className}" onScroll=${onScroll} onWheel=${onInput} onTouchMove=${onInput} onKeyDown=${onInput}
      onPointerDown=${onPress} onClickCapture=${onClick} tabindex="0" ...${rest}>
      <div ref=${spacer} class="virtual-rows" style=${{ paddingTop: `${before}px`, paddingBottom: `${after}px` }}>${rows}</div>
    </div>`;
}
