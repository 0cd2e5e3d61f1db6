"""The scan of a content header, compared with the decoded properties."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, header
from pamqp import frame as pamqp_frame

from protocol.amqp091 import content
from protocol.amqp091.properties import Properties
from tests.support.effort import cases

ASKING = dict.fromkeys(("CC", "BCC"), content.COPIES)
ASKING |= {"x-receipt-to": content.RECEIPTS, "x-delay": content.DELAYS, "x-delivery-time": content.DELAYS}


@settings(max_examples=cases(200), deadline=None)
@given(
    st.builds(
        commands.Basic.Properties,
        content_type=st.none() | st.text(max_size=20),
        content_encoding=st.none() | st.text(max_size=20),
        headers=st.none()
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(list(ASKING)),
            st.integers(0, 9) | st.text(max_size=5),
        ),
        delivery_mode=st.none() | st.sampled_from([1, 2]),
        priority=st.none() | st.integers(0, 255),
        correlation_id=st.none() | st.text(max_size=20),
        reply_to=st.none() | st.text(max_size=20) | st.just(content.DIRECT_REPLY_TO),
        user_id=st.none() | st.text(min_size=1, max_size=20),
        expiration=st.none() | st.just("1000"),
        message_id=st.none() | st.text(max_size=20),
        message_type=st.none() | st.text(max_size=20),
        app_id=st.none() | st.text(max_size=20),
    )
)
def test_scan_agrees_with_the_decoded_properties(properties: commands.Basic.Properties) -> None:
    received = pamqp_frame.marshal(header.ContentHeader(0, 0, properties), 1)
    traits = content.scan(received, 0, len(received) - 8)
    assert (traits & content.PERSISTENT != 0) == (properties.delivery_mode == 2)
    assert (traits & content.EXPIRES != 0) == (properties.expiration is not None)
    assert (traits & content.NAMES_USER != 0) == (properties.user_id is not None)
    assert (traits & content.REPLIES != 0) == (properties.reply_to == content.DIRECT_REPLY_TO)
    for name in properties.headers or {}:
        assert traits & ASKING.get(name, 0) == ASKING.get(name, 0)
    assert traits >> content.PRIORITY_SHIFT == (properties.priority or 0)
    assert Properties(received).headers() == (properties.headers or {})
    assert Properties(received).content() == received
