"""One thread a process: small tensors gain nothing from more, and pytest-xdist already uses every core."""

import torch

torch.set_num_threads(1)
