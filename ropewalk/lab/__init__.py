"""The lab: corpora, training, recipes. Train short, test long."""
