# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Tensors of a device: the stand-in device against tensors in host memory, bit for bit."""

import contextlib
import ctypes as ct
import gc
import inspect
import time
import unittest
import unittest.mock

import torch

import pbox
import pbox.torch
from pbox.torch import _by_plan, _device, _staged, stand_in
from pbox.torch.reference import equal_bits
from tests import workers
from tests.test_torch import Case, FakeBucket, FakeDDP, HERE

N = 3


def parameters(dtype=torch.float32):
    # odd sizes; one that is declared in pieces, and chunks of several tensors
    return torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(n, dtype=dtype)) for n in (7, 257, 1, 5003, 12000, 33, 999))


def gradients(worker, step, dtype):
    g = torch.Generator().manual_seed(100 * step + worker)
    return [(torch.randn(p.shape, generator=g) * 10.0 ** torch.randint(-6, 6, p.shape, generator=g)).to(dtype) for p in parameters()]


class Small(Case):
    """With chunks and pieces that small tensors fill."""

    def setUp(self):
        super().setUp()
        kept = _staged.CHUNK_BYTES, _staged.PIECE_ELEMENTS
        _staged.CHUNK_BYTES, _staged.PIECE_ELEMENTS = 8192, 4999
        self.addCleanup(lambda: (setattr(_staged, "CHUNK_BYTES", kept[0]), setattr(_staged, "PIECE_ELEMENTS", kept[1])))


def trained(device, steps=4, dtype=torch.float32, order=None, **kw):
    """The bits of all buckets after the hook, of all workers. None: on the CPU."""
    def worker(w):
        ps = parameters(dtype)
        state = pbox.torch.register(FakeDDP(ps), worker=w, workers=N, timeout=10.0, **HERE, **kw)
        out = []
        for step in range(steps):
            state.samples = w + step
            for p, g in zip(ps, gradients(w, step, dtype)):
                p.grad = g
            futures, buckets = [], []
            for k, part in enumerate((list(ps)[4:], list(ps)[:4])):
                b = FakeBucket(part if step % 2 else part[::-1], k, k == 1)
                buckets.append(b)
                if device is not None:
                    device.late(b.buffer())
                futures.append(pbox.torch.hook(state, b))
            out += [f.wait().clone() for f in futures]
        staging = state._staging
        pinned = staging.pinned if staging is not None else 0
        state.close()
        return out, pinned
    if device is None:
        return workers.run(N, worker)
    with device.instead_of_host():
        return workers.run(N, worker)


def same(a, b):
    return all(x.dtype == y.dtype and equal_bits(x.float(), y.float()) for (xs, _), (ys, _) in zip(a, b) for x, y in zip(xs, ys))


class Hooks(Small):
    def compared(self, **kw):
        want = trained(None, **kw)
        self.close_all()
        got = trained(stand_in.StandIn(), **kw)
        self.assertTrue(same(want, got))
        return got

    def test_fp32(self):
        for _, pinned in self.compared():
            # the buckets of both orders, in whole pages
            elements = sum(p.numel() for p in parameters())
            self.assertTrue(4 * elements <= pinned <= 2 * 4 * elements + 4 * 4096, pinned)

    def test_bf16_model(self):
        self.compared(dtype=torch.bfloat16)

    def test_compressed(self):
        for compress in ("bf16", "fp16"):
            self.compared(compress=compress)
            self.close_all()

    def test_weighted(self):
        self.compared(op="weighted_mean")

    def test_a_wait_that_is_left_out_is_found(self):
        want = trained(None)
        for forgets in ("synchronize", "wait_event", "use"):
            self.close_all()
            self.assertFalse(same(want, trained(stand_in.StandIn(forgets=forgets))), forgets)


def stepped(device, cls, n=N, steps=7, channels_last=False, unused=(), infinite=None, **kw):
    """The bits of the parameters after each step, of all workers, and of the state at the end. None: on the CPU."""
    def worker(w):
        ps = list(parameters()) + [torch.nn.Parameter(torch.ones(4, 3, 5, 5))]
        if channels_last:
            ps[-1] = torch.nn.Parameter(ps[-1].detach().to(memory_format=torch.channels_last))
        opt = cls(ps, lr=0.1, worker=w, workers=n, timeout=10.0, **HERE, **kw)
        out = []
        for step in range(steps):
            g = torch.Generator().manual_seed(100 * step + w)
            for i, p in enumerate(ps):
                p.grad = None if i in unused and w == step % n else torch.randn(p.shape, generator=g)
                if p.grad is not None and device is not None:
                    device.late(p.grad)
            if infinite is not None:
                opt.found_inf, opt.grad_scale = torch.tensor(float(step == infinite and w == n - 1)), torch.tensor([4.0])
            with contextlib.nullcontext() if device is None else device.in_order():
                opt.step(samples=w + 1) if kw.get("op") == "weighted_mean" else opt.step()
            if device is not None:
                device.compute.synchronize()
            out += [p.detach().clone() for p in ps]
        state = opt.state_dict()
        out += [t for _, s in sorted(state["state"].items()) for _, t in sorted(s.items()) if torch.is_tensor(t)]
        skipped = opt.skipped
        opt.load_state_dict(state)
        for p in ps:
            p.grad = torch.full_like(p, 1 / (w + 1))
            if infinite is not None:
                opt.found_inf = torch.tensor(0.0)
        if kw.get("op") != "weighted_mean":
            opt.step()
            if device is not None:
                device.compute.synchronize()
        out += [p.detach().clone() for p in ps]
        opt.close()
        return out, skipped
    if device is None:
        return workers.run(n, worker)
    with device.instead_of_host():
        return workers.run(n, worker)


