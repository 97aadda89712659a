//! What a run means, where several readers must agree: one home for each fact.

pub mod communication;
