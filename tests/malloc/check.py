"""check.py BERTH LIBRARY SUBJECT SCOPED EARLIER CASE: programs with libberth_malloc.so in front do what they do without it."""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checking import check, finish, folder, paths  # noqa: E402

berth, library, subject, scoped, earlier = paths[:5]
case = sys.argv[6]


def run(words, settings=None, preload=True, **more):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}
    environment.update(more.pop("variables", {}))
    if preload:
        environment["LD_PRELOAD"] = library + (":" + earlier if preload == "late" else "")
    if settings is not None:
        environment["BERTH_MALLOC"] = settings
    return subprocess.run(words, capture_output=True, timeout=240, env=environment, **more)


def subject_case(mode, settings=None, **more):
    done = run([subject, mode], settings, **more)  # preload="late": others are initialised before us
    what = f"{mode} with {settings or 'no settings'}: exit {done.returncode}"
    check(done.returncode == 0, what + "\n" + done.stderr.decode(errors="replace")[:2000])
    return done.stderr.decode(errors="replace")


def figures(text):
    return {name.strip(): int(value) for name, value in re.findall(r"^berth:   (.*?) +(\d+)$", text, re.M)}


# ---- Programs of their own --------------------------------------------------------------------------------------


def family():
    for mode in ("early", "family", "figures", "exits"):
        check(subject_case(mode) == "", mode + ": nothing is said")
    subject_case("limit", "limit=64M")
    subject_case("early", preload="late")
    subject_case("early", "guard=yes", preload="late")


def narrow():
    def bound():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    for mode in ("early", "narrow", "family"):
        subject_case(mode, preexec_fn=bound)


def threads():
    check(subject_case("threads") == "", "threads: nothing is said")


def forks():
    check(subject_case("forks") == "", "forks: nothing is said")
    # Their handlers then run inside of ours, and allocate there.
    check(subject_case("forks", preload="late") == "", "forks: nothing is said when we are late")


def mistakes():
    said = subject_case("mistakes")
    check(said.count("berth: error: free(") == 6, "every mistake is told: " + said)
    for words in ("freed twice?", "was freed before (double free)", "is not memory of this pool", "no block starts there",
                  "lies inside the block at"):
        check(words in said, f"'{words}' is told: " + said)


def stacks():
    for settings in ("scopes=yes", "stats=full", "guard=yes;zero_on_free=yes", "trace=out.trace", "event_log=out.csv"):
        # What a guard keeps back counts as in use.
        for mode in ("early", "family") + (("churn",) if "guard" in settings else ("threads", "figures", "exits")):
            subject_case(mode, settings)
    check(open("out.csv").readline().startswith("time") or os.path.getsize("out.csv") > 1000, "the event log has lines")
    shown = subprocess.run([berth, "show", "out.trace"], capture_output=True, text=True)
    check(shown.returncode == 0, "the trace can be shown: " + shown.stderr)
    said = subject_case("mistakes", "guard=yes")
    check("double free" in said and "allocated by" in said and "test_mistakes" in said, "a guard tells who it was: " + said)
    subject_case("forks", "scopes=yes;stats=full")


