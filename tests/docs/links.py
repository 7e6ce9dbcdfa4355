"""links.py TREE: every relative link in the documents leads to a file, and to a heading of it where it names one; every
path of the tree that they name is there (x and NAME stand for any: cli/verb_x.c)."""
import os
import re
import sys

from reading import documents, prose, read

TOPS = "src|include|cli|format|tests|docs|tools|bench|bindings|examples|fuzz|cmake|completions"


def anchors(text):
    """The names that a page's headings can be linked by, as GitHub makes them."""
    names = set()
    for _, line in prose(text):
        heading = re.match(r"^#+ (.*)", line)
        if heading:
            names.add(re.sub(r"[^\w\- ]", "", heading.group(1).lower()).replace(" ", "-"))
    return names


def check_link(tree, path, target):
    """What is wrong with a link of the document `path`, or ''."""
    if re.match(r"^[a-z]+:", target):
        return ""  # other people's pages are not ours to keep
    name, _, anchor = target.partition("#")
    where = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
    if not os.path.exists(os.path.join(tree, where)):
        return "there is no such file"
    if anchor and anchor not in anchors(read(tree, where)):
        return f"{where} has no such heading"
    return ""


def main():
    tree, bad, seen = sys.argv[1], 0, 0
    for path in documents(tree):
        for number, line in prose(read(tree, path)):
            for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", line):
                seen += 1
                wrong = check_link(tree, path, target)
                if wrong:
                    print(f"{path}:{number}: the link to {target}: {wrong}", file=sys.stderr)
                    bad = 1
            named = re.findall(rf"`((?:{TOPS})/[\w./-]*)`", line)
            named += re.findall(rf"(?<![\w./-])((?:{TOPS})/[\w./-]+\.(?:c|h|cpp|md|sh|py))\b", line)
            for name in sorted(set(named)):
                if not os.path.exists(os.path.join(tree, name)) and not re.search(r"(/|_)(x|NAME)\.\w+$", name):
                    print(f"{path}:{number}: {name} is not in the tree", file=sys.stderr)
                    bad = 1
    if seen < 20:
        sys.exit(f"only {seen} links found: that cannot be all")
    sys.exit(bad)


main()
