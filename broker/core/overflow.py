"""What a full queue does with one more message. [RabbitMQ x-overflow]"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

NO_LIMIT: Final[i64] = 1 << 62

DROP_HEAD: Final = 0  # take it, and let go of the oldest
REJECT_PUBLISH: Final = 1  # refuse it
REJECT_PUBLISH_DLX: Final = 2  # refuse it, and dead-letter it

OVERFLOWS: Final[dict[str, int]] = {
    "drop-head": DROP_HEAD,
    "reject-publish": REJECT_PUBLISH,
    "reject-publish-dlx": REJECT_PUBLISH_DLX,
}
