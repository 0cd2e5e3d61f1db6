"""What is allowed in a policy."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.policies.policy import checked_policy


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": ""}, "a policy in vhost 'v' needs a name"),
        ({"name": "n" * 256}, "policy name is 256 bytes long"),
        ({"pattern": "("}, "the pattern '(' of policy 'p' in vhost 'v' is not a regular expression"),
        ({"pattern": None}, "the pattern of policy 'p' in vhost 'v' is not a string: undefined"),
        ({"priority": "high"}, "the priority 'high' of policy 'p'"),
        ({"priority": True}, "the priority 'true' of policy 'p'"),
        ({"apply_to": "shoes"}, "apply-to 'shoes' of policy 'p' in vhost 'v' is not one of all, queues"),
        ({"definition": {}}, "the definition of policy 'p' in vhost 'v' is not an object with at least one"),
        ({"definition": []}, "the definition of policy 'p' in vhost 'v' is not an object"),
        ({"definition": {"message-ttl": "1"}}, "'message-ttl' = '1' in policy 'p' in vhost 'v' is not an"),
        ({"definition": {"message-ttl": -1}}, "an integer from 0 to 315360000000"),
        ({"definition": {"overflow": "explode"}}, "is not one of drop-head, reject-publish"),
        ({"definition": {"dead-letter-routing-key": "k" * 256}}, "is not a string of at most 255 bytes"),
        ({"definition": {"alternate-exchange": 1}}, "'alternate-exchange' = '1' in policy 'p'"),
        ({"definition": {"nonsense": 1}}, "'nonsense' = '1' in policy 'p' in vhost 'v' is not a key of"),
        ({"definition": {"max-age": "1D"}, "operator": True}, "is not a key of operator policies"),
        ({"definition": {"max-length": -1}, "operator": True}, "in operator policy 'p' in vhost 'v' is not"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(wrong: dict[str, object], words: str) -> None:
    good: dict[str, object] = {
        "name": "p",
        "pattern": "",
        "definition": {"max-length": 1},
        "priority": 0,
        "apply_to": "all",
        "operator": False,
    }
    checked_policy("v", **good)  # type: ignore[arg-type]
    with pytest.raises(PreconditionFailed) as refused:
        checked_policy("v", **(good | wrong))  # type: ignore[arg-type]
    assert words in refused.value.text
