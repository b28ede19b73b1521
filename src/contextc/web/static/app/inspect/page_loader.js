/**
 * Loader of a long list in pages, as they come into view. Pages may arrive in any order; items that are not loaded are
 * undefined.
 */
const PAGE = 200;

export class PageLoader {
  /**
   * @param {number} total number of items
   * @param {(after: number, limit: number, signal: AbortSignal) => Promise<object[]>} ask
   * @param {() => void} changed called when items arrive
   */
  constructor(total, ask, changed) {
    this.total = total;
    this.ask = ask;
    this.changed = changed;
    this.items = [];
    this.asked = new Set();
    this.error = null;
    this.stop = new AbortController();
  }

  get(index) {
    return this.items[index];
  }

  /** Load these items, unless they are loaded or loading. */
  ensure(first, last) {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      if (page * PAGE < this.total && !this.asked.has(page)) this._load(page, PAGE);
    }
  }

  /** Load the page of an item. */
  load(index) {
    return this._load(Math.floor(index / PAGE), PAGE);
  }

  close() {
    this.stop.abort();
  }

  async _load(page, limit) {
    for (let each = 0; each < limit / PAGE; each += 1) this.asked.add(page + each);
    const after = page * PAGE;
    try {
      const found = await this.ask(after, limit, this.stop.signal);
      found.forEach((item, index) => {
        this.items[after + index] = item;
      });
      this.error = null;
    } catch (error) {
      if (this.stop.signal.aborted) return;
      for (let each = 0; each < limit / PAGE; each += 1) this.asked.delete(page + each);
      this.error = error;
    }
    if (!this.stop.signal.aborted) this.changed();
  }
}
