"""Stubs of modules that the originals import, and numbers of lines of code."""
import ast
import io
import re
import textwrap
import tokenize
import types
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2]


class Base:
    """A base of classes."""
    apply = None


class Stub(types.ModuleType):
    """A module whose attributes are stubs, which decorate nothing."""
    __path__ = []

    def __init__(self, name="stub"):
        super().__init__(name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Base if name in ("Function", "Module") else Stub(name)

    def __call__(self, *arguments, **named):
        return arguments[0] if len(arguments) == 1 and not named and not isinstance(arguments[0], str) else self

    def __or__(self, other):
        return self

    __ror__ = __getitem__ = __or__


def code_lines(text):
    """Lines of Python that have code: no comments, no documentation."""
    tree = ast.parse(text)
    documentation = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation |= set(range(node.lineno, node.end_lineno + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def original_lines(path, names):
    text = path.read_text()
    split, count = text.splitlines(), 0
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = min([node.lineno] + [decorator.lineno for decorator in node.decorator_list])
            count += code_lines(textwrap.dedent("\n".join(split[first - 1:node.end_lineno])))
    return count


def our_lines(sources):
    """Lines of code of functions of our files, as rustfmt writes them."""
    count = 0
    for name, functions in sources.items():
        end = None
        for line in (KERNELS / "src" / name).read_text().split("#[cfg(test)]")[0].splitlines():
            start = re.match(r"( *)(?:pub(?:\([a-z]+\))? )?fn (\w+)", line)
            if start and end is None and start[2] in functions:
                end = start[1] + "}"
            if end is not None:
                count += bool(line.strip()) and not line.strip().startswith("//")
                if line == end or (start and line.endswith("}")):
                    end = None
    return count
