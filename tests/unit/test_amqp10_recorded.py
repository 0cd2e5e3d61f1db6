"""The performatives of a real client (python-qpid-proton 0.40), as it sent them."""

import pytest

from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Coordinator, Error, Source, Target
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.decoding import decode, decode_typed, skip
from protocol.amqp10.encoding import encode
from protocol.amqp10.performatives import Attach, Begin, Detach, Flow, Open
from protocol.amqp10.types import Composite, Described, Symbol

RECORDED: list[tuple[str, Composite]] = [
    (
        (
            "005310c06a0aa108636c69656e742d31a10776686f73743a617000008000607fff404040f00000000f000000"
            "02b300000001610000000162f00000001800000001b30000000f414e4f4e594d4f55532d52454c4159d10000"
            "001500000004a30770726f64756374a10178a3016e5501"
        ),
        Open(
            container_id="client-1",
            hostname="vhost:a",
            max_frame_size=32768,
            channel_max=32767,
            offered_capabilities=("a", "b"),
            desired_capabilities=("ANONYMOUS-RELAY",),
            properties={"product": "x", "n": 1},
        ),
    ),
    (
        "005311c012054043707fffffff707fffffff707fffffff",
        Begin(next_outgoing_id=0, incoming_window=2**31 - 1, outgoing_window=2**31 - 1, handle_max=2**31 - 1),
    ),
    (
        (
            "005312c03f0ba1066c696e6b2d73434250025000005328c00a05a10373726343404342005329c01807a1092f"
            "7175657565732f714340434240a305717565756540404344"
        ),
        Attach(
            name="link-s",
            handle=0,
            role=False,
            source=Source(address="src"),
            target=Target(address="/queues/q", capabilities=("queue",)),
            initial_delivery_count=0,
            max_message_size=0,
        ),
    ),
    (
        (
            "005312c07b0ba1066c696e6b2d7252014150015000005328c05708a1092f7175657565732f715202a3056e65"
            "76657243424040d10000003900000002a30873656c6563746f7200a3216170616368652e6f72673a73656c65"
            "63746f722d66696c7465723a737472696e67a10561203e2031005329c00605404340434240404344"
        ),
        Attach(
            name="link-r",
            handle=1,
            role=True,
            snd_settle_mode=1,
            source=Source(
                address="/queues/q",
                durable=2,
                expiry_policy="never",
                filter={"selector": Described(Symbol("apache.org:selector-filter:string"), "a > 1")},
            ),
            target=Target(),
            initial_delivery_count=0,
            max_message_size=0,
        ),
    ),
    (
        (
            "005312c0390aa102747852024250025000005328c006054043404342005330c01a01a317616d71703a6c6f63"
            "616c2d7472616e73616374696f6e73404043"
        ),
        Attach(
            name="tx",
            handle=2,
            role=False,
            source=Source(),
            target=Coordinator(capabilities=("amqp:local-transactions",)),
            initial_delivery_count=0,
        ),
    ),
    (
        "005313c0140940707fffffff43707fffffff520143520a4042",
        Flow(
            incoming_window=2**31 - 1,
            next_outgoing_id=0,
            outgoing_window=2**31 - 1,
            handle=1,
            delivery_count=0,
            link_credit=10,
        ),
    ),
    (
        (
            "005316c03703434100531dc02f03a30e616d71703a6e6f742d666f756e64a1046e6f6e65d100000013000000"
            "02a3056669656c64a30666696c746572"
        ),
        Detach(
            handle=0,
            closed=True,
            error=Error(condition="amqp:not-found", description="none", info={"field": "filter"}),
        ),
    ),
    (
        "005316c003015201",
        Detach(handle=1),
    ),
]


@pytest.mark.parametrize(("digits", "expected"), RECORDED)
def test_what_a_client_sends_is_understood(digits: str, expected: Composite) -> None:
    data = bytes.fromhex(digits)

    assert decode_composite(data + b"payload") == (expected, len(data))
    assert decode_composite(encode_composite(expected))[0] == expected


@pytest.mark.parametrize(("digits", "expected"), RECORDED)
def test_its_values_keep_their_types(digits: str, expected: Composite) -> None:
    typed, _ = decode_typed(bytes.fromhex(digits))
    again, _ = decode_typed(encode(typed))

    assert encode(again) == encode(typed)
    assert decode(encode(typed))[0] == decode(bytes.fromhex(digits))[0]


@pytest.mark.parametrize(("digits", "expected"), RECORDED)
def test_cut_anywhere_it_is_an_error(digits: str, expected: Composite) -> None:
    data = bytes.fromhex(digits)
    for length in range(len(data)):
        for read in (decode, decode_typed, decode_composite, skip):
            with pytest.raises(DecodeError):
                read(data[:length])
