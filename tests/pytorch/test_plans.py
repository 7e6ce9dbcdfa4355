"""Plans in daily use: copied and pickled, kept outputs, interrupts, generators, tasks, optimisers, functions that record themselves."""
import asyncio
import copy
import gc
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings

import numpy
import torch

import berth_torch

MIB = 1 << 20


def tensor(mib):
    return torch.ones(int(mib * MIB / 4))


def work():
    return float(tensor(1).mul(2).sum())


def recorded():
    with berth_torch.record() as plan:
        work()
    return plan


def replays_whole(plan):
    with berth_torch.replay(plan) as report:
        work()
    return report.by_fallback == 0 and report.from_plan > 0


def twice(x):
    return x.mul(2)


def in_child(data, queue):
    queue.put(replays_whole(pickle.loads(data)))


@berth_torch.planned
def decorated(x):
    return x.mul(2)


class InWorker(torch.utils.data.Dataset):
    """Whether the collector is on, and how many scopes are open, where an item is made."""

    def __len__(self):
        return 4

    def __getitem__(self, _):
        return gc.isenabled(), berth_torch.abandon()


class WithPlan(torch.nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.layer, self.plan = torch.nn.Linear(3, 3), plan


class Copies(unittest.TestCase):
    def test_plans_are_copied(self):
        plan = recorded()
        for made in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            self.assertEqual((len(made), made.peak_bytes), (len(plan), plan.peak_bytes))
            self.assertTrue(replays_whole(made))
        del made
        gc.collect()
        self.assertTrue(replays_whole(plan))
        empty = pickle.loads(pickle.dumps(berth_torch.Plan()))
        self.assertEqual(len(empty), 0)

    def test_plans_travel(self):
        spawn = multiprocessing.get_context("spawn")
        queue = spawn.SimpleQueue()
        child = spawn.Process(target=in_child, args=(pickle.dumps(recorded()), queue))
        child.start()
        self.assertTrue(queue.get())
        child.join()
        self.assertEqual(child.exitcode, 0)

    def test_scopes_and_planned_functions_are_copied(self):
        plan = recorded()
        for scope in (berth_torch.replay(plan, strict=True), berth_torch.validate(plan), berth_torch.record(plan)):
            for made in (copy.copy(scope), copy.deepcopy(scope), pickle.loads(pickle.dumps(scope))):
                self.assertIs(type(made), type(scope))
        with pickle.loads(pickle.dumps(berth_torch.replay(plan))) as report:
            work()
        self.assertEqual(report.by_fallback, 0)
        self.assertEqual(pickle.loads(pickle.dumps(report)).from_plan, report.from_plan)
        module = torch.nn.Linear(30, 30)
        module.run = berth_torch.planned(twice, warm_up=0)
        module.run(torch.ones(10))
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        for made in (copy.deepcopy(module), torch.load(file)):
            self.assertEqual(len(made.run), 1)
            self.assertEqual(float(made.run(torch.ones(10)).sum()), 20.0)

    def test_scopes_of_one_plan_begin_with_one_description(self):
        plan = recorded()
        scope, strict = berth_torch.replay(plan), berth_torch.replay(plan, strict=True)
        self.assertEqual(berth_torch.replay(plan)._address, scope._address)
        self.assertNotEqual(strict._address, scope._address)
        self.assertEqual((scope._options.strict, strict._options.strict), (False, True))
        other = copy.copy(plan)
        self.assertNotEqual(berth_torch.replay(other)._address, scope._address)
        del plan, scope, strict
        gc.collect()
        self.assertTrue(replays_whole(other))

    def test_plans_are_saved_inside_a_module(self):
        file = io.BytesIO()
        torch.save(WithPlan(recorded()), file)
        file.seek(0)
        self.assertTrue(replays_whole(torch.load(file).plan))

    def test_a_file_that_is_no_plan_is_named(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("nonsense\n1\n")
            file.flush()
            with self.assertRaises(berth_torch.BerthError) as raised:
                berth_torch.Plan.load(file.name)
        self.assertIn(os.path.basename(file.name), str(raised.exception))


class Interrupted(BaseException):
    pass


def interrupt_at(count, function):
    """Runs the function with Interrupted raised at the count-th line inside the binding; whether it came."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if "berth_torch" not in frame.f_code.co_filename or frame.f_code.co_name == "__del__":
            return None  # Python ignores what is raised while an object goes
        if event == "line":
            seen += 1
            if seen == count:
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        function()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


class Leaving(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(berth_torch.abandon(), 0)
        self.assertTrue(gc.isenabled())

    def test_workers_are_outside_of_the_scope_that_forks_them(self):
        for scope in (berth_torch.record(), berth_torch.replay(recorded())):
            with scope:
                answers = list(torch.utils.data.DataLoader(InWorker(), batch_size=None, num_workers=2))
                self.assertFalse(gc.isenabled())
            self.assertEqual(answers, [[True, 0]] * len(answers))

    def all_interrupts(self, function):
        count = 1
        while interrupt_at(count, function):
            berth_torch.abandon()  # for an interrupt before the first line that could do something about it
            self.assertTrue(gc.isenabled(), f"line {count}")
            self.assertTrue(replays_whole(self.plan), f"line {count}")  # nothing is open: it can begin
            count += 1
        self.assertGreater(count, 20)

    def test_an_interrupt_at_every_line(self):
        self.plan = recorded()

        def replays():
            with berth_torch.replay(self.plan):
                pass

        def records():
            with berth_torch.record():
                pass

        def validates():
            with berth_torch.validate(self.plan):
                pass

        by_itself, key = berth_torch.planned("interrupted", warm_up=0), object()

        def plans():
            with by_itself:
                pass

        def caches():
            with berth_torch.cached(key):
                pass

        for function in (replays, records, validates, plans, caches):
            with self.subTest(function.__name__):
                self.all_interrupts(function)

    def test_an_interrupted_call_leaves_nothing_open(self):
        run, x, count = berth_torch.planned(twice, warm_up=0), torch.ones(9), 1
        while interrupt_at(count, lambda: run(x)):
            self.assertEqual(berth_torch.abandon(), 0, f"line {count}")
            self.assertTrue(gc.isenabled(), f"line {count}")
            count += 1
        self.assertGreater(count, 20)

    def test_one_object_for_all_threads(self):
        scope, failures = berth_torch.replay(recorded()), []

        def many():
            for _ in range(50):
                with scope as report:
                    work()
                if report.by_fallback:
                    failures.append(str(report))

        threads = [threading.Thread(target=many) for _ in range(4)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        self.assertEqual(failures, [])
        self.assertTrue(gc.isenabled())

    def test_one_thread_enters_while_another_leaves(self):
        """The collector is off as long as anybody is inside, whenever the second comes, and on after the last."""
        enable = gc.enable
        for goes_at_once in (False, True):
            for before in (False, True):
                collector, others = berth_torch._plans._Collector(), ["second"]

                def enable_amid():
                    if not before:
                        enable()
                    if others:
                        collector.hold(others.pop())
                        if goes_at_once:
                            collector.let_go("second")
                    if before:
                        enable()

                collector.hold("first")
                with self.subTest(before=before, goes_at_once=goes_at_once):
                    with unittest.mock.patch.object(gc, "enable", enable_amid):
                        collector.let_go("first")
                    self.assertEqual(gc.isenabled(), goes_at_once)
                    collector.let_go("second")
                    self.assertTrue(gc.isenabled())

    def test_a_scope_in_itself(self):
        scope = berth_torch.replay(recorded())
        with scope:
            self.assertFalse(gc.isenabled())
            with self.assertRaises(berth_torch.BerthError):
                with scope:
                    pass
            self.assertFalse(gc.isenabled())

    def test_a_generator_closed_by_another_thread(self):
        plan, problems = recorded(), []

        def generate():
            with berth_torch.replay(plan):
                yield

        generator = generate()
        next(generator)

        def close():
            try:
                generator.close()
            except berth_torch.BerthError as error:
                problems.append(str(error))

        thread = threading.Thread(target=close)
        thread.start(), thread.join()
        self.assertEqual(len(problems), 1)
        self.assertIn("abandon", problems[0])
        self.assertEqual(berth_torch.abandon(), 1)
        self.assertTrue(replays_whole(plan))

    def test_a_thread_that_ends_inside_a_scope(self):
        plan, kept = recorded(), []

        def generate():
            with berth_torch.replay(plan):
                yield

        def begin():
            kept.append(generate())
            next(kept[0])
            self.assertFalse(gc.isenabled())

        thread = threading.Thread(target=begin)
        thread.start(), thread.join()
        self.assertTrue(gc.isenabled())
        self.assertTrue(replays_whole(plan))
        with self.assertRaises(berth_torch.BerthError):
            kept[0].close()

    def test_tasks_that_give_way_are_told(self):
        plan = recorded()

        async def keeps_on():
            with berth_torch.replay(plan) as report:
                work()
            return report.by_fallback

        async def gives_way():
            with berth_torch.replay(plan):
                await asyncio.sleep(0)

        self.assertEqual(asyncio.run(keeps_on()), 0)
        with self.assertRaises(berth_torch.BerthError) as raised:
            asyncio.run(gives_way())
        self.assertIn("await", str(raised.exception))


class Planned(unittest.TestCase):
    def test_kept_outputs_cost_what_they_are(self):
        def run(x):
            big = x.repeat(4 * MIB // 4 // 16)  # 4 MiB that nobody keeps
            return big.view(-1, 16).sum(0)

        x, kept = torch.ones(16), []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                with berth_torch.cached("kept"):
                    run(x)  # the output is dropped: recorded so
            for _ in range(20):
                with berth_torch.cached("kept"):
                    kept.append(run(x))
        berth_torch.trim()
        self.assertEqual([float(t.sum()) for t in kept], [float(MIB)] * 20)
        ours = [each for each in seen if "berth" in str(each.message)]
        self.assertEqual(len(ours), 1)
        held = berth_torch.memory_reserved()
        self.assertLess(held, 6 * MIB)  # a block of the plan at the most, and the outputs

    def test_an_optimiser_settles(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        optimiser, x, y = torch.optim.Adam(model.parameters()), torch.rand(8, 64), torch.arange(8) % 4

        def step():
            optimiser.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(12):
                with berth_torch.cached("adam") as report:
                    step()
        self.assertEqual(report.by_fallback, 0, str(report))

    def test_a_plan_for_each_shape_and_mode(self):
        @berth_torch.planned(warm_up=0, most=4)
        def run(x, scale=1):
            return x.mul(2).mul(scale)

        for rows in (10, 20):
            for _ in range(3):
                run(torch.ones(rows, 1000))
        self.assertEqual(len(run), 2)
        with torch.no_grad():
            run(torch.ones(10, 1000))
        self.assertEqual(len(run), 3)
        for rows in range(30, 40):
            run(torch.ones(rows, 1000))
        self.assertLessEqual(len(run), 4)
        run.clear()
        self.assertEqual(len(run), 0)
        self.assertEqual(run.__name__, "run")

    def test_planned_inside_planned_is_a_part_of_it(self):
        inner = berth_torch.planned(twice, warm_up=0)
        outer = berth_torch.planned(lambda x: inner(x).add(1), warm_up=0)
        for _ in range(4):
            self.assertEqual(float(outer(torch.ones(1000)).sum()), 3000.0)
        self.assertEqual((len(outer), len(inner)), (1, 0))

    def test_modules_and_instances_have_plans_of_their_own(self):
        class Server:
            def __init__(self, width):
                self.layer = torch.nn.Linear(4, width)

            @berth_torch.planned(warm_up=0)
            def answer(self, x):
                return float(self.layer(x).relu().sum())

        narrow, wide, x = Server(10), Server(1000), torch.ones(2, 4)
        with torch.no_grad():
            for _ in range(3):
                narrow.answer(x), wide.answer(x)
        self.assertEqual(len(Server.answer), 2)
        model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Dropout())
        for run in (berth_torch.planned(model, warm_up=0), berth_torch.planned(model.forward, warm_up=0)):
            for train in (True, False):
                model.train(train)
                run(torch.ones(2, 10)), run(torch.ones(2, 10))
            self.assertEqual(len(run), 2)
            self.assertTrue(berth_torch.planned(model.forward))  # one without plans is no nothing

    def test_tensors_without_a_place_or_a_shape(self):
        run = berth_torch.planned(lambda x: x.to_dense().mul(2), warm_up=0)
        dense = torch.eye(3)
        for x in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_mkldnn()) * 2:
            self.assertTrue(torch.equal(run(x), dense * 2))
        self.assertEqual(len(run), 3)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PyTorch says of lazy modules
            lazy = berth_torch.planned(torch.nn.LazyLinear(4), folder=folder)
            self.assertEqual([lazy(torch.ones(2, 3)).shape for _ in range(4)], [(2, 4)] * 4)

    def test_what_no_function_is(self):
        for wrap in (staticmethod, classmethod):
            with self.assertRaisesRegex(TypeError, "above @planned"):
                berth_torch.planned(wrap(twice))

    def test_a_planned_module_is_a_module(self):
        class Inner(torch.nn.Linear):
            def __init__(self):
                super().__init__(4, 4)
                self._plans, self._function, self.words = 5, 7, "own"  # names of ours

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = berth_torch.planned(Inner(), warm_up=0)

        outer, x = Outer(), torch.ones(2, 4)
        self.assertEqual([each.shape for each in outer.parameters()], [(4, 4), (4,)])
        outer.inner(x).sum().backward()
        self.assertIsNotNone(outer.inner.weight.grad)
        self.assertEqual((outer.inner.words, outer.inner.out_features), ("own", 4))
        outer.eval()
        self.assertFalse(outer.inner.module.training)
        made = copy.deepcopy(outer)
        self.assertEqual(len(made.inner), 1)
        with torch.no_grad():
            made.inner.weight.zero_(), made.inner.bias.zero_()
            self.assertEqual(float(made.inner(x).sum()), 0.0)  # the copy runs its own weights
            self.assertNotEqual(float(outer.inner(x).sum()), 0.0)
        with self.assertRaises(AttributeError):
            outer.inner.nothing

    def test_numbers_that_change_no_size(self):
        run = berth_torch.planned(lambda x, rate: float(x.mul(rate).sum()), most=4)
        for i in range(9):
            run(torch.ones(100), 0.1 / (i + 1))
        self.assertEqual(len(run), 1)
        for flag in (1, True):
            run(torch.ones(100), flag), run(torch.ones(100), flag)
        self.assertEqual(len(run), 3)

    def test_keys_that_cannot_be_ordered(self):
        run, x = berth_torch.planned(lambda values: values["1"].mul(2), warm_up=0), torch.ones(9)
        for values in ({1: x, "1": x}, {"1": x, 1: x}, {1: None, "1": x}, {"1": x, 1: torch.nn.ReLU()}, {None: 3, "None": 1, "1": x}):
            self.assertEqual(float(run(values).sum()), 18.0)
        self.assertEqual(len(run), 4)  # the order of a dictionary makes no other run

    def test_arrays_have_a_shape(self):
        run = berth_torch.planned(lambda array: float(torch.from_numpy(array).mul(2).sum()), warm_up=0)
        for _ in range(3):
            for rows in (10, 20):
                self.assertEqual(run(numpy.ones(rows, dtype="f4")), 2.0 * rows)
        self.assertEqual(len(run), 2)

    def test_a_key_for_each_run_is_told(self):
        run = berth_torch.planned(lambda x, step: x.mul(step), most=4)
        with self.assertWarnsRegex(RuntimeWarning, "none was replayed") as seen:
            for step in range(6):
                run(torch.ones(9), step)
        self.assertEqual(seen.filename, __file__)
        run = berth_torch.planned(twice, most=4, warm_up=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (1, 1, 2, 3, 4, 5, 6):
                run(torch.ones(rows))

    def test_a_decorated_function_goes_by_its_name(self):
        self.assertIs(pickle.loads(pickle.dumps(decorated)), decorated)
        self.assertIs(copy.deepcopy(decorated), decorated)

    def test_an_output_that_is_kept_is_no_reason_to_record_again(self):
        run, x = berth_torch.planned(twice, warm_up=0), torch.ones(1000)
        kept = [run(x)]
        first, = run.plans()
        for _ in range(10):
            kept.append(run(x))
            self.assertIs(run.plans()[0], first)

    def test_what_gives_way_is_refused(self):
        async def waits(x):
            return x

        def yields(x):
            yield x

        for function in (waits, yields):
            with self.assertRaises(TypeError):
                berth_torch.planned(function)

    def test_plans_survive_the_process(self):
        program = ("import sys, torch, berth_torch\n"
                   "run = berth_torch.planned(lambda x: float(x.mul(2).sum()), warm_up=0, folder=sys.argv[1])\n"
                   "run(torch.ones(1000)), print(len(run))\n")
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                subprocess.run([sys.executable, "-c", program, folder], check=True, stdout=subprocess.PIPE)
                self.assertEqual(len(os.listdir(folder)), 1)

    def test_a_folder_has_the_plans_of_several(self):
        with tempfile.TemporaryDirectory() as folder:
            models = [torch.nn.Linear(4, width).eval() for width in (4, 4000)]
            runs = [berth_torch.planned(model, warm_up=0, folder=folder) for model in models]
            for run in runs:
                run(torch.ones(2, 4))
            self.assertEqual(len(os.listdir(folder)), 2)
            again = berth_torch.planned(models[0], warm_up=9, folder=folder)
            again(torch.ones(2, 4))
            self.assertEqual(len(again), 1)  # from the folder
            berth_torch.planned(models[0], folder=folder).clear()  # also what it has not loaded
            self.assertEqual(len(os.listdir(folder)), 1)
            runs[1].clear()
            self.assertEqual(os.listdir(folder), [])
        run = berth_torch.planned(twice, warm_up=0, folder="/dev/null/nowhere")
        with self.assertWarns(RuntimeWarning):
            run(torch.ones(4))
        self.assertEqual(len(run), 1)

    def test_as_a_context(self):
        scope = berth_torch.planned("key", warm_up=1)
        reports = []
        for _ in range(4):
            with scope as report:
                work()
            reports.append(report)
        self.assertIsNone(reports[0])
        self.assertEqual(reports[-1].by_fallback, 0)


if __name__ == "__main__":
    unittest.main()
