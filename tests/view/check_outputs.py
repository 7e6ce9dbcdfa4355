"""`berth view` where its page cannot be written, or its input ends too early: words, a code, and no part of a page.

usage: check_outputs.py BERTH SEEDS
"""
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile

berth, seeds = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SURROUNDINGS, BAD_INPUT = 4, 3
CUT_AT_MOST = 60  # places of each file


def view(*words, **more):
    return subprocess.run([berth, "view", *words], capture_output="stdout" not in more, check=False, **more)


def must_fail(done, code, *words):
    said = done.stderr.decode()
    assert done.returncode == code, (done.returncode, said)
    for word in words:
        assert word in said, (word, said)


def small_files():
    """No file grows above 20,000 bytes, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))


def check_outputs(folder, source):
    before = sorted(os.listdir(folder))
    for kind in ([], ["--svg"], ["--json"]):
        with open("/dev/full", "wb") as full:
            must_fail(view(source, *kind, "-o", "-", stdout=full, stderr=subprocess.PIPE), SURROUNDINGS, "could not be written")
        absent = os.path.join(folder, "absent", "page")
        must_fail(view(source, *kind, "-o", absent), SURROUNDINGS, absent, "cannot be written", "No such file")
        must_fail(view(source, *kind, "-o", folder), SURROUNDINGS, folder, "cannot be written")
        must_fail(view(source, *kind, "-o", source + "/page"), SURROUNDINGS, "cannot be written", "Not a directory")
        must_fail(view(source, *kind, "-o", os.path.join(folder, "p" * 300)), SURROUNDINGS, "too long")
    assert sorted(os.listdir(folder)) == before


def check_devices(folder, source):
    """A device is written to and stays what it is. By a link, so that no machine loses a device to a fault here."""
    for device, code in (("/dev/null", 0), ("/dev/full", SURROUNDINGS)):
        link = os.path.join(folder, "device")
        os.symlink(device, link)
        done = view(source, "-o", link)
        assert done.returncode == code, done
        assert code == 0 or b"No space left" in done.stderr, done
        assert os.path.islink(link) and stat.S_ISCHR(os.stat(link).st_mode)
        os.unlink(link)


def check_full_disk(folder, source):
    """What was there stays, whole."""
    page = os.path.join(folder, "page.html")
    for was in (None, b"the page of yesterday"):
        if was:
            with open(page, "wb") as file:
                file.write(was)
        before = sorted(os.listdir(folder))
        # Python ignores SIGXFSZ, and so does the command then: the write answers instead.
        must_fail(view(source, "-o", page, preexec_fn=small_files, restore_signals=False), SURROUNDINGS, page, "File too large")
        assert sorted(os.listdir(folder)) == before
        assert not was or open(page, "rb").read() == was
    os.unlink(page)


def check_read_only(folder, source):
    closed = os.path.join(folder, "closed")
    os.mkdir(closed, 0o555)
    more = {}
    if os.geteuid() == 0:  # who may write everywhere
        more = {"user": 65534, "cwd": "/"}
        os.chmod(folder, 0o755)
    command = os.path.join(folder, "berth")
    shutil.copy(berth, command)
    done = subprocess.run([command, "view", source, "-o", os.path.join(closed, "page")], capture_output=True, check=False, **more)
    must_fail(done, SURROUNDINGS, "cannot be written", "Permission denied")
    assert not os.listdir(closed)
    os.unlink(command)
    os.rmdir(closed)


def check_cut(folder, seed, always_bad):
    """An input that ends anywhere: a page of what is left, or words and none."""
    with open(os.path.join(seeds, seed), "rb") as file:
        whole = file.read()
    cut, page = os.path.join(folder, "cut"), os.path.join(folder, "cut.html")
    for k in range(CUT_AT_MOST):
        with open(cut, "wb") as file:
            file.write(whole[:len(whole) * k // CUT_AT_MOST])
        done = view(cut, "-q", "-o", page)
        assert done.returncode in (0, 1, BAD_INPUT), (seed, k, done)
        assert not always_bad or done.returncode == BAD_INPUT, (seed, k, done)
        assert os.path.exists(page) == (done.returncode == 0), (seed, k, done)
        if done.returncode:
            assert len(done.stderr) > 20 and b"cut" in done.stderr, (seed, k, done)
        else:
            with open(page, "rb") as file:
                assert file.read().endswith(b"</html>\n")
            os.unlink(page)
        assert sorted(os.listdir(folder)) == ["cut", "source.pickle"]
    os.unlink(cut)


def main():
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source.pickle")
        shutil.copy(os.path.join(seeds, "snapshot", "whole_4"), source)
        os.chmod(source, 0o644)
        check_outputs(folder, source)
        check_devices(folder, source)
        check_full_disk(folder, source)
        check_read_only(folder, source)
        for seed, always_bad in (("snapshot/whole_4", True), ("snapshot/whole_0", True), ("problem_file/small.csv", False), ("eventlog/all_events", False),
                                 ("rmm/all_actions", False), ("heaptrack/all_letters", False), ("massif/tree", False), ("tflite/branches", False)):
            check_cut(folder, seed, always_bad)


main()
