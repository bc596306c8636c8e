"""Selectors in CEL: what they see of a device, what they can call, how they fail, what is refused."""

from __future__ import annotations

import pytest

from devplug.dra.selectors import CelSelectors, SelectorError, is_too_complex, problem_of
from tests.dra.worlds import GPU, device, slice_of

pytest.importorskip("cel_expr_python", reason="there is no wheel for this machine")

(DEVICE,) = slice_of(
    "s",
    [
        device(
            "a",
            attributes={
                "model": "A",
                "index": {"int": 3},
                "ecc": {"bool": True},
                "fw": {"version": "1.10.0+x"},
                "resource.kubernetes.io/pcieRoot": "pci0000:00",
                f"{GPU}/full": "f",
            },
            capacity={"memory": {"value": "40Gi"}},
        )
    ],
).devices
SELECTORS = CelSelectors()
GPUS = f'device.attributes["{GPU}"]'
MEMORY = f'device.capacity["{GPU}"].memory'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'device.driver == "{GPU}"', True),
        (f'{GPUS}.model == "A"', True),
        (f"{GPUS}.model == 1", False),
        (f'{GPUS}.full == "f"', True),
        (f"{GPUS}.index % 2 == 1", True),
        (f"{GPUS}.ecc", True),
        ("device.allowMultipleAllocations == true", False),
        ('device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") == "pci0000:00"', True),
        ('device.attributes["unknown.example.com"].?x.orValue(1) == 1', True),
        ('has(device.attributes["unknown.example.com"].x)', False),
        ('"x" in device.attributes["unknown.example.com"]', False),
        ('"unknown.example.com" in device.attributes', False),
        (f'"nothere" in {GPUS}', False),
        (f"has({GPUS}.fw)", True),
        (f'cel.bind(a, {GPUS}, a.model.startsWith("A") || a.numa == 1)', True),
    ],
)
def test_a_selector_sees_the_device(expression: str, *, expected: bool) -> None:
    """D67, D68, D69."""
    assert SELECTORS.matches(expression, DEVICE) is expected


@pytest.mark.parametrize(
    "expression",
    [
        f'{MEMORY} == quantity("40Gi")',
        f'{MEMORY}.compareTo(quantity("40960Mi")) == 0',
        f'{MEMORY}.isGreaterThan(quantity("39Gi")) && {MEMORY}.isLessThan(quantity("41Gi"))',
        'quantity("1").add(quantity("500m")).sub(1) == quantity("0.5")',
        'quantity("-3").sign() == -1 && quantity("3").asInteger() == 3',
        'quantity("1.5").asApproximateFloat() == 1.5',
        'isQuantity("1Gi") && !isQuantity("x") && !quantity("500m").isInteger()',
        f'{GPUS}.fw.isGreaterThan(semver("1.9.0")) && {GPUS}.fw.major() == 1 && {GPUS}.fw.minor() == 10',
        f'{GPUS}.fw == semver("1.10.0") && {GPUS}.fw.compareTo(semver("1.10.0-rc.1")) > 0',
        'semver("v1.0", true).patch() == 0 && isSemver("v1", true) && !isSemver("v1")',
        '"a1b22".find("[0-9]+") == "1" && "a1b22".findAll("[0-9]+") == ["1", "22"] && "a".find("b") == ""',
        '"a1b22".findAll("[0-9]+", 1) == ["1"]',
        "[1, 2].isSorted() && [1, 2].sum() == 3 && [2, 1].max() == 2 && [2, 1].min() == 1",
        '"abc".indexOf("c") == 2 && "a-b".split("-").size() == 2 && "%d".format([1]) == "1"',
        "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && !sets.equivalent([1], [1, 2])",
        'url("https://u@x:80/p?q=1").getHost() == "x:80" && url("https://x:80").getPort() == "80"',
        'url("https://x/p").getEscapedPath() == "/p"',
        'url("https://x/p").getScheme() == "https" && isURL("/a") && !isURL("a")',
        'ip("::1").family() == 6 && ip("127.0.0.1").isLoopback() && isIP("1.2.3.4") && !isIP("x")',
        'cidr("10.0.0.0/8").containsIP("10.1.1.1") && cidr("10.0.0.0/8").containsCIDR(cidr("10.1.0.0/16"))',
        'cidr("10.1.2.3/8").masked().prefixLength() == 8 && isCIDR("10.0.0.0/8") && !isCIDR("10.0.0.0")',
        'timestamp("2020-01-01T00:00:00Z") < timestamp("2021-01-01T00:00:00Z")',
    ],
)
def test_a_selector_can_call_what_kubernetes_offers(expression: str) -> None:
    """D70."""
    assert problem_of(expression) == ""
    assert SELECTORS.matches(expression, DEVICE)


