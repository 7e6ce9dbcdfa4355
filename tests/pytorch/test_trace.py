"""berth_torch.trace: what CPU tensors do, in a file that the command reads. argv[1] is the command."""
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import torch

import berth_torch

BERTH = sys.argv.pop(1)
MIB = 1 << 20


def tensor(mib):
    return torch.ones(int(mib * MIB / 4))


def berth(*words):
    done = subprocess.run([BERTH, *words], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(f"berth {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    if "damage" in done.stderr:
        raise AssertionError(done.stderr)
    return done.stdout


def top(path):
    return json.loads(berth("top", path, "--json"))


def holders(path):
    return {row["name"].replace(" on PyTorch CPU", ""): row for row in top(path)["holders"]}


class Trace(unittest.TestCase):
    def setUp(self):
        gc.collect()
        berth_torch.enable()
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "out.trace")

    def tearDown(self):
        self.folder.cleanup()

    def test_operators_scopes_and_figures(self):
        with berth_torch.trace(self.path):
            kept = torch.ones(MIB)  # 4 MiB
            with berth_torch.scope("encoder"):
                inside = tensor(2)
            del inside
        facts = top(self.path)
        self.assertEqual(facts["state"], "trace")  # not one that is being written
        self.assertEqual([row["name"] for row in facts["devices"]], ["PyTorch CPU"])
        found = holders(self.path)
        self.assertEqual(found["aten::ones"]["live_bytes"], 4 * MIB)
        self.assertEqual((found["encoder"]["live_bytes"], found["encoder"]["peak_bytes"]), (0, 2 * MIB))
        del kept

    def test_what_lives_already_stands_at_the_begin(self):
        older = tensor(3)
        berth_torch.enable(tracking=True)
        newer = tensor(2)  # of another stack
        live = berth_torch.memory_allocated()
        with berth_torch.trace(self.path):
            del older
        found = holders(self.path)["before the trace"]
        self.assertGreaterEqual(live, 2 * MIB)
        self.assertGreaterEqual(found["peak_bytes"], 5 * MIB)
        self.assertEqual(found["peak_bytes"] - found["live_bytes"], 3 * MIB)
        self.assertEqual(top(self.path)["live_bytes"], found["live_bytes"])
        del newer

    def test_python_frames_are_the_stack(self):
        with berth_torch.trace(self.path, python_stacks=3):
            tensor(1)
        self.assertIn('"stack":["tensor","test_python_frames_are_the_stack","', berth("convert", self.path, "--to", "chrome"))
        snapshot = os.path.join(self.folder.name, "out.pickle")
        berth("convert", self.path, "-o", snapshot)
        with open(snapshot, "rb") as file:
            frames = pickle.load(file)["device_traces"][0][0]["frames"]
        line = tensor.__code__.co_firstlineno + 1
        self.assertEqual((frames[0]["filename"], frames[0]["name"], frames[0]["line"]), (__file__, "tensor", line))
        self.assertEqual(len(frames), 3)
        with berth_torch.trace(self.path, python_stacks=0):
            tensor(1)
        self.assertNotIn("stack", berth("convert", self.path, "--to", "chrome"))

    def test_the_verbs_read_it(self):
        with berth_torch.trace(self.path):
            model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
            model(torch.randn(16, 64)).sum().backward()
        self.assertTrue(any(name.endswith("Backward0") and ":" not in name for name in holders(self.path)))
        berth("show", self.path)
        self.assertIn("PyTorch's cache", berth("what-if", self.path))
        page = os.path.join(self.folder.name, "page.html")
        berth("view", self.path, "-o", page)
        self.assertGreater(os.path.getsize(page), 10000)
        packed = os.path.join(self.folder.name, "packed.trace")
        berth("convert", self.path, "-o", packed)
        self.assertEqual(top(packed)["peak_bytes"], top(self.path)["peak_bytes"])

    def test_a_refusal_is_explained(self):
        with berth_torch.trace(self.path):
            berth_torch.enable(limit=berth_torch.memory_allocated() + 8 * MIB)
            with berth_torch.scope("weights"):
                kept = tensor(6)
            with self.assertRaises(RuntimeError):
                tensor(4)
        words = berth("explain-oom", self.path)
        self.assertIn("4.00 MiB", words)
        self.assertIn("aten::ones", words)
        self.assertIn("weights", words)
        self.assertIn("recorded", words)  # the limit
        del kept

    def test_a_limit_set_before_is_known(self):
        berth_torch.enable(limit=berth_torch.memory_allocated() + 4 * MIB)
        with berth_torch.trace(self.path), self.assertRaises(RuntimeError):
            kept = tensor(1)  # noqa: F841
            tensor(16)
        self.assertIn("recorded", berth("explain-oom", self.path))

    def test_replays_are_in_it(self):
        def run():
            a = tensor(1)
            b = tensor(2)
            del a, b
        with berth_torch.record() as plan:
            run()
        with berth_torch.trace(self.path):
            with berth_torch.replay(plan):
                run()
        self.assertEqual(holders(self.path)["aten::ones"]["peak_bytes"], 3 * MIB)
        with berth_torch.replay(plan):  # the plan's block itself is no tensor
            kept = tensor(1)
            with berth_torch.trace(self.path):
                pass
        found = holders(self.path).get("before the trace", {"peak_bytes": 0})
        self.assertLess(found["peak_bytes"], berth_torch.memory_allocated() + MIB)
        self.assertGreaterEqual(found["peak_bytes"], MIB)
        del kept

    def test_errors(self):
        with self.assertRaisesRegex(berth_torch.BerthError, "No such file or directory"):
            berth_torch.trace(os.path.join(self.folder.name, "absent", "out.trace")).start()
        with self.assertRaisesRegex(berth_torch.BerthError, "directory"):
            berth_torch.trace(self.folder.name).start()
        first = berth_torch.trace(self.path).start()
        other = berth_torch.trace(self.path + "2")
        with self.assertRaisesRegex(berth_torch.BerthError, "another trace is being written"):
            other.start()
        with self.assertRaisesRegex(berth_torch.BerthError, "another trace is being written"):
            first.start()
        with self.assertRaisesRegex(berth_torch.BerthError, "not being written"):
            other.stop()
        self.assertFalse(os.path.exists(self.path + "2"))
        first.stop()
        with self.assertRaisesRegex(berth_torch.BerthError, "not being written"):
            first.stop()
        for frames in (-1, 33, "many"):
            with self.assertRaisesRegex(ValueError, "python_stacks"):
                berth_torch.trace(self.path, python_stacks=frames)
        with self.assertRaisesRegex(ValueError, "path"):
            berth_torch.trace("")
        with self.assertRaises(TypeError):
            berth_torch.trace(None)

    def test_the_block_ends_it_when_it_raises(self):
        with self.assertRaises(KeyError), berth_torch.trace(self.path):
            kept = tensor(1)
            raise KeyError
        self.assertEqual(holders(self.path)["aten::ones"]["live_bytes"], MIB)
        with berth_torch.trace(self.path):
            pass
        del kept

    def test_the_folder_may_change(self):
        here = os.getcwd()
        try:
            os.chdir(self.folder.name)
            with berth_torch.trace("out.trace", python_stacks=0):
                os.chdir("/")
                for _ in range(30000):  # more than a chunk
                    torch.empty(16)
        finally:
            os.chdir(here)
        self.assertEqual(holders(self.path)["aten::empty"]["allocations"], 30000)

    def test_threads(self):
        each, count = 2000, 4
        together = threading.Barrier(count)

        def work():
            together.wait(60)
            for n in range(each):
                torch.empty(n % 50 + 1)
            together.wait(60)  # one that had ended would leave its number to the next

        threads = [threading.Thread(target=work) for _ in range(count)]
        with berth_torch.trace(self.path, python_stacks=1):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        facts = top(self.path)
        found = holders(self.path)["aten::empty"]
        self.assertEqual((found["allocations"], found["live_bytes"]), (each * count, 0))
        self.assertEqual([row["allocations"] for row in facts["threads"] if row["allocations"]], [each] * count)

    def test_traces_come_and_go_amid_allocations(self):
        stop, each = threading.Event(), 39
        with berth_torch.trace(self.path):
            pass
        before = top(self.path)["live_blocks"]

        def work():
            while not stop.is_set():
                kept = [torch.empty(n * 100) for n in range(each)]
                del kept

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                with berth_torch.trace(self.path, python_stacks=2):
                    torch.empty(100)
                # No free is missing: never more than the threads can hold.
                self.assertLessEqual(top(self.path)["live_blocks"], before + 2 * each)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_a_fork_leaves_it_to_the_parent(self):
        own = os.path.join(self.folder.name, "child.trace")
        kept = tensor(1)
        with berth_torch.trace(self.path) as t:
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                code = 1
                try:
                    [tensor(1) for _ in range(5)]
                    t.stop()
                    with berth_torch.trace(own):
                        tensor(2)
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            tensor(3)
        self.assertEqual(holders(self.path)["aten::ones"]["allocations"], 1)
        self.assertEqual(holders(own)["aten::ones"]["peak_bytes"], 2 * MIB)
        self.assertGreaterEqual(holders(own)["before the trace"]["live_bytes"], MIB)
        del kept

    def test_one_left_open_is_complete(self):
        def run(end):
            words = ("import berth_torch, torch, os, sys, signal\n"
                     f"berth_torch.trace({self.path!r}).start()\n"
                     "kept = torch.ones(1 << 18)\n" + end)
            return subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)

        for end, code, state in (("", 0, "trace"), ("sys.exit(3)", 3, "trace"), ("raise ValueError", 1, "trace"),
                                 ("os._exit(0)", 0, "ended"), ("os.kill(os.getpid(), signal.SIGKILL)", -9, "ended")):
            done = run(end)
            self.assertEqual(done.returncode, code, done.stderr)
            found = holders(self.path)["aten::ones"]
            self.assertEqual((found["allocations"], found["peak_bytes"]), (1, MIB), end)
            self.assertEqual(top(self.path)["state"], state)
            if state == "trace":
                self.assertEqual(found["live_bytes"], 0, "frees of the interpreter's end are in it")

    def test_the_profiler_sees_as_before(self):
        with berth_torch.trace(self.path):
            with torch.profiler.profile(profile_memory=True) as profile:
                tensor(1)
        self.assertTrue(any(row.key == "aten::ones" for row in profile.key_averages()))
        self.assertEqual(holders(self.path)["aten::ones"]["peak_bytes"], MIB)

    def test_nothing_of_libtorchs_own_allocator(self):
        berth_torch.disable()
        with berth_torch.trace(self.path):
            kept = tensor(1)
            berth_torch.enable()
            mine = tensor(2)
        self.assertEqual(holders(self.path)["aten::ones"]["live_bytes"], 2 * MIB)
        del kept, mine


if __name__ == "__main__":
    unittest.main()