class Other(Small):
    def test_all_reduce(self):
        def worker(w):
            client = pbox.Client("box", "j", "s", w, N)
            g = torch.Generator().manual_seed(w)
            x = [torch.randn(3001, generator=g), torch.empty(0), torch.randn(5, generator=g).bfloat16()]
            out = []
            for k in range(3):
                for t in x:
                    device and device.late(t)
                ops = pbox.torch.all_reduce(x, "mean", client=client, async_op=k == 1) or []
                for op in ops:
                    self.assertFalse(op.done)
                    op.wait()
                    self.assertTrue(op.done and op.test())
                out += [t.clone() for t in x]
            return out, 0
        device = None
        want = workers.run(N, worker)
        self.close_all()
        device = stand_in.StandIn(seconds=0.001)
        with device.instead_of_host():
            self.assertTrue(same(want, workers.run(N, worker)))

    def hook_of_one(self, **kw):
        m = parameters()
        state = pbox.torch.register(FakeDDP(m), worker=0, workers=1, **HERE, **kw)
        for p in m:
            p.grad = torch.ones_like(p)
        return state, FakeBucket(list(m))

    def test_deadline(self):
        with stand_in.StandIn(seconds=0.001).instead_of_host():
            state, bucket = self.hook_of_one(timeout=0.4)
            self.lib.hold = True
            with self.assertRaisesRegex(RuntimeError, "gradient bucket 0 of backward pass 1 was not reduced in [0-9.]+ s .timeout 0.4 s"):
                pbox.torch.hook(state, bucket).wait()
            self.assertIsInstance(state.error, pbox.PBoxDeadline)
            self.lib.release()

    def test_closed_in_a_pass(self):
        with stand_in.StandIn(seconds=0.001).instead_of_host():
            state, bucket = self.hook_of_one(timeout=5.0)
            self.lib.hold = True
            future = pbox.torch.hook(state, bucket)
            state.close()
            with self.assertRaisesRegex(RuntimeError, "closed"):
                future.wait()

    def test_not_pinned(self):
        _device.Memory._warned = False
        with stand_in.StandIn(seconds=0.001, pins=False).instead_of_host(), self.assertLogs("pbox") as log:
            state, bucket = self.hook_of_one()
            self.assertTrue((pbox.torch.hook(state, bucket).wait() == 1).all())
            self.assertEqual(state._staging.pinned, 0)
        self.assertEqual(sum("could not be pinned" in s for s in log.output), 1)

    def test_nothing_stays_pinned(self):
        device = stand_in.StandIn(seconds=0.001)
        with device.instead_of_host():
            state, bucket = self.hook_of_one()
            pbox.torch.hook(state, bucket).wait()
            self.assertGreater(device.pinned, 0)
            state.close()
            del state, bucket
            gc.collect()
            for _ in range(100):
                if device.pinned == 0:
                    break
                time.sleep(0.05)
            self.assertEqual(device.pinned, 0)

    def test_memory_of_a_transport(self):
        kept = {}

        def alloc(_, size):
            raw = (ct.c_char * size)()
            kept[ct.addressof(raw)] = raw
            return ct.addressof(raw)
        self.lib.pbox_client_alloc = alloc
        self.lib.pbox_client_free = lambda _, at: kept.pop(at)
        client = pbox.Client("box", "j", "s", 0, 1, transport="dpdk")
        memory = _device.Memory(client, stand_in.StandIn(), 5000)
        t = memory.tensor(64, 3, torch.float32)
        self.assertEqual((memory.address % 4096, memory.size), (0, 8192))
        del memory
        t.fill_(7)
        self.assertEqual(len(kept), 1)
        del t
        self.assertEqual(kept, {})

    def test_refused(self):
        two = [torch.zeros(2), torch.zeros(2, device="meta")]
        with self.assertRaisesRegex(pbox.PBoxInvalid, "t1 is on meta"):
            _device.of(two, lambda i: f"t{i}")
        with stand_in.StandIn().instead_of_host():
            with self.assertRaisesRegex(pbox.PBoxInvalid, "dtype torch.float64"):
                pbox.torch.register(FakeDDP(parameters(torch.float64)), worker=0, workers=1, **HERE)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "SGD: policy reassign with a GPU: "):
                _by_plan.ByPlan(pbox.torch.SGD(list(parameters()), 0.1, worker=0, workers=1, slots=4, **HERE)).begin()
            self.close_all()
            with self.assertRaisesRegex(pbox.PBoxInvalid, "torch.float64"):
                pbox.torch.all_reduce(torch.zeros(3, dtype=torch.float64), client=pbox.Client("box", "j", "s", 0, 1))


