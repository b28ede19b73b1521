/**
 * Hook that fetches data for a component. Old data stays, marked as loading, until the next response arrives. Responses
 * that are no longer needed are dropped.
 */
import { useCallback, useEffect, useRef, useState } from "../html.js";

/**
 * @param {string|null} key identifies the data; another key fetches again, null fetches nothing
 * @param {(signal: AbortSignal) => Promise<any>} ask
 * @param {{delay?: number}} options milliseconds to wait before fetching
 * @returns {{data: any, error: Error|null, loading: boolean, of: string|null, reload: () => void}}
 */
export function useLoad(key, ask, { delay = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, of: null });
  const [round, setRound] = useState(0);
  const asked = useRef(ask);
  asked.current = ask;
  useEffect(() => {
    if (key === null) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const data = await asked.current(stop.signal);
        if (!stop.signal.aborted) setState({ data, error: null, of: key });
      } catch (error) {
        if (!stop.signal.aborted) setState({ data: null, error, of: key });
      }
    }, delay);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, round]);
  const reload = useCallback(() => setRound((each) => each + 1), []);
  return { ...state, loading: key !== null && state.of !== key, reload };
}