def report():
    done = run([subject, "early"], "report=yes")
    text = done.stderr.decode()
    check(text.startswith("berth: malloc of malloc_subject, process "), "whose it is: " + text)
    values = figures(text)
    check(values.get("allocations", 0) > 10 and values["bytes from the system"] > 0, f"it has figures: {values}")
    # Programs of coreutils close stderr before they end; several processes share a file.
    done = run(["/bin/echo", "words"], "report=-")
    check(done.stdout == b"words\n" and b"berth: malloc of echo" in done.stderr, "of one that closes stderr too")
    run(["/bin/sh", "-c", "/bin/echo a; /bin/echo b; exit 3"], "report=all.txt")
    text = open("all.txt").read()
    check(text.count("berth: malloc of echo") == 2, "of every process that ends by exit: " + text)
    done = run([subject, "limit"], "limit=64M;report=yes")
    values = figures(done.stderr.decode())
    check(values["limit of these"] == 64 << 20 and values["refused"] >= 3, f"refusals are counted: {values}")
    check(values["bytes from the system at most"] <= 64 << 20, f"and the limit held: {values}")
    done = run([scoped], "scopes=yes;report=yes")
    text = done.stderr.decode()
    check(done.stdout == b"ok\n", "a program with scopes runs")
    check(re.search(r"^berth:   weights +0 +5000\d\d\d$", text, re.M), "its labels are told: " + text)
    check(re.search(r"^berth:   inner +0 +300\d\d\d$", text, re.M), "inner ones too: " + text)
    for wrong, words in (("limit=many", "limit takes BYTES"), ("lmit=3", "did you mean 'limit'?"),
                         ("huge_pages=yes", "always the pool's")):
        done = run(["/bin/true"], wrong)
        check(done.returncode == 0 and words in done.stderr.decode(), f"{wrong}: {done.stderr}")
    done = run([subject, "early"], "report=no;limit=1G", variables={"BERTH_SHOW_STATS": "1", "BERTH_CONF": "guard=yes"})
    check(done.returncode == 0 and done.stderr == b"", f"what is for the library is not for malloc: {done.stderr}")


def command():
    done = run([berth, "run", "--limit", "64M", "--report", "figures.txt", "--", subject, "limit"], preload=False)
    check(done.returncode == 0, f"berth run: {done.stderr}")
    check(figures(open("figures.txt").read())["limit of these"] == 64 << 20, "its limit is told")
    done = run([berth, "run", "--", "/bin/sh", "-c", "kill -TERM $$"], preload=False)
    check(done.returncode == -15, "a signal ends it as ever")
    done = run([berth, "run", "--settings", "guard=yes", "--", subject, "early"], "report=-", preload=False)
    check(done.returncode == 0 and b"berth: malloc of" in done.stderr, "settings add to those that are there")
    for words in (["--settings", "lmit=3", "--", "true"], ["true"], [], ["--limit", "0", "--", "true"], ["--"]):
        check(run([berth, "run", *words], preload=False).returncode == 2, f"misuse: {words}")
    done = run([berth, "run", "--", "/no/such"], preload=False)
    check(done.returncode == 2 and b"no such program" in done.stderr, "a program that is not there")
    done = run([berth, "run", "--", "true"], preload=False, variables={"BERTH_MALLOC_LIBRARY": "/no/such.so"})
    check(done.returncode == 4, "a library that is not there")


# ---- Programs of others -----------------------------------------------------------------------------------------

python_work = """
import hashlib, json, os, re, sqlite3, subprocess, sys, threading, zlib
words = {str(i): [i] * (i % 40) for i in range(20000)}
text = json.dumps(words)
print(hashlib.sha256(text.encode()).hexdigest(), json.loads(text) == words)
results = [None] * 6
def work(k):
    rows = [bytes([i % 256]) * (i % 3000) for i in range(4000)]
    results[k] = zlib.crc32(b"".join(rows[k::7]))
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(results)
base = sqlite3.connect(":memory:")
base.execute("create table t (a integer, b text)")
base.executemany("insert into t values (?, ?)", ((i, "x" * (i % 200)) for i in range(20000)))
print(base.execute("select sum(a), sum(length(b)), count(distinct b) from t").fetchall())
print(subprocess.run([sys.executable, "-c", "print(sum(range(10**5)))"], capture_output=True).stdout)
child = os.fork()
if child == 0:
    print(len([bytearray(i) for i in range(3000)]), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], len(re.findall("1+", text)))
big = [list(range(i)) for i in range(0, 3000, 3)]
print(sum(map(len, big)))
"""