class Cudart:
    """The two functions as torch binds them: numbers, and a status that converts to one."""

    def __init__(self, status):
        self.status, self.registered = status, {}

    def cudaHostRegister(self, ptr, size, flags, /):
        assert ptr % 4096 == 0 and size % 4096 == 0 and flags == 1
        if self.status == 0:
            self.registered[ptr] = size
        return self.status

    def cudaHostUnregister(self, ptr, /):
        del self.registered[ptr]
        return 0


class Calls(Small):
    """The calls that Cuda makes of torch.cuda, which has the arguments of torch's own here, and works on the CPU."""

    def calls(self, cudart):
        device = stand_in.StandIn(seconds=0)
        made = []

        def stream(device=None, priority=0):
            made.append("Stream")
            return stand.stream()

        def event(enable_timing=False, blocking=False, interprocess=False):
            made.append("Event")
            return stand.event()
        stand, init = device, torch.futures.Future.__init__
        self.assertEqual([*inspect.signature(torch.cuda.streams.Event.__new__).parameters][1:], [*inspect.signature(event).parameters])
        patches = [
            unittest.mock.patch.multiple(
                torch.cuda, Stream=stream, Event=event, stream=lambda stream: stand.use(stream), current_stream=lambda device=None: stand.current(),
                device=lambda device: contextlib.nullcontext(), cudart=lambda: cudart),
            unittest.mock.patch.object(torch.Tensor, "record_stream", lambda t, stream: made.append("record_stream")),
            unittest.mock.patch.object(torch.futures.Future, "__init__", lambda self, devices=None: made.append(f"Future {devices}") or init(self)),
        ]
        with contextlib.ExitStack() as stack:
            for p in patches:
                stack.enter_context(p)
            with _device.instead_of_host(_device.Cuda(torch.device("cpu"))):
                ps = parameters()
                state = pbox.torch.register(FakeDDP(ps), worker=0, workers=1, compress="bf16", **HERE)
                for p in ps:
                    p.grad = torch.full_like(p, 1.0)
                self.assertTrue((pbox.torch.hook(state, FakeBucket(list(ps))).wait() == 1).all())
                pinned = state._staging.pinned
                state.close()
                opt = pbox.torch.SGD(list(ps), 1.0, worker=0, workers=1, **HERE)
                opt.step()
                self.assertTrue(all(bool((p == -1).all()) for p in ps))
                opt.close()
                del state, opt
                gc.collect()
        return made, pinned

    def test_pinned(self):
        cudart = Cudart(0)
        made, pinned = self.calls(cudart)
        self.assertEqual({*made}, {"Stream", "Event", "record_stream", "Future [device(type='cpu')]"})
        self.assertGreater(pinned, 2 * sum(p.numel() for p in parameters()))
        for _ in range(100):
            if not cudart.registered:
                break
            time.sleep(0.05)
        self.assertEqual(cudart.registered, {})

    def test_not_pinned(self):
        for cudart in (Cudart(2), None):
            self.assertEqual(self.calls(cudart)[1], 0)
            self.close_all()


def slotted(device, n, rounds=3, **kw):
    """As stepped(), with 5 slots."""
    def worker(w):
        ps = list(parameters())
        opt = pbox.torch.SGD(ps, lr=0.1, momentum=0.9, slots=5, worker=w, workers=n, timeout=10.0, **HERE, **kw)
        out = []
        with contextlib.nullcontext() if device is None else device.in_order():
            for _ in range(rounds):
                ended = False
                while not ended:
                    at = opt.slot
                    g = torch.Generator().manual_seed(100 * opt.trained_rounds + at)
                    for i, p in enumerate(ps):
                        p.grad = None if (i, at) in ((1, 0), (1, 1), (2, 4)) else torch.randn(p.shape, generator=g)
                        if p.grad is not None and device is not None:
                            device.late(p.grad)
                    opt.step(samples=at + 1) if kw.get("op") == "weighted_mean" else opt.step()
                    ended = opt.round_ended
                out += [p.detach().clone() for p in ps]
        opt.close()
        return out, 0
    if device is None:
        return workers.run(n, worker)
    with device.instead_of_host():
        return workers.run(n, worker)