NO_BOOL = (
    "CEL result of type string could not be converted to bool: "
    "unsupported native conversion from string to 'bool'"
)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f"{GPUS}.nothere == 1", "no such key: nothere"),
        ('device.attributes["x.example.com"].nothere == 1', "no such key: nothere"),
        (f'device.capacity["{GPU}"].cores == quantity("1")', "no such key: cores"),
        (f"{GPUS}.model", NO_BOOL),
        (f'{GPUS}.index.matches("x")', "no such overload: matches(int, string)"),
        (f"{GPUS}.model < 1", "no such overload"),
        ("1 / 0 == 1", "division by zero"),
        ("[1][3] == 1", "index out of bounds: 3"),
        (f'{GPUS}.fw.isLessThan(semver("1.0"))', "No Major.Minor.Patch elements found"),
        (f"{GPUS}.fw.isLessThan({MEMORY})", "no such overload"),
    ],
)
def test_a_selector_that_fails_says_so_in_the_schedulers_words(expression: str, text: str) -> None:
    """D68, D69, D75."""
    with pytest.raises(SelectorError) as caught:
        SELECTORS.matches(expression, DEVICE)
    assert str(caught.value) == f"CEL runtime error: {text}"


@pytest.mark.parametrize(
    "expression", ["device.attributes.transformList(k, v, k).size() > 0", "[1, 2].indexOf(2) == 1"]
)
def test_what_is_not_offered_here_is_taken_and_fails_when_it_is_evaluated(expression: str) -> None:
    """D70."""
    assert problem_of(expression) == ""
    with pytest.raises(SelectorError, match="CEL compile error"):
        SELECTORS.matches(expression, DEVICE)


FAILED = "compilation failed: ERROR: <input>:"
NO_INT = 'device.capacity["d"].m == 5'
NO_EQUAL = "found no matching overload for '_==_' applied to '(kubernetes.Quantity, int)'"
NO_PATTERN = 'device.attributes["d"].m.matches("(")'
EXPECTED = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("true", ""),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("foo == 1", f"{FAILED}1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^"),
        ("device.foo == 1", f"{FAILED}1:7: undefined field 'foo'\n | device.foo == 1\n | ......^"),
        (NO_INT, f"{FAILED}1:24: {NO_EQUAL}\n | {NO_INT}\n | .......................^"),
        (NO_PATTERN, f"{FAILED}1:34: invalid matches argument\n | {NO_PATTERN}\n | {'.' * 33}^"),
        ("", f"{FAILED}1:0: Syntax error: mismatched input '<EOF>' expecting {EXPECTED}"),
    ],
)
def test_what_is_no_selector_has_a_problem_in_the_api_servers_words(expression: str, problem: str) -> None:
    """D71."""
    assert problem_of(expression) == problem


def test_loops_inside_loops_become_too_complex() -> None:
    """D71: estimated from the text."""
    body = "d == e || e == f"
    three = f"device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, {body})))"
    assert not is_too_complex(three)
    assert is_too_complex(f"device.attributes.all(c, {three})")
    digits = "[1,2,3,4,5,6,7,8,9,10]"
    assert not is_too_complex(
        f"{digits}.all(a, {digits}.all(b, {digits}.all(c, {digits}.all(d, a + b + c + d > 0))))"
    )


