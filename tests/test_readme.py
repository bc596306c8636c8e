"""The code in README.md and docs/ is real: every Python block compiles and runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\S*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[object]:
    return [
        pytest.param(
            "\n" * page.read_text().count("\n", 0, found.start(4))
            + "".join(line.removeprefix(found[1]) for line in found[4].splitlines(keepends=True)),
            found[3].split(),
            id=f"{page.relative_to(ROOT)}:{page.read_text().count(chr(10), 0, found.start(4)) + 1}",
        )
        for page in PAGES
        for found in FENCE.finditer(page.read_text())
        if found[2] == "python"
    ]


class NothingServed(ast.NodeTransformer):
    """Leaves of a top-level `run(plugin)` only `plugin`: the block does all but serve for ever."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        match node.value:
            case ast.Call(func=ast.Name("run") | ast.Attribute(ast.Name("devplug"), "run"), args=args):
                return ast.copy_location(ast.Expr(ast.Tuple(args, ast.Load())), node)
        return node


@pytest.mark.parametrize(("code", "words"), blocks())
def test_python_of_the_documentation_runs(code: str, words: list[str]) -> None:
    """A block that needs what is not here says so after the language: `python no-run`; it still compiles."""
    tree = ast.parse(code)
    for at, node in enumerate(tree.body):
        tree.body[at] = NothingServed().visit(node) if isinstance(node, ast.Expr) else node
    compiled = compile(ast.fix_missing_locations(tree), "documentation", "exec", dont_inherit=True)
    if "no-run" not in words:
        exec(compiled, {"__name__": "documentation"})
