"""Rename identifiers in a tree, by maps that do not depend on the prose around them."""

from __future__ import annotations

import fnmatch
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

TEXT = {
    ".py",
    ".sql",
    ".md",
    ".ts",
    ".svelte",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".txt",
    ".css",
    ".html",
    ".mjs",
    ".js",
    "",
}
SKIP = (
    "docs/openapi.json",
    "docs/duly.schema.json",
    "ui/package-lock.json",
    "LICENSE",
    "requirements*.lock",
    "docs/api/*.js",
    "src/duly/dashboard/static/*",
    "*/types.gen.ts",
    "src/duly/store/schema/functions/edition.txt",
    "tests/triggers/sentences_*.txt",
)
_CACHE: dict[frozenset, re.Pattern] = {}


def compiled(words: dict[str, str]) -> re.Pattern:
    key = frozenset(words)
    if key not in _CACHE:
        joined = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
        _CACHE[key] = re.compile(rf"(?<![A-Za-z0-9_-])(_*|p_|v_)({joined})(?![A-Za-z0-9_])")
    return _CACHE[key]


def anywhere(words: dict[str, str]) -> re.Pattern:
    key = frozenset((*words, ""))
    if key not in _CACHE:
        _CACHE[key] = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(map(re.escape, words)) + r")(?![A-Za-z0-9])")
    return _CACHE[key]


def swap(text: str, words: dict[str, str]) -> str:
    if len(words) < 4:
        return compiled(words).sub(lambda m: m[1] + words[m[2]], text)

    def put(match):
        word = match[0]
        bare = word.lstrip("_")
        if bare in words:
            return word[: len(word) - len(bare)] + words[bare]
        if bare[:2] in ("p_", "v_") and bare[2:] in words:
            return word[: len(word) - len(bare) + 2] + words[bare[2:]]
        return word

    return re.sub(r"(?<![A-Za-z0-9_-])[A-Za-z_][A-Za-z0-9_]*", put, text)


def fits(path: str, globs) -> bool:
    return any(fnmatch.fnmatch(path, glob) for glob in globs)


# -- Python


def python(text: str, words: dict[str, str], strings: bool) -> str:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            new = name(token.string, words)
        elif token.type == tokenize.STRING:
            new = string(token.string, words, strings)
        else:
            continue
        if new != token.string:
            begin = starts[token.start[0] - 1] + token.start[1]
            end = starts[token.end[0] - 1] + token.end[1]
            edits.append((begin, end, new))
    for begin, end, new in reversed(edits):
        text = text[:begin] + new + text[end:]
    return text


def name(word: str, words: dict[str, str]) -> str:
    bare = word.lstrip("_")
    return word[: len(word) - len(bare)] + words[bare] if bare in words else word


def string(token: str, words: dict[str, str], strings: bool) -> str:
    match = re.match(r"([A-Za-z]*)('''|\"\"\"|'|\")(.*)\2$", token, re.S)
    prefix, quote, body = match.groups()
    if strings and body.lstrip("_") in words:
        return f"{prefix}{quote}{name(body, words)}{quote}"
    if re.fullmatch(r"\w+(?:, ?\w+)+", body):  # the names of parameters
        return f"{prefix}{quote}{re.sub(r'[A-Za-z_]+[0-9A-Za-z_]*', lambda m: name(m[0], words), body)}{quote}"
    if "f" not in prefix.lower():
        return token
    return f"{prefix}{quote}{fields(body, words, strings)}{quote}"


def fields(body: str, words: dict[str, str], strings: bool) -> str:
    out, at = [], 0
    while at < len(body):
        here = body[at]
        if here in "{}" and body[at : at + 2] == here * 2:
            out.append(here * 2)
            at += 2
        elif here == "{":
            depth, end = 1, at + 1
            while depth and end < len(body):
                depth += {"{": 1, "}": -1}.get(body[end], 0)
                end += 1
            out.append(expression(body[at:end], words, strings))
            at = end
        else:
            out.append(here)
            at += 1
    return "".join(out)


