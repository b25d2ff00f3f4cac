# The image of Duly, for every role: duly migrate, scheduler, api and worker. docs/how-to/containers.md shows how to use it.
#
#   docker build --tag duly .
#   docker build --tag duly --build-arg EXTRAS='notify archive' .    with optional packages, as pyproject.toml names them

# A release pins its digest: --build-arg BASE=debian:trixie-slim@sha256:...
ARG BASE=debian:trixie-slim

# The wheel, with the dashboard in it. Nothing of this stage but dist/ is in the image.
FROM ${BASE} AS wheel
# Debian's fixes are wanted, so its packages are not pinned.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates make nodejs npm python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
ARG SOURCE_DATE_EPOCH
RUN make package

# An environment with the locked packages, each with a hash of its lock.
FROM ${BASE} AS environment
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/duly
ENV PATH=/opt/duly/bin:$PATH
COPY requirements*.lock /tmp/
ARG EXTRAS=""
RUN cp /tmp/requirements.lock /tmp/chosen.lock \
 && for extra in $EXTRAS; do cat "/tmp/requirements-$extra.lock" >>/tmp/chosen.lock || exit 1; done \
 && pip install --no-cache-dir --require-hashes --requirement /tmp/chosen.lock
COPY --from=wheel /source/dist/*.whl /tmp/
RUN pip install --no-cache-dir --no-deps --no-index /tmp/*.whl

FROM ${BASE}
# tini ends what orphans leave behind. Debian's Python is the one that the environment was made with.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 duly \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin duly
COPY --from=environment /opt/duly /opt/duly

# Beyond loopback the API starts only with a key and with TLS, its own or that of a proxy (DULY_PLAIN_HTTP).
# DULY_METRICS_PORT is where the health check asks, in the container alone unless DULY_METRICS_HOST says otherwise.
ENV PATH=/opt/duly/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DULY_HOST=0.0.0.0 \
    DULY_METRICS_PORT=9300 \
    DULY_LOG_FORMAT=json

# Where an app is found: FROM duly, COPY app.py ., CMD ["worker", "app:app"].
WORKDIR /app
USER 10001:10001
EXPOSE 7300 9300
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/opt/duly/bin/python", "-ISc", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['DULY_METRICS_PORT'] + '/livez', timeout=4)"]
ENTRYPOINT ["/usr/bin/tini", "--", "duly"]
CMD ["--help"]
