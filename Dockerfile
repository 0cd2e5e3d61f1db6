# amqpd in a container: compiled, not root, data in a volume. docker/compose.yaml shows how to run it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# WHEEL: a compiled wheel below dist/, which is installed instead of the sources
ARG WHEEL=
RUN [ -n "${WHEEL}" ] || (apt-get update -q \
    && apt-get install -yq --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*)
WORKDIR /source
COPY pyproject.toml setup.py README.md ${WHEEL:-LICENSE} ./
COPY broker broker
COPY protocol protocol
COPY config config
# AMQPD_COMPILE=1: an image of the slower pure Python flavour must not come about by accident
# [dispatch]: dispatchers call URLs; nothing can be installed into the image later
RUN python -m venv /opt/amqpd && AMQPD_COMPILE=1 /opt/amqpd/bin/pip install -q --no-cache-dir "./${WHEEL##*/}[dispatch]" \
    && /opt/amqpd/bin/pip uninstall -q -y setuptools pip  # a broker installs nothing

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin amqpd \
    && install -d -o amqpd -g amqpd -m 0700 /var/lib/amqpd
COPY --from=build /opt/amqpd /opt/amqpd
COPY docker/healthcheck.py docker/defaults.toml /opt/amqpd/
USER 10001
# guest may log in from loopback only, which is inside the container: set AMQPD_DEFAULT_USER and AMQPD_DEFAULT_PASS.
# No variable is a setting here: it would win over the settings file of an operator.
ENV PATH=/opt/amqpd/bin:$PATH \
    AMQPD_CONFIG_DEFAULTS=/opt/amqpd/defaults.toml
VOLUME /var/lib/amqpd
EXPOSE 5671 5672 15671 15672
HEALTHCHECK --interval=20s --timeout=5s --start-period=60s \
    CMD ["/opt/amqpd/bin/python", "/opt/amqpd/healthcheck.py"]
ENTRYPOINT ["/opt/amqpd/bin/amqpd", "serve"]