class Optimisers(Small):
    def compared(self, cls, **kw):
        want = stepped(None, cls, **kw)
        self.close_all()
        got = stepped(stand_in.StandIn(seconds=0.001), cls, **kw)
        self.assertTrue(same(want, got))
        self.assertEqual([s for _, s in want], [s for _, s in got])
        return got

    def test_kinds(self):
        for cls, kw in ((pbox.torch.SGD, {}), (pbox.torch.SGD, dict(momentum=0.9, nesterov=True)), (pbox.torch.Adam, {}),
                        (pbox.torch.AdamW, dict(clip_value=0.5))):
            self.compared(cls, **kw)
            self.close_all()

    def test_formats(self):
        for kw in (dict(push="bf16"), dict(pull="bf16"), dict(push="fp16", pull="fp16")):
            self.compared(pbox.torch.SGD, **kw)
            self.close_all()

    def test_channels_last(self):
        self.compared(pbox.torch.SGD, momentum=0.9, channels_last=True)

    def test_no_gradient_at_one_worker(self):
        self.compared(pbox.torch.SGD, unused=(0, 3))

    def test_weighted(self):
        self.compared(pbox.torch.SGD, op="weighted_mean")

    def test_slots(self):
        for n, kw in ((1, {}), (2, {}), (3, dict(op="weighted_mean")), (2, dict(push="bf16")), (2, dict(pull="bf16"))):
            want = slotted(None, n, **kw)
            self.close_all()
            self.assertTrue(same(want, slotted(stand_in.StandIn(seconds=0.001), n, **kw)))
            self.close_all()

    def test_eager(self):
        def trained(device):
            with device.instead_of_host() if device else contextlib.nullcontext(), device.in_order() if device else contextlib.nullcontext():
                ps = list(parameters()) + [torch.nn.Parameter(torch.ones(4, 3, 5, 5).to(memory_format=torch.channels_last))]
                opt = pbox.torch.Eager(torch.optim.SGD(ps, lr=0.1, momentum=0.9), worker=0, workers=1, **HERE)
                for step in range(4):
                    g = torch.Generator().manual_seed(step)
                    for p in ps:
                        p.grad = torch.randn(p.shape, generator=g)
                        if device:
                            device.late(p.grad)
                    opt.step()
                opt.refresh()
                pinned = device.pinned if device else 0
                opt.close()
            return [([p.detach().clone() for p in ps], 0)], pinned
        want, _ = trained(None)
        self.close_all()
        got, pinned = trained(stand_in.StandIn(seconds=0.001))
        self.assertTrue(same(want, got))
        self.assertGreater(pinned, 3 * 4 * sum(p.numel() for p in parameters()))

    def test_one_worker_has_inf(self):
        for _, skipped in self.compared(pbox.torch.SGD, momentum=0.9, infinite=2):
            self.assertEqual(skipped, 1)

    def test_deadline_then_success(self):
        p = torch.nn.Parameter(torch.zeros(3000))
        device = stand_in.StandIn(seconds=0.001)
        with device.instead_of_host():
            opt = pbox.torch.SGD([p, torch.nn.Parameter(torch.zeros(5))], 1.0, worker=0, workers=1, timeout=0.4, **HERE)
            p.grad = torch.ones(3000)
            self.lib.hold = True
            with self.assertRaises(pbox.PBoxDeadline):
                opt.step()
            self.lib.release()
            opt.wait()
            device.compute.synchronize()
            self.assertTrue((p == -1).all())

    def test_changed_outside(self):
        p = torch.nn.Parameter(torch.zeros(3000))
        device = stand_in.StandIn(seconds=0.001)
        with device.instead_of_host(), device.in_order():
            opt = pbox.torch.SGD([p], 1.0, worker=0, workers=1, **HERE)
            p.grad = torch.ones(3000)
            opt.step()
            p.data.add_(1)
            with self.assertRaisesRegex(pbox.PBoxInvalid, "changed outside"):
                opt.step()
            opt.push_parameters()
            opt.step()
            self.assertTrue((p == -1).all())

    def test_a_wait_that_is_left_out_is_found(self):
        want = stepped(None, pbox.torch.SGD)
        for forgets in ("synchronize", "wait_event"):
            self.close_all()
            self.assertFalse(same(want, stepped(stand_in.StandIn(forgets=forgets), pbox.torch.SGD)), forgets)


if __name__ == "__main__":
    unittest.main()
