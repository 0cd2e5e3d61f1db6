"""Lists: pages, filters, order and columns. [RabbitMQ management: pagination]"""

import pytest

from tests.support.admin.api import Api


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Names of queues that sort otherwise than they were made."""
    return [f"{kind}.{number}" for number in range(12) for kind in ("order", "Invoice")]


@pytest.fixture
def queues(api: Api, vhost: str, names: list[str]) -> list[str]:
    """The queues, whose priorities differ."""
    for number, name in enumerate(names):
        api.put("queues", vhost, name, arguments={"x-max-priority": 1 + number % 9})
    return names


def test_a_list_without_a_page_has_all_objects_in_order(api: Api, vhost: str, queues: list[str]) -> None:
    assert [queue["name"] for queue in api.get("queues", vhost)] == sorted(queues)
    assert [queue["name"] for queue in api.get("queues", vhost, sort_reverse="true")] == sorted(queues)[::-1]
    assert api.get("queues", vhost, columns="name") == [{"name": name} for name in sorted(queues)]
    assert api.get("queues", vhost, sort="", columns="name") == [{"name": name} for name in queues]


def test_pages(api: Api, vhost: str, queues: list[str]) -> None:
    pages = [api.get("queues", vhost, page=str(page), page_size="10", columns="name") for page in (1, 2, 3)]
    assert [page.pop("items") for page in pages] == [
        [{"name": name} for name in sorted(queues)[start : start + 10]] for start in (0, 10, 20)
    ]
    common = {"total_count": 24, "filtered_count": 24, "page_size": 10, "page_count": 3}
    assert pages == [
        {**common, "page": 1, "item_count": 10},
        {**common, "page": 2, "item_count": 10},
        {**common, "page": 3, "item_count": 4},
    ]
    assert api.get("queues", vhost, page="1")["page_size"] == 100
    refusal = api.refused(400, "GET", "queues", vhost, page="4", page_size="10")
    assert refusal["error"] == "page_out_of_range"


def test_an_empty_list_has_a_first_page(api: Api, vhost: str) -> None:
    page = api.get("queues", vhost, page="1")
    assert (page["items"], page["page_count"], page["total_count"]) == ([], 0, 0)
    assert api.get("queues", vhost) == []


def test_filters(api: Api, vhost: str, queues: list[str]) -> None:
    page = api.get("queues", vhost, page="1", name="INVOICE.1", columns="name")
    assert [queue["name"] for queue in page["items"]] == ["Invoice.1", "Invoice.10", "Invoice.11"]
    assert (page["filtered_count"], page["total_count"]) == (3, 24)
    page = api.get("queues", vhost, page="1", name="^ORDER.[12]$", use_regex="true", columns="name")
    assert [queue["name"] for queue in page["items"]] == ["order.1", "order.2"]
    refusal = api.refused(400, "GET", "queues", vhost, page="1", name="(", use_regex="true")
    assert "'(' is not a regular expression" in refusal["reason"]


def test_no_filter_goes_on_for_ever(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "a" * 200)
    page = api.get("queues", vhost, page="1", name="^(a|aa)+c", use_regex="true")
    assert page["items"] == []
    page = api.get("queues", vhost, page="1", name="^(A|aa)+$", use_regex="true", columns="name")
    assert page["items"] == [{"name": "a" * 200}]
    page = api.get("queues", vhost, page="1", name="(?!(a+)+b)a", use_regex="true", columns="name")
    assert page["items"] == [{"name": "a" * 200}]
    for expression, reason in (
        ("((a?){600}){600}", "is not a regular expression of RE2: invalid repetition size"),
        ("[ -\U0010ffff]{700}", "could take too long to match: it comes to 4904 instructions"),
        ("a(?<!b)c", "has a look-behind, '(?<!' at character 2"),
    ):
        refusal = api.refused(400, "GET", "queues", vhost, page="1", name=expression, use_regex="true")
        assert refusal["reason"].startswith(f"'{expression}' {reason}")
    refusal = api.refused(400, "GET", "queues", vhost, page="1", name="a" * 1025, use_regex="true")
    assert refusal["error"] == "invalid_pagination_parameters"


def test_order_by_any_column(api: Api, vhost: str, queues: list[str]) -> None:
    column = "arguments.x-max-priority"
    found = api.get("queues", vhost, sort=column, columns=f"name,{column}")
    expected = sorted((1 + number % 9, name) for number, name in enumerate(queues))
    assert [(queue["arguments"]["x-max-priority"], queue["name"]) for queue in found] == expected
    page = api.get("queues", vhost, sort=column, sort_reverse="true", page="2", page_size="5", columns="name")
    assert [queue["name"] for queue in page["items"]] == [name for _, name in expected[::-1][5:10]]
    by_policy = api.get("queues", vhost, sort="policy", columns="name")  # nobody has one
    assert [queue["name"] for queue in by_policy] == sorted(queues)


@pytest.mark.parametrize(
    "query",
    [
        {"page": "0"},
        {"page": "x"},
        {"page": "9" * 5000},
        {"page": "1", "page_size": "0"},
        {"page": "1", "page_size": "501"},
    ],
)
def test_pages_that_make_no_sense(api: Api, vhost: str, query: dict[str, str]) -> None:
    refusal = api.refused(400, "GET", "queues", vhost, **query)
    assert refusal["error"] == "invalid_pagination_parameters"


def test_every_list_has_pages(api: Api, vhost: str) -> None:
    api.put("policies", vhost, "p", pattern="", definition={"max-length": 1})
    for path in (
        ("queues",),
        ("exchanges",),
        ("exchanges", vhost),
        ("bindings",),
        ("bindings", vhost),
        ("policies",),
        ("policies", vhost),
        ("operator-policies",),
        ("users",),
        ("vhosts",),
        ("connections",),
        ("channels",),
        ("consumers",),
    ):
        page = api.get(*path, page="1", page_size="1")
        assert page["page_size"] == 1, path
        assert len(page["items"]) == min(1, page["total_count"]), path
