/**
 * A long list that the server gives in pages, asked for as they come into view. Pages may come in any order; what has not
 * come yet is undefined. `all()` is for those who must look at everything, such as a search.
 */
const PAGE = 200;
const SEVERAL = 1000;

export class Pages {
  /**
   * @param {number} total how many there are
   * @param {(after: number, limit: number, signal: AbortSignal) => Promise<object[]>} ask
   * @param {() => void} changed called when more has come
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

  /** See to it that these are there, or on their way. */
  want(first, last) {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      if (page * PAGE < this.total && !this.asked.has(page)) this._load(page, PAGE);
    }
  }

  /** The page of this one, once it has come. */
  load(index) {
    return this._load(Math.floor(index / PAGE), PAGE);
  }

  /** Everything, a thousand at a time. */
  async all() {
    for (let after = 0; after < this.total; after += SEVERAL) {
      const pages = Array.from({ length: SEVERAL / PAGE }, (_, index) => after / PAGE + index);
      if (pages.some((page) => page * PAGE < this.total && this.items[page * PAGE] === undefined)) await this._load(after / PAGE, SEVERAL);
      if (this.stop.signal.aborted || this.error) return;
    }
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