sqlite_work = """
create table t (id integer primary key, a integer, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into t (a, b) select i * 7919 % 10007, hex(i * 104729) || substr('abcdefghijklmnopqrstuvwxyz', i % 20) from n;
create index by_a on t (a, b);
select count(*), sum(a), min(b), max(b), count(distinct a) from t;
select a, group_concat(b, '') from t where a < 30 group by a order by a;
delete from t where id % 3 = 0;
vacuum;
pragma integrity_check;
select total(length(b)) from t;
"""

node_work = """
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto');
if (isMainThread) {
    const all = [1, 2, 3].map(k => new Promise((done, fail) => {
        const worker = new Worker(__filename, { workerData: k });
        worker.on('message', done); worker.on('error', fail);
    }));
    const text = JSON.stringify(Array.from({ length: 20000 }, (_, i) => ({ i, s: 'x'.repeat(i % 50) })));
    console.log(crypto.createHash('sha256').update(text).digest('hex'), JSON.parse(text).length);
    const packed = zlib.gzipSync(text);
    console.log(zlib.gunzipSync(packed).toString() === text, packed.length);
    console.log(require('child_process').execFileSync(process.execPath, ['-e', 'console.log(6 * 7)']).toString());
    Promise.all(all).then(results => console.log(results));
} else {
    let sum = 0;
    for (let i = 0; i < 20000; i++) sum += Buffer.alloc(i % 6000, workerData)[0] || 0;
    parentPort.postMessage(sum);
}
"""

git_work = """set -e
mkdir tree; cd tree
git init -q .
for i in 1 2 3 4 5 6 7 8; do
    for j in 1 2 3 4 5 6 7 8 9; do seq $((i * j * 37)) $((i * j * 37 + 2000)) > f$j; done
    git add . ; git commit -q -m "step $i"
done
git checkout -q -b side HEAD~3; seq 100 > new; git add new; git commit -q -m side
git checkout -q -; git merge -q -m merged side
git gc -q --aggressive; git repack -q -a -d -f --threads=4
git log --stat --format='%H %s'; git fsck --full; git diff HEAD~5 | git hash-object --stdin
git archive HEAD | wc -c; git grep -c 777; git blame f3 | tail -n 2; git rev-list --objects --all | wc -l
"""


def same(words, **more):
    """The same words on stdout with the library as without."""
    results = []
    for preload in (False, True):
        where = tempfile.mkdtemp(dir=folder)
        results.append(run(words, "report=" + os.path.join(folder, "report"), preload, cwd=where, **more))
    without, with_it = results
    check(without.returncode == 0 and without.stdout, f"{words[0]} works without: {without.stderr[:500]}")
    check(with_it.returncode == 0, f"{words[0]} ends well: {with_it.returncode} {with_it.stderr[:500]}")
    check(with_it.stdout == without.stdout, f"{words[0]} answers the same:\n{without.stdout[:500]}\n{with_it.stdout[:500]}")
    check(with_it.stderr == without.stderr, f"{words[0]} says nothing more: {with_it.stderr[:500]}")
    text = open(os.path.join(folder, "report")).read()
    check(figures(text).get("allocations", 0) > 100, "its memory came from us: " + text[:500])


def program(name):
    path = os.path.join("/usr/bin", name)
    if not os.path.exists(path):
        path = shutil.which(name)
    if not path:
        print(name, "is not installed")
        sys.exit(77)
    return path


def python3():
    same([program("python3"), "-c", python_work])


def sqlite3():
    same([program("sqlite3"), "base.db"], input=sqlite_work.encode())


def node():
    with open("work.js", "w") as file:
        file.write(node_work)
    same([program("node"), os.path.abspath("work.js")])


def git():
    who = {f"GIT_{kind}_{what}": value for kind in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", "a"), ("EMAIL", "a@example.org"), ("DATE", "2020-01-01T00:00:00Z"))}
    program("git")
    same(["/bin/sh", "-c", git_work], variables={**who, "GIT_CONFIG_NOSYSTEM": "1", "HOME": folder})


cases = (family, narrow, threads, forks, mistakes, stacks, report, command, python3, sqlite3, node, git)
{each.__name__: each for each in cases}[case]()
finish()
