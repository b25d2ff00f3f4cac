"""A text is read and written as what it is, UTF-8: what the locale says of texts is true of the terminal, not of files."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "duly"

# What opens a file as text, and at which place among its arguments the encoding may stand.
TEXTS = {"read_text": 0, "write_text": 1}
FILES = {"open", "fdopen"}

# These read and write what is the kernel's, and nobody's text.
KERNEL = {"worker/heartbeat/process.py", "worker/targets/cgroup.py", "worker/targets/orphans.py"}


def texts_without_encoding(tree: ast.AST) -> Iterator[int]:
    """Find the line of each call that leaves the encoding of a text to the locale."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and opens_text(node) and not names_encoding(node):
            yield node.lineno


def opens_text(call: ast.Call) -> bool:
    """Say whether `call` reads or writes a text: a whole file, one in a mode that is not binary, or what a program says."""
    match call.func:
        case ast.Attribute(attr=name) if name in TEXTS:
            return True
        case ast.Name(id="open") if len(call.args) == 1:
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in FILES:
            return any(is_mode_of_text(value) for value in call.args)
    return any(keyword.arg == "text" and ast.unparse(keyword.value) == "True" for keyword in call.keywords)


def is_mode_of_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and {*value.value} <= {*"rwax+t"}


def names_encoding(call: ast.Call) -> bool:
    """Say whether the encoding is given, by its name or at its place."""
    place = TEXTS.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None
    return (place is not None and len(call.args) > place) or any(word.arg == "encoding" for word in call.keywords)


@pytest.mark.parametrize("name", sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")))
def test_a_module_leaves_no_text_to_the_locale(name):
    lines = list(texts_without_encoding(ast.parse((SOURCE / name).read_text(encoding="utf-8"))))

    assert name in KERNEL or lines == [], f"{name}: say encoding='utf-8'"


@pytest.mark.parametrize(
    "source",
    [
        "path.read_text()",
        "files('duly').joinpath('a').read_text()",
        "path.write_text(text)",
        "os.fdopen(descriptor, 'w')",
        "open(path, 'r')",
        "open(path)",
        "path.open('a')",
        "subprocess.run(command, text=True)",
    ],
)
def test_each_way_to_a_text_is_seen(source):
    assert list(texts_without_encoding(ast.parse(source))) == [1]


@pytest.mark.parametrize(
    "source",
    [
        "path.read_text(encoding='utf-8')",
        "path.read_text('ascii')",
        "path.write_text(text, encoding='utf-8')",
        "os.fdopen(descriptor, 'w', encoding='utf-8')",
        "path.read_bytes()",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY)",
        "subprocess.run(command, encoding='utf-8')",
        "await database.open()",
        "write_text(document)",
    ],
)
def test_encoding_rule_allows_named_encodings_and_binary_files(source):
    tree = compile(source, "source", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    assert list(texts_without_encoding(tree)) == []
