"""What is inside the models of the zoo: what logits are made of, entropy of attention, reach of windows; and claims."""
