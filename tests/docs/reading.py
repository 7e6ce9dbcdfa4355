"""Reads what the other scripts here check: the documents of the tree, and the blocks of code in them."""
import os
import re

SKIPPED = re.compile(r"^(\.git|\.ci|build.*|__pycache__|Testing)$")


def documents(tree, ending=".md"):
    """Paths of all documents, relative to the tree."""
    found = []
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(name for name in folders if not SKIPPED.match(name))
        found += [os.path.relpath(os.path.join(folder, name), tree) for name in sorted(files) if name.endswith(ending)]
    return found


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        return file.read()


def blocks(text):
    """Every block of code of a Markdown text: (line, language, lines). The language of an indented block is ''."""
    found, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        fence = re.match(r"^```(\w*)$", lines[at])
        if fence:
            end = lines.index("```", at + 1)
            found.append((at + 2, fence.group(1), lines[at + 1:end]))
            at = end + 1
        elif re.match(r"^ {4}\S", lines[at]) and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            inside = [line[4:] for line in lines[at:end]]
            while inside and not inside[-1].strip():
                inside.pop()
            found.append((at + 1, "", inside))
            at = end
        else:
            at += 1
    return found


def prose(text):
    """The text without its blocks of code, line by line: (number, line)."""
    covered = set()
    for line, language, inside in blocks(text):
        covered.update(range(line - 1, line + len(inside) + 1) if language else range(line, line + len(inside)))
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if number not in covered]


def header_blocks(text):
    """Blocks of code in the comments of a header: lines that stand five columns right of the star."""
    found, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        if not lines[at].startswith(" *     "):
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].startswith(" *     "):
            end += 1
        found.append((at + 1, [re.sub(r" \*/$", "", line[7:]) for line in lines[at:end]]))
        at = end
    return found
