"""Programs of many kinds, planned as they are: the same bits and the same figures as without plans, and nothing left over."""
import copy
import gc
import threading
import unittest
import warnings

import torch
from torch import nn
from torch.utils import checkpoint

import berth_torch

RUNS = 6
PROGRAMS = {}


def program(make):
    """make() gives run(i), which returns tensors; what it keeps from run to run is its own."""
    PROGRAMS[make.__name__] = make
    return make


def drawn_by(i, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(i))


def gradients_of(model, loss):
    loss.backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


@program
def sequences_of_changing_length():
    model, head = nn.GRU(16, 32, batch_first=True, bidirectional=True), nn.Linear(64, 5)

    def run(i):
        packed = nn.utils.rnn.pack_padded_sequence(drawn_by(i, 3, 7, 16), [7 - i % 3, 5, 2 + i % 2], batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        return gradients_of(model, head(out).pow(2).sum())
    return run


@program
def routed_experts():
    gate, experts = nn.Linear(32, 4), nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def run(i):
        x = drawn_by(i, 40, 32)
        with torch.no_grad():
            weights, which = gate(x).softmax(-1).topk(2, -1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(experts):
                rows, slot = (which == number).nonzero(as_tuple=True)
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        return [out]
    return run


@program
def a_cache_that_grows():
    project, kept = nn.Linear(32, 64), []

    def run(i):
        with torch.no_grad():
            k, v = project(drawn_by(i, 2, 1, 32)).chunk(2, -1)
            kept[:] = [torch.cat([kept[0], k], 1), torch.cat([kept[1], v], 1)] if kept else [k, v]
            return [(k @ kept[0].transpose(1, 2)).softmax(-1) @ kept[1]]
    return run


@program
def gradients_of_gradients():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def run(i):
        x = drawn_by(i, 16, 8).requires_grad_()
        slope, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (slope.norm(dim=1) - 1).pow(2).mean().backward()
        found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad(set_to_none=True)
        return [x.grad, *found]
    return run


@program
def layers_run_twice():
    layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1)) for _ in range(4))

    def run(i):
        torch.manual_seed(i)
        x = drawn_by(i, 32, 64).requires_grad_()
        for layer in layers:
            x = checkpoint.checkpoint(layer, x)
        return gradients_of(layers, x.mean())
    return run


@program
def sparse_and_complex():
    def run(i):
        indices = torch.randint(0, 50, (2, 200), generator=torch.Generator().manual_seed(i % 2))
        matrix, dense = torch.sparse_coo_tensor(indices, drawn_by(i, 200), (50, 50)).coalesce(), drawn_by(i, 50, 64)
        waves = torch.fft.rfft(dense) * torch.polar(torch.ones(()), torch.tensor(0.3 * i))
        return [torch.sparse.mm(matrix, dense), matrix.to_dense().to_sparse_csr() @ dense, torch.fft.irfft(waves, 64),
                torch.view_as_real(waves @ waves.mH)]
    return run


@program
def views_and_changes_in_place():
    kept, counts = [], torch.zeros(1000)

    def run(i):
        big = torch.arange(5000.).add(i)
        kept.append(big[10:20])
        del kept[:-3]
        counts.add_(1)[::3] = i
        other = counts.clone().resize_(4000 + 100 * (i % 2)).fill_(2.0)
        return [big.view(50, 100).t()[3].add_(1), other, counts.clone(), *[each.clone() for each in kept]]
    return run


@program
def compiled_and_transformed():
    import functorch
    model, x = nn.Sequential(nn.Linear(20, 30), nn.Sigmoid(), nn.Linear(30, 5)), drawn_by(1, 7, 20)
    scripted, traced = torch.jit.script(model), torch.fx.symbolic_trace(model)
    function, parameters = functorch.make_functional(model)

    def run(i):
        each = functorch.vmap(functorch.grad(lambda p, a: function(p, a).pow(2).sum()), (None, 0))(parameters, x * i)
        with torch.no_grad():
            return [scripted(x * i), traced(x), *[gradient.detach() for gradient in each]]
    return run


