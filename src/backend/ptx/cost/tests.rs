//! Costs of schedules whose answers are known.
