# Spark with the connector and the jobs of amqpd: master, worker or driver. docker/compose.spark.yaml shows how to run it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE}
RUN apt-get update -q \
    && apt-get install -yq --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY broker broker
COPY protocol protocol
COPY config config
COPY pipeline pipeline
# in pure Python: what is hot here is Arrow's and Spark's
RUN python -m venv /opt/amqpd && AMQPD_COMPILE=0 /opt/amqpd/bin/pip install -q --no-cache-dir '.[pipeline]' \
    && ln -s "$(/opt/amqpd/bin/python -c 'import pyspark; print(pyspark.__path__[0])')" /opt/spark
# the broker's user, so that both read the journal; /lake is for what jobs write
RUN useradd --uid 10001 --user-group --home-dir /var/lib/spark --create-home amqpd && install -d -o amqpd -g amqpd /lake
USER amqpd
WORKDIR /var/lib/spark
ENV PATH=/opt/amqpd/bin:/opt/spark/bin:$PATH SPARK_HOME=/opt/spark SPARK_WORKER_DIR=/tmp/work \
    PYSPARK_PYTHON=/opt/amqpd/bin/python PYSPARK_DRIVER_PYTHON=/opt/amqpd/bin/python
VOLUME /lake