@program
def hooks_and_errors():
    model, seen = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3)), []
    model[1].register_forward_hook(lambda module, inputs, out: seen.append(out.detach().mean()))
    model[0].weight.register_hook(lambda gradient: gradient * 2)

    def run(i):
        del seen[:]
        out = model(drawn_by(i, 4, 10))
        try:
            if i % 3 == 1:
                torch.cat([out, torch.ones(2, 2)])
        except RuntimeError:
            pass
        return gradients_of(model, out.sum()) + seen
    return run


@program
def graphs_kept_alive():
    layer, kept = nn.Linear(16, 4), []

    def run(i):
        kept.append(layer(drawn_by(i, 3, 16)))
        if len(kept) < 3:
            return [kept[-1].detach().clone()]
        return torch.autograd.grad(kept.pop(0).sum(), layer.weight)
    return run


@program
def types_and_modes():
    layer = nn.Linear(16, 16)

    def run(i):
        made = copy.deepcopy(layer).to((torch.float32, torch.float64)[i % 2])
        with torch.set_grad_enabled(i % 3 == 0), torch.autocast("cpu", dtype=torch.bfloat16, enabled=i % 4 == 2):
            return [made(torch.ones(3, 16, dtype=made.weight.dtype)).detach().float()]
    return run


@program
def tensors_in_cycles():
    class Node:
        pass

    def run(i):
        for _ in range(5):
            a, b = Node(), Node()
            a.other, b.other, a.tensor = b, a, torch.full((1000,), float(i))
        return [a.tensor * 2]
    return run


def bits(tensors):
    return [(each.dtype, each.shape, each.detach().contiguous().numpy().tobytes()) for each in tensors]


class Programs(unittest.TestCase):
    def run_all(self, name, wrap):
        """What each run gives, and its figures: how many allocations, and the most that lived beyond its begin."""
        torch.manual_seed(1)
        run, found, figures = PROGRAMS[name](), [], []
        wrapped = wrap(run)
        gc.disable()  # tensors in cycles go at the same time in all
        try:
            for i in range(RUNS):
                before = berth_torch.stats()["num_allocs"]
                with berth_torch.scope("run") as scope:
                    out = wrapped(float(i))  # of a number with a point only the type is part of a key
                figures.append((berth_torch.stats()["num_allocs"] - before, scope.peak_bytes))
                found.append(bits(out))
        finally:
            gc.enable()
        return found, figures, wrapped

    def test_bits_and_figures(self):
        for name in PROGRAMS:
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                berth_torch.disable()
                expected, _, _ = self.run_all(name, lambda run: lambda i: run(int(i)))
                berth_torch.enable()
                found, figures, _ = self.run_all(name, lambda run: lambda i: run(int(i)))
                self.assertEqual(found, expected, "on the pool")
                gc.collect()
                left = berth_torch.memory_allocated()
                for warm_up in (0, 1):
                    planned = self.run_all(name, lambda run: berth_torch.planned(lambda i: run(int(i)), warm_up=warm_up))
                    self.assertEqual(planned[0], expected, "planned")
                    self.assertEqual(planned[1], figures)
                    self.assertEqual(len(planned[2]), 1)
                    del planned
                    gc.collect()
                    if name != "compiled_and_transformed":  # PyTorch keeps what it has compiled
                        self.assertEqual(berth_torch.memory_allocated(), left)

    def test_threads_share_one_planned_function(self):
        torch.manual_seed(1)
        model, inputs = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16)), [drawn_by(k, k + 1, 32) for k in range(4)]
        expected, wrong = [model(x).detach() for x in inputs], []
        run = berth_torch.planned(lambda x: model(x), most=3)  # fewer than there are keys

        def work(first):
            kept = []
            for i in range(60):
                which = (i * 3 + first) % 4
                with torch.set_grad_enabled((i + first) % 3 == 0):
                    kept.append((run(x=inputs[which]).detach(), expected[which]))
                del kept[:-5]
                wrong.extend(i for out, right in kept if not torch.equal(out, right))
                if first == 0 and i % 20 == 0:
                    run.clear()

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            [thread.start() for thread in threads], [thread.join() for thread in threads]
        self.assertEqual(wrong, [])
        self.assertTrue(gc.isenabled())


if __name__ == "__main__":
    unittest.main()
