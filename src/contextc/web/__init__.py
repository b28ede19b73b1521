"""The app: an HTTP API, streams of events, and the page. It decides nothing; all of it is asked of the floors below."""