def expression(text: str, words: dict[str, str], strings: bool) -> str:
    parts = re.split(r"('[^'\n]*'|\"[^\"\n]*\")", text)
    for index, part in enumerate(parts):
        if index % 2:
            if strings and part[1:-1] in words:
                parts[index] = part[0] + words[part[1:-1]] + part[0]
        else:
            parts[index] = re.sub(r"[A-Za-z_][A-Za-z0-9_]*", lambda m: name(m[0], words), part)
    return "".join(parts)


# -- SQL: everything but comments


def sql(text: str, words: dict[str, str]) -> str:
    out = []
    for line in text.splitlines(keepends=True):
        at = comment_at(line)
        out.append(swap(line[:at], words) + line[at:])
    return "".join(out)


def comment_at(line: str) -> int:
    quoted = False
    for index, here in enumerate(line):
        if here == "'":
            quoted = not quoted
        elif not quoted and line.startswith("--", index):
            return index
    return len(line)


# -- Markdown: fences and backticks


def markdown(text: str, words: dict[str, str]) -> str:
    parts = re.split(r"(^```.*?^```[^\n]*$|`[^`\n]+`)", text, flags=re.S | re.M)
    for index in range(1, len(parts), 2):
        parts[index] = swap(parts[index], words)
    return "".join(parts)


# -- TypeScript and Svelte: members, keys and quoted words


def script(text: str, words: dict[str, str]) -> str:
    joined = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    text = re.sub(rf"(?<=\.)({joined})(?![A-Za-z0-9_])", lambda m: words[m[1]], text)
    text = re.sub(rf"(?<=[\s{{(,])({joined})(?=\??:(?!:))", lambda m: words[m[1]], text)
    return re.sub(rf"(['\"])({joined})\1", lambda m: m[1] + words[m[2]] + m[1], text)


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts: dict[str, str] = {}
        self.changed: set[str] = set()

    def load(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=self.root, capture_output=True, text=True, check=True
        ).stdout.split("\n")
        for path in filter(None, listed):
            full = self.root / path
            if full.is_symlink() or not full.is_file() or full.suffix not in TEXT or fits(path, SKIP):
                continue
            try:
                self.texts[path] = full.read_text()
            except UnicodeDecodeError:
                continue

    def move(self, old: str, new: str) -> None:
        source, target = self.root / old, self.root / new
        if source.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", old, new], cwd=self.root, check=True)

    def put(self, path: str, text: str) -> None:
        if text != self.texts[path]:
            self.texts[path] = text
            self.changed.add(path)

    def words(self, words: dict[str, str], globs=("*",), but=(), where=None) -> None:
        """Rename identifiers wherever they stand, prose included."""
        for path in self.texts:
            if fits(path, globs) and not fits(path, but) and (where is None or re.search(where, self.texts[path])):
                self.put(path, swap(self.texts[path], words))

    def code(
        self, words: dict[str, str], globs=("*",), but=(), strings=True, kinds="py sql md ui other", where=None
    ) -> None:
        """Rename identifiers where they are code: not in comments, docstrings and prose."""
        for path in list(self.texts):
            if (
                not fits(path, globs)
                or fits(path, but)
                or (where is not None and not re.search(where, self.texts[path]))
            ):
                continue
            text = self.texts[path]
            if not anywhere(words).search(text):
                continue
            if path.endswith(".py"):
                if "py" in kinds:
                    try:
                        self.put(path, python(text, words, strings))
                    except (tokenize.TokenError, IndentationError) as error:
                        print(f"not tokenized: {path}: {error}", file=sys.stderr)
            elif path.endswith(".sql"):
                if "sql" in kinds:
                    self.put(path, sql(text, words))
            elif path.endswith(".md"):
                if "md" in kinds:
                    self.put(path, markdown(text, words))
            elif path.endswith((".ts", ".svelte")):
                if "ui" in kinds:
                    self.put(path, script(text, words))
            elif path.endswith((".yaml", ".yml", ".json", ".toml", ".txt")) and "other" in kinds:
                self.put(path, swap(text, words))

    def regex(self, pattern: str, new, globs=("*",), but=(), where=None) -> None:
        for path in self.texts:
            if fits(path, globs) and not fits(path, but) and (where is None or re.search(where, self.texts[path])):
                self.put(path, re.sub(pattern, new, self.texts[path], flags=re.M))

    def save(self) -> None:
        for path in self.changed:
            (self.root / path).write_text(self.texts[path])
