"""Numbers of lines of kernel code, of the originals and of this crate.

Lines are those of the kernels and of the functions of their files that they call, without comments and documentation. Helpers of other
files, which several kernels of a library share, do not count, nor do definitions of constants and structures. A decorator is one line.
"""
import ast
import io
import re
import textwrap
import tokenize
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2]


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



def functions(body):
    """Functions of a module, and those in its conditions."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, (ast.If, ast.Try)):
            yield from functions([*node.body, *node.orelse])


def original_functions(path, names, found):
    """Adds the lines of functions of a file, and of those of the file that they call."""
    text, todo = path.read_text(), list(names)
    here = {}
    for node in functions(ast.parse(text).body):
        here.setdefault(node.name, node)
    while todo:
        name = todo.pop()
        if name in here and (path, name) not in found:
            node = here[name]
            source = "\n".join(text.splitlines()[node.lineno - 1:node.end_lineno])
            found[path, name] = len(node.decorator_list) + code_lines(textwrap.dedent(source))
            todo += [call.func.id for part in node.body for call in ast.walk(part)
                     if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)]


def original_lines(names):
    """Lines of functions by file, and of all functions that they call."""
    found = {}
    for path, of in names.items():
        original_functions(Path(path), of, found)
        if missing := [name for name in of if (Path(path), name) not in found]:
            raise LookupError(f"{path} has no functions {missing}")
    return sum(found.values())


def our_lines(sources):
    """Lines of functions of our files, as rustfmt writes them. `Type::name` is a function of an implementation of a type."""
    count = 0
    for name, names in sources.items():
        # Functions that are not found yet.
        wanted, of, end = set(names), "", None
        for line in (KERNELS / "src" / name).read_text().split("#[cfg(test)]")[0].splitlines():
            if implementation := re.match(r"impl(?:<.*?>)? (?:.* for )?(\w+)", line):
                of = implementation[1] + "::"
            start = re.match(r"( *)(?:pub(?:\([a-z]+\))? )?fn (\w+)", line)
            function = start and (of if start[1] else "") + start[2]
            if end is None and function in names:
                end = start[1] + "}"
                wanted.discard(function)
            if end is not None:
                count += bool(line.strip()) and not line.strip().startswith("//")
                if line == end or (start and line.endswith("}")):
                    end = None
        if wanted:
            raise LookupError(f"{name} has no functions {sorted(wanted)}")
    return count
