"""commands.py TREE SCRATCH BERTH: every command that a document or a manual page shows is run by a test.

Commands of `berth` are run here, in a folder with a problem and a plan of it, and must exit with 0; what stands below a line
"$ berth ..." must be what it prints. One that only names a verb (`berth plan -o`) must name a verb and options that its
help knows; likewise for `./dev`. Of all others, those of ./dev in a block of their own among them, the file `commands`
beside this one says where they are run: a file, and words of it."""
import os
import re
import shutil
import subprocess
import sys

from reading import blocks, documents, prose, read

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import make_tflite  # noqa: E402

STARTS = re.compile(r"^(\$ |\./dev\b|berth [a-z]|cmake |build/|build-bench/|bench/run|tools/\w+ |PYTHONPATH=|BERTH_\w+=\S* .*\./)")


def strip_words(line):
    """The command of a line that goes on with what it is for."""
    return re.split(r" {2,}| #", line)[0].strip()


def shown(tree):
    """Every command: (place, command, what is printed below it or None)."""
    found = []
    for path in documents(tree):
        text = read(tree, path)
        for line, language, lines in blocks(text):
            if language not in ("", "sh"):
                continue
            if lines[0].startswith("$ "):
                found.append((f"{path}:{line}", lines[0][2:].strip(), lines[1:]))
                continue
            found += [(f"{path}:{line + n}", strip_words(each), None) for n, each in enumerate(lines) if STARTS.match(each)
                      and not re.match(r"^berth \w+:", each)]  # what berth says, not what is said to it
        # A command may go on in the next line.
        whole = "\n".join(line for _, line in prose(text))
        for command in re.findall(r"`([^`]+)`", whole):
            command = " ".join(command.split())
            if STARTS.match(command) and " " in command:
                found.append((path, command, None))
    for path in documents(os.path.join(tree, "docs"), ".1"):
        page = read(tree, os.path.join("docs", path)).replace("\\-", "-")
        for example in re.findall(r"^\.EX\n(.*?)^\.EE", page, re.S | re.M):
            found += [(f"docs/{path}", line, None) for line in example.splitlines()]
    return found


def read_table(tree):
    """{command: (file, words)} of the commands that are run elsewhere."""
    table = {}
    for number, line in enumerate(read(tree, "tests/docs/commands").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|")]
            if len(parts) != 3:
                sys.exit(f"tests/docs/commands:{number}: not 'COMMAND | FILE | words of it'")
            table[parts[0]] = (parts[1], parts[2])
    return table


def check_dev(tree, command):
    """A command of ./dev that is only named in a sentence: its help must know the command and its options."""
    help_text = subprocess.run([os.path.join(tree, "dev"), "help"], capture_output=True, text=True, check=True).stdout
    words = command.split()[1:]
    if not re.search(rf"^  {words[0]}\b", help_text, re.M):
        return f"'./dev help' does not know {words[0]}"
    # Those of bench are its own: bench/run.
    known = help_text + (read(tree, "bench/run") if words[0] == "bench" else "")
    unknown = [word for word in words[1:] if word.startswith("-") and word not in known]
    return f"'./dev help' does not know {unknown}" if unknown else ""


def mask(text):
    return re.sub(r"planned in [0-9.]+ [mu]?s by", "planned in TIME by", text)


class Berth:
    """The command, in a folder of its own."""

    def __init__(self, tree, work, program):
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(os.path.join(work, "bin"))
        os.symlink(program, os.path.join(work, "bin", "berth"))
        for name in ("small.csv", "model.csv", "old.csv"):
            shutil.copy(os.path.join(tree, "examples/plan/small.csv"), os.path.join(work, name))
        shutil.copy(os.path.join(tree, "tests/cli/data/rmm.csv"), os.path.join(work, "rmm_log.csv"))
        for name in ("rank0.csv", "rank1.csv"):
            shutil.copy(os.path.join(tree, "tests/cli/data", name), os.path.join(work, name))
        self.work = work
        self.environment = dict(os.environ, PATH=os.path.join(work, "bin") + ":" + os.environ["PATH"], LC_ALL="C.UTF-8", TERM="dumb")
        for name in ("NO_COLOR", "COLUMNS", "BERTH_CONF", "BERTH_LOG", "BERTH_SHOW_STATS"):
            self.environment.pop(name, None)
        with open(os.path.join(work, "model.tflite"), "wb") as file:
            file.write(make_tflite.write(make_tflite.chain([100, 200, 48])))
        self.run("berth plan model.csv -o planned.csv")
        self.run("berth convert rmm_log.csv app.trace")
        for name in ("main.trace", "branch.trace"):
            shutil.copy(os.path.join(work, "app.trace"), os.path.join(work, name))

    def run(self, command):
        return subprocess.run(["sh", "-c", command], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def check_named(self, words):
        """A verb and some options, without what to work on."""
        help_text = self.run(f"berth help {words[0]}")
        if help_text.returncode != 0:
            return f"there is no verb '{words[0]}'"
        unknown = [word for word in words[1:] if not re.search(rf"(^|[\s,]){re.escape(word)}\b", help_text.stdout, re.M)]
        return f"'berth help {words[0]}' does not know {unknown}" if unknown else ""

    def check(self, command, expected):
        words = command.replace("FILE", "model.csv").split()[1:]
        if words[0] not in ("help", "devices") and all(word.startswith("-") and len(word) > 1 for word in words[1:]):
            return self.check_named(words)
        done = self.run(command.replace("FILE", "model.csv"))
        if done.returncode != 0:
            return f"it exits {done.returncode}: {done.stderr}"
        if expected is not None and [line.rstrip() for line in mask(done.stdout).split("\n")[:-1]] != [mask(line).rstrip() for line in expected]:
            return f"it prints:\n{done.stdout}"
        return ""


def main():
    tree, work, program = sys.argv[1:4]
    berth, table, seen, bad = Berth(tree, work, program), read_table(tree), set(), 0
    commands = shown(tree)
    for place, command, expected in commands:
        if command.startswith("berth "):
            wrong = berth.check(command, expected)
        elif command.startswith("./dev ") and ":" not in place:
            wrong = check_dev(tree, command)
        elif command not in table:
            wrong = "neither run here nor named in tests/docs/commands"
        else:
            seen.add(command)
            file, words = table[command]
            wrong = "" if words in read(tree, file) else f"{file} should run it, but '{words}' is not in it"
        if wrong:
            print(f"{place}: {command}: {wrong}", file=sys.stderr)
            bad = 1
    for command in sorted(set(table) - seen):
        print(f"tests/docs/commands names a command that no document shows: {command}", file=sys.stderr)
        bad = 1
    print(f"{len(commands)} commands")
    sys.exit(bad)


main()
