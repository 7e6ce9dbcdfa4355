"""Every model gives the same bits on PyTorch's allocator, on the pool, and recorded, validated and replayed; and every
plan is at its lower bound or proven optimal. The number of threads is the argument."""
import resource
import statistics
import sys
import unittest

import torch

import berth_torch
from models import all_runs, drawn

THREADS = 1


class Models(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(THREADS)
        torch.use_deterministic_algorithms(True)

    def expected(self, name):
        """The model's output with PyTorch's own allocator."""
        berth_torch.disable()
        try:
            run = all_runs()[name]
            run()
            return run()
        finally:
            berth_torch.enable()

    def check_model(self, name):
        expected = self.expected(name)
        run = all_runs()[name]
        self.assertTrue(torch.equal(run(), expected), "on the pool")
        with berth_torch.record() as plan:
            self.assertTrue(torch.equal(run(), expected), "recorded")
        figures = plan.certificate
        self.assertGreater(len(plan), 5)
        self.assertTrue(figures["proven_optimal"] or figures["peak_bytes"] == figures["lower_bound_bytes"], figures)
        with berth_torch.validate(plan) as verdict:
            self.assertTrue(torch.equal(run(), expected), "validated")
        self.assertTrue(verdict, verdict.words)
        for _ in range(3):
            with berth_torch.replay(plan) as report:
                self.assertTrue(torch.equal(run(), expected), "replayed")
            self.assertEqual(report["from_plan"], report["planned"], str(report))
            self.assertEqual(report["by_fallback"], 0, str(report))
        return figures

    def test_mobilenet_v2(self):
        self.check_model("mobilenet_v2")

    def test_unet(self):
        self.check_model("unet")

    def test_transformer(self):
        self.check_model("transformer")

    def test_lstm(self):
        self.check_model("lstm")

    def test_quantised(self):
        """QNNPACK's tensors come from libtorch's other CPU allocator."""
        torch.backends.quantized.engine = "qnnpack"
        before, size = berth_torch.memory_allocated(), 1 << 20
        values = torch.full((size,), 3.0)
        kept = torch.quantize_per_tensor(values, 0.5, 0, torch.quint8)
        self.assertGreaterEqual(berth_torch.memory_allocated() - before, 5 * size)
        berth_torch.disable()
        other = torch.quantize_per_tensor(values, 0.5, 0, torch.quint8)
        berth_torch.enable()
        self.assertTrue(torch.equal(kept.int_repr(), other.int_repr()))
        del kept, other, values
        self.assertEqual(berth_torch.memory_allocated(), before)
        self.check_model("quantised")

    def test_kernels_that_read_beside_a_tensor(self):
        """A convolution of XNNPACK copies its input to where there is room behind it; results stay the same."""
        prepack, run = torch.ops.prepacked.conv2d_clamp_prepack, torch.ops.prepacked.conv2d_clamp_run
        torch.manual_seed(1)
        image, weight = torch.rand(1, 3, 9, 9), torch.rand(8, 3, 3, 3)
        packed = prepack(weight, None, [1, 1], [1, 1], [1, 1], 1, 0.0, 5.0)
        berth_torch.disable()
        expected = run(image, packed)
        berth_torch.enable()
        allocated = berth_torch.stats()["num_allocs"]
        self.assertTrue(torch.equal(run(image, packed), expected))
        self.assertGreater(berth_torch.stats()["num_allocs"] - allocated, 1)

    def test_training_step(self):
        self.check_model("training_step")

    def test_runs_settle(self):
        """A step through a recurrent model, whose holes are of other sizes than what comes: no memory goes back and forth."""
        run, faults = drawn(17), []
        run(), run()
        berth_torch.trim()  # as after a pause
        for _ in range(20):
            run()
        for _ in range(7):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            run()
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        self.assertLess(statistics.median(faults), 100)  # of some 2,600 pages


if __name__ == "__main__":
    THREADS = int(sys.argv.pop()) if len(sys.argv) > 1 else 1
    unittest.main()
