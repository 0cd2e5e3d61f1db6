"""`/auth/tokens`: another token for the same connection. [RabbitMQ rabbit_amqp_management]"""

from broker.adapters.amqp10.management.asking import Answer, Asking
from broker.adapters.amqp10.management.refusal import BAD_REQUEST, NOT_IMPLEMENTED, Refused


def renew(asking: Asking) -> Answer:
    """Refuse: nobody logs in with a token here, so there is none that could be renewed. Raises Refused."""
    if not isinstance(asking.request.body, bytes):
        raise Refused(BAD_REQUEST, "the body is not a binary, which a token is")
    raise Refused(NOT_IMPLEMENTED, "this broker has no authentication by tokens")
