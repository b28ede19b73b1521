/**
 * Hook that fetches data for a component. Old data stays, marked as loading, until the next response arrives. Responses
 * that are no longer needed are dropped.
 */
import { useCallback, useEffect, useRef, useState } from "./html.js";

/**
 * @param {string|null} key identifies the data; another key fetches again, null fetches nothing
 * @param {(signal: AbortSignal) => Promise<any>} ask
 * @param {{delay?: number}} options milliseconds to wait before fetching
 * @returns {{data: any, error: Error|null, loading: boolean, of: string|null, reload: () => Promise<void>}} `reload` resolves when the data is there
 */
export function useLoad(key, ask, { delay = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, of: null });
  const [round, setRound] = useState(0);
  const asked = useRef(ask);
  asked.current = ask;
  const waiting = useRef([]);
  useEffect(() => {
    if (key === null) return undefined;
    const stop = new AbortController();
    const done = () => waiting.current.splice(0).forEach((resolve) => resolve());
    const timer = setTimeout(async () => {
      try {
        const data = await asked.current(stop.signal);
        if (!stop.signal.aborted) setState({ data, error: null, of: key });
      } catch (error) {
        if (!stop.signal.aborted) setState({ data: null, error, of: key });
      }
      if (!stop.signal.aborted) done();
    }, delay);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, round]);
  useEffect(() => () => waiting.current.splice(0).forEach((resolve) => resolve()), []);
  const reload = useCallback(() => new Promise((resolve) => {
    waiting.current.push(resolve);
    setRound((each) => each + 1);
  }), []);
  return { ...state, loading: key !== null && state.of !== key, reload };
}
