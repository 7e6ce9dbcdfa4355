"""docs/planner.md lists the planner's phases as the table in src/planner/engine/pipeline.c has them.

    tests/docs/phases.py ROOT [--write]

Without --write: fails if the list in the docs is not the one that the table gives, or if the table of what each phase is
worth has no row of one of them."""
import pathlib
import re
import sys

BEGIN = "<!-- phases: from pipeline.c by tests/docs/phases.py --write -->\n"
END = "<!-- end of phases -->\n"


def rows(source):
    """Each name once, in the order in which it first runs, with all that its rows say."""
    said = {}
    table = source[source.index("berth__phases[] = {"):]
    for name, about in re.findall(r'^    \{"(\w+)",\s+"([^"]+)"', table, re.M):
        sentences = said.setdefault(name, [])
        if about not in sentences:
            sentences.append(about)
    return ["| `%s` | %s |\n" % (name, "; ".join(sentences)) for name, sentences in said.items()]


def worth(text):
    """The phases that the table of what each is worth has a row of."""
    table = text[text.index("| without |"):].split("\n\n", 1)[0]
    return set(re.findall(r"^\| (\w+) \|", table, re.M)) - {"without"}


def main(root, write):
    docs = root / "docs" / "planner.md"
    made = rows((root / "src/planner/engine/pipeline.c").read_text())
    if not made:
        sys.exit("pipeline.c: no phases found")
    text = docs.read_text()
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    whole = before + BEGIN + "\n| phase | what it does |\n|---|---|\n" + "".join(made) + "\n" + END + after
    names = {row.split("`")[1] for row in made}
    if worth(text) != names:
        sys.exit("docs/planner.md: the table of what each phase is worth differs in %s; make it with solver_figures phases"
                 % ", ".join(sorted(worth(text) ^ names)))
    if write:
        docs.write_text(whole)
    elif whole != text:
        sys.exit("docs/planner.md: the list of phases is not that of pipeline.c; run tests/docs/phases.py . --write")


main(pathlib.Path(sys.argv[1]), "--write" in sys.argv[2:])
