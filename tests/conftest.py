"""Triton's kernels run in its interpreter where there is no GPU, which has to be settled before triton is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
