# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The sums of a worker's slots along the tree of the job (doc/protocol.md R5.2a), as the slots come.

`a.grad += b` for slot after slot would be a sum from left to right, whose bits depend on which slots a
worker has. So gradients are taken away after each slot and added as a binary counter adds: two
sums of 2^l slots become one of 2^(l+1). Of k slots of one node at most log2 k + 1 sums are kept
at a time, and they are the tensors that autograd has made: nothing is allocated here. (Of gradients in memory of the program
the optimiser takes copies: see _owned.)
"""

from typing import List, Optional, Sequence, Tuple

import torch

# of each parameter; None: no slot had a gradient for it. Each slot of a node counts: an absent
# gradient is +0.0 in the sum, at each worker
Sums = List[Optional[torch.Tensor]]


def _plus(left: Optional[torch.Tensor], right: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """Into the left one, or into the one that is there."""
    if left is None:
        return None if right is None else right.add_(0.0)  # which makes -0.0 of a sum +0.0
    return left.add_(0.0 if right is None else right)


def merge(left: Tuple[Sums, int], right: Tuple[Sums, int]) -> Tuple[Sums, int]:
    sums, theirs = left[0], right[0]
    for i, other in enumerate(theirs):
        sums[i] = _plus(sums[i], other)
        theirs[i] = None  # its memory is free for the next backward pass
    return sums, left[1] + right[1]


class Tree:
    """The nodes [(first slot, number of slots)] that a worker brings; add() is called for each of
    their slots in order."""

    def __init__(self, nodes: Sequence[Tuple[int, int]]) -> None:
        self.nodes = tuple(nodes)
        self.clear()

    def clear(self) -> None:
        """Begin with the first slot."""
        self.done: List[Sums] = []  # of the nodes that are complete
        self.samples: List[int] = []
        self._stack: List[Tuple[Sums, int]] = []
        self._in_node = 0

    @property
    def complete(self) -> bool:
        return len(self.done) == len(self.nodes)

    @property
    def samples_in_node(self) -> int:
        """Of the node in progress, so far."""
        return sum(samples for _, samples in self._stack)

    @property
    def buffers(self) -> int:
        """How many sums are kept."""
        return len(self.done) + len(self._stack)

    def add(self, grads: Sums, samples: int = 1) -> None:
        """The next slot's gradients, which become this object's: they are changed."""
        assert not self.complete
        stack = self._stack
        stack.append((grads, samples))
        self._in_node += 1
        full = self._in_node
        while full % 2 == 0:  # two neighbours of the same level
            right = stack.pop()
            stack.append(merge(stack.pop(), right))
            full //= 2
        if self._in_node == self.nodes[len(self.done)][1]:
            self._end_node()

    def complete_with(self, i: int, grad: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        """What the node in progress has of tensor i when this is the gradient of its last slot, as add() would make it. The tree
        is as before; finish() ends the node."""
        value = grad
        for sums, _ in reversed(self._stack):
            left, sums[i] = sums[i], None
            # what autograd has made may have another owner: into the left one, or into a new one
            value = None if left is None and value is None else \
                value + 0.0 if left is None and value is not None else _plus(left, value)
        return value

    def finish(self, sums: Sums, samples: int) -> None:
        """The node in progress ends with these sums, complete_with() of each tensor; `samples` of its last slot."""
        self.done.append(sums)
        self.samples.append(self.samples_in_node + samples)
        self._stack, self._in_node = [], 0

    def cut(self, nodes: Sequence[Tuple[int, int]]) -> None:
        """Slots that were not added yet are others' now, or this worker's: nodes that are complete are those that they were, and the one in progress
        keeps its first slot."""
        done, stack = len(self.done), self._stack
        assert tuple(nodes[:done]) == self.nodes[:done]
        self.nodes = tuple(nodes)
        sizes = [1 << bit for bit in reversed(range(self._in_node.bit_length())) if self._in_node >> bit & 1]
        while stack and self.nodes[len(self.done)][1] == sizes[0]:  # what there is of it is a whole one
            sums, samples = stack.pop(0)
            self._in_node -= sizes.pop(0)
            self.done.append(sums)
            self.samples.append(samples)

    def _end_node(self) -> None:
        """A node that the number of slots cuts is the sum of what there is of its right half, and so on."""
        stack = self._stack
        while len(stack) > 1:
            right = stack.pop()
            stack.append(merge(stack.pop(), right))
        sums, samples = stack.pop()
        self.done.append(sums)
        self.samples.append(samples)
        self._in_node = 0


def separate(grads: Sums) -> None:
    """Gradients that share memory with one before get their own: the sum of one would change the
    other. (Autograd may give one tensor to two parameters that are added to each other.)"""
    spans = sorted((g.data_ptr(), g.numel() * g.element_size(), i)
                   for i, g in enumerate(grads) if g is not None and g.numel() > 0)
    end = 0
    for at, size, i in spans:
        if at < end:
            g = grads[i]
            assert g is not None
            grads[i] = g.clone()
        end = max(end, at + size)
