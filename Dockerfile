# The server, the workers and the commands of contextc. As it is, it serves a SQLite store in the volume /data:
#   docker build -t contextc .
#   docker run -p 127.0.0.1:8377:8377 -e CONTEXTC_TOKEN=… -e ANTHROPIC_API_KEY=… -v contextc:/data contextc
# CONTEXTC_TOKEN has 16 characters or more. Without it the server makes one, which only a file in the container has.
FROM python:3.13-slim AS build
WORKDIR /source
ARG EXTRAS=web,worker,anthropic,openai,gemini,mcp,telemetry
RUN python -m venv /opt/contextc
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
RUN /opt/contextc/bin/pip install --no-cache-dir ".[${EXTRAS}]"

FROM python:3.13-slim
RUN groupadd --gid 10001 contextc \
    && useradd --uid 10001 --gid contextc --home-dir /data --shell /usr/sbin/nologin contextc \
    && install --directory --owner contextc --group contextc --mode 0700 /data
COPY --from=build /opt/contextc /opt/contextc
ENV PATH=/opt/contextc/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CONTEXTC_STORE=sqlite:////data/contextc.db
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8377
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8377/', timeout=4)"]
ENTRYPOINT ["contextc"]
# All addresses of the container: only the port that is published reaches them, and a token is required.
CMD ["serve", "--host", "0.0.0.0", "--no-open"]
