//! Costs of steps in traces that were made for it.
