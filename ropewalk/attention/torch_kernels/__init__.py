"""torch's fused attention kernels, checked before they are trusted, and the softmax around them."""
