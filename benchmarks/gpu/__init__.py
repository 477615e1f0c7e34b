"""Everything about a GPU that can be measured, in one resumable command: `make gpu` (docs/performance.md)."""
