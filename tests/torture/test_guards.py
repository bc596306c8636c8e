"""The guards: each one finds the code that it takes away, and the test or case that notices its absence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torture.catalogue import INVARIANTS, cases
from torture.edits import Edit, always, ignore, mutated, never, returns, sets, skip, swap
from torture.guards import GUARDS, Guard

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_finds_its_code_and_its_mutant_compiles(guard: Guard) -> None:
    for file, text in mutated(guard.edits).items():
        compile(text, file, "exec")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_names_a_test_or_case_that_exists(guard: Guard) -> None:
    match guard.caught_by.split():
        case ["case", name, count]:
            assert name in cases()
            assert int(count) <= cases()[name].count
        case [test]:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text() if name else (ROOT / file).exists()


def test_each_invariant_has_guards() -> None:
    assert {guard.invariant for guard in GUARDS} == INVARIANTS.keys()


def test_names_of_guards_are_unique() -> None:
    names = [guard.name for guard in GUARDS]
    assert sorted(set(names)) == sorted(names)


CODE = """
LIMIT = 3

class Shop:
    def sell(self, count: int) -> int:
        if count > LIMIT and self.is_open:
            raise ValueError(count)
        self.log.append(count)
        return max(count, 0)

    async def close(self) -> None:
        await self.queue.join(timeout=4)
"""


def package(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def normal(text: str) -> str:
    return ast.unparse(ast.parse(text))


CONDITION = "count > LIMIT and self.is_open"


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (skip("Shop.sell", "ValueError"), "raise ValueError(count)", "pass"),
        (skip("sell", "append"), "self.log.append(count)", "pass"),
        (skip("shop.Shop.close", "join"), "await self.queue.join(timeout=4)", "pass"),
        (never("sell", "LIMIT"), CONDITION, f"False and ({CONDITION})"),
        (always("sell", "count>LIMIT"), CONDITION, f"True or ({CONDITION})"),
        (ignore("sell", "is_open"), CONDITION, "count > LIMIT"),
        (swap("sell", "max(...)", "count + LIMIT"), "max(count, 0)", "count + LIMIT"),
        (swap("Shop", "return max( count,0 )", "return"), "return max(count, 0)", "return"),
        (returns("close", "LIMIT"), "await self.queue.join(timeout=4)", "return LIMIT"),
        (sets("LIMIT", "9"), "LIMIT = 3", "LIMIT = 9"),
        (sets("close.timeout", "None"), "timeout=4", "timeout=None"),
    ],
)
def test_an_edit_changes_one_thing(edit: Edit, old: str, new: str, tmp_path: Path) -> None:
    source = package(tmp_path, shop=CODE)
    assert mutated([edit], source) == {source / "shop.py": normal(CODE.replace(old, new))}


def test_an_edit_applies_after_a_move_and_a_new_layout(tmp_path: Path) -> None:
    moved = CODE.replace("class Shop", "class Store").replace("count > LIMIT", "(\n  # why\n count>LIMIT\n)")
    source = package(tmp_path, other="import os", market=f"import os\n{moved}")
    assert list(mutated([never("sell", "count > LIMIT")], source)) == [source / "market.py"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (skip("Shop.buy", "append"), r"must have one function or class Shop\.buy, and has none"),
        (sets("MOST", "1"), r"must have one assigned name MOST, and has none"),
        (skip("sell", "extend"), r"sell in .*shop\.py must have one statement with extend, and has none"),
        (skip("Shop", "self"), r"Shop in .*shop\.py must have one statement with self, and has 2"),
        (swap("sell", "LIMIT", "MOST"), r"'MOST': .*shop\.py has no MOST"),
    ],
)
def test_an_edit_that_does_not_apply_says_what_it_looks_for(edit: Edit, message: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=message):
        mutated([edit], package(tmp_path, shop=CODE))


def test_a_place_with_two_matches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"has .*\.shop\.Shop\.sell, .*\.store\.Shop\.sell"):
        mutated([returns("sell", "0")], package(tmp_path, shop=CODE, store=CODE))
