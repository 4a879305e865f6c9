# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""What the box computes, operation by operation, in torch and in one process.

For proofs and tests: every product, sum and quotient below is a torch operation of its own, so
each is rounded once, as on the box (doc/protocol.md R5.2, doc/optimisers.md). torch.optim itself
fuses some of them into multiply-adds where the CPU can, and so differs in the last bit.
"""

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ._blocks import Compressed, Fragment, Pushed, Replica, fragments_of, nodes_of, sent
from ._norm import SKIP, coefficient, number
from ._slots import Slots, SlotTraining
from ._stale import Stale, quarters_of


def fp32(x: float) -> float:
    """x rounded to fp32."""
    return torch.tensor(x, dtype=torch.float64).to(torch.float32).item()


def tree_sum(parts: Dict[int, torch.Tensor], first: int = 0,
             slots: int = 4096) -> Optional[torch.Tensor]:
    """The sum of a node of the tree over the slots: of each half that is there, added to each
    other. Of the leaves that are there `parts` has the values, by slot."""
    if slots == 1:
        return parts.get(first)
    there = [s for s in parts if first <= s < first + slots]
    if len(there) < 2:
        return parts[there[0]] if there else None
    half = slots // 2
    left, right = tree_sum(parts, first, half), tree_sum(parts, first + half, half)
    if left is None or right is None:
        return right if left is None else left
    return left + right


def tree_reduce(contributions: Sequence[torch.Tensor], op: str = "mean",
                samples: Optional[Sequence[int]] = None,
                slots: Optional[Sequence[int]] = None) -> torch.Tensor:
    """The contributions of slots 0, 1, ... (or of these) reduced along the tree in fp32."""
    n = len(contributions)
    weights = list(samples) if samples is not None else [1] * n
    parts = [c.to(torch.float32) for c in contributions]
    if op == "weighted_mean":
        # of no samples the mean may be NaN, and counts for nothing
        parts = [p * float(w) if w else torch.zeros_like(p) for p, w in zip(parts, weights)]
    total = tree_sum(dict(zip(slots if slots is not None else range(n), parts)))
    assert total is not None, "no contributions"
    if op == "sum":
        return total.clone()
    count = n if op == "mean" else sum(weights)
    return total * fp32(1.0 / count if count else 0.0)


def square_sum(grads: Sequence[torch.Tensor], max_norm: float = 0.0) -> Tuple[float, int]:
    """The sum of all squares as the box has it (R6.15), whole numbers of 2^-80 x 4^e, and how many elements are none."""
    e = math.frexp(max_norm)[1] - (math.frexp(max_norm)[0] == 0.5) if max_norm else 0
    total, non_finite = 0, 0
    for g in grads:
        y = (g.detach().to(torch.float64) * 2.0 ** (40 - e)).abs().flatten()
        good = y <= 2.0 ** 95
        non_finite += int((~good).sum())
        y = y[good]
        small = y < 2.0 ** 31
        q = (y[small] * y[small]).floor()
        high = (q / 2.0 ** 31).floor()
        total += (int(high.to(torch.int64).sum()) << 31) + int((q - high * 2.0 ** 31).to(torch.int64).sum())
        total += sum(int(v) * int(v) if v.is_integer() else int(v * v) for v in y[~small].tolist())
    non_finite += total >> 192 > 0  # more than the sum has bits for
    words, square = [total >> 64 * i & (1 << 64) - 1 for i in range(3)], 0.0
    for w in reversed(words):
        square = square * 2.0 ** 64 + float(w)
    return math.ldexp(square, 2 * e - 80), non_finite


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit: unlike torch.equal, 0.0 is not -0.0 and a NaN equals itself."""
    return a.shape == b.shape and torch.equal(
        a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


_State = Dict[str, torch.Tensor]


def _momentum(p: torch.Tensor, d: torch.Tensor, s: _State, h: Dict[str, Any], t: int,
              nesterov: bool) -> torch.Tensor:
    if h["momentum"] == 0:
        s.setdefault("b", torch.zeros_like(d))
        return p - d * fp32(h["lr"])
    m = fp32(h["momentum"])
    s["b"] = d.clone() if t == 1 else s["b"] * m + d * fp32(1.0 - h["dampening"])
    return p - (d + s["b"] * m if nesterov else s["b"]) * fp32(h["lr"])


def _adam(p: torch.Tensor, d: torch.Tensor, s: _State, h: Dict[str, Any],
          t: int) -> torch.Tensor:
    b1, b2 = h["beta1"], h["beta2"]
    zero = torch.zeros_like(d)
    s["m"] = s.get("m", zero) * fp32(b1) + d * fp32(1.0 - b1)
    s["v"] = s.get("v", zero) * fp32(b2) + (d * fp32(1.0 - b2)) * d
    step = fp32(h["lr"] / (1.0 - b1 ** t))
    root = fp32(math.sqrt(1.0 - b2 ** t))
    return p - (s["m"] * step) / (s["v"].sqrt() / root + fp32(h["eps"]))


def update(kind: str, p: torch.Tensor, g: torch.Tensor, state: _State, hyper: Dict[str, Any],
           t: int) -> torch.Tensor:
    """Parameters after step t = 1, 2, ... of an optimiser ("sgd", "momentum", "nesterov",
    "adam", "adamw"); `state` is kept between the steps of a tensor."""
    wd = hyper["weight_decay"]
    if hyper.get("maximize"):
        g = -g
    if hyper.get("clip_value"):
        c = fp32(hyper["clip_value"])
        g = g.clamp(-c, c)
    if kind == "adamw":
        return _adam(p * fp32(1.0 - hyper["lr"] * wd), g, state, hyper, t)
    d = g + p * fp32(wd) if wd != 0 else g
    if kind == "adam":
        return _adam(p, d, state, hyper, t)
    if kind == "sgd":
        return p - d * fp32(hyper["lr"])
    return _momentum(p, d, state, hyper, t, kind == "nesterov")


class Reference(SlotTraining, torch.optim.Optimizer):
    """An optimiser of torch.optim's form that makes the box's steps in this process, from the
    parameters' grads. With `slots` it trains all of them itself, one after the other, as the optimisers
    of pbox.torch do with theirs: step() ends a slot, and makes the step of the round with the last one. The sum
    is tree_reduce of all gradients at once, so it needs memory for them all.

    pull  "int8" or "mxfp4": the parameters are what workers have of them, and the box's are kept beside
          them. What results say depends on the fragments: `fragments` has them (fragments_of).
    push  "int8" or "mxfp4", with slots: as `workers` workers push their nodes. Of a job without slots these are as many as
          workers. `fragments` as for pull.
    compress  (round, format of pushes, format of results) from which rounds on they are fp32, or `push` and `pull`: `compressed` of the optimisers of
          pbox.torch."""

    def __init__(self, kind: str, params: Any, *, slots: Optional[int] = None, op: str = "mean",
                 ahead: float = 0.0, max_norm: Optional[float] = None, skip_nonfinite: bool = False, pull: str = "fp32",
                 push: str = "fp32", workers: int = 1, fragments: Sequence[Fragment] = (), compress: Sequence[Tuple[int, str, str]] = (),
                 **hyper: float) -> None:
        adam = kind in ("adam", "adamw")
        defaults = dict(lr=1e-3 if adam else None, momentum=0.0, dampening=0.0,
                        weight_decay=0.01 if kind == "adamw" else 0.0, beta1=0.9, beta2=0.999,
                        eps=1e-8, clip_value=0.0, maximize=False)
        defaults.update(hyper)
        super().__init__(params, defaults)
        self.kind = kind
        self.max_norm, self.skip_nonfinite = number(max_norm), skip_nonfinite
        self.grad_norm, self.skipped_nonfinite = math.nan, 0
        self._compress = list(compress)
        self._steps = 0
        self._since = [0] * len(self.param_groups)  # steps before the group was added
        self._op = op
        every = [p for group in self.param_groups for p in group["params"]]
        self._box: Dict[torch.Tensor, torch.Tensor] = {p: p.detach().clone() for p in every} if pull != "fp32" else {}
        self._replica = Replica(pull, fragments, [p.data for p in every], list(self._box.values())) if self._box else None
        self._parts: Dict[torch.nn.Parameter, List[torch.Tensor]] = {}
        self._samples: List[int] = []
        self._pushed: Optional[Pushed] = None
        if push != "fp32":
            if slots is None:
                raise ValueError("push= is for slots=: of a job without slots these are as many as workers")
            self._pushed = Pushed(push, fragments, [p.numel() for p in every],
                                  [nodes_of(w * slots // workers, (w + 1) * slots // workers, slots) for w in range(workers)])
        if slots is not None:
            self._slots = Slots(slots, range(slots))
        if slots is not None and ahead:
            self._stale = Stale(quarters_of(ahead), [p for group in self.param_groups for p in group["params"]])
            self._stale.begins()
            self._slots = Slots(slots, self._stale.order(range(slots)))

    leads = True  # it is alone

    def _is_fp32(self, way: int) -> bool:
        """In the round of this step: pushes (1) or results (2)?"""
        held = [c for c in self._compress if c[0] <= self._steps + (way == 1)]
        return bool(self._compress) and (not held or held[-1][way] == "fp32")

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if hasattr(self, "_since") and self._replica is not None:
            raise ValueError("a group that is added has a table, and so fragments, of its own: pass all groups to the constructor with pull=")
        super().add_param_group(param_group)
        if hasattr(self, "_since"):
            self._since.append(self._steps)

    def agree(self, value: float = 0.0, timeout: Optional[float] = None) -> float:
        return float(value)

    def close(self) -> None:
        """Nothing: as the optimisers of pbox.torch have it."""

    def _take(self, samples: int) -> bool:
        """Put the gradients of a slot away. Was it the last one? Then the parameters get those of the round."""
        assert self._slots is not None
        last = self._slots.last
        self._samples.append(samples)
        for group in self.param_groups:
            for p in group["params"]:
                g = torch.zeros_like(p) if p.grad is None else p.grad.clone()
                self._parts.setdefault(p, []).append(g)
                p.grad = tree_reduce(self._parts[p], self._op, self._samples, self._slots.mine) if last and self._pushed is None else None
        if last and self._pushed is not None:
            self._take_pushed(self._pushed)
        self._slots.count += 1
        if not last:
            self._slots.prepare()
        return last

    def _take_pushed(self, pushed: Pushed) -> None:
        """The gradients of a round are what workers have said of their nodes."""
        assert self._slots is not None
        every = list(self._parts)
        if self._op == "weighted_mean":
            for parts in self._parts.values():
                parts[:] = [p * float(w) if w else torch.zeros_like(p) for p, w in zip(parts, self._samples)]
        slots = [dict(zip(self._slots.mine, self._parts[p])) for p in every]
        said: List[Dict[int, torch.Tensor]] = [{} for _ in every]
        for w, nodes in enumerate(pushed.nodes):
            for first, n in nodes:
                sums = [tree_sum({s: of[s] for s in range(first, first + n)}) for of in slots]
                values = [v.reshape(-1).clone() for v in sums if v is not None]
                if not self._is_fp32(1):
                    pushed.said(w, values)
                for into, v in zip(said, values):
                    into[first] = v
        count = sum(self._samples) if self._op in ("sample_mean", "weighted_mean") else self._slots.total if self._op == "mean" else 0
        for p, of in zip(every, said):
            total = tree_sum(of)
            assert total is not None
            p.grad = (total if self._op == "sum" else total * fp32(1.0 / count if count else 0.0)).reshape(p.shape)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None, *, samples: int = 1) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._stale is not None:
            self._stale.ended = False
        if self._slots is not None:
            self._begin_slot()
            if not self._take(samples):
                return loss
        self._steps += 1
        if self._stale is not None:
            self._stale.show(self._stale.newest)
        by = self._coefficient()
        self._steps -= by == SKIP
        for group, since in zip(self.param_groups, self._since) if by != SKIP else ():
            params: List[torch.nn.Parameter] = group["params"]
            for p in params:
                g = p.grad if p.grad is not None else torch.zeros_like(p)
                g = g if by == 1 else g * by
                box = self._box.get(p, p)
                box.copy_(update(self.kind, box.data, g, self.state[p], group, self._steps - since))
        if self._replica is not None and self._is_fp32(2):
            for p, box in self._box.items():
                p.copy_(box)
        elif self._replica is not None:
            self._replica.follow()
        if self._slots is not None:
            for p in self._parts:
                p.grad = None
            self._parts.clear()
            self._samples.clear()
            self._slots.end_round()
            self._end_stale()
            self._catch_up(0)
        return loss

    def _coefficient(self) -> float:
        """What the gradient of the round is multiplied by."""
        if self.max_norm is None and not self.skip_nonfinite:
            return 1.0
        max_norm = self.max_norm or 0.0
        square, non_finite = square_sum([p.grad for group in self.param_groups for p in group["params"] if p.grad is not None], max_norm)
        self.grad_norm = math.sqrt(square) if non_finite == 0 else math.inf
        if non_finite == 0:
            return coefficient(self.grad_norm, max_norm)
        assert self.skip_nonfinite, f"{non_finite} elements are not finite"
        self.skipped_nonfinite += 1
        return SKIP

    def _end_stale(self) -> None:
        if self._stale is not None:
            for into, p in zip(self._stale.buffers(), (p for group in self.param_groups for p in group["params"])):
                into.copy_(p)
            self._stale.result_is_here()
            self._stale.ended = True
