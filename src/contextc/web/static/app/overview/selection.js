/** What the overview shows: the filters, order and page in the URL, and the query for the server. */
import { setQuery } from "../route.js";

export const PAGE = 50;
export const RANGES = [["", "All time"], ["today", "Today"], ["7d", "7 days"], ["30d", "30 days"], ["custom", "Custom"]];
const DAYS = { today: 1, "7d": 7, "30d": 30 };

export const TIME_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** Return the first millisecond of a local day, some days later. @param {string|Date} day such as 2026-03-01 */
export function dayStart(day, later = 0) {
  const [year, month, date] = typeof day === "string" ? day.split("-").map(Number) : [day.getFullYear(), day.getMonth() + 1, day.getDate()];
  return new Date(year, month - 1, date + later).getTime();
}

/** Return a local date such as 2026-03-01. */
export function dayName(time) {
  const date = new Date(time);
  return [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((each) => String(each).padStart(2, "0")).join("-");
}

const isDay = (text) => /^\d{4}-\d{2}-\d{2}$/.test(text ?? "") && Number.isFinite(dayStart(text));

/** Return the times of a range: `since` and `until` in milliseconds, "" if it is open. */
function timesOf({ range, from, to }) {
  if (DAYS[range]) return { since: dayStart(new Date(), 1 - DAYS[range]), until: "" };
  if (range !== "custom") return { since: "", until: "" };
  return { since: isDay(from) ? dayStart(from) : "", until: isDay(to) ? dayStart(to, 1) : "" };
}

/** Return the query of GET /overview for the query of the URL. */
export function serverQuery(query, { limit = PAGE, skip = (pageOf(query) - 1) * PAGE } = {}) {
  const { source, model, q: search, sort, order } = query;
  return { ...timesOf(query), source, model, search, sort, order, skip, limit, zone: TIME_ZONE };
}

export const pageOf = ({ page }) => Math.max(1, Math.floor(Number(page)) || 1);

/** Change filters; this shows the first page. */
export const filter = (change) => setQuery({ page: "", ...change });

/** Select one day, or several. */
export const selectDays = (from, to) => filter({ range: "custom", from, to });
