"""Figures and words of the binding: what the program allocated, PyTorch's names and snapshots, settings and refusals."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
import torch.cuda._memory_viz

import berth_figures
import berth_torch

MIB = 1 << 20
BERTH = ""


def tensor(mib):
    return torch.ones(int(mib * MIB / 4))


def work():
    return float(tensor(1).mul(2).sum())


def berth(*words):
    return subprocess.run([BERTH, *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


class Figures(unittest.TestCase):
    """In a replay, figures are what the program allocated."""

    def tearDown(self):
        berth_torch.enable()

    def run_with(self, **settings):
        berth_torch.enable(**settings)

        def run():
            first = tensor(1)
            inside = berth_torch.memory_allocated() - before
            second = first.mul(2)
            del first
            third = tensor(3)
            del second, third
            return inside

        before = berth_torch.memory_allocated()
        with berth_torch.record() as plan:
            run()
        self.assertEqual(berth_torch.memory_allocated(), before)
        for _ in range(2):
            berth_torch.reset_peak_memory_stats()
            with berth_torch.scope("figures") as scope:
                with berth_torch.replay(plan) as report:
                    self.assertEqual(run(), MIB)
            self.assertEqual(report.by_fallback, 0, str(report))
            self.assertGreaterEqual(scope.peak_bytes, 4 * MIB)
            self.assertLess(scope.peak_bytes, 4.1 * MIB)
            self.assertEqual(berth_torch.memory_allocated(), before)
            self.assertGreaterEqual(berth_torch.max_memory_allocated() - before, 4 * MIB)
            self.assertLess(berth_torch.max_memory_allocated() - before, 4.1 * MIB)
            self.assertEqual(berth_torch.stats()["num_allocs"], report.from_plan)
            self.assertEqual(berth_torch.stats()["max_alloc_size"], 3 * MIB)
        return plan

    def test_on_every_stack(self):
        for settings in ({}, {"tracking": True}, {"source": "system"}, {"guard": True}, {"compacting": True}):
            with self.subTest(settings):
                self.run_with(**settings)

    def test_leaks_are_tensors(self):
        plan = self.run_with(tracking=True)
        before = len(berth_torch.leaks())
        with berth_torch.replay(plan):
            kept = tensor(1)
            self.assertEqual([leak["bytes"] for leak in berth_torch.leaks()][:1], [MIB])
        found = berth_torch.leaks()
        self.assertEqual(len(found), before + 1)
        self.assertNotIn("planned block", [leak["label"] for leak in found])
        del kept
        self.assertEqual(len(berth_torch.leaks()), before)


class Words(unittest.TestCase):
    def tearDown(self):
        berth_torch.enable()

    def test_a_strict_mismatch_is_no_shortage(self):
        with berth_torch.record() as plan:
            work()
        with self.assertRaises(RuntimeError) as raised:
            with berth_torch.replay(plan, strict=True):
                tensor(3)
        self.assertNotIn("out of memory", str(raised.exception))
        self.assertIn("strict", str(raised.exception))

    def test_a_limit_counts_what_lives(self):
        kept = tensor(8)
        berth_torch.enable(limit=f"{(berth_torch.memory_allocated() + 4 * MIB) // 1024}K")
        tensor(2)
        with self.assertRaises(RuntimeError):
            tensor(6)
        del kept
        tensor(6)

    def test_settings_as_people_write_them(self):
        program = "import berth_torch, torch; torch.ones(10); berth_torch.leaks(); print(berth_torch.stats()['bytes_limit'])"
        environment = {**os.environ, "BERTH_TORCH": "limit=2GB, tracking=True"}
        said = subprocess.run([sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.PIPE, text=True)
        self.assertEqual(int(said.stdout), 2 << 30)
        for wrong in ({"limit": -1}, {"limit": 0.5}, {"limit": "0.0001K"}, {"limit": "9000000T"},
                      {"limit": float("nan")}, {"limit": True}, {"stack_depth": -1}, {"python_stacks": 99}):
            with self.assertRaises(ValueError, msg=str(wrong)):
                berth_torch.enable(**wrong)
        with self.assertRaises(TypeError):
            berth_torch.enable(tracking="no")
        with self.assertRaises(TypeError):
            berth_torch.scope(3)
        environment["BERTH_TORCH"] = "tracking=perhaps"
        said = subprocess.run([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True)
        self.assertIn("tracking=perhaps", said.stderr)

    def test_a_shortage_without_a_limit_speaks_of_none(self):
        for size in (1 << 50, 1 << 62):
            with self.assertRaises(RuntimeError) as raised:
                torch.empty(size, dtype=torch.uint8)
            self.assertIn("out of memory", str(raised.exception))
            self.assertNotIn("limit", str(raised.exception))

    def test_snapshots_have_frames(self):
        berth_torch.enable(tracking=True, python_stacks=2)
        kept = tensor(2)
        block, = [b for segment in berth_torch.memory_snapshot() for b in segment["blocks"]
                  if b["state"] == "active_allocated" and b["size"] >= 2 * MIB and b["history"][0]["frames"]]
        frame = block["history"][0]["frames"][0]
        self.assertEqual((frame["filename"], frame["name"]), ("test_words.py", "tensor"))
        self.assertGreater(frame["line"], 0)
        for show in (torch.cuda._memory_viz.memory, torch.cuda._memory_viz.segments):
            self.assertIn("test_words.py", show(berth_torch.memory_snapshot(), format_flamegraph=lambda lines: lines))
        del kept

    def test_a_dumped_snapshot_is_read(self):
        berth_torch.enable(tracking=True, python_stacks=2)
        kept = tensor(2)
        with tempfile.TemporaryDirectory() as folder:
            path, page = os.path.join(folder, "out.pickle"), os.path.join(folder, "out.html")
            berth_torch._dump_snapshot(path)
            berth("view", path, "-o", page)
            self.assertGreater(os.path.getsize(page), 10000)
            facts = json.loads(berth("top", path, "--json"))
        self.assertEqual([row["name"] for row in facts["devices"]], ["cpu"])
        self.assertEqual(facts["live_bytes"], berth_torch.memory_allocated())
        self.assertIn((2 * MIB, 1), [(row["live_bytes"], row["live_blocks"]) for row in facts["holders"]
                                     if row["name"].startswith("tensor (test_words.py:")])
        del kept

    def test_numbers_of_blocks(self):
        """As many as there are tensors, whether the pool or a plan's block has them."""
        berth_torch.enable(tracking=True)
        kept = [tensor(1), tensor(2)]
        with berth_torch.record() as plan:
            work()
        before = berth_torch.memory_stats()
        self.assertEqual(before["allocation.all.current"], len(berth_torch.leaks()))
        with berth_torch.replay(plan):
            kept.append(tensor(1))
            self.assertEqual(berth_torch.memory_stats()["allocation.all.current"], before["allocation.all.current"] + 1)
        del kept[:2]
        found = berth_torch.memory_stats()
        self.assertEqual(found["allocation.all.current"], before["allocation.all.current"] - 1)
        self.assertGreaterEqual(found["active.all.current"], 1)
        self.assertGreaterEqual(found["active_bytes.all.current"], MIB)
        self.assertGreaterEqual(found["inactive_split_bytes.all.current"] + found["active_bytes.all.current"], MIB)
        self.assertEqual(found["segment.all.current"], len(berth_torch.memory_snapshot()))
        self.assertEqual({name.split(".")[-1] for name in found if ".all." in name}, {"current", "peak", "allocated"})

    def test_a_stack_too_many_says_so(self):
        program = ("import itertools, berth_torch\n"
                   "frames, made = range(1, 33), 0\n"
                   "for depth, python in itertools.islice(itertools.product(frames, frames), 65):\n"
                   "    try: berth_torch.enable(stack_depth=depth, python_stacks=python)\n"
                   "    except berth_torch.BerthError as error: print(made, error); break\n"
                   "    made += 1\n"
                   "berth_torch.enable()\n")
        said = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertTrue(said.startswith("63 64 different stacks were made"), said)  # the first was that of the import

    def test_pytorchs_names(self):
        kept = tensor(2)
        self.assertGreaterEqual(berth_torch.memory_reserved(), berth_torch.memory_allocated())
        self.assertEqual(berth_torch.memory_stats()["allocated_bytes.all.current"], berth_torch.memory_allocated())
        self.assertIn("in use", berth_torch.memory_summary())
        for device in (None, "cpu", torch.device("cpu")):  # as those of torch.cuda are called
            self.assertEqual(berth_torch.memory_allocated(device), berth_torch.stats()["bytes_in_use"])
        self.assertIn("in use", berth_torch.memory_summary(device=None, abbreviated=True))
        for ask in (berth_torch.memory_allocated, berth_torch.max_memory_allocated, berth_torch.memory_reserved, berth_torch.memory_stats,
                    berth_torch.max_memory_reserved, berth_torch.memory_summary, berth_torch.reset_peak_memory_stats):
            with self.assertRaisesRegex(ValueError, "of the CPU"):
                ask("cuda:0")
        berth_torch.reset_peak_memory_stats()
        berth_torch.empty_cache()
        snapshot = berth_torch.memory_snapshot()
        live = sum(segment["allocated_size"] for segment in snapshot)
        self.assertGreaterEqual(live, berth_torch.memory_allocated())
        drawn = torch.cuda._memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
        self.assertIn("active_allocated", drawn)
        self.assertRegex(berth_torch.__version__, r"^\d+\.\d+\.\d+$")
        del kept

    def resident(self):  # not Berth's figures: to ask for them may be what gives memory back
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_for_resident(self, most):
        waited = threading.Event()
        for _ in range(600):  # it takes ten seconds; much longer is a failure
            if self.resident() < most:
                return
            waited.wait(0.1)
        self.fail(f"{self.resident()} bytes are still resident after a minute, not {most}")

    def test_idle_memory_goes_back_by_itself(self):
        berth_torch.trim()
        before = self.resident()
        older, oldest = tensor(64), tensor(64)
        berth_torch.enable(compacting=True)
        tensor(64)
        self.assertGreaterEqual(self.resident(), before + 180 * MIB)
        del oldest  # of a stack that serves no more
        self.wait_for_resident(before + 80 * MIB)
        berth_torch.disable()
        del older  # no tensor comes after it
        self.wait_for_resident(before + 16 * MIB)


