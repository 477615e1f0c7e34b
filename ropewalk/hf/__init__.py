"""Any causal language model of transformers: probed, extended, generated with. The only importer of transformers."""
