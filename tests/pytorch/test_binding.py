"""What the Python module promises: figures, scopes, limits that explain themselves, leaks, threads, workers."""
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import torch

import berth_torch

MIB = 1 << 20


def tensor(mib):
    return torch.ones(int(mib * MIB / 4))


class DataSet(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return torch.full((1000,), float(i)) * 2


class Binding(unittest.TestCase):
    def setUp(self):
        gc.collect()
        berth_torch.enable()

    def test_figures(self):
        before = berth_torch.memory_allocated()
        berth_torch.reset_peak()
        a = tensor(4)
        self.assertGreaterEqual(berth_torch.memory_allocated() - before, 4 * MIB)
        del a
        self.assertEqual(berth_torch.memory_allocated(), before)
        self.assertGreaterEqual(berth_torch.max_memory_allocated() - before, 4 * MIB)
        berth_torch.reset_peak()
        self.assertEqual(berth_torch.max_memory_allocated(), before)
        self.assertIn("bytes_in_use", berth_torch.describe())
        self.assertGreaterEqual(berth_torch.trim(), 4 * MIB)

    def test_scopes(self):
        with berth_torch.scope("outer") as outer:
            kept = tensor(1)
            with berth_torch.scope("inner") as inner:
                tensor(3)
        self.assertGreaterEqual(inner.peak_bytes, 3 * MIB)
        self.assertLess(inner.peak_bytes, 3.1 * MIB)
        self.assertGreaterEqual(outer.peak_bytes, 4 * MIB)
        figures = {row["label"]: row for row in berth_torch.scopes()}
        self.assertGreaterEqual(figures["inner"]["max_scope_bytes"], 3 * MIB)
        self.assertGreaterEqual(figures["outer"]["bytes_in_use"], 1 * MIB)
        del kept

    def test_a_limit_explains_itself(self):
        berth_torch.enable(limit=8 * MIB)
        with berth_torch.scope("weights"):
            kept = tensor(6)
        with self.assertRaises(RuntimeError) as raised:
            tensor(4)
        words = str(raised.exception)
        self.assertIn("out of memory", words)
        self.assertIn(str(4 * MIB), words)
        self.assertIn("too much is alive", words)  # the cause that berth explain-oom would name
        self.assertIn("weights", words)
        self.assertEqual(float(kept.sum()), 6 * MIB / 4)
        tensor(1.5)

    def test_tensors_keep_the_stack_they_came_from(self):
        first = tensor(1)
        berth_torch.enable("system", guard=True)
        second = tensor(1)
        berth_torch.enable(tracking=True)
        third = tensor(1)
        berth_torch.disable()
        fourth = tensor(1)
        for t in (first, second, third, fourth):
            self.assertEqual(float(t.sum()), MIB / 4)
        del first, second, third, fourth, t
        berth_torch.enable()

    def test_leaks_have_python_and_c_frames(self):
        berth_torch.enable(tracking=True, stack_depth=8, python_stacks=3)

        def forgets():
            return tensor(2)

        kept = forgets()
        found = [leak for leak in berth_torch.leaks() if leak["bytes"] >= 2 * MIB]
        self.assertEqual(len(found), 1)
        self.assertIn("test_binding.py", found[0]["label"])
        self.assertIn("forgets", found[0]["label"])
        self.assertTrue(any("c10" in frame or "torch" in frame for frame in found[0]["stack"]), found[0]["stack"])
        del kept
        self.assertEqual([leak for leak in berth_torch.leaks() if leak["bytes"] >= 2 * MIB], [])
        berth_torch.enable()
        with self.assertRaises(berth_torch.BerthError):
            berth_torch.leaks()

    def test_tensors_outlive_their_scope(self):
        with berth_torch.record() as plan:
            kept = tensor(1) + 1
        with berth_torch.replay(plan) as report:
            held = tensor(1) + 1
        for _ in range(3):
            with berth_torch.replay(plan):
                tensor(1) + 5
        self.assertEqual(float(kept.sum()), float(held.sum()))
        self.assertEqual(report["by_fallback"], 0, str(report))

    def test_a_run_that_deviates_is_served(self):
        with berth_torch.record() as plan:
            tensor(1).mul(2).sum()
        with berth_torch.replay(plan) as report:
            result = float(tensor(2).mul(2).sum())
        self.assertEqual(result, 2 * MIB / 4 * 2)
        self.assertGreater(report["by_fallback"], 0)
        with self.assertRaises(RuntimeError):
            with berth_torch.replay(plan, strict=True):
                tensor(2).mul(2).sum()
        with berth_torch.validate(plan) as verdict:
            tensor(2).mul(2).sum()
        self.assertFalse(verdict)
        self.assertIn(str(2 * MIB), verdict.words)

    def test_an_exception_ends_the_scope(self):
        with self.assertRaises(ZeroDivisionError):
            with berth_torch.record():
                1 / 0
        with berth_torch.record() as plan:
            tensor(1).sum()
        with self.assertRaises(ZeroDivisionError):
            with berth_torch.replay(plan):
                1 / 0
        with self.assertRaises(berth_torch.BerthError):
            with berth_torch.record():
                with berth_torch.record():
                    pass

    def test_plans_are_kept(self):
        with berth_torch.record() as plan:
            tensor(1).mul(2).sum()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.csv")
            plan.save(path)
            again = berth_torch.Plan.load(path)
        self.assertEqual((len(again), again.peak_bytes), (len(plan), plan.peak_bytes))
        with berth_torch.replay(again) as report:
            tensor(1).mul(2).sum()
        self.assertEqual(report["by_fallback"], 0, str(report))

    def test_plans_by_key(self):
        for _ in range(3):
            for mib in (1, 2):
                with berth_torch.cached(mib) as report:
                    tensor(mib).mul(2).sum()
        self.assertEqual(report["by_fallback"], 0, str(report))

    def test_threads_replay_one_plan(self):
        with berth_torch.record() as plan:
            expected = float(tensor(1).mul(3).sum())
        results = []

        def work():
            for _ in range(20):
                with berth_torch.replay(plan):
                    results.append(float(tensor(1).mul(3).sum()))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [expected] * 80)

    def test_worker_processes(self):
        loader = torch.utils.data.DataLoader(DataSet(), batch_size=3, num_workers=2)
        with berth_torch.record() as plan:
            total = sum(float(batch.sum()) for batch in loader)
        self.assertEqual(total, sum(range(12)) * 2 * 1000)
        with berth_torch.replay(plan):
            again = sum(float(batch.sum()) for batch in loader)
        self.assertEqual(again, total)

    def test_forks_amid_allocations(self):
        berth_torch.enable(tracking=True)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                with berth_torch.scope("busy"):
                    [torch.empty(n * 100) for n in range(1, 40)]

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(40):
                child = os.fork()
                if child == 0:
                    signal.alarm(60)  # a child that waits for a lock ends here
                    with berth_torch.scope("child"):
                        [torch.empty(n * 100) for n in range(1, 40)]
                    os._exit(0)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_the_same_options_bring_their_stack_back(self):
        for _ in range(100):
            berth_torch.enable(compacting=True)
            berth_torch.enable()
        kept = tensor(1)
        before = berth_torch.memory_allocated()
        berth_torch.enable(compacting=True)
        self.assertLess(berth_torch.memory_allocated(), before)
        berth_torch.enable()
        self.assertEqual(berth_torch.memory_allocated(), before)
        del kept

    def test_mkldnn_frees_through_the_allocator_of_the_day(self):
        convolution, image = torch.nn.Conv2d(3, 8, 3), torch.rand(1, 3, 32, 32)
        stacks = (berth_torch.disable, berth_torch.enable, lambda: berth_torch.enable("system"))
        with torch.no_grad():
            expected = convolution(image)
            kept = []
            for use in stacks * 2:
                use()
                kept.append(image.to_mkldnn())
                self.assertTrue(torch.equal(convolution(image), expected))
            for use in stacks:
                use()
                del kept[0], kept[-1]

    def test_the_profiler_sees_tensors(self):
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            tensor(4)
        self.assertGreaterEqual(max(event.cpu_memory_usage for event in profiled.key_averages()), 4 * MIB)

    def test_a_scope_as_decorator(self):
        @berth_torch.scope("factorial")
        def factorial(n):
            return tensor(0.1) if n < 2 else factorial(n - 1) * n

        threads = [threading.Thread(target=factorial, args=(5,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn("factorial", [row["label"] for row in berth_torch.scopes()])
        with berth_torch.scope("open") as scope, self.assertRaises(berth_torch.BerthError):
            with scope:
                pass

    def test_a_scope_that_another_thread_leaves(self):
        def suspended():
            with berth_torch.scope("left"):
                tensor(0.1)
                yield

        def figures(label):
            return {row["label"]: row for row in berth_torch.scopes()}[label]

        generator = suspended()
        next(generator)
        thread = threading.Thread(target=generator.close)
        thread.start()
        thread.join()
        del generator
        junk = [bytearray(b"\xff" * size) for size in range(24, 72, 8) for _ in range(3000)]  # where its memory may have been
        with berth_torch.scope("next") as following:  # and this thread goes on in no scope
            kept = tensor(1)
        self.assertGreaterEqual(following.peak_bytes, MIB)
        more = tensor(2)
        self.assertEqual(figures("left")["bytes_in_use"], 0)
        dropped = berth_torch.scope("dropped")
        dropped.__enter__()
        del dropped
        junk += [bytearray(b"\xff" * size) for size in range(24, 72, 8) for _ in range(3000)]
        with berth_torch.scope("beside") as following:
            more = tensor(2)
        self.assertGreaterEqual(following.peak_bytes, 2 * MIB)
        del junk, kept, more

    def test_a_plan_that_is_given_is_filled(self):
        plan = berth_torch.Plan()
        with berth_torch.record(plan) as same:
            tensor(1).sum()
        self.assertIs(same, plan)
        self.assertGreater(len(plan), 0)
        with self.assertRaises(TypeError):
            berth_torch.replay(None)

    def test_tensors_that_outlive_the_interpreter(self):
        words = ("import torch, berth_torch, atexit, threading\n"
                 "berth_torch.enable(tracking=True, python_stacks=2)\n"
                 "kept = torch.ones(1000, requires_grad=True)\n"
                 "(kept * 2).sum().backward()\n"
                 "with berth_torch.record() as plan: torch.ones(1000)\n"
                 "with berth_torch.replay(plan): held = torch.ones(1000)\n"
                 "atexit.register(lambda: torch.ones(10))\n"
                 "class Late:\n"
                 "    def __init__(self): self.tensor = torch.ones(1000)\n"
                 "    def __del__(self): self.tensor = self.tensor + 1\n"
                 "late = Late()\n"
                 "print('done')\n")
        done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)

    def test_autograd_threads(self):
        weights = torch.ones(1000, requires_grad=True)
        with berth_torch.record() as plan:
            (weights * 2).sum().backward()
        weights.grad = None
        with berth_torch.replay(plan):
            (weights * 2).sum().backward()
            weights.grad = None

    def test_the_environment_chooses(self):
        def run(words):
            return subprocess.run([sys.executable, "-c", "import berth_torch; print(berth_torch.stats()['bytes_limit'])"],
                                  env=dict(os.environ, BERTH_TORCH=words), capture_output=True, text=True, check=False)
        self.assertEqual(run("limit=12345678").stdout.strip(), "12345678")
        self.assertIn("known are", run("limt=1").stderr)
        with self.assertRaises(ValueError):
            berth_torch.enable("heap")


if __name__ == "__main__":
    unittest.main()