class Bench(unittest.TestCase):
    """What bench/pytorch/figures.py makes of its measurements."""

    def test_turns_of_one_round_are_compared(self):
        quiet, busy = [1.0, 1.0, 1.0, 1.0], [1.1, 2.2, 1.1, 9.9]  # the machine was busy in the second and the last round
        median, spread = berth_figures.ratios([each * 1.01 for each in busy], busy)
        self.assertAlmostEqual(median, 1.01)
        self.assertAlmostEqual(spread, 0)
        self.assertAlmostEqual(berth_figures.ratios(busy, quiet)[0], 1.65)

    def test_what_is_promised_is_judged(self):
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "pytorch"))
        import figures

        def missed(**other):
            pool = berth_figures.Figure(1.0, other.get("pool", 1.02), 1.0, 0.5, other.get("faults", 0), 10 * MIB)
            plan = berth_figures.Figure(1.0, 1.0, other.get("plan", 1.0), 0.5, 0, other.get("peak", 9 * MIB), 9 * MIB,
                                        other.get("bound", 9 * MIB))
            return [what.split(":")[0] for what, holds in figures.judge("any", {"pool": pool, "plan": plan}) if not holds]

        self.assertEqual(missed(), [])
        self.assertEqual(missed(pool=1.021), ["pool"])  # whatever the noise
        self.assertEqual(missed(plan=1.006), ["plan"])
        self.assertEqual(missed(faults=3), ["pool"])
        self.assertEqual(missed(peak=9.1 * MIB), ["plan"])
        self.assertEqual(missed(peak=9.1 * MIB, bound=9.05 * MIB), ["plan"])  # the bound; it does not allow nine tenths


if __name__ == "__main__":
    BERTH = sys.argv.pop()
    unittest.main()