def doubled(start: str, times: int) -> str:
    """An expression that adds a value to itself so many times."""
    found = f"x{times}.size() > 0"
    for number in range(times, 0, -1):
        found = f"cel.bind(x{number}, x{number - 1} + x{number - 1}, {found})"
    return f"cel.bind(x0, {start}, {found})"


LONG = f'"{"a" * 9_000}"'
TEN = "[0,1,2,3,4,5,6,7,8,9]"
LARGE = {
    "replaces": f'{LONG}.replace("a", "{"b" * 100}").replace("b", "{"c" * 100}").size() > 0',
    "replaces of nothing": f'{LONG}.replace("", {LONG}).size() > 0',
    "joins": f'{TEN}.map(a, {TEN}.map(b, {TEN}.map(c, {TEN}.map(d, "{"a" * 5_000}").join()).join()).join())'
    ".join().size() > 0",
    "added texts": doubled('"ab"', 24),
    "added lists": doubled("[1, 2]", 24),
    "added bytes": doubled('b"ab"', 24),
    "lists of lists": f"{TEN}.map(a, {TEN}.map(b, {TEN}.map(c, {TEN}.map(d, {TEN}.map(e, [a]))))).size() > 0",
    "long texts in a loop": f"device.attributes.all(a, {TEN}.all(b, {TEN}.all(c, {LONG}.contains(a))))",
    "patterns": f'{TEN}.all(a, {TEN}.all(b, {LONG}.find("(a+)+b") == ""))',
    "sets": f'sets.contains({LONG}.split(""), {LONG}.split(""))',
}


@pytest.mark.parametrize("expression", LARGE.values(), ids=LARGE.keys())
def test_an_expression_that_makes_too_much_is_not_evaluated(expression: str) -> None:
    """D71: a million of cost, at 0.1 for a character."""
    assert is_too_complex(expression)
    with pytest.raises(SelectorError) as refused:
        CelSelectors().matches(expression, DEVICE)
    assert str(refused.value) == "CEL runtime error: actual cost limit exceeded"


@pytest.mark.parametrize(
    "expression",
    [
        f'{GPUS}.model.lowerAscii().replace("a", "bb").startsWith("b")',
        f'{GPUS}.model.find("^[A-Z]$") == "A"',
        f'{TEN}.map(a, string(a) + "-").join(",").size() == 29',
        doubled('"ab"', 10),
        '"a,b".split(",").map(x, x + "1").join("-") == "a1-b1"',
        "device.attributes.all(d, device.attributes[d].all(k, k.size() < 65 && k.matches('^[a-zA-Z_]+$')))",
    ],
)
def test_usual_expressions_with_texts_are_evaluated(expression: str) -> None:
    assert not is_too_complex(expression)
    assert SELECTORS.matches(expression, DEVICE)


@pytest.mark.parametrize("pattern", ["(" * 4_000 + ")" * 4_000, "a{99999999999999999999}"])
def test_a_pattern_that_cannot_be_read_is_a_problem(pattern: str) -> None:
    assert "invalid matches argument" in problem_of(f'"a".matches("{pattern}")')


def test_a_long_loop_over_a_written_list_comes_to_its_end() -> None:
    """D71."""
    digits = "[1,2,3,4,5,6,7,8,9,10]"
    loop = (
        f"{digits}.all(a, {digits}.all(b, {digits}.all(c, {digits}.all(d, [1,2].all(e, a+b+c+d+e > LEAST)))))"
    )
    assert SELECTORS.matches(loop.replace("LEAST", "4"), DEVICE)
    assert not SELECTORS.matches(loop.replace("LEAST", "5"), DEVICE)


def test_a_device_is_asked_once() -> None:
    expression = f'{GPUS}.model == "A" || false'
    assert SELECTORS.matches(expression, DEVICE)
    assert DEVICE.verdicts[expression] is True
