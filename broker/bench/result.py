"""The figures and verdicts of a run."""

from dataclasses import dataclass

from broker.bench.plan import Plan
from broker.bench.traffic import Histogram

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Result:
    """Figures and verdicts of one run, in seconds; `seconds` ends with the last receipt or confirm."""

    plan: Plan
    seconds: float
    published: int
    confirmed: int
    received: int
    receipt: Histogram
    confirmation: Histogram
    checks: dict[str, int]
    own_cpu: float
    broker_cpu: float | None

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not any(self.checks.values())

    def rate(self, count: int) -> float:
        """`count` per second."""
        return count / self.seconds

    @property
    def broker_cpu_us(self) -> float | None:
        """The broker's CPU time per message in microseconds, if it was measured."""
        return None if self.broker_cpu is None else self.broker_cpu * 1e6 / max(self.published, 1)

    @property
    def own_cpu_us(self) -> float:
        """The bench's own CPU time per message in microseconds."""
        return self.own_cpu * 1e6 / max(self.published, 1)

    def to_json(self) -> dict[str, object]:
        """Return all figures as a dict for JSON; latencies in microseconds, no password."""
        plan = self.plan
        broker_cpu = self.broker_cpu_us
        return {
            "broker": str(plan.address),
            "protocol": plan.protocol,
            "publishers": plan.publishers,
            "consumers": plan.consumers,
            "queues": plan.queues,
            "size": plan.size,
            "persistent": plan.persistent,
            "durable": plan.durable,
            "stream": plan.stream,
            "confirm": plan.confirm,
            "prefetch": plan.prefetch,
            "auto_ack": plan.auto_ack,
            "ack_every": plan.ack_every,
            "rate": plan.rate,
            "in_flight": plan.in_flight,
            "bindings": plan.bindings,
            "keys": plan.keys,
            "seconds": round(self.seconds, 6),
            "published": self.published,
            "confirmed": self.confirmed,
            "received": self.received,
            "published_per_s": round(self.rate(self.published)),
            "confirmed_per_s": round(self.rate(self.confirmed)),
            "received_per_s": round(self.rate(self.received)),
            "receipt_us": compute_latencies_us(self.receipt),
            "confirm_us": compute_latencies_us(self.confirmation),
            "broker_cpu_us_per_message": None if broker_cpu is None else round(broker_cpu, 3),
            "own_cpu_us_per_message": round(self.own_cpu_us, 3),
            "checks": self.checks,
            "ok": self.ok,
        }


def compute_latencies_us(histogram: Histogram) -> dict[str, float] | None:
    """Return percentiles and maximum in microseconds; None without values."""
    if not histogram.count:
        return None
    figures = {f"p{percent:g}": histogram.percentile(percent) / 1000 for percent in PERCENTILES}
    return figures | {"max": histogram.greatest / 1000}
