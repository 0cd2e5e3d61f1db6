"""Metrics in Prometheus's text format 0.0.4: what each one is, and its lines."""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client.core import HistogramMetricFamily, Metric

from broker.admin.state import Measures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
INFO: Final = "info"

OWN: Final = "amqpd_"
RABBITMQ: Final = "rabbitmq_"
DETAILED: Final = "detailed_"
"""The prefixes of names. The last one follows the others in answers to `/metrics/detailed`."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Described(NamedTuple):
    """A metric as a scrape shows it: its name, type, labels and help text."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def heading(name: str, kind: str, text: str) -> str:
    """Return the lines before the samples of a metric."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels as they follow the name of a sample."""
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _bound_text(bound: float) -> str:
    """Return the upper bound of a histogram's bucket as Prometheus's own libraries write it."""
    text = f"{bound:g}"
    return text if "." in text or "e" in text else f"{text}.0"


def histogram(name: str, text: str, measures: Measures) -> Metric:
    """Return a histogram for Prometheus's own library."""
    counts = [float(count) for count in accumulate(measures.counts)]
    bounds = [_bound_text(bound) for bound in measures.bounds] + ["+Inf"]
    return HistogramMetricFamily(name, text, list(zip(bounds, counts, strict=True)), measures.sum)


def lines(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> str:
    """Return a whole metric: its heading, and a line for each pair of labels and value."""
    return heading(name, kind, text) + "".join([f"{name}{labels} {value}\n" for labels, value in samples])
